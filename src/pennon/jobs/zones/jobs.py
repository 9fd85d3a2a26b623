"""The jobs of zone maps and Bloom filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.options import IndexOptions
from pennon.index.zones.kind import ZonesKind
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext, Upkeep
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

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        """Zones from before a change in place, which pylance's optimize keeps next to new ones."""
        reuse = read_fragment_reuse(snapshot)
        for segment in segments:
            twice = self._covered_twice(snapshot, segment, reuse)
            if twice:
                what = f"fragments {sorted(twice)[:8]} have zones from before a compaction or a change in place, too"
                return Upkeep(what, rebuild=True)
        return None

    def _covered_twice(self, snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> BitMap:
        column = snapshot.columns.by_id(segment.field_id)
        try:
            found = None if column is None else self.kind.open(snapshot, segment, column, reuse, SHARED_CACHE)
        except (DamagedFile, UnsupportedTable):
            return BitMap()  # which the merge or an audit reports
        return BitMap() if found is None else found.covered_twice | found.overlapping
