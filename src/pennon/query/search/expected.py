"""What a search with a recall is expected to give."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.display import DisplayedFields


@dataclass(frozen=True)
class ExpectedRecall(DisplayedFields):
    """The recall that was asked for, and the one that was measured for the setting in use, with a 90% interval over
    `queries`; of 0 queries where every row is measured."""

    asked: float
    recall: float
    low: float
    high: float
    queries: int
    setting: str
    reason: str

    def __str__(self) -> str:
        if not self.queries:
            return f"{self.recall:.3g}, {self.asked:.4g} asked; {self.reason}"
        interval = f"{self.low:.3f} to {self.high:.3f} by {self.queries:,} queries"
        return f"{self.recall:.3f} expected ({interval}), {self.asked:.4g} asked; {self.setting}; {self.reason}"
