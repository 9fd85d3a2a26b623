"""Plan an optimization: the health of each index, the segments to merge, and the plans of its kind for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile, IndexNotFound, InvalidArgument, UnsupportedTable
from pennon.format.index_metadata import IndexSegment, LogicalIndex, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.file_health import file_damage
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import kind_of, label_of, why_unusable
from pennon.jobs.kinds import PlanContext
from pennon.jobs.optimize.steps import IndexStep, OptimizePlan
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.arguments import check_integers
from pennon.jobs.shared.merge_policy import Tier, choose_segments
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.rewrite import plan_merge
from pennon.jobs.shared.stale_values import held_fragments
from pennon.wording import plural

NO_MODELS = "its files are damaged and its models cannot be read from them: create it again"


def plan_optimize(
    context: PlanContext,
    *,
    names: Sequence[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
) -> OptimizePlan:
    """What `optimize` would do to this version of the table. Starts nothing.

    Raises:
        IndexNotFound: the table has no index of one of the names.
    """
    check_integers(num_indices_to_merge=num_indices_to_merge)
    if num_indices_to_merge is not None and num_indices_to_merge < 0:
        raise InvalidArgument(f"num_indices_to_merge must not be negative, but is {num_indices_to_merge}")
    snapshot = context.snapshot
    indices = group_segments(snapshot.manifest.segments)
    known = [index.name for index in indices]
    for name in names or ():
        if name not in known:
            raise IndexNotFound.among(known, name, snapshot.uri)
    reuse = read_fragment_reuse(snapshot)
    chosen = [index for index in indices if names is None or index.name in names]
    steps = tuple(_plan_index(context, index, reuse, num_indices_to_merge, retrain) for index in chosen)
    return OptimizePlan(snapshot.version, steps)


def _plan_index(
    context: PlanContext, index: LogicalIndex, reuse: FragmentReuse | None, count: int | None, retrain: bool
) -> IndexStep:
    snapshot, first = context.snapshot, index.segments[0]
    kind = kind_of(first)
    nothing = IndexStep(index.name, label_of(snapshot, first), len(index.segments), "", first)
    unusable = next((why for segment in index.segments if (why := why_unusable(snapshot, segment))), None)
    if kind is None or unusable is not None or snapshot.columns.by_id(first.field_id) is None:
        return replace(nothing, reason=unusable or "its column was dropped", skipped=True)
    try:
        health = _health(snapshot, index, reuse)
    except UnsupportedTable as error:
        return replace(nothing, reason=error.problem, skipped=True)
    if not health.healthy and jobs_of(first).models_in_files:
        return replace(nothing, reason=NO_MODELS)
    choice = _choose(snapshot, health, reuse, count, retrain)
    return _step(context, nothing, health, choice)


@dataclass(frozen=True)
class _Health:
    """The segments of an index from the oldest to the newest, those with damaged files apart, and the live fragments
    that no healthy one covers."""

    healthy: tuple[MergeSource, ...]
    damaged: tuple[MergeSource, ...]
    uncovered: BitMap

    @property
    def largest(self) -> IndexSegment:
        """What a new segment takes after."""
        return max((s.segment for s in self.healthy or self.damaged), key=lambda segment: segment.size_bytes)


def _health(snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None) -> _Health:
    sources = _oldest_first(snapshot, index, reuse)
    damaged = tuple(source for source in sources if _is_damaged(snapshot, source, reuse))
    healthy = tuple(source for source in sources if source not in damaged)
    return _Health(healthy, damaged, snapshot.manifest.live - _coverage(healthy))


def _oldest_first(snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None) -> list[MergeSource]:
    """By creation. Fragment ids do not give the order: compaction gives old rows the highest ones."""
    sources = [
        MergeSource(segment, FrozenBitMap(effective_coverage(segment, snapshot, reuse, index.segments)))
        for segment in index.segments
    ]
    return sorted(sources, key=lambda source: source.segment.created_at or datetime.min.replace(tzinfo=UTC))


def _is_damaged(snapshot: Snapshot, source: MergeSource, reuse: FragmentReuse | None) -> bool:
    kind, column = kind_of(source.segment), snapshot.columns.by_id(source.segment.field_id)
    if kind is None or column is None:
        return False
    try:
        kind.open(snapshot, source.segment, column, reuse, ByteCache(0))
    except DamagedFile:
        return True
    return file_damage(snapshot.store, source.segment) is not None


@dataclass(frozen=True)
class _Choice:
    """Segments to merge with what is new, or with `rebuilt` to build again from the data."""

    merged: tuple[MergeSource, ...]
    reason: str
    rebuilt: bool = False
    rebalanced: bool = False


def _choose(
    snapshot: Snapshot, health: _Health, reuse: FragmentReuse | None, count: int | None, retrain: bool
) -> _Choice:
    """By what was asked for, what the kind needs, or the merge policy, in this order."""
    healthy, stable = health.healthy, snapshot.manifest.has_stable_row_ids
    if retrain:
        return _Choice(healthy, "trained again, as requested", rebuilt=True)
    for source in healthy:
        kind = kind_of(source.segment)
        if kind is not None and not kind.accepts(source.segment, stable):
            return _Choice(healthy, "its version does not fit this table's row ids", rebuilt=True)
    stale = _stale_fragments(snapshot, health, reuse)
    if count is not None:
        return _newest(health, stale, count)
    upkeep = jobs_of(health.largest).upkeep(snapshot, [s.segment for s in healthy]) if healthy else None
    if upkeep is not None:
        return _Choice(healthy, upkeep.reason, rebuilt=upkeep.rebuild, rebalanced=not upkeep.rebuild)
    return _by_size(snapshot, health, stale)


def _stale_fragments(snapshot: Snapshot, health: _Health, reuse: FragmentReuse | None) -> list[BitMap]:
    """For each healthy segment, the fragments of others, or of none, that its files hold old values of."""
    covered = _coverage(health.healthy)
    return [
        held_fragments(snapshot, source.segment, covered - BitMap(source.coverage) | health.uncovered, reuse)
        for source in health.healthy
    ]


def _by_size(snapshot: Snapshot, health: _Health, stale: Sequence[BitMap]) -> _Choice:
    rows_in, healthy = snapshot.manifest.rows_in, health.healthy
    tiers = [
        Tier(rows_in(BitMap(source.coverage)), _why_forced(source, old), source.segment.size_bytes)
        for source, old in zip(healthy, stale, strict=True)
    ]
    limit = jobs_of(health.largest).segment_bytes
    choice = choose_segments(tiers, rows_in(health.uncovered), limit)
    return _Choice(healthy[len(healthy) - choice.count :], choice.reason)


def _newest(health: _Health, stale: Sequence[BitMap], count: int) -> _Choice:
    """The newest `count` segments, and those that must not stay."""
    healthy = health.healthy
    newest = healthy[max(0, len(healthy) - count) :] if count else ()
    forced = [source for source, old in zip(healthy, stale, strict=True) if old and source not in newest]
    merged, reason = tuple(s for s in healthy if s in newest or s in forced), f"num_indices_to_merge={count}"
    if forced:
        reason += f", and {plural(len(forced), 'segment')} with values that were changed in place"
    if not health.uncovered and len(merged) == 1 and not any(stale):
        return _Choice((), "nothing is new and there is nothing to merge")
    return _Choice(merged, reason)


def _why_forced(source: MergeSource, stale: BitMap) -> str | None:
    if stale:
        return f"fragments {list(stale)[:8]} were changed in place and a segment holds their old values"
    return None if source.coverage else "a segment covers nothing any more"


def _step(context: PlanContext, nothing: IndexStep, health: _Health, choice: _Choice) -> IndexStep:
    manifest, damaged = context.snapshot.manifest, health.damaged
    reason = choice.reason
    if damaged and not choice.rebuilt:
        reason = f"{plural(len(damaged), 'damaged segment')} replaced; {reason}"
    step = replace(
        nothing,
        reason=reason,
        like=health.largest,
        merged=choice.merged,
        discarded=tuple(source.segment for source in damaged),
        new=tuple(health.uncovered),
        rows=manifest.rows_in((_coverage(choice.merged) | health.uncovered) & manifest.live),
        rebuilt=choice.rebuilt,
        rebalanced=choice.rebalanced,
    )
    try:
        return _with_plans(context, step, replaces_all=not health.healthy)
    except DamagedFile as error:
        return _from_data(context, step, error)
    except UnsupportedTable as error:
        return replace(nothing, reason=error.problem, skipped=True)


def _with_plans(context: PlanContext, step: IndexStep, *, replaces_all: bool) -> IndexStep:
    jobs = jobs_of(step.like)
    if not step.due:
        return step
    if step.rebuilt:
        build = jobs.plan_like(context, step.like, step.fragments, retrain=True)
        return replace(step, build=build, written=jobs.segments_of(build))
    build = jobs.plan_like(context, step.like, step.new, retrain=False) if step.new or replaces_all else None
    if not step.merged:
        return replace(step, build=build, written=int(build is not None))
    merge = plan_merge(context, step.merged, rebalance=step.rebalanced, delta=build)
    return replace(step, build=build, merge=merge, written=1)


def _from_data(context: PlanContext, step: IndexStep, error: DamagedFile) -> IndexStep:
    """The step where the files of a segment turned out to be damaged when their merge was planned."""
    try:
        build = jobs_of(step.like).plan_like(context, step.like, step.fragments, retrain=False)
    except DamagedFile:
        return IndexStep(step.name, step.type, step.segments, NO_MODELS, step.like)
    reason = f"{step.reason}; built from the data: {error.problem}"
    return replace(step, rebuilt=True, rebalanced=False, reason=reason, build=build, merge=None, written=1)


def _coverage(sources: Sequence[MergeSource]) -> BitMap:
    return BitMap().union(*(source.coverage for source in sources))
