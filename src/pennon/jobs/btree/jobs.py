"""The jobs of B-trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pennon.engine import Engine
from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.snapshot import Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import LOOKUP_FILE, read_lookup
from pennon.index.btree.options import BTree
from pennon.jobs.btree.audit import BTreeAudit
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.merge import merge_btree
from pennon.jobs.btree.plan import BTreePlan, plan_btree
from pennon.jobs.btree.plan_merge import BTreeMerge, plan_btree_merge
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext
from pennon.jobs.shared.remap import RemapPlan


class BTreeJobs(JobsDefaults):
    audit = BTreeAudit()

    def plan(self, snapshot: Snapshot, column: str, options: BTree, request: BuildRequest) -> BTreePlan:
        return plan_btree(snapshot, column, options, **asdict(request))

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> BTreePlan:
        return plan_btree(
            context.snapshot,
            context.column_of(like).path,
            _recorded_options(context, like),
            name=like.name,
            fragment_ids=fragments or None,  # no fragments: an empty table
            parallelism=context.parallelism,
            memory_bytes=context.memory_bytes,
        )

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> BTreeMerge:
        snapshot, like = context.snapshot, request.largest
        addresses = BTREE.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
        return plan_btree_merge(
            snapshot,
            context.column_of(like),
            RemapPlan(snapshot.pin(), addresses, request.sources, request.address_map),
            name=like.name,
            parallelism=context.parallelism,
            memory_bytes=context.memory_bytes,
            may_copy=request.ids_unchanged,
            delta_rows=request.delta.rows if request.delta else None,
        )

    def build(self, engine: Engine, snapshot: Snapshot, plan: BTreePlan) -> IndexSegment:
        return build_btree(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: BTreeMerge) -> IndexSegment:
        return merge_btree(engine, snapshot, plan)


def _recorded_options(context: PlanContext, segment: IndexSegment) -> BTree:
    """The options that a segment was built with, if its files record them and can be read."""
    size = segment.file_sizes.get(LOOKUP_FILE)
    try:
        file = LanceFile(context.snapshot.store, f"{segment.directory}/{LOOKUP_FILE}", size)
        return BTree(batch_size=read_lookup(file, context.column_of(segment).type).batch_size)
    except DamagedFile:
        return BTree()
