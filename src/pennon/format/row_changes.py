"""Commit deleted, moved and new rows in one transaction.

A row changes by a mark in the deletion vector of its fragment and a new row in a new fragment. Lance checks that no
other writer changed the same fragments since `base`, but lets an append pass. A change that must not pass an append,
because it inserts keys that `base` does not have, is committed as the version after `base` or not at all. Where the
table's address does not allow that (`exact_commit`), it is committed as a `Merge` operation, which names every fragment
of the table and conflicts with every change of rows since `base`; with `preserves_nullability`, later appends
do not conflict with it. Lance refuses a `Merge` that moves row ids or drops fragments.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import lance
from lance.fragment import DeletionFile as LanceDeletionFile
from lance.fragment import FragmentMetadata, RowIdSequence

from pennon.errors import DamagedTable, UnsupportedTable
from pennon.format.commit import commit_operation
from pennon.format.deletion_files import WrittenDeletion, write_full_deletion
from pennon.format.fragments import DeletionFile
from pennon.format.named_files import DATA, delete_unless_named
from pennon.format.row_ids import RowIds
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

ROWS_MODE = "rewrite_rows"


@dataclass(frozen=True)
class NewFragment:
    """A fragment that no version names yet. `metadata` is pylance's, as JSON; `row_ids` are those of its first rows,
    which they had elsewhere, on a table with stable row ids. The other rows get ids by the commit."""

    metadata: str
    row_ids: RowIds | None = None

    @property
    def rows(self) -> int:
        return int(json.loads(self.metadata)["physical_rows"])

    @property
    def files(self) -> set[str]:
        return {f"{DATA}/{file.path}" for file in FragmentMetadata.from_json(self.metadata).files}

    @property
    def size_bytes(self) -> int:
        """The size of the data files."""
        return sum(int(file.get("file_size_bytes") or 0) for file in json.loads(self.metadata)["files"])

    def to_lance(self) -> FragmentMetadata:
        found = FragmentMetadata.from_json(self.metadata)
        if self.row_ids is None or not len(self.row_ids):
            return found
        return dataclasses.replace(found, row_id_meta=RowIdSequence(self.row_ids.tolist()).to_inline_metadata())


def commit_deletions(base: Snapshot, deletions: Sequence[WrittenDeletion], predicate: str) -> Snapshot:
    """Commit deletion vectors that were written for `base`."""
    operation = lance.LanceOperation.Delete(
        updated_fragments=_marked(base, deletions), deleted_fragment_ids=_emptied(deletions), predicate=predicate
    )
    return commit_operation(base, operation)


def commit_moved_rows(
    base: Snapshot, deletions: Sequence[WrittenDeletion], fragments: Iterable[NewFragment]
) -> Snapshot:
    """Commit deletion vectors, and fragments with rows in place of those. Other writers may append at the same time."""
    return commit_operation(base, _update(base, deletions, fragments))


def commit_inserted_rows(
    base: Snapshot, deletions: Sequence[WrittenDeletion], fragments: Iterable[NewFragment]
) -> Snapshot:
    """Commit the same, and new rows among them, only if no writer has added or changed a row since `base`."""
    # Imports hundreds of pydantic classes, which takes a second: `import pennon` does not.
    from pennon.format.exact_commit import NoExactCommits, commit_exactly, has_exact_commits  # noqa: PLC0415

    fragments = list(fragments)
    if has_exact_commits(base):
        with suppress(NoExactCommits):
            return commit_exactly(base, _update(base, deletions, fragments))
    if base.manifest.has_stable_row_ids:
        raise UnsupportedTable(
            f"{base.uri} has stable row ids, and rows can be inserted into such a table by key only if its address is"
            " a plain name that ends in .lance, in a store with conditional copies",
            "Rename the directory of the table, or append the new rows",
        )
    deletions = [each if each.file else write_full_deletion(base, each.fragment) for each in deletions]
    updated = {fragment.id: fragment for fragment in _marked(base, deletions)}
    kept = [_metadata(base, fragment) for fragment in base.manifest.fragments]
    merged = [updated.get(fragment.id, fragment) for fragment in kept]
    # Lance numbers new fragments itself if they have the number 0, but a fragment 0 may be there.
    first = base.manifest.max_fragment_id + 1
    new = [dataclasses.replace(each.to_lance(), id=first + place) for place, each in enumerate(fragments)]
    operation = lance.LanceOperation.Merge(merged + new, base.dataset.lance_schema, preserves_nullability=True)
    return commit_operation(base, operation)


def discard_fragments(store: Store, fragments: Iterable[NewFragment], read_version: int) -> None:
    """Delete the files of fragments that were not committed."""
    written = {path for fragment in fragments for path in fragment.files}
    if written:
        delete_unless_named(store, written, read_version)


def _update(
    base: Snapshot, deletions: Sequence[WrittenDeletion], fragments: Iterable[NewFragment]
) -> lance.LanceOperation.Update:
    return lance.LanceOperation.Update(
        removed_fragment_ids=_emptied(deletions),
        updated_fragments=_marked(base, deletions),
        new_fragments=[fragment.to_lance() for fragment in fragments],
        # An index on any other field would be taken to cover the new fragments.
        fields_for_preserving_frag_bitmap=sorted(field.id for field in base.manifest.fields),
        update_mode=ROWS_MODE,
    )


def _marked(base: Snapshot, deletions: Sequence[WrittenDeletion]) -> list[FragmentMetadata]:
    return [
        dataclasses.replace(_metadata(base, deletion.fragment), deletion_file=_to_lance(deletion.file))
        for deletion in deletions
        if deletion.file is not None
    ]


def _emptied(deletions: Sequence[WrittenDeletion]) -> list[int]:
    return [deletion.fragment for deletion in deletions if deletion.file is None]


def _metadata(base: Snapshot, fragment: int) -> FragmentMetadata:
    found = base.dataset.get_fragment(fragment)
    if found is None:
        raise DamagedTable(f"{base.uri} has no fragment {fragment}, which its manifest lists")
    return found.metadata


def _to_lance(file: DeletionFile) -> LanceDeletionFile:
    form = "bitmap" if file.is_bitmap else "array"
    return LanceDeletionFile(file.read_version, file.id, form, file.num_deleted_rows, file.base_id)
