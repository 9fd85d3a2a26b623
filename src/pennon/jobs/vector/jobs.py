"""The jobs of all seven vector indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.registry import kind_of
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.options import SEGMENT_BYTES, IvfOptions
from pennon.index.vector.partition_balance import Imbalance
from pennon.index.vector.vectors import VectorType
from pennon.jobs.kinds import BuildRequest, MergeRequest, PlanContext, Upkeep
from pennon.jobs.vector.audit import VectorAudit
from pennon.jobs.vector.build import build_vector
from pennon.jobs.vector.merge import merge_vector
from pennon.jobs.vector.plan import VectorPlan, plan_vector
from pennon.jobs.vector.plan_like import partition_size, plan_like, plan_rebuild
from pennon.jobs.vector.plan_merge import VectorMerge, plan_vector_merge

# The index is trained again if partitions that are too large hold more than this share of all rows.
REBUILT_SHARE = 0.5


class VectorJobs:
    audit = VectorAudit()
    models_in_files = True
    segment_bytes = SEGMENT_BYTES

    def plan(self, snapshot: Snapshot, column: str, options: IvfOptions, request: BuildRequest) -> VectorPlan:
        if request.fragment_ids is not None and options.metric is None:
            options = replace(options, metric=_metric_of(snapshot, request.name or f"{column}_idx"))
        return plan_vector(snapshot, column, options, **asdict(request))

    def misfit(self, snapshot: Snapshot, plan: VectorPlan, other: IndexSegment) -> str | None:
        theirs = VECTOR.described(snapshot, other)
        if theirs == (plan.kind, plan.metric):
            return None
        what = f"{theirs[0].name} for {theirs[1]}" if theirs else "of an unknown kind"
        return f"{what}, the new segment {plan.kind.name} for {plan.metric}"

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool
    ) -> VectorPlan:
        return plan_like(context, like, fragments, retrain=retrain)

    def plan_rebuild(
        self,
        context: PlanContext,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> VectorPlan:
        return plan_rebuild(context, leaving, staying, fragments, retrain=retrain)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> VectorMerge:
        return plan_vector_merge(context, request)

    def build(self, engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> IndexSegment:
        [segment] = build_vector(engine, snapshot, plan)
        return segment

    def build_segments(self, engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> tuple[IndexSegment, ...]:
        return build_vector(engine, snapshot, plan)

    def segments_of(self, plan: VectorPlan) -> int:
        return len(plan.segments)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: VectorMerge) -> IndexSegment:
        return merge_vector(engine, snapshot, plan)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        """Whether the partitions of all segments together are too uneven; None also if the models of segments
        differ."""
        ordered = sorted(segments, key=lambda segment: -segment.size_bytes)
        opened = [VectorFiles(snapshot.store, segment.directory, segment.file_sizes) for segment in ordered]
        if any(not np.array_equal(files.ivf.centroids, opened[0].ivf.centroids) for files in opened):
            return None
        lengths = np.sum([files.layout.lengths for files in opened], axis=0)
        found = Imbalance.of(lengths, partition_size(ordered[0], opened[0]))
        if not found:
            return None
        if _several(snapshot, ordered[0]):
            return Upkeep(f"{found}, and partitions of several vectors a row are not split", rebuild=True)
        if sum(segment.size_bytes for segment in ordered) > SEGMENT_BYTES:
            return Upkeep(f"{found}, and the index is too large for one segment", rebuild=True)
        if found.share(lengths) > REBUILT_SHARE:
            return Upkeep(f"{found}, too many rows to split partitions one by one", rebuild=True)
        return Upkeep(str(found), rebuild=False)


def _several(snapshot: Snapshot, segment: IndexSegment) -> bool:
    column = snapshot.columns.by_id(segment.fields[0])
    held = VectorType.find(column.type) if column else None
    return held is not None and held.several


def _metric_of(snapshot: Snapshot, name: str) -> str | None:
    """The metric of the segments that a new one joins, None if there are none."""
    others = [s for s in snapshot.manifest.user_segments if s.name == name and kind_of(s) is VECTOR]
    known = VECTOR.described(snapshot, others[0]) if others else None
    return known[1].value if known else None
