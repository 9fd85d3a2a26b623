"""Commit an index change so that it is correct regardless of other writers' changes since the data was read.

A stored (value, address) pair is correct while the column of the fragment is in the same data file as when it was
scanned. So coverage is checked by file, against the newest version before the commit and the committed one after it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyroaring import BitMap, FrozenBitMap

from pennon.errors import CommitConflict, CoverageWarning, DamagedFile, TableNotFound
from pennon.events import Event, EventKind, emit
from pennon.format.commit import commit_segments
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import read_manifest
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage, trusted_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import kind_of
from pennon.jobs.shared.changes import Change, DropIndex, SegmentChange
from pennon.jobs.shared.retry import attempts
from pennon.jobs.shared.stale_values import newly_shared
from pennon.wording import plural

logger = logging.getLogger(__name__)


def commit_change(scanned: Snapshot, change: Change) -> Snapshot:
    """Commit a change that is based on `scanned` on top of the newest version, retry after each retryable conflict, and
    verify the result.

    Raises:
        CommitConflict: other writers made the change impossible; nothing was committed.
        InvalidArgument: the change does not fit the other indices of the table.
    """
    committed, added = _commit_on_newest(scanned, change)
    return _verify(scanned, committed, added)


def log_commit(committed: Snapshot, change: str, indices: Iterable[str] = (), **counts: int) -> None:
    """One record for each version that a job commits."""
    message = f"committed version {committed.version} of {committed.uri}: {change}"
    names = tuple(sorted(set(indices)))
    event = Event(EventKind.COMMIT, committed.uri, message, names, committed.version, counts, {"change": change})
    emit(logger, logging.INFO, event)


def log_conflict(found: Snapshot, problem: str, *indices: str) -> None:
    """One record for a conflict that is found outside the attempts to commit."""
    event = Event(EventKind.CONFLICT, found.uri, problem, indices, found.version, {"attempt": 1}, {"reason": problem})
    emit(logger, logging.WARNING, event)


def _commit_on_newest(scanned: Snapshot, change: Change) -> tuple[Snapshot, Sequence[IndexSegment]]:
    """The committed version and the segments that joined it."""
    for attempt in attempts(scanned, str(change)):
        with attempt as base:
            proposed = change.on(base)
            if proposed.is_empty:
                return base, ()
            add = tuple(_still_covered(scanned, base, segment) for segment in proposed.add)
            proposed = SegmentChange(add, proposed.remove)
            attempt.indices = tuple(sorted({segment.name for segment in (*proposed.add, *proposed.remove)}))
            _check(base, proposed)
            committed = commit_segments(base, proposed.add, proposed.remove)
            counts = {"added": len(proposed.add), "removed": len(proposed.remove)}
            log_commit(committed, str(change), attempt.indices, **counts)
            return committed, proposed.add
    raise AssertionError("unreachable: the last attempt returns or raises")


def _verify(scanned: Snapshot, committed: Snapshot, added: Sequence[IndexSegment]) -> Snapshot:
    """Correct the coverage for commits between the check and this commit: pylance does not detect a Merge or a dropped
    column as a conflict."""
    for segment in added:
        if any(committed.columns.by_id(field) is None for field in segment.fields):
            commit_change(committed, DropIndex(segment.name))
            problem = f"the column of index {segment.name!r} of {committed.uri} was dropped during the commit"
            log_conflict(committed, problem, segment.name)
            raise CommitConflict(problem, "The index was removed again")
        current = next((s for s in committed.manifest.segments if s.uuid == segment.uuid), None)
        if current is None:
            continue
        valid = _still_covered(scanned, committed, current)
        if valid is not current:
            committed = commit_change(committed, SegmentChange((valid,)))
    return committed


def _check(base: Snapshot, change: SegmentChange) -> None:
    """Refuse changes that pylance accepts and then answers wrongly or fails on."""
    staying = [s for s in base.manifest.user_segments if s.uuid not in {r.uuid for r in (*change.remove, *change.add)}]
    reuse = read_fragment_reuse(base) if change.add else None
    for segment in change.add:
        where = f"index {segment.name!r} of {base.uri}"
        if any(base.columns.by_id(field) is None for field in segment.fields):
            raise CommitConflict(f"the column of {where} was dropped in the meantime", "Nothing was committed")
        kind = kind_of(segment)
        if kind is not None and not kind.accepts(segment, base.manifest.has_stable_row_ids):
            raise CommitConflict(
                f"{where} has index version {segment.index_version}, which does not fit this table's row ids",
                "Rebuild the index",
            )
        for other in staying:
            if other.name != segment.name:
                continue
            if other.fields != segment.fields or kind_of(other) is not kind:
                raise CommitConflict(
                    f"an index named {segment.name!r} exists on another column or of another type",
                    "Choose another name, or drop that index first",
                )
            if other.index_version != segment.index_version:
                raise CommitConflict(
                    f"{where} has segments of version {other.index_version}", "Rebuild the whole index"
                )
            mine, theirs = (effective_coverage(s, base, reuse) for s in (segment, other))
            if mine & theirs or trusted_coverage(segment) & trusted_coverage(other):
                raise CommitConflict(f"segments of {where} would overlap on fragments {sorted(mine & theirs)}")
    for name in {segment.name for segment in change.add if not segment.is_reuse}:
        _check_owners(base, name, change, reuse)


def _check_owners(base: Snapshot, name: str, change: SegmentChange, reuse: FragmentReuse | None) -> None:
    """Refuse a change after which a segment holds rows of a fragment that another one covers: pylance would return
    them."""
    before = [s for s in base.manifest.user_segments if s.name == name]
    changed = {s.uuid for s in (*change.remove, *change.add)}
    after = [*(s for s in before if s.uuid not in changed), *(s for s in change.add if s.name == name)]
    found = newly_shared(base, before, after, reuse)
    if found is not None:
        segment, fragments = found
        # Planning avoids this, so another writer has added that segment or changed those fragments since.
        raise CommitConflict(
            f"fragments {sorted(fragments)} of {base.uri} were changed in place in the meantime, and segment "
            f"{segment.uuid} of index {name!r} holds their old values",
            "Nothing was committed; run the job again",
        )


def _still_covered(scanned: Snapshot, now: Snapshot, segment: IndexSegment) -> IndexSegment:
    """The segment without fragments whose indexed column changed since it was scanned."""
    kind = kind_of(segment)
    # Rows may have been deleted before they were moved.
    movable = kind is None or kind.outlives_lost_rows(now, segment)
    reuse = read_fragment_reuse(now) if movable else None
    kept = BitMap(
        f for f in segment.fragments if all(_unchanged(scanned, now, reuse, f, field) for field in segment.fields)
    )
    lost = BitMap(segment.fragments) - kept
    if not lost:
        return segment
    if now.manifest.max_fragment_id == scanned.manifest.max_fragment_id:
        # No fragment was written since, so missing ones were deleted and have no rows left to cover.
        lost &= now.manifest.live
    still_there = lost & now.manifest.live
    if not kept and lost:
        raise CommitConflict(
            f"every fragment that index {segment.name!r} of {now.uri} was built on has been rewritten in the meantime",
            "Nothing was committed; run the job again",
        )
    if lost:
        what = f"{len(still_there)} changed in place, {len(lost) - len(still_there)} rewritten or deleted"
        warnings.warn(
            f"index {segment.name!r} of {now.uri} does not cover {plural(len(lost), 'fragment')} that changed during"
            f" the build ({what})",
            CoverageWarning,
            stacklevel=2,
        )
    return replace(segment, fragments=FrozenBitMap(kept))


def _unchanged(scanned: Snapshot, now: Snapshot, reuse: FragmentReuse | None, fragment: int, field: int) -> bool:
    before = scanned.manifest.column_files(fragment, field)
    if before is None:
        # The fragment was not read: the entry of an old segment is committed again, with the bitmap it had.
        return True
    after = now.manifest.column_files(fragment, field)
    if after is not None:
        return before == after
    if reuse is None or fragment not in reuse.old_fragments:
        # Deleted as a whole, or compacted without an address map.
        return False
    return _unchanged_until_moved(scanned, now.version, fragment, field)


def _unchanged_until_moved(scanned: Snapshot, newest: int, fragment: int, field: int) -> bool:
    """Whether a fragment that a deferred compaction moved kept its column until then."""
    before = scanned.manifest.column_files(fragment, field)
    for version in range(scanned.version + 1, newest):
        try:
            manifest = read_manifest(scanned.store, version)
        except (TableNotFound, DamagedFile):
            return False
        current = manifest.column_files(fragment, field)
        if current is None:
            return True
        if current != before:
            return False
    return True
