"""Which vector index to build for a recall and a budget of memory, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pennon.display import Displayed, text_table
from pennon.index.vector.options import IvfOptions
from pennon.jobs.tune.result import TunedSetting
from pennon.wording import human_bytes, in_lines, plural

# Neighbors that recall is measured for.
K = 10
HEADERS = ("kind", "in memory", "files", "recall", "ms", "with", "")


@dataclass(frozen=True)
class IndexCandidate(Displayed):
    """An index that was considered: its bytes for all rows, in memory and in files, and the fastest setting that
    reached the recall on the sample, if one did."""

    kind: str
    parameters: Mapping[str, int]
    memory_bytes: int
    file_bytes: int
    setting: TunedSetting | None
    note: str

    @property
    def milliseconds(self) -> float:
        """Of a query that reaches the recall; infinite if none does."""
        return math.inf if self.setting is None else self.setting.milliseconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return ", ".join([self.kind, *(f"{name}={value}" for name, value in self.parameters.items())])


@dataclass(frozen=True)
class IndexAdvice(Displayed):
    """The index to build for a recall within a budget, and why. `options` are those to build it with."""

    table: str
    column: str
    recall: float
    memory_bytes: int | None
    rows: int
    sample_rows: int
    candidates: tuple[IndexCandidate, ...]
    chosen: IndexCandidate
    reason: str
    options: IvfOptions = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {**asdict(replace(self, options=IvfOptions())), "chosen": self.chosen.to_dict()}
        del found["options"]
        return found

    def __str__(self) -> str:
        budget = "any memory" if self.memory_bytes is None else f"at most {human_bytes(self.memory_bytes)} of memory"
        head = [
            f"index on {self.column} of {self.table} for recall@{K} of {self.recall:.4g} and {budget}",
            f"measured on {plural(self.sample_rows, 'row')} of {self.rows:,}",
        ]
        rows = [
            (
                str(each),
                human_bytes(each.memory_bytes),
                human_bytes(each.file_bytes),
                "-" if each.setting is None else f"{each.setting.recall:.3f}",
                "-" if each.setting is None else f"{each.setting.milliseconds:.2f}",
                "" if each.setting is None else _given(each.setting),
                each.note,
            )
            for each in self.candidates
        ]
        return "\n".join(
            [in_lines(head), text_table(HEADERS, rows), in_lines([f"chosen: {self.chosen}: {self.reason}"])]
        )


def _given(setting: TunedSetting) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.options.items() if name != "index")
