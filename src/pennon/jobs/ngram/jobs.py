"""The jobs of n-gram indices."""

from __future__ import annotations

from collections.abc import Sequence

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.ngram.options import NGram
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext
from pennon.jobs.ngram.audit import NGramAudit
from pennon.jobs.ngram.build import build_ngram
from pennon.jobs.ngram.merge import merge_ngram
from pennon.jobs.ngram.plan import NGramMerge, NGramPlan, plan_ngram, plan_ngram_merge


class NGramJobs(JobsDefaults):
    audit = NGramAudit()

    def plan(self, snapshot: Snapshot, column: str, options: NGram, request: BuildRequest) -> NGramPlan:
        return plan_ngram(snapshot, column, request)

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> NGramPlan:
        # No fragments: an empty table.
        request = BuildRequest(like.name, fragments or None, context.parallelism, context.memory_bytes)
        return plan_ngram(context.snapshot, context.column_of(like).path, request)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> NGramMerge:
        return plan_ngram_merge(context, request)

    def build(self, engine: Engine, snapshot: Snapshot, plan: NGramPlan) -> IndexSegment:
        return build_ngram(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: NGramMerge) -> IndexSegment:
        return merge_ngram(engine, snapshot, plan)
