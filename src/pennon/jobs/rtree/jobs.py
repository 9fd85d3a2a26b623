"""The jobs of R-trees."""

from __future__ import annotations

from collections.abc import Sequence

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.segment_contents import CONTENTS_FILE
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.rtree.files import TreeFile
from pennon.index.rtree.kind import RTREE
from pennon.index.rtree.options import MAX_PAGE_SIZE, RTree
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext, Upkeep
from pennon.jobs.rtree.audit import RTreeAudit
from pennon.jobs.rtree.build import build_rtree
from pennon.jobs.rtree.merge import merge_rtree
from pennon.jobs.rtree.plan import RTreeMerge, RTreePlan, plan_rtree, plan_rtree_merge


class RTreeJobs(JobsDefaults):
    audit = RTreeAudit()

    def plan(self, snapshot: Snapshot, column: str, options: RTree, request: BuildRequest) -> RTreePlan:
        return plan_rtree(snapshot, column, options, request)

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> RTreePlan:
        # No fragments: an empty table.
        request = BuildRequest(like.name, fragments or None, context.parallelism, context.memory_bytes)
        return plan_rtree(context.snapshot, context.column_of(like).path, _recorded_options(context, like), request)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> RTreeMerge:
        return plan_rtree_merge(context, request)

    def build(self, engine: Engine, snapshot: Snapshot, plan: RTreePlan) -> IndexSegment:
        return build_rtree(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: RTreeMerge) -> IndexSegment:
        return merge_rtree(engine, snapshot, plan)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        """NULLs from before a change in place, in segments of pylance."""
        reuse = read_fragment_reuse(snapshot)
        for segment in segments:
            if CONTENTS_FILE not in segment.file_sizes and _has_old_nulls(snapshot, segment, reuse):
                return Upkeep("NULLs from before a change in place are in it", rebuild=True)
        return None


def _has_old_nulls(snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> bool:
    column = snapshot.columns.by_id(segment.field_id)
    try:
        return column is not None and RTREE.open(snapshot, segment, column, reuse, SHARED_CACHE).has_old_nulls()
    except (DamagedFile, UnsupportedTable):
        return False  # which the merge or an audit reports


def _recorded_options(context: PlanContext, segment: IndexSegment) -> RTree:
    """The options that a segment was built with, if its files can be read."""
    try:
        return RTree(page_size=min(TreeFile(context.snapshot.store, segment).page_size, MAX_PAGE_SIZE))
    except DamagedFile:
        return RTree()
