"""Check that every index agrees with the table: its files, layout, rows, codes and recorded compactions.

```
driver     check metadata: kinds, overlaps, compactions           findings
executors  open every segment                                     pieces of about equal work
executors  add up rows of pieces, and of slices of the table      a count and a sum by fragment
executors  if those differ, compare both sides row by row         rows missing, surplus, twice, changed
executors  find rows of fragments that another segment covers     old values that pylance would return
driver     search a few vectors, compare with a scan of all       recall
```
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import IndexNotFound, InvalidArgument
from pennon.format.index_metadata import LogicalIndex, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable
from pennon.jobs.audit.checksums import Sums
from pennon.jobs.audit.compare import Suspect, compare, examined
from pennon.jobs.audit.metadata import (
    REBUILT,
    check_compactions,
    check_coverage,
    check_fragment_reuse,
    check_orphans,
    column_of,
    note,
    some,
)
from pennon.jobs.audit.owners import check_owners
from pennon.jobs.audit.repair import repair as put_right
from pennon.jobs.audit.report import Action, AuditReport, Finding, Severity
from pennon.jobs.audit.rows import Checked, check_piece, inspect, sum_table
from pennon.jobs.audit.targets import CodeTally, Inspected, Subject, View
from pennon.jobs.audit.tunings import check_tunings
from pennon.jobs.kinds import KindAudit
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.arguments import check_integers
from pennon.jobs.shared.tasks import ROWS_PER_TASK, cut_slices
from pennon.wording import plural

# If more codes are wrong, the cause is not changed vectors: they were encoded with other models.
FOREIGN_CODES = 0.3


@dataclass(frozen=True)
class AuditPlan:
    """The scope of an audit: the indices (`names` None: all), the share of fragments, the number of recall queries."""

    sample: float
    recall_queries: int
    memory_bytes: int
    names: tuple[str, ...] | None

    def of(self, snapshot: Snapshot) -> list[LogicalIndex]:
        indices = group_segments(snapshot.manifest.segments)
        known = [index.name for index in indices]
        for name in self.names or ():
            if name not in known:
                raise IndexNotFound.among(known, name, snapshot.uri)
        return [index for index in indices if self.names is None or index.name in self.names]

    def fragments(self, snapshot: Snapshot) -> BitMap:
        """All fragments, or a new random share for each audit, so that repeated audits check more of them."""
        live = list(snapshot.manifest.live)
        if self.sample >= 1 or not live:
            return BitMap(live)
        count = max(1, round(self.sample * len(live)))
        return BitMap(np.random.default_rng().choice(live, count, replace=False))


def audit(
    engine: Engine,
    snapshot: Snapshot,
    *,
    sample: float,
    repair: bool,
    names: Sequence[str] | None,
    recall_queries: int,
    memory_bytes: int,
) -> tuple[Snapshot, AuditReport]:
    """Audit, repair if requested, and audit the repaired indices again."""
    check_integers(recall_queries=recall_queries)
    if not 0 < sample <= 1:
        raise InvalidArgument(f"sample must be above 0 and at most 1, but is {sample}")
    if recall_queries < 0:
        raise InvalidArgument(f"recall_queries must not be negative, but is {recall_queries}")
    started = monotonic()
    plan = AuditPlan(sample, recall_queries, memory_bytes, None if names is None else tuple(names))
    report = _examine(engine, snapshot, plan)
    wrong = [finding for finding in report.errors if finding.action is not None]
    if not repair or not wrong:
        return snapshot, report
    newest, outcome = put_right(engine, snapshot, wrong, memory_bytes)
    done = tuple(name for name, why in outcome.items() if not why)
    again = _examine(engine, newest, replace(plan, names=done, sample=1.0))
    left = [finding for finding in report.findings if finding.index is not None and outcome.get(finding.index, "-")]
    failed = [Finding(Severity.WARNING, name, (), f"not repaired: {why}", "") for name, why in outcome.items() if why]
    return newest, replace(
        report,
        version=newest.version,
        seconds=monotonic() - started,
        findings=_by_weight([*again.findings, *left, *failed]),
        repaired=tuple(finding for finding in wrong if finding not in left),
    )


def _examine(engine: Engine, snapshot: Snapshot, plan: AuditPlan) -> AuditReport:
    started = monotonic()
    indices = plan.of(snapshot)
    findings: list[Finding] = []
    compared = 0
    unusable = check_fragment_reuse(snapshot)
    if unusable is not None:
        findings.append(unusable)
    else:
        reuse = read_fragment_reuse(snapshot)
        for index in indices:
            findings += check_coverage(snapshot, index, reuse)
        subjects = _subjects(snapshot, indices, reuse, plan.fragments(snapshot))
        examination = _Examination(engine, snapshot, plan)
        findings += examination.segments(subjects)
        compared = examination.rows_compared
        findings += check_owners(engine, snapshot, indices, subjects, reuse, plan.memory_bytes)
        findings += examination.recall({f.index for f in findings if f.severity is Severity.ERROR})
        if reuse is not None:
            findings += check_compactions(engine, snapshot)
    findings += check_orphans(snapshot)
    if plan.names is None:
        findings += check_tunings(snapshot)
    segments = sum(len(index.segments) for index in indices)
    return AuditReport(
        snapshot.uri,
        snapshot.version,
        len(indices),
        segments,
        compared,
        plan.sample,
        monotonic() - started,
        _by_weight(findings),
    )


class _Examination:
    """Examines the segments of a version, stage by stage."""

    def __init__(self, engine: Engine, snapshot: Snapshot, plan: AuditPlan) -> None:
        self._engine, self._snapshot, self._plan = engine, snapshot, plan
        self._pin = snapshot.pin()
        self._views: dict[str, tuple[KindAudit, View]] = {}  # by the name of the index
        self.rows_compared = 0

    def segments(self, subjects: Sequence[Subject]) -> list[Finding]:
        if not subjects:
            return []
        inspected = self._engine.map("inspect", partial(inspect, self._pin), subjects)
        findings = [finding for s, i in zip(subjects, inspected, strict=True) if (finding := _opened(s, i))]
        valid = [(s, i) for s, i in zip(subjects, inspected, strict=True) if i.view is not None]
        expected = self._expected(valid)
        pieces = [piece for _, each in valid for piece in each.pieces]
        stored = sum(self._snapshot.manifest.rows_in(BitMap(s.fragments)) for s, _ in valid)
        checked = self._engine.map("index rows", partial(check_piece, self._pin), pieces, rows=stored)
        by_segment: dict[str, list[Checked]] = {}
        for piece, each in zip(pieces, checked, strict=True):
            by_segment.setdefault(piece.subject.segment.uuid, []).append(each)
        suspects: list[Suspect] = []
        for subject, each in valid:
            assert each.view is not None
            mine = by_segment.get(subject.segment.uuid, [])
            problem = next((c.damage for c in mine if c.damage), None)
            if problem is not None:
                findings.append(_damaged(subject, problem))
                continue
            self._views[subject.segment.name] = jobs_of(subject.segment).audit, each.view
            findings += _codes(subject, [c.codes for c in mine])
            found = Sums.over(subject.fragments)
            for c in mine:
                found.join(c.sums)
            differing = found.differing(expected[each.view].of(subject.fragments))
            if differing:
                suspects.append(Suspect(subject, each.pieces, each.view, tuple(differing)))
        return findings + self._differing(suspects)

    def recall(self, wrong: set[str | None]) -> list[Finding]:
        """Measure the recall of searchable indices without errors."""
        findings: list[Finding] = []
        for name, (audit, view) in self._views.items() if self._plan.recall_queries else ():
            if name in wrong:
                continue
            recall = audit.recall(self._engine, self._snapshot, name, view, self._plan.recall_queries)
            if recall is None:
                continue
            figures = {"recall": recall.share, "queries": self._plan.recall_queries}
            if recall.poor:
                remedy = "Train it again with `pennon optimize --retrain`, or use more nprobes"
                findings.append(Finding(Severity.WARNING, name, (), recall.problem, remedy, figures=figures))
            else:
                findings.append(Finding(Severity.NOTE, name, (), recall.problem, "Nothing to do", figures=figures))
        return findings

    def _expected(self, valid: Iterable[tuple[Subject, Inspected]]) -> dict[View, Sums]:
        """The sums of the table, once per column for any number of indices on it."""
        wanted: dict[View, BitMap] = {}
        for subject, each in valid:
            if each.view is not None:
                wanted[each.view] = wanted.get(each.view, BitMap()) | subject.fragments
        tasks = []
        for view, fragments in wanted.items():
            rows = self._snapshot.manifest.rows_in(fragments)
            self.rows_compared += rows
            chosen = [self._snapshot.manifest.fragments[f] for f in fragments]
            tasks += [(view, part) for part in cut_slices(chosen, max(1, -(-rows // ROWS_PER_TASK)))]
        sums = {view: Sums.over(fragments) for view, fragments in wanted.items()}
        summed = self._engine.map("table rows", partial(sum_table, self._pin), tasks, rows=self.rows_compared)
        for (view, _), part in zip(tasks, summed, strict=True):
            sums[view].join(part)
        return sums

    def _differing(self, suspects: Sequence[Suspect]) -> list[Finding]:
        examined_only = [replace(s, fragments=examined(BitMap(s.fragments))) for s in suspects]
        found = compare(self._engine, self._snapshot, examined_only, self._plan.memory_bytes)
        findings: list[Finding] = []
        for suspect, differences in zip(suspects, found, strict=True):
            segment = suspect.subject.segment
            where = f"{plural(len(suspect.fragments), 'fragment')} ({some(suspect.fragments)})"
            problem = f"its rows differ from those of {where}: {differences}"
            figures = {"fragments": len(suspect.fragments)}
            findings.append(
                Finding(Severity.ERROR, segment.name, (segment.uuid,), problem, REBUILT, Action.REBUILD, figures)
            )
        return findings


def _subjects(
    snapshot: Snapshot, indices: Sequence[LogicalIndex], reuse: FragmentReuse | None, chosen: BitMap
) -> list[Subject]:
    subjects: list[Subject] = []
    for index in indices:
        for segment in index.segments:
            kind, column = kind_of(segment), column_of(snapshot, segment)
            if kind is None or column is None or why_unusable(snapshot, segment):
                continue
            coverage = effective_coverage(segment, snapshot, reuse, index.segments)
            addresses = kind.stores_addresses(segment.index_version, snapshot.manifest.has_stable_row_ids)
            compared = FrozenBitMap(coverage & chosen)
            subjects.append(Subject(segment, column, addresses, compared))
    return subjects


def _opened(subject: Subject, inspected: Inspected) -> Finding | None:
    if inspected.damage is not None:
        return _damaged(subject, inspected.damage)
    if inspected.skipped is not None:
        segment = subject.segment
        return note(segment.name, (segment.uuid,), f"not audited: {inspected.skipped}", "Use the tool that wrote it")
    return None


def _damaged(subject: Subject, problem: str) -> Finding:
    segment = subject.segment
    return Finding(Severity.ERROR, segment.name, (segment.uuid,), problem, REBUILT, Action.REBUILD)


def _codes(subject: Subject, tallies: Iterable[CodeTally]) -> list[Finding]:
    total = CodeTally()
    for tally in tallies:
        total.join(tally)
    wrong = sum(total.wrong.values())
    if not wrong:
        return []
    foreign = wrong > FOREIGN_CODES * total.rows
    action = Action.RETRAIN if foreign else Action.REBUILD
    fragments = plural(len(total.wrong), "fragment")
    problem = (
        f"{wrong:,} of {plural(total.rows, 'checked row')} have codes that do not match their vectors, in {fragments}"
        f" ({some(sorted(total.wrong))})"
    )
    segment, figures = subject.segment, {"rows_wrong": wrong, "rows": total.rows, "fragments": len(total.wrong)}
    return [Finding(Severity.ERROR, segment.name, (segment.uuid,), problem, REBUILT, action, figures)]


def _by_weight(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))
