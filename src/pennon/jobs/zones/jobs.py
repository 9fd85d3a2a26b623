"""The jobs of zone maps and Bloom filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.options import IndexOptions
from pennon.index.zones.kind import ZonesKind
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext
from pennon.jobs.zones.audit import ZonesAudit
from pennon.jobs.zones.build import build_zones
from pennon.jobs.zones.merge import merge_zones
from pennon.jobs.zones.plan import ZonesPlan, plan_zones
from pennon.jobs.zones.plan_merge import ZonesMerge, plan_zones_merge


class ZonesJobs(JobsDefaults):
    def __init__(self, kind: ZonesKind) -> None:
        self.kind = kind
        self.audit = ZonesAudit(kind)

    def plan(self, snapshot: Snapshot, column: str, options: IndexOptions, request: BuildRequest) -> ZonesPlan:
        return plan_zones(snapshot, column, self.kind, self.kind.layout(options), **asdict(request))

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> ZonesPlan:
        return plan_zones(
            context.snapshot,
            context.column_of(like).path,
            self.kind,
            self.kind.layout_of(context.snapshot, like),
            name=like.name,
            fragment_ids=fragments or None,  # no fragments: an empty table
            parallelism=context.parallelism,
            memory_bytes=context.memory_bytes,
        )

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> ZonesMerge:
        like = request.largest
        return plan_zones_merge(
            context.snapshot,
            context.column_of(like),
            self.kind,
            self.kind.layout_of(context.snapshot, like),
            request.sources,
            request.address_map,
            name=like.name,
            parallelism=context.parallelism,
            memory_bytes=context.memory_bytes,
            delta_rows=request.delta.rows if request.delta else None,
        )

    def build(self, engine: Engine, snapshot: Snapshot, plan: ZonesPlan) -> IndexSegment:
        return build_zones(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: ZonesMerge) -> IndexSegment:
        return merge_zones(engine, snapshot, plan)
