"""Keep indices small in number and complete in coverage: delta segments for new fragments, merged by size.

plan -> build a delta -> merge -> commit, for each index separately, so that a conflict over one does not affect others.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pyroaring import FrozenBitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, DamagedIndexWarning
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.jobs.kinds import MergePlan, PlanContext
from pennon.jobs.optimize.steps import IndexStep, OptimizePlan
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.changes import ReplaceSegments
from pennon.jobs.shared.cleanup import delete_abandoned_files, delete_if_refused, delete_segment_files
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.placement import placed
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.rewrite import plan_merge
from pennon.work import working


def optimize(engine: Engine, snapshot: Snapshot, plan: OptimizePlan, memory_bytes: int) -> Snapshot:
    """Execute what was planned on `snapshot`, index by index. Returns the newest version.

    Raises:
        CommitConflict: other writers made the change of an index impossible; those before it are committed.
    """
    newest = snapshot
    started = PlanContext.of if plan.needs_engine else PlanContext.without_starting
    for step in plan.due:
        with working(step.name):
            written = _write(engine, started(engine, snapshot, memory_bytes), step)
        with delete_if_refused(snapshot, written):
            newest = commit_change(snapshot, ReplaceSegments.of(step.name, written, step.leaving))
        for segment in written:
            delete_abandoned_files(snapshot.store, segment)
    return newest


def _write(engine: Engine, context: PlanContext, step: IndexStep) -> Sequence[IndexSegment]:
    """The new segment; several where a large index is built again, none where damaged segments leave that covered
    nothing."""
    jobs = jobs_of(step.like)
    if step.merge is None:
        return jobs.build_segments(placed(engine, step.build), context.snapshot, step.build) if step.build else ()
    try:
        return [_merge(engine, context, step, step.merge)]
    except DamagedFile as error:
        warnings.warn(
            f"index {step.name!r} of {context.snapshot.uri} is built from the data, not its segments: {error.problem}",
            DamagedIndexWarning,
            stacklevel=2,
        )
        plan = jobs.plan_like(context, step.like, step.fragments, retrain=False)
        return [jobs.build(placed(engine, plan), context.snapshot, plan)]


def _merge(engine: Engine, context: PlanContext, step: IndexStep, estimate: MergePlan) -> IndexSegment:
    jobs, snapshot = jobs_of(step.like), context.snapshot
    if step.build is None:
        return jobs.merge(placed(engine, estimate), snapshot, estimate)
    delta = jobs.build(placed(engine, step.build), snapshot, step.build)
    try:
        sources = [*step.merged, MergeSource(delta, FrozenBitMap(step.new))]
        plan = plan_merge(context, sources, rebalance=step.rebalanced)
        return jobs.merge(placed(engine, plan), snapshot, plan)
    finally:
        delete_segment_files(snapshot.store, delta)
