"""Compact a table: small fragments joined and deleted rows dropped on executors, and its indices brought along.

`immediate` rewrites every index segment that knows moved rows, in the same transaction as the fragments; `deferred`
leaves files alone and records the moves in the Fragment Reuse Index; `drop` gives up coverage of what was rewritten.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypedDict

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import (
    CommitConflict,
    CompactionWarning,
    CoverageWarning,
    DamagedFile,
    InvalidArgument,
    PennonError,
    StoreUnavailable,
    UnsupportedTable,
)
from pennon.format.compaction import (
    CompactionOptions,
    CompactionTask,
    Rewritten,
    assign_fragment_ids,
    commit_deferred,
    commit_dropping,
    commit_remapped,
    discard,
    execute_compaction,
    group_moves,
    plan_compaction,
    remappable_at_once,
    still_valid,
)
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import FLAG_TAGGED_REUSE
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import effective_coverage, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable
from pennon.jobs.kinds import Work
from pennon.jobs.shared.cleanup import committing, scratch_directory
from pennon.jobs.shared.commit import publish, replace_all
from pennon.jobs.shared.remap import Source
from pennon.jobs.shared.retry import attempts
from pennon.jobs.shared.rewrite import move_segment
from pennon.text import human_bytes, plural

REMAPS = ("immediate", "deferred", "drop")
MOVES_FILE = "moves.binpb"
HELD_BACK = (
    "pylance fails to search an HNSW index after a deferred compaction has dropped deleted rows it covers;"
    " compact them with remap='immediate'"
)


class CompactionChoices(TypedDict, total=False):
    """What may be said of a compaction; `CompactionOptions` has the defaults."""

    target_rows_per_fragment: int
    max_bytes_per_file: int | None
    materialize_deletions: bool
    materialize_deletions_threshold: float
    num_threads: int | None
    batch_size: int | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None


@dataclass(frozen=True)
class CompactPlan:
    """What will be rewritten, known before anything is."""

    uri: str
    version: int
    remap: str
    tasks: tuple[CompactionTask, ...] = field(repr=False)
    segments: tuple[str, ...]  # names of the indices of segments that know rows that move
    held_back: tuple[int, ...] = ()  # fragments that cannot be compacted this way, for the sake of pylance's searches

    @property
    def due(self) -> bool:
        return bool(self.tasks)

    @property
    def fragments(self) -> int:
        return sum(len(task.fragments) for task in self.tasks)

    @property
    def rows(self) -> int:
        return sum(task.rows for task in self.tasks)

    @property
    def deleted_rows(self) -> int:
        return sum(f.num_deleted_rows for task in self.tasks for f in task.fragments)

    @property
    def size_bytes(self) -> int | None:
        sizes = [f.size_bytes for task in self.tasks for f in task.fragments]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "version": self.version,
            "remap": self.remap,
            "tasks": len(self.tasks),
            "fragments": self.fragments,
            "rows": self.rows,
            "deleted_rows": self.deleted_rows,
            "size_bytes": self.size_bytes,
            "segments": list(self.segments),
            "held_back": list(self.held_back),
        }

    def __str__(self) -> str:
        left = ""
        if self.held_back:
            left = f"; {plural(len(self.held_back), 'fragment')} held back ({HELD_BACK})"
        if not self.due:
            return f"compaction: nothing to rewrite{left}"
        size = f", {human_bytes(self.size_bytes)}" if self.size_bytes is not None else ""
        gone = f", {self.deleted_rows:,} deleted rows dropped" if self.deleted_rows else ""
        touched = plural(len(self.segments), "index segment")
        then = {
            "immediate": f"{touched} to remap",
            "deferred": "moves to be recorded",
            "drop": f"{touched} to lose coverage",
        }
        return (
            f"compaction: {plural(self.fragments, 'fragment')} in {plural(len(self.tasks), 'group')},"
            f" {self.rows:,} rows{size}{gone}; {then[self.remap]}{left}"
        )


def plan_compact(snapshot: Snapshot, choices: CompactionChoices, remap: str) -> CompactPlan:
    if remap not in REMAPS:
        raise InvalidArgument(f"remap={remap!r} is no way to bring indices along", f"Choose among {', '.join(REMAPS)}")
    if remap == "deferred" and snapshot.manifest.has_stable_row_ids:
        raise UnsupportedTable(
            f"{snapshot.uri} has stable row ids, and Lance records no moves there", "Use remap='immediate'"
        )
    if remap != "deferred" and snapshot.manifest.reader_flags & FLAG_TAGGED_REUSE:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {snapshot.uri} has the newer tagged form", "Use remap='deferred'"
        )
    tasks = plan_compaction(snapshot, CompactionOptions(**choices), deferred=remap == "deferred").tasks
    fragile = _fragile(snapshot) if remap == "deferred" else BitMap()
    held_back = tuple(f.id for task in tasks if task.ids & fragile for f in task.fragments)
    tasks = tuple(task for task in tasks if not task.ids & fragile)
    touched = _touched(snapshot, BitMap().union(*(task.ids for task in tasks)))
    return CompactPlan(snapshot.uri, snapshot.version, remap, tasks, tuple(s.name for s in touched), held_back)


def compact(engine: Engine, snapshot: Snapshot, plan: CompactPlan, memory_bytes: int) -> Snapshot:
    """Rewrite the planned fragments, remap the segments over them, commit both. Fragments that others change meanwhile
    are left as they are; after a conflict segments are remapped again, fragments are not rewritten."""
    if plan.held_back:
        warnings.warn(
            f"fragments {list(plan.held_back)} of {snapshot.uri} are not compacted: {HELD_BACK}",
            CompactionWarning,
            stacklevel=2,
        )
    if not plan.due:
        return snapshot
    groups = engine.map("compact", partial(execute_compaction, snapshot.pin()), plan.tasks, rows=plan.rows)
    try:
        for attempt in attempts(snapshot):
            with attempt as base:
                groups = _valid(base, groups, plan.remap)
                if plan.remap == "deferred":
                    return commit_deferred(base, groups)
                if plan.remap == "drop":
                    return commit_dropping(base, groups)
                assigned = assign_fragment_ids(base, groups)
                return _commit_remapped(base, assigned, _remap_segments(Work(engine, base, memory_bytes), assigned))
    except StoreUnavailable:
        raise  # the commit may be under way or done
    except PennonError:
        # Only a refusal is certain: whatever else ends it may come when the commit is under way or done.
        for group in groups:
            discard(snapshot.store, group)
        raise
    raise AssertionError("unreachable")


def _valid(base: Snapshot, groups: Sequence[Rewritten], remap: str) -> list[Rewritten]:
    """Groups whose fragments are as they were read. The work on others is lost, with a warning."""
    fragile = _fragile(base) if remap == "deferred" else BitMap()
    valid = [group for group in groups if still_valid(base, group) and not group.old_ids & fragile]
    lost = [group for group in groups if group not in valid]
    for group in lost:
        discard(base.store, group)
    fragments = sorted(f for group in lost for f in group.old_ids)
    if lost and not valid:
        raise CommitConflict(
            f"all fragments of {base.uri} that were compacted have been changed meanwhile: {fragments}",
            "Nothing was committed; run it again",
        )
    if lost:
        warnings.warn(
            f"fragments {fragments} of {base.uri} were changed while they were compacted, and stay as they are",
            CoverageWarning,
            stacklevel=2,
        )
    return valid


def _fragile(base: Snapshot) -> BitMap:
    """Fragments with deleted rows that must not move for the Fragment Reuse Index alone to follow: pylance could not
    search a segment that covers them."""
    marked = BitMap(f.id for f in base.manifest.fragments.values() if f.deletion_file is not None)
    reuse, fragile = read_fragment_reuse(base), BitMap()
    for segment in base.manifest.user_segments if marked else ():
        kind = kind_of(segment)
        if kind is not None and not kind.outlives_lost_rows(base, segment):
            fragile |= effective_coverage(segment, base, reuse) & marked
    return fragile


def _touched(base: Snapshot, moving: BitMap) -> list[IndexSegment]:
    """Segments whose files name rows of these fragments by address."""
    reuse, stable = read_fragment_reuse(base), base.manifest.has_stable_row_ids
    touched: list[IndexSegment] = []
    for segment in base.manifest.user_segments:
        kind = kind_of(segment)
        by_address = kind is None or kind.stores_addresses(segment.index_version, stable)
        if by_address and effective_coverage(segment, base, reuse) & moving:
            touched.append(segment)
    return touched


@dataclass(frozen=True)
class _Replacement:
    """A segment with its rows at their new addresses, in place of the one that covered `coverage`."""

    old: IndexSegment
    new: IndexSegment
    coverage: BitMap


def _remap_segments(work: Work, groups: Sequence[Rewritten]) -> list[_Replacement]:
    """Write every segment that knows moved rows again, before the fragments are committed whose rows it names."""
    base, reuse = work.snapshot, read_fragment_reuse(work.snapshot)
    moving = BitMap().union(*(group.old_ids for group in groups))
    replacements: list[_Replacement] = []
    try:
        with scratch_directory(base.store) as scratch:
            base.store.write(f"{scratch}/{MOVES_FILE}", group_moves(groups))
            for segment in _touched(base, moving):
                coverage = effective_coverage(segment, base, reuse)
                new = _remapped(work, segment, _moved(coverage, groups), f"{scratch}/{MOVES_FILE}")
                if new is not None:
                    replacements.append(_Replacement(segment, new, coverage))
    except BaseException:
        for replacement in replacements:
            work.discard(replacement.new)
        raise
    return replacements


def _commit_remapped(base: Snapshot, groups: Sequence[Rewritten], replacements: Sequence[_Replacement]) -> Snapshot:
    """Fragments and segments in one transaction.

    A segment that covers a group only in part cannot be committed together with it: then the fragments come first,
    uncovered, and the segments after them. In between answers are right, only slower.
    """
    replaced = [(replacement.old, replacement.new) for replacement in replacements]
    with committing(base, [new for _, new in replaced]):
        if remappable_at_once(groups, [replacement.coverage for replacement in replacements]):
            committed = commit_remapped(base, groups, replaced)
        else:
            committed = publish(commit_dropping(base, groups), replace_all(replaced))
    _check_present(committed, replaced)
    for _, new in replaced:
        base.store.delete_directory(new.directory, keep=new.file_sizes)
    return committed


def _remapped(work: Work, segment: IndexSegment, coverage: BitMap, moves: str) -> IndexSegment | None:
    """A segment with its rows at their new addresses; None where it cannot be read, and loses coverage instead."""
    problem = why_unusable(work.snapshot, segment)
    if problem is None:
        try:
            return move_segment(work, Source(segment, FrozenBitMap(coverage)), moves)
        except (DamagedFile, UnsupportedTable) as error:
            problem = error.problem
    warnings.warn(
        f"a segment of index {segment.name!r} of {work.snapshot.uri} cannot be remapped and no longer covers what was"
        f" compacted: {problem}",
        CoverageWarning,
        stacklevel=2,
    )
    return None


def _moved(coverage: BitMap, groups: Sequence[Rewritten]) -> BitMap:
    """Coverage of whole groups moves on to their new fragments; what is covered in part is no longer."""
    moved = BitMap(coverage)
    for group in groups:
        moved -= group.old_ids
        if group.old_ids <= coverage:
            moved |= BitMap(f.id for f in group.new if f.id is not None)
    return moved


def _check_present(committed: Snapshot, replaced: Sequence[tuple[IndexSegment, IndexSegment]]) -> None:
    """Another compaction that replaced a segment in the instant of the commit makes pylance leave ours out."""
    present = {segment.uuid for segment in committed.manifest.segments}
    for old, new in replaced:
        if new.uuid not in present:
            warnings.warn(
                f"a segment of index {old.name!r} of {committed.uri} was replaced during the commit; what was compacted"
                " is not covered until the index is optimized",
                CoverageWarning,
                stacklevel=2,
            )
