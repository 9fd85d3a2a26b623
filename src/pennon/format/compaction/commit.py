"""Committing rewritten fragments, with or without their indices.

pylance compares a commit only with what happened after the version given as its base. Rewritten data may be based on
any version in which its old fragments are as they were when they were read. That is checked here, and a commit takes
the newest version as its base; conflicts after that are for pylance to detect.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
from collections.abc import Iterable, Sequence, Set
from typing import Any

import lance
import lance.optimize
from lance.fragment import FragmentMetadata
from pyroaring import BitMap, FrozenBitMap

from pennon.errors import CommitConflict, InvalidArgument, UnsupportedTable
from pennon.events import Event, EventKind, emit
from pennon.format.commit import RetryableConflict, commit_operation, commit_segments, raise_conflict
from pennon.format.compaction.execute import Rewritten
from pennon.format.compaction.plan import data_files
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import FLAG_TAGGED_REUSE
from pennon.format.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Ids left free below those of remapped fragments, for writers that append while index files are being written. If such
# a writer takes one of the ids, those files are useless.
SPARE_IDS = 1024
# The type stubs of pylance leave parts of this module out.
_native: Any = lance.optimize


def remappable_at_once(rewritten: Iterable[Rewritten], coverages: Sequence[BitMap | FrozenBitMap]) -> bool:
    """Whether `commit_remapped` can replace segments of these (effective) coverages: each must cover a group wholly or
    not at all. Otherwise the way is `commit_dropping`, followed by a commit of the segments."""
    return all(not (ids & c) or ids <= c for ids in (group.old_ids for group in rewritten) for c in coverages)


def commit_deferred(base: Snapshot, rewritten: Sequence[Rewritten]) -> Snapshot:
    """Replace the fragments; the Fragment Reuse Index records where rows went, and index files stay as they are."""
    if base.manifest.has_stable_row_ids:
        raise UnsupportedTable(
            f"{base.uri} has stable row ids, and Lance cannot use a Fragment Reuse Index there",
            "Remap its indices at once",
        )
    _check_valid(base, rewritten)
    # Compaction.commit updates the handle it is given to the new version.
    handle = Snapshot.open(base.location, base.version).dataset
    results = [_native.RewriteResult.from_json(json.dumps(_result(base, group))) for group in rewritten]
    try:
        _native.Compaction.commit(handle, results, {"defer_index_remap": True})
    except (OSError, ValueError, RuntimeError) as error:
        raise_conflict(base, error)
    return Snapshot.of(base.location, handle)


def commit_dropping(base: Snapshot, rewritten: Sequence[Rewritten]) -> Snapshot:
    """Replace the fragments. No index covers the new ones, except those with stable row ids."""
    if base.manifest.has_stable_row_ids and any(f.id is None for group in rewritten for f in group.new):
        # Lance extends the coverage of indices to the ids it is given; without ids, to fragment 0.
        rewritten = assign_fragment_ids(base, rewritten)
    return commit_remapped(base, rewritten, ())


def commit_remapped(
    base: Snapshot, rewritten: Sequence[Rewritten], replacements: Sequence[tuple[IndexSegment, IndexSegment]]
) -> Snapshot:
    """Replace the fragments and, in the same transaction, segments (old, new): a new one covers the new fragments of
    what the old one covered. Segments that are not replaced lose the fragments.

    If another compaction replaces an old segment during the commit, pylance leaves the new one out: it is not in the
    returned snapshot, and its fragments are not covered.
    """
    if base.manifest.reader_flags & FLAG_TAGGED_REUSE:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {base.uri} has the newer tagged form, with which Lance remaps nothing",
            "Defer the remapping of its indices",
        )
    if replacements and any(f.id is None for group in rewritten for f in group.new):
        raise InvalidArgument("index files cannot name rows of fragments that have no ids yet", "Assign them first")
    _check_valid(base, rewritten)
    present = {s.uuid for s in base.manifest.segments}
    for old, _ in replacements:
        if old.uuid not in present:
            raise RetryableConflict(
                f"segment {old.uuid} of index {old.name!r} of {base.uri} was replaced", "Remap its successor"
            )
    base = _unstraddled(base, rewritten, {old.uuid for old, _ in replacements})
    groups = [
        lance.LanceOperation.RewriteGroup(_old_metadata(base, group), [f.to_lance() for f in group.new])
        for group in rewritten
    ]
    indices = [
        lance.LanceOperation.RewrittenIndex(old.uuid, new.uuid, new.type_url, new.details, new.index_version)
        for old, new in replacements
    ]
    return commit_operation(base, lance.LanceOperation.Rewrite(groups, indices))


def still_valid(base: Snapshot, rewritten: Rewritten) -> bool:
    """Whether the old fragments are in `base` exactly as they were read: no row deleted, no column changed."""
    for old in rewritten.old:
        now = base.manifest.fragments.get(old.id)
        if now is None or data_files(now) != old.files or now.deletion_file != old.deletion_file:
            return False
    return True


def assign_fragment_ids(base: Snapshot, rewritten: Iterable[Rewritten], spare: int = SPARE_IDS) -> list[Rewritten]:
    """Give the new fragments ids no fragment of `base` ever had, so that index files can name their rows.

    pylance cannot reserve ids. `spare` to twice as many ids are left free for concurrent appends and compactions; if an
    id is taken nevertheless, the commit fails with a `RetryableConflict`.
    """
    highest = max([base.manifest.max_fragment_id, *base.manifest.fragments])
    following = highest + 1 + (spare + secrets.randbelow(spare) if spare else 0)
    assigned: list[Rewritten] = []
    for group in rewritten:
        new = tuple(dataclasses.replace(f, id=following + i) for i, f in enumerate(group.new))
        following += len(new)
        assigned.append(dataclasses.replace(group, new=new))
    return assigned


def _check_valid(base: Snapshot, rewritten: Sequence[Rewritten]) -> None:
    changed = [f.id for group in rewritten if not still_valid(base, group) for f in group.old]
    if changed:
        raise CommitConflict(
            f"fragments {changed} of {base.uri} were changed, deleted or compacted by others while they were rewritten",
            "Nothing was committed of them; run the compaction again",
        )


def _unstraddled(base: Snapshot, rewritten: Sequence[Rewritten], replaced: Set[str]) -> Snapshot:
    """A version in which no segment that stays covers part of a group.

    Indices by stable row id keep covering the rows in their new fragments, which Lance refuses for part of a group.
    Planning avoids that, but an index may have been added since.
    """
    if not base.manifest.has_stable_row_ids:
        return base
    pruned: list[IndexSegment] = []
    for segment in base.manifest.user_segments:
        halves = [group.old_ids for group in rewritten if not remappable_at_once([group], [segment.fragments])]
        if halves and segment.uuid not in replaced:
            pruned.append(dataclasses.replace(segment, fragments=segment.fragments.difference(*halves)))
    if not pruned:
        return base
    committed, change = commit_segments(base, pruned, []), "drop coverage of parts of the fragments to be compacted"
    message = f"committed version {committed.version} of {committed.uri}: {change}"
    names = tuple(sorted({segment.name for segment in pruned}))
    counts = {"segments": len(pruned)}
    emit(logger, logging.INFO, Event(EventKind.COMMIT, base.uri, message, names, committed.version, counts))
    return committed


def _old_metadata(base: Snapshot, group: Rewritten) -> list[FragmentMetadata]:
    fragments = [base.dataset.get_fragment(f.id) for f in group.old]
    return [f.metadata for f in fragments if f is not None]


def _result(base: Snapshot, group: Rewritten) -> dict[str, Any]:
    """A RewriteResult as pylance's JSON, as if it had been computed at `base`."""
    metrics = {
        "fragments_removed": len(group.old),
        "fragments_added": len(group.new),
        "files_removed": sum(len(f.files) + (f.deletion_file is not None) for f in group.old),
        "files_added": sum(len(f.files) for f in group.new),
    }
    return {
        "metrics": metrics,
        "new_fragments": [f.to_lance().to_json() for f in group.new],
        "read_version": base.version,
        "original_fragments": [m.to_json() for m in _old_metadata(base, group)],
        "row_addrs": list(group.survivors),
    }
