"""Repair the findings of an audit: rebuild wrong segments from the data, and remove an invalid Fragment Reuse Index.

Every index is committed separately, and only segments with findings are removed from the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import CommitConflict, InvalidArgument, PennonError
from pennon.format.commit import commit_segments
from pennon.format.index_metadata import IndexSegment, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import changed_in_place, effective_coverage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.audit.report import Action, Finding
from pennon.jobs.kinds import PlanContext
from pennon.jobs.optimize.optimize import optimize
from pennon.jobs.optimize.plan import plan_optimize
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.changes import ReplaceSegments
from pennon.jobs.shared.cleanup import delete_if_refused
from pennon.jobs.shared.commit import commit_change, log_commit
from pennon.jobs.shared.retry import attempts


def repair(
    engine: Engine, snapshot: Snapshot, findings: Sequence[Finding], memory_bytes: int
) -> tuple[Snapshot, dict[str, str]]:
    """Execute the actions of the findings. Returns the newest version and, by index, why it was not repaired: empty if
    it was."""
    if any(finding.action is Action.REMOVE_FRAGMENT_REUSE for finding in findings):
        return _remove_fragment_reuse(engine, snapshot, memory_bytes)
    newest, outcome = snapshot, dict[str, str]()
    for index in group_segments(snapshot.manifest.segments):
        mine = [f for f in findings if f.index == index.name and f.action is not None]
        if mine:
            wrong = {uuid for finding in mine for uuid in finding.segments}
            retrain = any(finding.action is Action.RETRAIN for finding in mine)
            context = PlanContext.of(engine, snapshot, memory_bytes)
            try:
                newest, outcome[index.name] = _rebuild(engine, context, index.segments, wrong, retrain=retrain), ""
            except PennonError as error:
                outcome[index.name] = str(error)
    return newest, outcome


def _rebuild(
    engine: Engine, context: PlanContext, segments: Sequence[IndexSegment], wrong: set[str], *, retrain: bool
) -> Snapshot:
    """Build one segment in place of the wrong ones. A valid one that holds old values of fragments of the new one is
    replaced too."""
    leaving = [segment for segment in segments if segment.uuid in wrong]
    staying = [segment for segment in segments if segment.uuid not in wrong]
    try:
        return _replace(engine, context, leaving, staying, retrain=retrain)
    except (CommitConflict, InvalidArgument):
        if not staying:
            raise
        return _replace(engine, context, segments, (), retrain=retrain)


def _replace(
    engine: Engine,
    context: PlanContext,
    leaving: Sequence[IndexSegment],
    staying: Sequence[IndexSegment],
    *,
    retrain: bool,
) -> Snapshot:
    snapshot, name, jobs = context.snapshot, leaving[0].name, jobs_of(leaving[0])
    reuse = read_fragment_reuse(snapshot)
    covered = BitMap().union(*(effective_coverage(s, snapshot, reuse, (*leaving, *staying)) for s in leaving))
    live = snapshot.manifest.live
    covered |= BitMap().union(*(changed_in_place(s, snapshot, BitMap(s.fragments) & live) for s in leaving))
    covered -= BitMap().union(*(effective_coverage(s, snapshot, reuse, (*leaving, *staying)) for s in staying))
    if not covered and staying:
        return commit_change(snapshot, ReplaceSegments.of(name, [], leaving))
    plan = jobs.plan_rebuild(context, leaving, staying, list(covered), retrain=retrain)
    segments = jobs.build_segments(engine, snapshot, plan)
    with delete_if_refused(snapshot, segments):
        return commit_change(snapshot, ReplaceSegments.of(name, segments, leaving))


def _remove_fragment_reuse(engine: Engine, snapshot: Snapshot, memory_bytes: int) -> tuple[Snapshot, dict[str, str]]:
    """Without the Fragment Reuse Index, rows that files list by old addresses cannot be found. So the transaction that
    removes it also clears the coverage of all segments, and they are rebuilt from the data."""
    bare = _without_reuse(snapshot)
    names = [index.name for index in group_segments(bare.manifest.segments)]
    plan = plan_optimize(PlanContext.of(engine, bare, memory_bytes))
    return optimize(engine, bare, plan, memory_bytes), dict.fromkeys(names, "")


def _without_reuse(snapshot: Snapshot) -> Snapshot:
    change = "remove the Fragment Reuse Index and all coverage"
    for attempt in attempts(snapshot, change):
        with attempt as base:
            entry = base.manifest.reuse_segment
            if entry is None:
                return base
            emptied = [replace(segment, fragments=FrozenBitMap()) for segment in base.manifest.user_segments]
            committed = commit_segments(base, emptied, [entry])
            names = [segment.name for segment in emptied]
            log_commit(committed, change, names, added=len(emptied), removed=1)
            return committed
    raise AssertionError("unreachable: the last attempt returns or raises")
