"""Replacing the values of a column in place: fragments keep their ids and rows, one column moves to a new data file.

The fragment then lists both files: the column of the old one is marked dead (field id -2), the new one has the field's
id. pylance removes the fragment from every index on a field that the commit lists as modified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import DataFile, FragmentMetadata, write_fragments
from pyroaring import BitMap

from pennon.errors import CommitConflict, InvalidArgument, UnsupportedColumn, UnsupportedTable
from pennon.format.commit import commit_operation
from pennon.format.failures import answering
from pennon.format.fragments import Fragment
from pennon.format.named_files import DATA, delete_unless_named
from pennon.format.pb import lance_pb2 as pb
from pennon.format.row_ids import live_offsets
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Store

NO_PARENT = -1
REPLACED = -2
UNLIMITED_ROWS = 1 << 31
UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True)
class ColumnFile:
    """New values of a column of one fragment, in a file that no version of the table names yet.

    `fields` are the column's field id and those nested in it; `replaces` names the files that held them when they were
    read.
    """

    read_version: int
    fragment: int
    fields: tuple[int, ...]
    replaces: Mapping[int, str] = field(repr=False)
    file: DataFile = field(repr=False)


def write_column_file(pin: Pin, fragment: int, column: str, values: Iterable[pa.Array]) -> ColumnFile:
    """Write the values of a top-level column for the live rows of a fragment, in the order a scan returns them.

    Values may come in pieces of any size. Deleted rows need a value in the file too; they repeat that of a neighbor.
    """
    snapshot = pin.open()
    current = snapshot.manifest.fragments.get(fragment)
    if current is None:
        raise InvalidArgument(f"{snapshot.uri} has no fragment {fragment} in version {pin.version}")
    tree = _fields_of(snapshot, column)
    schema = pa.schema([snapshot.schema.field(tree[0].name)])
    file = _write(snapshot, schema, _expanded(snapshot, current, schema, values))
    fields = tuple(f.id for f in tree)
    held = {f: path for f, path in current.field_files.items() if f in fields}
    return ColumnFile(pin.version, fragment, fields, held, _renumbered(file, tree, snapshot))


def commit_column_update(base: Snapshot, files: Sequence[ColumnFile]) -> Snapshot:
    """Commit new files of one column; from then on no index of the column covers their fragments.

    Rows deleted since the files were written stay deleted. A fragment that was compacted away, or whose column another
    writer replaced, makes the commit fail with a `CommitConflict`.
    """
    _check(base, files)
    operation = lance.LanceOperation.Update(
        updated_fragments=[_with_new_file(base, file) for file in files],
        fields_modified=sorted(files[0].fields),
        update_mode="rewrite_columns",
        updated_fragment_offsets=_all_rows(base, files) if base.manifest.has_stable_row_ids else None,
    )
    return commit_operation(base, operation)


def discard_column_file(store: Store, written: ColumnFile) -> None:
    """Delete a file that will not be committed."""
    delete_unless_named(store, {f"{DATA}/{written.file.path}"}, written.read_version)


def _fields_of(snapshot: Snapshot, path: str) -> list[pb.Field]:
    """A top-level column and everything nested in it, parents before children, which is their order in files."""
    column = snapshot.column(path)
    children: dict[int, list[pb.Field]] = {}
    for proto in snapshot.manifest.fields:
        children.setdefault(proto.parent_id, []).append(proto)
    root = next((f for f in children.get(NO_PARENT, []) if f.id == column.field_id), None)
    if root is None:
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} is part of another column", "Replace the whole top-level column"
        )

    def walk(parent: pb.Field) -> Iterator[pb.Field]:
        yield parent
        for child in children.get(parent.id, []):
            yield from walk(child)

    return list(walk(root))


def _write(snapshot: Snapshot, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> DataFile:
    """Write a data file of one column as if it were a separate table: fields are numbered from 0. Nothing is
    committed."""
    failures: list[Exception] = []

    def noting_failures() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            failures.append(error)
            raise

    try:
        with answering(f"a data file of {snapshot.uri}"):
            [written] = write_fragments(
                pa.RecordBatchReader.from_batches(schema, noting_failures()),
                snapshot.location.uri,
                schema,
                mode="overwrite",
                max_rows_per_file=UNLIMITED_ROWS,
                max_bytes_per_file=UNLIMITED_BYTES,
                data_storage_version=snapshot.dataset.data_storage_version,
                storage_options=snapshot.location.storage_options,
            )
    except OSError:
        # pylance turns an error of the values into text.
        if failures:
            raise failures[0] from None
        raise
    [file] = written.files
    return file


def _expanded(
    snapshot: Snapshot, fragment: Fragment, schema: pa.Schema, values: Iterable[pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Expand values of live rows to one value per physical row."""
    live = live_offsets(fragment, snapshot.deleted_offsets(fragment.id))
    [target] = schema
    where = f"column {target.name!r} of fragment {fragment.id} of {snapshot.uri}"
    start = 0
    for piece in values:
        if piece.type != target.type:
            raise InvalidArgument(f"{where} is {target.type}, not {piece.type}", "Cast the values")
        if piece.null_count and not target.nullable:
            raise InvalidArgument(f"{where} cannot hold NULL")
        stop = start + len(piece)
        if stop > len(live):
            break
        if stop > start:
            first = 0 if start == 0 else int(live[start])
            end = fragment.physical_rows if stop == len(live) else int(live[stop])
            rows = np.arange(first, end, dtype=np.uint64)
            places = np.maximum(np.searchsorted(live, rows, "right") - 1, start) - start
            dense = len(rows) == len(piece)
            yield pa.record_batch([piece if dense else piece.take(pa.array(places))], schema=schema)
        start = stop
    if start != len(live):
        raise InvalidArgument(f"{where} has {len(live)} live rows", "Pass one value for each")


