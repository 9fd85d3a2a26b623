"""New segments made of old ones, whatever their kind."""

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
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.stale_values import held_fragments


def plan_merge(
    context: PlanContext, sources: Sequence[MergeSource], *, rebalance: bool = False, delta: BuildPlan | None = None
) -> MergePlan:
    """One segment with the rows of several, and of a delta that is built first. Files are copied where nothing in them
    changes."""
    unchanged = _ids_unchanged(context.snapshot, sources)
    request = MergeRequest(tuple(sources), ids_unchanged=unchanged, rebalance=rebalance, delta=delta)
    return jobs_of(sources[0].segment).plan_merge(context, request)


def remap_segment(
    engine: Engine, context: PlanContext, source: MergeSource, address_map: str | None = None
) -> IndexSegment:
    """A segment with its rows at today's addresses, or at those of a compaction under way. It keeps its age."""
    jobs = jobs_of(source.segment)
    plan = jobs.plan_merge(context, MergeRequest((source,), address_map))
    return replace(jobs.merge(engine, context.snapshot, plan), created_at=source.segment.created_at)


def _ids_unchanged(snapshot: Snapshot, sources: Sequence[MergeSource]) -> bool:
    """Whether every id in the files may stay as it is: no row has moved, and none is of a fragment that its segment
    does not cover."""
    if read_fragment_reuse(snapshot) is not None:
        return False
    committed = {s.uuid for s in snapshot.manifest.segments}
    return not any(
        held_fragments(snapshot, source.segment, snapshot.manifest.live - BitMap(source.coverage), None)
        for source in sources
        if source.segment.uuid in committed
    )
