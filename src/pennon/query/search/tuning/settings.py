"""A setting of a search, the recall it was measured to have, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pennon.index.vector.vectors import Floats
from pennon.query.search.request import SearchRequest

# Of a two-sided interval of 90%: recall is at least its lower end with a confidence of 95%.
CONFIDENCE = 0.9
DEVIATIONS = 1.645
# Few queries may happen to be easy ones: their variance is taken with one more, that found this much less.
ONE_WORSE = 0.3
# Partitions are made of the rows of the table, so that these might find more than queries from elsewhere. 5,000 words
# held out of GloVe, and as many texts, missed 0.95 to 1.08 times as much as rows did, on average as much.
UNSEEN = 1.03


@dataclass(frozen=True)
class Recall:
    """The mean over queries, and its interval: Wilson's, for as many independent answers as the variance between
    queries corresponds to. Unlike a normal interval it has a width also where every query found all."""

    mean: float
    low: float
    high: float
    queries: int

    @classmethod
    def of(cls, shares: Floats) -> Recall:
        """Of the share that each query found."""
        count = len(shares)
        if not count:
            return cls(0.0, 0.0, 1.0, 0)
        mean = float(np.mean(shares, dtype=np.float64))
        variance = float(np.var([*shares.tolist(), mean - ONE_WORSE], ddof=1)) / count
        # Not fewer than queries: shares vary at most as much as single answers do.
        answers = max(float(count), mean * (1 - mean) / variance)
        squared = DEVIATIONS**2 / answers
        center = (mean + squared / 2) / (1 + squared)
        half = math.sqrt(squared * mean * (1 - mean) + squared**2 / 4) / (1 + squared)
        return cls(mean, max(0.0, center - half), min(1.0, center + half), count)

    def for_others(self) -> Recall:
        """Of rows of the table as queries, with a lower end that also holds for queries from elsewhere."""
        return replace(self, low=max(0.0, 1 - UNSEEN * (1 - self.low)))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


EXACT = Recall(1.0, 1.0, 1.0, 0)


@dataclass(frozen=True)
class Setting:
    """How an index is searched for the k it was measured with; without an index, every row is measured. Without
    `nprobes` it is the default: more partitions are looked at only while there are too few answers."""

    index: str | None
    nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None

    def applied(self, request: SearchRequest, k: int) -> SearchRequest:
        """A request of at most k neighbors with this setting; it compares as many candidates as one of k."""
        if self.index is None:
            return replace(request, index=None, use_index=False)
        refine = None if self.refine_factor is None else -(-k * self.refine_factor // request.reach)
        ef = None if self.ef is None else max(self.ef, request.reach * (refine or 1))
        return replace(request, index=self.index, minimum_nprobes=self.nprobes, refine_factor=refine, ef=ef)

    def __str__(self) -> str:
        if self.index is None:
            return "every row is measured"
        given = [f"{name}={value}" for name, value in self.options().items()]
        return f"{self.index}: {', '.join(given) or 'defaults'}"

    def options(self) -> dict[str, int]:
        """The options of a search that are not its defaults."""
        named = {"minimum_nprobes": self.nprobes, "refine_factor": self.refine_factor, "ef": self.ef}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Measured:
    """A setting with its recall@k, the smallest k whose recall is no lower, and the median milliseconds of a query."""

    setting: Setting
    recall: Recall
    least_k: int
    milliseconds: float = math.inf

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        setting, recall = self.setting, self.recall
        return {
            "index": setting.index,
            "nprobes": setting.nprobes,
            "refine_factor": setting.refine_factor,
            "ef": setting.ef,
            "recall": round(recall.mean, 5),
            "recall_low": round(recall.low, 5),
            "recall_high": round(recall.high, 5),
            "queries": recall.queries,
            "least_k": self.least_k,
            "milliseconds": round(self.milliseconds, 4),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if it is not one."""
        index = None if found["index"] is None else str(found["index"])
        setting = Setting(index, *(_at_least_one(found[name]) for name in ("nprobes", "refine_factor", "ef")))
        mean, low, high = (float(found[name]) for name in ("recall", "recall_low", "recall_high"))
        recall = Recall(mean, low, high, int(found["queries"]))
        return cls(setting, recall, int(found["least_k"]), float(found["milliseconds"]))


def cheapest(points: Iterable[Measured], recall: float, k: int) -> Measured | None:
    """The fastest setting that has the recall with confidence, for this k."""
    reached = [point for point in points if point.recall.low >= recall and point.least_k <= k]
    return min(reached, key=lambda point: (point.milliseconds, -point.recall.mean), default=None)


def frontier(points: Iterable[Measured]) -> tuple[Measured, ...]:
    """The settings that no other one beats in recall and time, fastest first."""
    best: list[Measured] = []
    for point in sorted(points, key=lambda point: (point.milliseconds, -point.recall.mean)):
        if not best or point.recall.mean > best[-1].recall.mean:
            best.append(point)
    return tuple(best)


def _at_least_one(value: Any) -> int | None:
    number = None if value is None else int(value)
    if number is not None and number < 1:
        raise ValueError(f"{number} is below 1")
    return number
