"""Put right what an audit found: segments built from the data in place of wrong ones, senseless moves left out.

Every index is committed by itself, and nothing but what was found wrong leaves the table.
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
from pennon.index.fragment_reuse.reading import effective_coverage, read_fragment_reuse
from pennon.jobs.audit.report import Action, Finding
from pennon.jobs.kinds import Work
from pennon.jobs.optimize import optimize, plan_optimize
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.cleanup import committing
from pennon.jobs.shared.commit import publish, replace_segments
from pennon.jobs.shared.retry import on_newest


def repair(
    engine: Engine, snapshot: Snapshot, findings: Sequence[Finding], memory_bytes: int
) -> tuple[Snapshot, dict[str, str]]:
    """Do what the findings ask for. Returns the newest version, and by index why it was not: empty if it was."""
    if any(finding.action is Action.FORGET_MOVES for finding in findings):
        return _forget_moves(engine, snapshot, memory_bytes)
    newest, outcome = snapshot, dict[str, str]()
    for index in group_segments(snapshot.manifest.segments):
        mine = [f for f in findings if f.index == index.name and f.action is not None]
        if mine:
            wrong = {uuid for finding in mine for uuid in finding.segments}
            retrain = any(finding.action is Action.RETRAIN for finding in mine)
            work = Work(engine, snapshot, memory_bytes)
            try:
                newest, outcome[index.name] = _rebuild(work, index.segments, wrong, retrain=retrain), ""
            except PennonError as error:
                outcome[index.name] = str(error)
    return newest, outcome


def _rebuild(work: Work, segments: Sequence[IndexSegment], wrong: set[str], *, retrain: bool) -> Snapshot:
    """One segment in place of the wrong ones. Where a sound one holds old values of what the new one would cover, it
    has to go too."""
    leaving = [segment for segment in segments if segment.uuid in wrong]
    staying = [segment for segment in segments if segment.uuid not in wrong]
    try:
        return _replace(work, leaving, staying, retrain=retrain)
    except (CommitConflict, InvalidArgument):
        if not staying:
            raise
        return _replace(work, segments, (), retrain=retrain)


def _replace(
    work: Work, leaving: Sequence[IndexSegment], staying: Sequence[IndexSegment], *, retrain: bool
) -> Snapshot:
    snapshot, name = work.snapshot, leaving[0].name
    reuse = read_fragment_reuse(snapshot)
    covered = BitMap().union(*(effective_coverage(s, snapshot, reuse, (*leaving, *staying)) for s in leaving))
    covered -= BitMap().union(*(effective_coverage(s, snapshot, reuse, (*leaving, *staying)) for s in staying))
    if not covered and staying:
        return publish(snapshot, replace_segments(name, [], leaving))
    segment = jobs_of(leaving[0]).rebuild(work, leaving, staying, list(covered), retrain=retrain)
    with committing(snapshot, [segment]):
        return publish(snapshot, replace_segments(name, [segment], leaving))


def _forget_moves(engine: Engine, snapshot: Snapshot, memory_bytes: int) -> tuple[Snapshot, dict[str, str]]:
    """Without the moves nobody knows where rows are that files name by old addresses. So segments lose their coverage
    in the transaction that removes the moves, and win it back from the data."""

    def commit(base: Snapshot) -> Snapshot:
        entry = base.manifest.reuse_segment
        emptied = [replace(segment, fragments=FrozenBitMap()) for segment in base.manifest.user_segments]
        return commit_segments(base, emptied, [entry]) if entry else base

    bare = on_newest(snapshot, commit)
    names = [index.name for index in group_segments(bare.manifest.segments)]
    return optimize(engine, bare, plan_optimize(bare), memory_bytes), dict.fromkeys(names, "")
