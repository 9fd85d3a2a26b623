"""Keep indices small in number and whole in coverage: delta segments for new fragments, merged by size.

Every index is looked at by itself and committed by itself, so that a conflict over one costs nothing of the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import (
    DamagedFile,
    DamagedIndexWarning,
    IndexNotFound,
    InvalidArgument,
    StoreUnavailable,
    UnsupportedTable,
)
from pennon.format.index_metadata import IndexFile, IndexSegment, LogicalIndex, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse, effective_coverage, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable
from pennon.jobs.kinds import Work
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.cleanup import committing
from pennon.jobs.shared.commit import publish, replace_segments
from pennon.jobs.shared.merge_policy import Tier, choose
from pennon.jobs.shared.remap import Source
from pennon.jobs.shared.rewrite import build_like, merge_segments
from pennon.jobs.shared.stale_values import held_fragments
from pennon.jobs.shared.tasks import check_integers
from pennon.text import in_line, plural


@dataclass(frozen=True)
class IndexStep:
    """What will be done to one index. `merged` segments leave the table for one new segment, which also covers `new`
    fragments; so do `discarded` ones, of whose files nothing is used. With `rebuilt` all of it is built from the data.
    `like` is what the new segment takes after. A `skipped` index is one that Pennon does not support."""

    name: str
    type: str
    like: IndexSegment = field(repr=False)
    merged: tuple[Source, ...] = field(repr=False)
    discarded: tuple[IndexSegment, ...] = field(repr=False)
    new: tuple[int, ...] = field(repr=False)
    rebuilt: bool
    rebalanced: bool
    rows: int
    segments: int
    reason: str
    skipped: bool = False

    @property
    def due(self) -> bool:
        return bool(self.merged or self.discarded or self.new)

    @property
    def leaving(self) -> tuple[IndexSegment, ...]:
        return (*(source.segment for source in self.merged), *self.discarded)

    @property
    def segments_after(self) -> int:
        return self.segments - len(self.leaving) + 1 if self.due else self.segments

    def to_dict(self) -> dict[str, object]:
        return {
            "index": self.name,
            "type": self.type,
            "action": self.action,
            "segments": self.segments,
            "segments_after": self.segments_after,
            "replaced": [segment.uuid for segment in self.leaving],
            "new_fragments": list(self.new),
            "rows": self.rows,
            "reason": self.reason,
        }

    @property
    def action(self) -> str:
        if not self.due:
            return "skip" if self.skipped else "leave"
        if self.rebuilt:
            return "rebuild"
        return "merge" if self.leaving else "add a delta"

    def __str__(self) -> str:
        if not self.due:
            return in_line(f"{self.name}: {'skipped' if self.skipped else 'nothing to do'}, {self.reason}")
        what = f"{plural(self.segments, 'segment')} -> {self.segments_after}"
        return in_line(f"{self.name}: {self.action}, {what}, {self.rows:,} rows written ({self.reason})")


@dataclass(frozen=True)
class OptimizePlan:
    version: int
    steps: tuple[IndexStep, ...]

    @property
    def due(self) -> tuple[IndexStep, ...]:
        return tuple(step for step in self.steps if step.due)

    @property
    def skipped(self) -> tuple[IndexStep, ...]:
        return tuple(step for step in self.steps if step.skipped)

    def to_dict(self) -> dict[str, object]:
        return {"version": self.version, "indices": [step.to_dict() for step in self.steps]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "the table has no indices"


def plan_optimize(
    snapshot: Snapshot,
    *,
    names: Sequence[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
) -> OptimizePlan:
    """What `optimize` would do to this version of the table."""
    check_integers(num_indices_to_merge=num_indices_to_merge)
    if num_indices_to_merge is not None and num_indices_to_merge < 0:
        raise InvalidArgument(f"num_indices_to_merge must not be negative, but is {num_indices_to_merge}")
    indices = group_segments(snapshot.manifest.segments)
    known = [index.name for index in indices]
    for name in names or ():
        if name not in known:
            raise IndexNotFound(f"table {snapshot.uri} has no index {name!r}", f"It has: {', '.join(known) or 'none'}")
    reuse = read_fragment_reuse(snapshot)
    chosen = [index for index in indices if names is None or index.name in names]
    return OptimizePlan(
        snapshot.version,
        tuple(_plan_index(snapshot, index, reuse, num_indices_to_merge, retrain) for index in chosen),
    )


def optimize(engine: Engine, snapshot: Snapshot, plan: OptimizePlan, memory_bytes: int) -> Snapshot:
    """Do what was planned on `snapshot`, index by index."""
    newest = snapshot
    work = Work(engine, snapshot, memory_bytes)
    for step in plan.due:
        newest = _optimize_index(work, step)
    return newest


def _optimize_index(work: Work, step: IndexStep) -> Snapshot:
    segment = _written(work, step)
    with committing(work.snapshot, [segment]):
        committed = publish(work.snapshot, replace_segments(step.name, [segment], step.leaving))
    work.snapshot.store.delete_directory(segment.directory, keep=segment.file_sizes)
    return committed


def _written(work: Work, step: IndexStep) -> IndexSegment:
    fragments = list(BitMap(step.new).union(*(source.coverage for source in step.merged)))
    if step.rebuilt:
        return build_like(work, step.like, fragments, retrain=True)
    try:
        return _merged(work, step)
    except DamagedFile as error:
        if not step.merged:
            raise
        warnings.warn(
            f"index {step.name!r} of {work.snapshot.uri} is built from the data, not its segments: {error.problem}",
            DamagedIndexWarning,
            stacklevel=2,
        )
        return build_like(work, step.like, fragments)


def _merged(work: Work, step: IndexStep) -> IndexSegment:
    if not step.new:
        return merge_segments(work, step.merged, may_copy=True, rebalance=step.rebalanced)
    delta = build_like(work, step.like, step.new)
    if not step.merged:
        return delta
    try:
        sources = [*step.merged, Source(delta, FrozenBitMap(step.new))]
        return merge_segments(work, sources, may_copy=True, rebalance=step.rebalanced)
    finally:
        work.discard(delta)


def _plan_index(
    snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None, count: int | None, retrain: bool
) -> IndexStep:
    manifest = snapshot.manifest
    kind, column = kind_of(index.segments[0]), snapshot.columns.by_id(index.segments[0].field_id)
    label = kind.label(snapshot, index.segments[0]) if kind else "unknown"

    def step(
        merged: Sequence[Source],
        new: BitMap,
        reason: str,
        *,
        rebuilt: bool = False,
        rebalanced: bool = False,
        discarded: Sequence[Source] = (),
        like: IndexSegment = index.segments[0],
        skipped: bool = False,
    ) -> IndexStep:
        rows = manifest.rows_in(new.union(*(source.coverage for source in merged)) & manifest.live)
        left_out = tuple(source.segment for source in discarded)
        own = len(index.segments)
        return IndexStep(
            index.name,
            label,
            like,
            tuple(merged),
            left_out,
            tuple(new),
            rebuilt,
            rebalanced,
            rows,
            own,
            reason,
            skipped,
        )

    strange = next((why for segment in index.segments if (why := why_unusable(snapshot, segment))), None)
    if kind is None or column is None or strange:
        return step((), BitMap(), strange or "its column was dropped", skipped=True)
    sources = _oldest_first(snapshot, index, reuse)
    try:
        damaged = [source for source in sources if _damaged(snapshot, source, reuse)]
    except UnsupportedTable as error:
        return step((), BitMap(), error.problem, skipped=True)
    if len(damaged) == len(sources) and jobs_of(index.segments[0]).models_in_files:
        return step((), BitMap(), "its files are damaged and tell no models: create it anew")
    healthy = [source for source in sources if source not in damaged]
    covered = BitMap().union(*(source.coverage for source in healthy))
    new = manifest.live - covered
    like = max((s.segment for s in healthy or sources), key=lambda segment: segment.size_bytes)
    stable = manifest.has_stable_row_ids
    if retrain:
        return step(healthy, new, "trained anew, as asked for", rebuilt=True, discarded=damaged, like=like)
    if not all(kind.accepts(source.segment, stable) for source in healthy):
        reason = "its version does not fit this table's row ids"
        return step(healthy, new, reason, rebuilt=True, discarded=damaged, like=like)
    rebalanced = False
    stale = [held_fragments(snapshot, s.segment, covered - BitMap(s.coverage) | new, reuse) for s in healthy]
    if count is None:
        tiers = [
            Tier(manifest.rows_in(BitMap(source.coverage)), _why_forced(source, old))
            for source, old in zip(healthy, stale, strict=True)
        ]
        choice = choose(tiers, manifest.rows_in(new))
        merged, reason = healthy[len(healthy) - choice.count :], choice.reason
        upkeep = jobs_of(like).upkeep(snapshot, [source.segment for source in healthy]) if healthy else None
        if upkeep is not None and upkeep.rebuild:
            return step(healthy, new, upkeep.reason, rebuilt=True, discarded=damaged, like=like)
        if upkeep is not None:
            merged, reason, rebalanced = healthy, upkeep.reason, True
    else:
        newest = healthy[max(0, len(healthy) - count) :] if count else []
        forced = [source for source, old in zip(healthy, stale, strict=True) if old and source not in newest]
        merged, reason = [s for s in healthy if s in newest or s in forced], f"num_indices_to_merge={count}"
        if forced:
            reason += f", and {plural(len(forced), 'segment')} with values that were changed in place"
        if not new and len(merged) == 1 and not any(stale):
            merged, reason = [], "nothing is new and there is nothing to merge"
    if damaged:
        reason = f"{plural(len(damaged), 'damaged segment')} replaced; {reason}"
    return step(merged, new, reason, rebalanced=rebalanced, discarded=damaged, like=like)


def _why_forced(source: Source, stale: BitMap) -> str | None:
    if stale:
        return f"fragments {list(stale)[:8]} were changed in place and a segment holds their old values"
    return None if source.coverage else "a segment covers nothing any more"


def _oldest_first(snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None) -> list[Source]:
    """By when they were made. Fragments do not tell: compaction gives old rows the highest ids."""
    sources = [
        Source(segment, FrozenBitMap(effective_coverage(segment, snapshot, reuse, index.segments)))
        for segment in index.segments
    ]
    return sorted(sources, key=lambda source: source.segment.created_at or datetime.min.replace(tzinfo=UTC))


def _damaged(snapshot: Snapshot, source: Source, reuse: FragmentReuse | None) -> bool:
    kind, column = kind_of(source.segment), snapshot.columns.by_id(source.segment.field_id)
    if kind is None or column is None:
        return False
    try:
        kind.open(snapshot, source.segment, column, reuse, ByteCache(0))
    except DamagedFile:
        return True
    return not all(_is_whole(snapshot, source.segment, file) for file in source.segment.files)


def _is_whole(snapshot: Snapshot, segment: IndexSegment, file: IndexFile) -> bool:
    """Whether a file has the size it was written with, where that is known and cheap to ask for."""
    try:
        size = snapshot.store.size(f"{segment.directory}/{file.path}")
    except StoreUnavailable:
        raise
    except OSError:
        return False
    return size is None or not file.size_bytes or size == file.size_bytes
