"""The work on vector indices, all seven of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.registry import kind_of
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.kinds import vector_kind
from pennon.index.vector.partition_balance import Imbalance
from pennon.jobs.kinds import BuildRequest, Upkeep, Work
from pennon.jobs.shared.remap import Source
from pennon.jobs.vector.audit import VectorAudit
from pennon.jobs.vector.build import build_vector
from pennon.jobs.vector.options import VectorOptions, options_of
from pennon.jobs.vector.plan import VectorPlan, partition_size, plan_vector
from pennon.jobs.vector.rewrite import build_like, merge_segments, rebuild_from_data

# Where partitions that have outgrown the others hold more than this share of all rows, everything is trained again.
REBUILT_SHARE = 0.5


class VectorJobs:
    audit = VectorAudit()
    models_in_files = True

    def option_names(self, index_type: str) -> frozenset[str]:
        return frozenset(options_of(vector_kind(index_type)))

    def plan(
        self, snapshot: Snapshot, column: str, index_type: str, options: Mapping[str, Any], request: BuildRequest
    ) -> VectorPlan:
        if request.fragment_ids is not None and "metric" not in options:
            options = {**options, **_metric_of(snapshot, request.name or f"{column}_idx")}
        return plan_vector(snapshot, column, index_type, VectorOptions(**options), **asdict(request))

    def misfit(self, snapshot: Snapshot, plan: VectorPlan, other: IndexSegment) -> str | None:
        theirs = VECTOR.described(snapshot, other)
        if theirs == (plan.kind, plan.metric):
            return None
        what = f"{theirs[0].name} for {theirs[1]}" if theirs else "of another kind"
        return f"{what}, the new segment {plan.kind.name} for {plan.metric}"

    def build(self, engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> IndexSegment:
        return build_vector(engine, snapshot, plan)

    def build_like(
        self, work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool
    ) -> IndexSegment:
        return build_like(work, like, fragments, retrain=retrain)

    def merge(
        self, work: Work, sources: Sequence[Source], moves: str | None, *, unmoved: bool, rebalance: bool
    ) -> IndexSegment:
        return merge_segments(work, sources, moves, rebalance=rebalance)

    def rebuild(
        self,
        work: Work,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> IndexSegment:
        return rebuild_from_data(work, leaving, staying, fragments, retrain=retrain)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        """Whether partitions of all segments together are too uneven; None also where segments differ in their
        models."""
        ordered = sorted(segments, key=lambda segment: -segment.size_bytes)
        opened = [VectorFiles(snapshot.store, segment.directory, segment.file_sizes) for segment in ordered]
        if any(not np.array_equal(files.ivf.centroids, opened[0].ivf.centroids) for files in opened):
            return None
        lengths = np.sum([files.layout.lengths for files in opened], axis=0)
        found = Imbalance.of(lengths, partition_size(ordered[0], opened[0]))
        if not found:
            return None
        if found.share(lengths) > REBUILT_SHARE:
            return Upkeep(f"{found}, too many rows to split partitions one by one", rebuild=True)
        return Upkeep(str(found), rebuild=False)


def _metric_of(snapshot: Snapshot, name: str) -> dict[str, str]:
    """A new segment measures as the segments it joins."""
    others = [s for s in snapshot.manifest.user_segments if s.name == name and kind_of(s) is VECTOR]
    known = VECTOR.described(snapshot, others[0]) if others else None
    return {"metric": known[1].value} if known else {}
