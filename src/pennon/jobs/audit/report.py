"""The report of an audit: findings with severity, figures and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pennon.display import Displayed
from pennon.wording import in_lines, plural
from pennon.work import NO_WORK, Work

# Vectors of the table that are searched to measure the recall of an index, unless another number is given.
RECALL_QUERIES = 20


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Action(StrEnum):
    """The action of a repair. Segments are rebuilt from the data, with their models or with new ones; an invalid
    Fragment Reuse Index is removed together with the coverage that depends on it."""

    REBUILD = "rebuild"
    RETRAIN = "retrain"
    REMOVE_FRAGMENT_REUSE = "remove the Fragment Reuse Index"


@dataclass(frozen=True)
class Finding(Displayed):
    """`action` is the action of a repair; None if it cannot help. `index` is None for findings about the table.
    `figures` are the numbers in `problem`."""

    severity: Severity
    index: str | None
    segments: tuple[str, ...]
    problem: str
    remedy: str
    action: Action | None = None
    figures: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "severity": self.severity.value,
            "index": self.index,
            "segments": list(self.segments),
            "problem": self.problem,
            "remedy": self.remedy,
            "action": self.action.value if self.action else None,
            "figures": dict(self.figures),
        }

    @property
    def what(self) -> str:
        """The problem in one line, with its index and segments."""
        where = f"{self.index}: " if self.index else ""
        which = f" (segment {', '.join(uuid[:8] for uuid in self.segments)})" if self.segments else ""
        return f"{where}{self.problem}{which}"

    def __str__(self) -> str:
        return f"{self.severity.value:<8}  {self.what}. {self.remedy}"


@dataclass(frozen=True)
class AuditReport(Displayed):
    """`rows_compared` counts rows of the table once per column and metric. `findings` are the remaining ones;
    `repaired` are those that this audit repaired."""

    table: str
    version: int
    indices: int
    segments: int
    rows_compared: int
    sample: float
    seconds: float
    findings: tuple[Finding, ...]
    repaired: tuple[Finding, ...] = ()
    work: Work = NO_WORK
    """What was read and exchanged for it."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make answers wrong or slow, and that a repair can put right."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """Whether every index agrees with the table, in all fragments that were checked."""
        return not self.errors

    @property
    def status(self) -> str:
        """`ok`, `repaired` where errors were and none is left, or `errors`."""
        return ("repaired" if self.repaired else "ok") if self.ok else "errors"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "status": self.status,
            "table": self.table,
            "version": self.version,
            "ok": self.ok,
            "indices": self.indices,
            "segments": self.segments,
            "rows_compared": self.rows_compared,
            "sample": self.sample,
            "seconds": round(self.seconds, 3),
            "findings": [finding.to_dict() for finding in self.findings],
            "repaired": [finding.to_dict() for finding in self.repaired],
            "work": self.work.to_dict(),
        }

    def __str__(self) -> str:
        share = "" if self.sample >= 1 else f", {self.sample:.0%} of the fragments"
        scope = f"{plural(self.indices, 'index', 'indices')}, {plural(self.segments, 'segment')}"
        lines = [f"{scope}, {plural(self.rows_compared, 'row')} compared{share} in {self.seconds:.1f} s"]
        lines += [f"repaired  {finding.what}" for finding in self.repaired]
        lines += map(str, self.findings)
        if self.ok:
            lines.append(
                f"version {self.version}: {'every index agrees with the table' if self.indices else 'no indices'}"
            )
        else:
            lines.append(f"version {self.version}: {plural(len(self.errors), 'error')}")
        return in_lines(lines)
