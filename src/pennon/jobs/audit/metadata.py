"""Checks of metadata alone: coverage, recorded compactions, files that no version names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.cleanup import orphans
from pennon.format.index_metadata import IndexSegment, LogicalIndex
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import (
    changed_in_place,
    effective_coverage,
    trusted_coverage,
    untrusted_coverage,
)
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable
from pennon.jobs.audit.report import Action, Finding, Severity
from pennon.jobs.clean_orphans import counted
from pennon.jobs.fragment_reuse.state import read_state
from pennon.wording import plural

REBUILT = "`pennon audit --repair` builds it from the data"


def check_coverage(snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None) -> list[Finding]:
    findings: list[Finding] = []
    usable: list[tuple[IndexSegment, BitMap]] = []
    for segment in index.segments:
        if segment.damage is not None:
            uuids = (segment.uuid,)
            findings.append(Finding(Severity.ERROR, index.name, uuids, segment.damage, REBUILT, Action.REBUILD))
            continue
        reason = why_unusable(snapshot, segment)
        if reason:
            problem = f"not audited: {reason}"
            findings.append(note(index.name, (segment.uuid,), problem, "Use the tool that wrote it, or drop the index"))
            continue
        if untrusted := untrusted_coverage(segment):
            problem = (
                f"it claims to cover {plural(len(untrusted), 'fragment')} ({some(untrusted)}) newer"
                " than its files: pylance 13 or older moved rows, and pylance 14 will miss them"
            )
            figures = {"fragments": len(untrusted)}
            findings.append(
                Finding(Severity.ERROR, index.name, (segment.uuid,), problem, REBUILT, Action.REBUILD, figures)
            )
        usable.append((segment, effective_coverage(segment, snapshot, reuse, index.segments)))
        listed = BitMap(trusted_coverage(segment))
        moved = reuse.effective(listed) if reuse else listed
        if changed := changed_in_place(segment, snapshot, moved & snapshot.manifest.live):
            problem = (
                f"it claims to cover {plural(len(changed), 'fragment')} ({some(changed)}) whose column was changed in"
                " place since: pylance returns the old values"
            )
            findings.append(Finding(Severity.ERROR, index.name, (segment.uuid,), problem, REBUILT, Action.REBUILD))
        gone = moved - snapshot.manifest.live
        if gone:
            problem = f"it covers {plural(len(gone), 'fragment')} that left the table ({some(gone)})"
            remedy = "Nothing to do: they answer no query"
            findings.append(note(index.name, (segment.uuid,), problem, remedy, fragments=len(gone)))
    for (first, ours), (second, theirs) in combinations(usable, 2):
        shared = ours & theirs
        if shared:
            problem = f"two segments cover the same {plural(len(shared), 'fragment')} ({some(shared)})"
            pair = (first.uuid, second.uuid)
            figures = {"fragments": len(shared)}
            findings.append(Finding(Severity.ERROR, index.name, pair, problem, REBUILT, Action.REBUILD, figures))
    return findings


def check_fragment_reuse(snapshot: Snapshot) -> Finding | None:
    """Recorded compactions that are impossible. While they exist, nothing else can be checked."""
    try:
        reuse = read_fragment_reuse(snapshot)
    except DamagedFile as error:
        # Lance reads it before every commit, so no commit succeeds.
        remedy = "Restore the last version before it; queries scan the table until then"
        return Finding(Severity.ERROR, None, (), error.problem, remedy)
    problem = reuse.contradiction(snapshot.manifest.fragments) if reuse is not None else None
    if problem is None:
        return None
    remedy = "`pennon audit --repair` removes it and builds all indices from the data"
    return Finding(Severity.ERROR, None, (), problem, remedy, Action.REMOVE_FRAGMENT_REUSE)


def check_compactions(engine: Engine, snapshot: Snapshot) -> list[Finding]:
    state = read_state(engine, snapshot)
    findings: list[Finding] = []
    if state is None:
        return findings
    if state.followable:
        problem = f"{plural(len(state.followable), 'segment')} behind the Fragment Reuse Index"
        uuids = tuple(segment.uuid for segment in state.followable)
        remedy = "`pennon catch-up` rewrites them; queries are correct until then"
        findings.append(note(None, uuids, problem, remedy, segments=len(state.followable)))
    findings += [_unsearchable(s) for s in state.behind if _lost_rows(snapshot, s)]
    if state.left_behind:
        problem = (
            f"{plural(len(state.left_behind), 'segment')} behind the Fragment Reuse Index that Pennon cannot rewrite"
        )
        uuids = tuple(segment.uuid for segment in state.left_behind)
        remedy = "Use the tool that wrote them; queries are correct until then"
        findings.append(note(None, uuids, problem, remedy, segments=len(state.left_behind)))
    if state.removable:
        problem = f"the Fragment Reuse Index has {plural(state.removable, 'compaction')} that no index file needs"
        findings.append(note(None, (), problem, "`pennon trim` removes them", compactions=state.removable))
    return findings


def _lost_rows(snapshot: Snapshot, segment: IndexSegment) -> bool:
    """Whether a deferred compaction may have dropped rows without which pylance cannot read a segment."""
    kind, reuse = kind_of(segment), read_fragment_reuse(snapshot)
    if reuse is None or kind is None or kind.outlives_lost_rows(snapshot, segment):
        return False
    return any(d.num_deleted_rows for version in reuse.versions for group in version.groups for d in group.old)


def _unsearchable(segment: IndexSegment) -> Finding:
    problem = "pylance may fail to search it: a deferred compaction dropped deleted rows that are in its graphs"
    remedy = "`pennon catch-up` rewrites it; searches by Pennon are correct"
    return Finding(Severity.WARNING, segment.name, (segment.uuid,), problem, remedy)


def check_orphans(snapshot: Snapshot) -> list[Finding]:
    try:
        left = orphans(snapshot)
    except (DamagedFile, UnsupportedTable) as error:
        return [note(None, (), f"orphans could not be listed: {error.problem}", "Restore the version, or clean up")]
    if not left:
        return []
    names = ", ".join(orphan.path for orphan in left[:3])
    problem = f"{counted(left)} in no version ({names})"
    remedy = "Left by a job that was killed, or in use by one that is running; `pennon clean-orphans` deletes old ones"
    return [note(None, (), problem, remedy, orphans=len(left))]


def column_of(snapshot: Snapshot, segment: IndexSegment) -> str | None:
    column = snapshot.columns.by_id(segment.fields[0]) if len(segment.fields) == 1 else None
    return column.path if column else None


def note(index: str | None, uuids: tuple[str, ...], problem: str, remedy: str, **figures: float) -> Finding:
    return Finding(Severity.NOTE, index, uuids, problem, remedy, figures=figures)


def some(numbers: Iterable[int]) -> str:
    known = list(islice(numbers, 6))
    return ", ".join(map(str, known[:5])) + (", ..." if len(known) > 5 else "")
