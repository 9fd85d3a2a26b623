"""What a measurement of a column found: settings with their recall and time, and which of them to use."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pennon.display import Displayed, fields_table, rows_table, section, text_table
from pennon.query.search.tuning.record import Tuning
from pennon.query.search.tuning.settings import Measured, cheapest, frontier
from pennon.wording import in_lines, plural
from pennon.work import NO_WORK, Work

HEADERS = ("index", "nprobes", "refine_factor", "ef", "recall", "90% interval", "ms")


@dataclass(frozen=True)
class TunedSetting(Displayed):
    """A setting of a search with its recall, the 90% interval of that, and the median milliseconds of a single query.
    Without an index, every row is measured. `least_k` is the smallest k whose recall is no lower."""

    index: str | None
    nprobes: int | None
    refine_factor: int | None
    ef: int | None
    recall: float
    recall_low: float
    recall_high: float
    queries: int
    least_k: int
    milliseconds: float

    @property
    def options(self) -> dict[str, Any]:
        """The options to give a search."""
        if self.index is None:
            return {"use_index": False}
        named = {"minimum_nprobes": self.nprobes, "refine_factor": self.refine_factor, "ef": self.ef}
        return {"index": self.index, **{name: value for name, value in named.items() if value is not None}}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """A row of the printed table."""
        numbers = ("-" if value is None else f"{value:,}" for value in (self.nprobes, self.refine_factor, self.ef))
        interval = f"{self.recall_low:.3f} to {self.recall_high:.3f}"
        return (self.index or "(every row)", *numbers, f"{self.recall:.3f}", interval, f"{self.milliseconds:.2f}")


@dataclass(frozen=True)
class TuningResult(Displayed):
    """The settings of a column's indices: all that were measured, those that no other beats in recall and time
    (`frontier`), and the one to use (`chosen`), with the reason. Recall is that of `queries`: rows of the table, none
    of which is its own answer, or vectors that were given."""

    table: str
    version: int
    column: str
    metric: str
    k: int
    recall: float
    filter: str | None
    queries: int
    sampled: bool
    rows: int
    settings: tuple[TunedSetting, ...] = field(repr=False)
    frontier: tuple[TunedSetting, ...]
    chosen: TunedSetting
    reason: str
    stored: bool
    seconds: float
    work: Work = field(default=NO_WORK, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        one, many = ("row", "rows") if self.sampled else ("given query", "given queries")
        who = plural(self.queries, one, many) + " of the table, none of them its own answer" * self.sampled
        where = f", filter {self.filter}" if self.filter else ""
        head = [
            f"tuning of {self.column} of {self.table}, version {self.version}, {plural(self.rows, 'row')}",
            f"asked     recall@{self.k} of {self.recall:.4g} by {self.metric}{where}",
            f"queries   {who}",
        ]
        use = ", ".join(f"{name}={value!r}" for name, value in self.chosen.options.items())
        foot = [f"use       {use}", f"because   {self.reason}"]
        if self.stored:
            ks = f"k={self.chosen.least_k} to {self.k}" if self.chosen.least_k < self.k else f"k={self.k}"
            foot.append(f"stored    search(..., recall={self.recall:.4g}) uses it for {ks}")
        table = text_table(HEADERS, [setting.cells() for setting in self.frontier])
        return "\n".join([in_lines(head), "", table, "", in_lines(foot)])

    def _repr_html_(self) -> str:
        facts = {name: value for name, value in self.to_dict().items() if name not in ("settings", "frontier", "work")}
        rows = rows_table(HEADERS, [setting.cells() for setting in self.frontier])
        return section(type(self).__name__, fields_table(facts), rows)


def result_of(table: str, tuning: Tuning, filter: str | None, queries: int, sampled: bool, **more: Any) -> TuningResult:
    """The result of a measurement that can be stored."""
    chosen, reason = recommended(tuning)
    return TuningResult(
        table=table,
        version=tuning.version,
        column=tuning.column,
        metric=tuning.metric,
        k=tuning.k,
        recall=tuning.recall,
        filter=filter,
        queries=queries,
        sampled=sampled,
        rows=tuning.rows,
        settings=tuple(map(_setting, tuning.points)),
        frontier=tuple(map(_setting, frontier(tuning.points))),
        chosen=_setting(chosen),
        reason=reason,
        **more,
    )


def _setting(point: Measured) -> TunedSetting:
    return TunedSetting(**point.to_dict())


def recommended(tuning: Tuning) -> tuple[Measured, str]:
    """The setting to use, and why."""
    chosen = cheapest(tuning.points, tuning.recall, tuning.k)
    assert chosen is not None  # every row can be measured
    measured = [point for point in tuning.points if point.setting.index is not None]
    reached = [point for point in measured if point.recall.low >= tuning.recall]
    if not reached:
        best = max((point.recall.mean for point in measured), default=None)
        why = "there is no index" if best is None else f"the best setting of an index has a recall of {best:.3f}"
        return chosen, f"{why}, so that every row has to be measured"
    if chosen.setting.index is None:
        return chosen, "to measure every row is faster than any setting of an index that reaches the recall"
    count = f"{plural(len(reached), 'setting')} of {len(measured)}"
    reason = f"the fastest of {count} whose recall is at least {tuning.recall:.4g} with a confidence of 95%"
    exact = next((point.milliseconds for point in tuning.points if point.setting.index is None), 0.0)
    times = exact / max(chosen.milliseconds, 1e-9)
    return chosen, f"{reason}; to measure every row takes {times:.0f} times as long" if times >= 2 else reason
