"""The jobs of bitmap indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.kind import BitmapKind
from pennon.index.options import IndexOptions
from pennon.jobs.bitmap.audit import BitmapAudit
from pennon.jobs.bitmap.build import build_bitmap
from pennon.jobs.bitmap.merge import BitmapMerge, merge_bitmap, plan_bitmap_merge
from pennon.jobs.bitmap.plan import BitmapPlan, plan_bitmap
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext
from pennon.jobs.shared.remap import RemapPlan


@dataclass(frozen=True)
class BitmapJobs(JobsDefaults):
    kind: BitmapKind

    @property
    def audit(self) -> BitmapAudit:
        return BitmapAudit(self.kind)

    def plan(self, snapshot: Snapshot, column: str, options: IndexOptions, request: BuildRequest) -> BitmapPlan:
        return plan_bitmap(snapshot, self.kind, column, request)

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> BitmapPlan:
        # No fragments: an empty table.
        request = BuildRequest(like.name, fragments or None, context.parallelism, context.memory_bytes)
        return plan_bitmap(context.snapshot, self.kind, context.column_of(like).path, request)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> BitmapMerge:
        snapshot, like, delta = context.snapshot, request.largest, request.delta
        addresses = self.kind.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
        return plan_bitmap_merge(
            snapshot,
            self.kind,
            context.column_of(like),
            RemapPlan(snapshot.pin(), addresses, request.sources, request.address_map),
            name=like.name,
            parallelism=context.parallelism,
            may_copy=request.ids_unchanged,
            delta_rows=delta.rows if delta else None,
            delta_bytes=delta.index_bytes if delta else 0,
        )

    def build(self, engine: Engine, snapshot: Snapshot, plan: BitmapPlan) -> IndexSegment:
        return build_bitmap(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: BitmapMerge) -> IndexSegment:
        return merge_bitmap(engine, snapshot, plan)
