"""New segments from existing ones, of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.kinds import BuildPlan, MergePlan, MergeRequest, PlanContext
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.placement import placed
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.stale_values import held_fragments


def plan_merge(
    context: PlanContext, sources: Sequence[MergeSource], *, rebalance: bool = False, delta: BuildPlan | None = None
) -> MergePlan:
    """Plan one segment with the rows of several, and of a delta that is built first. Files without changes are
    copied."""
    unchanged = _ids_unchanged(context.snapshot, sources)
    request = MergeRequest(tuple(sources), ids_unchanged=unchanged, rebalance=rebalance, delta=delta)
    return jobs_of(sources[0].segment).plan_merge(context, request)


def remap_segment(
    engine: Engine, context: PlanContext, source: MergeSource, address_map: str | None = None
) -> IndexSegment:
    """Rewrite a segment with the current addresses of its rows, or with those of a running compaction. It keeps its
    creation time."""
    jobs = jobs_of(source.segment)
    plan = jobs.plan_merge(context, MergeRequest((source,), address_map))
    return replace(jobs.merge(placed(engine, plan), context.snapshot, plan), created_at=source.segment.created_at)


def _ids_unchanged(snapshot: Snapshot, sources: Sequence[MergeSource]) -> bool:
    """Whether all ids in the files can stay unchanged: no row has moved, and all are in fragments that their segment
    covers."""
    if read_fragment_reuse(snapshot) is not None:
        return False
    committed = {s.uuid for s in snapshot.manifest.segments}
    return not any(
        held_fragments(snapshot, source.segment, snapshot.manifest.live - BitMap(source.coverage), None)
        for source in sources
        if source.segment.uuid in committed
    )