def _renumbered(file: DataFile, tree: Sequence[pb.Field], snapshot: Snapshot) -> DataFile:
    """The file with the field ids of the table. Newer files list only the fields with a column."""
    if file.file_major_version < 2:
        raise UnsupportedTable(f"{snapshot.uri} has data files of the legacy format", "Rewrite it as a newer table")
    parents = {f.parent_id for f in tree}
    listed = tree if len(file.fields) == len(tree) else [f for f in tree if f.id not in parents]
    if len(listed) != len(file.fields):
        raise UnsupportedColumn(f"column {tree[0].name!r} of {snapshot.uri} has a layout that Pennon does not support")
    return _with_fields(file, [f.id for f in listed])


def _check(base: Snapshot, files: Sequence[ColumnFile]) -> None:
    if len({file.fields for file in files}) != 1 or len({file.fragment for file in files}) != len(files):
        raise InvalidArgument("a column update replaces one column, once in each fragment")
    for file in files:
        current = base.manifest.fragments.get(file.fragment)
        held = None if current is None else {f: p for f, p in current.field_files.items() if f in file.fields}
        if held != file.replaces or base.columns.by_id(file.fields[0]) is None:
            raise CommitConflict(
                f"fragment {file.fragment} of {base.uri} was compacted or deleted, or its column replaced by another"
                " writer, while new values were written",
                "Nothing was committed; run the job again",
            )


def _with_new_file(base: Snapshot, new: ColumnFile) -> FragmentMetadata:
    fragment = base.dataset.get_fragment(new.fragment)
    assert fragment is not None
    kept = [_with_fields(f, [REPLACED if i in new.fields else i for i in f.fields]) for f in fragment.metadata.files]
    files = [*(f for f in kept if any(i >= 0 for i in f.fields)), new.file]
    return dataclasses.replace(fragment.metadata, files=files)


def _with_fields(file: DataFile, fields: list[int]) -> DataFile:
    return DataFile(
        file.path,
        fields,
        file.column_indices,
        file.file_major_version,
        file.file_minor_version,
        file.file_size_bytes,
        file.base_id,
    )


def _all_rows(base: Snapshot, files: Sequence[ColumnFile]) -> dict[int, bytes]:
    """The rows that count as updated in this version."""
    rows = {file.fragment: base.manifest.fragments[file.fragment].physical_rows for file in files}
    return {fragment: BitMap(range(count)).serialize() for fragment, count in rows.items()}
