"""Commit an index change so that it is right whatever other writers did since the data was read.

A stored (value, address) pair is right as long as the fragment's data file that holds the column is the one that was
scanned. So coverage is checked by file, against the newest version before the commit and the committed one after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap, FrozenBitMap

from pennon.errors import CommitConflict, CoverageWarning, DamagedFile, IndexNotFound, InvalidArgument, TableNotFound
from pennon.format.commit import commit_segments
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import read_manifest
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import FragmentReuse, effective_coverage, read_fragment_reuse
from pennon.index.registry import kind_of
from pennon.jobs.shared.retry import on_newest
from pennon.jobs.shared.stale_values import held_fragments, newly_shared


@dataclass(frozen=True)
class Change:
    """Segments that join a table and segments that leave it, in one transaction."""

    add: tuple[IndexSegment, ...] = ()
    remove: tuple[IndexSegment, ...] = ()


def publish(scanned: Snapshot, decide: Callable[[Snapshot], Change]) -> Snapshot:
    """Commit what `decide` makes of the newest version, again after a conflict, and verify the result."""

    def commit(base: Snapshot) -> tuple[Snapshot, Change]:
        change = decide(base)
        if not change.add and not change.remove:
            return base, change
        add = tuple(_still_valid(scanned, base, segment) for segment in change.add)
        change = Change(add, change.remove)
        _check(base, change)
        return commit_segments(base, change.add, change.remove), change

    committed, change = on_newest(scanned, commit)
    return _mend(scanned, committed, change.add)


def add_segment(
    segment: IndexSegment, *, replace_whole: bool, may_replace: bool = True
) -> Callable[[Snapshot], Change]:
    """A new segment: in place of the whole index of that name, or beside the segments it does not overlap."""

    def decide(base: Snapshot) -> Change:
        same_name = [s for s in base.manifest.user_segments if s.name == segment.name]
        check_name_free(base, segment.name, segment.fields)
        if replace_whole:
            return Change((segment,), tuple(same_name))
        reuse = read_fragment_reuse(base)
        coverage = effective_coverage(segment, base, reuse)
        leaving: list[IndexSegment] = []
        for other in same_name:
            theirs = effective_coverage(other, base, reuse)
            if not theirs & coverage and not other.fragments & segment.fragments:
                _check_not_stale(base, other, segment, reuse)
                continue
            if theirs - coverage:
                raise InvalidArgument(
                    f"the new segment of index {segment.name!r} overlaps segment {other.uuid} in part",
                    f"Also index fragments {sorted(theirs - coverage)}, or replace the whole index",
                )
            if not may_replace:
                raise InvalidArgument(
                    f"index {segment.name!r} covers some of the fragments already", "Leave them out, or allow replace"
                )
            leaving.append(other)
        return Change((segment,), tuple(leaving))

    return decide


def replace_segments(
    name: str, new: Sequence[IndexSegment], leaving: Sequence[IndexSegment]
) -> Callable[[Snapshot], Change]:
    """Segments of an index in place of those they were made of; none, where nothing of them is left. The index and all
    of them must still be there: what someone dropped stays dropped, and what someone replaced is theirs."""
    old = {segment.uuid for segment in leaving}

    def decide(base: Snapshot) -> Change:
        current = {s.uuid: s for s in base.manifest.user_segments if s.name == name}
        gone = old - current.keys()
        if not current or gone:
            what = f"segments {', '.join(sorted(gone))} of index {name!r}" if current else f"index {name!r}"
            raise CommitConflict(
                f"{what} of {base.uri} left the table meanwhile", "Nothing was committed; run the job again"
            )
        return Change(tuple(new), tuple(current[uuid] for uuid in old))

    return decide


def replace_all(replaced: Sequence[tuple[IndexSegment, IndexSegment]]) -> Callable[[Snapshot], Change]:
    """New segments in place of old ones, pair by pair and of any indices, in one transaction."""
    by_name: dict[str, list[tuple[IndexSegment, IndexSegment]]] = {}
    for pair in replaced:
        by_name.setdefault(pair[0].name, []).append(pair)
    steps = [
        replace_segments(name, [new for _, new in pairs], [old for old, _ in pairs]) for name, pairs in by_name.items()
    ]

    def decide(base: Snapshot) -> Change:
        changes = [step(base) for step in steps]
        return Change(
            tuple(s for change in changes for s in change.add), tuple(s for change in changes for s in change.remove)
        )

    return decide


def _check_not_stale(base: Snapshot, other: IndexSegment, new: IndexSegment, reuse: FragmentReuse | None) -> None:
    stale = held_fragments(base, other, BitMap(new.fragments), reuse)
    if stale:
        together = sorted(effective_coverage(other, base, reuse) | BitMap(new.fragments))
        raise InvalidArgument(
            f"fragments {sorted(stale)} of {base.uri} were changed in place, and segment {other.uuid} of index "
            f"{new.name!r} still holds their old values, which pylance would return beside the new segment",
            f"Rebuild the index, or index fragments {together} as one segment that replaces the old one",
        )


def check_name_free(base: Snapshot, name: str, fields: tuple[int, ...]) -> None:
    """A name belongs to one column; stock would let two columns share it and then fail on both."""
    for other in base.manifest.user_segments:
        if other.name == name and other.fields != fields:
            columns = [column.path if (column := base.columns.by_id(f)) else f"field {f}" for f in other.fields]
            raise InvalidArgument(
                f"index {name!r} of {base.uri} stands on another column ({', '.join(columns)})",
                "Choose another name, or drop that index first",
            )


def drop_index(name: str) -> Callable[[Snapshot], Change]:
    def decide(base: Snapshot) -> Change:
        leaving = tuple(s for s in base.manifest.user_segments if s.name == name)
        if not leaving:
            names = sorted({s.name for s in base.manifest.user_segments})
            known = f"Its indices are: {', '.join(names)}" if names else "It has none"
            raise IndexNotFound(f"table {base.uri} has no index {name!r}", known)
        return Change(remove=leaving)

    return decide


def _check(base: Snapshot, change: Change) -> None:
    """What pylance accepts and then answers wrongly or fails on."""
    staying = [s for s in base.manifest.user_segments if s.uuid not in {r.uuid for r in (*change.remove, *change.add)}]
    reuse = read_fragment_reuse(base) if change.add else None
    for segment in change.add:
        where = f"index {segment.name!r} of {base.uri}"
        if any(base.columns.by_id(field) is None for field in segment.fields):
            raise CommitConflict(f"the column of {where} was dropped meanwhile", "Nothing was committed")
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
            if mine & theirs or segment.fragments & other.fragments:
                raise CommitConflict(f"segments of {where} would overlap on fragments {sorted(mine & theirs)}")
    for name in {segment.name for segment in change.add if not segment.is_reuse}:
        _check_owners(base, name, change, reuse)


def _check_owners(base: Snapshot, name: str, change: Change, reuse: FragmentReuse | None) -> None:
    """No segment may come to hold rows of a fragment that another one covers: pylance would return them."""
    before = [s for s in base.manifest.user_segments if s.name == name]
    changed = {s.uuid for s in (*change.remove, *change.add)}
    after = [*(s for s in before if s.uuid not in changed), *(s for s in change.add if s.name == name)]
    found = newly_shared(base, before, after, reuse)
    if found is not None:
        segment, fragments = found
        # Planning keeps clear of it: someone has added that segment, or changed those fragments, since.
        raise CommitConflict(
            f"fragments {sorted(fragments)} of {base.uri} were changed in place meanwhile, and segment {segment.uuid} "
            f"of index {name!r} holds their old values",
            "Nothing was committed; run the job again",
        )


def _still_valid(scanned: Snapshot, now: Snapshot, segment: IndexSegment) -> IndexSegment:
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
        # No fragment was written since, so those that vanished were deleted and no row of theirs is left to cover.
        lost &= now.manifest.live
    still_there = lost & now.manifest.live
    if not kept and lost:
        raise CommitConflict(
            f"every fragment that index {segment.name!r} of {now.uri} was built on has been rewritten meanwhile",
            "Nothing was committed; run the job again",
        )
    if lost:
        what = f"{len(still_there)} changed in place, {len(lost) - len(still_there)} rewritten or deleted"
        warnings.warn(
            f"index {segment.name!r} of {now.uri}: {len(lost)} fragments changed during the build and are not covered"
            f" ({what})",
            CoverageWarning,
            stacklevel=2,
        )
    return replace(segment, fragments=FrozenBitMap(kept))


def _unchanged(scanned: Snapshot, now: Snapshot, reuse: FragmentReuse | None, fragment: int, field: int) -> bool:
    before = scanned.manifest.fragments.get(fragment)
    if before is None:
        # Not among what was read: an old segment is being recommitted, whose bitmap is not ours to judge.
        return True
    after = now.manifest.fragments.get(fragment)
    if after is not None:
        return before.field_files.get(field) == after.field_files.get(field)
    if reuse is None or fragment not in reuse.old_fragments:
        # Deleted whole or compacted without a trace: nothing of it can be answered from here.
        return False
    return _unchanged_until_moved(scanned, now.version, fragment, field)


def _unchanged_until_moved(scanned: Snapshot, newest: int, fragment: int, field: int) -> bool:
    """Whether a fragment that a deferred compaction moved kept its column until then."""
    before = scanned.manifest.fragments[fragment].field_files.get(field)
    for version in range(scanned.version + 1, newest):
        try:
            manifest = read_manifest(scanned.store, version)
        except (TableNotFound, DamagedFile):
            return False
        current = manifest.fragments.get(fragment)
        if current is None:
            return True
        if current.field_files.get(field) != before:
            return False
    return True


def _mend(scanned: Snapshot, committed: Snapshot, added: Sequence[IndexSegment]) -> Snapshot:
    """Undo what slipped in between the last look and the commit: stock does not see a Merge or a dropped column."""
    for segment in added:
        if any(committed.columns.by_id(field) is None for field in segment.fields):
            publish(committed, drop_index(segment.name))
            raise CommitConflict(
                f"the column of index {segment.name!r} of {committed.uri} was dropped during the commit",
                "The index was removed again",
            )
        current = next((s for s in committed.manifest.segments if s.uuid == segment.uuid), None)
        if current is None:
            continue
        valid = _still_valid(scanned, committed, current)
        if valid is not current:
            committed = publish(committed, lambda _, valid=valid: Change((valid,)))
    return committed
