"""Seconds of several turns: the median, and the spread from the lowest to the highest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

# Fewer turns give no spread to speak of.
TURNS = 5


@dataclass(frozen=True)
class Timing:
    """A figure of every turn, in the order of the turns; `f"{timing:.2f}"` is `1.01 (0.98 to 1.15)`."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.turns)

    def times(self, factor: float) -> Timing:
        return Timing(tuple(turn * factor for turn in self.turns))

    def per_second(self, count: int) -> Timing:
        return Timing(tuple(count / turn for turn in self.turns))

    def over(self, other: Timing) -> Timing:
        """The ratio of each turn, so that what slows down both does not count."""
        return Timing(tuple(mine / its for mine, its in zip(self.turns, other.turns, strict=True)))

    def minus(self, other: Timing) -> Timing:
        return Timing(tuple(max(0.0, mine - its) for mine, its in zip(self.turns, other.turns, strict=True)))

    def __format__(self, spec: str) -> str:
        low, high = min(self.turns), max(self.turns)
        return f"{self.median:{spec}} ({low:{spec}} to {high:{spec}})"


def interleaved(
    contestants: dict[str, Callable[[], object]], turns: int = TURNS, prepare: Callable[[], object] | None = None
) -> dict[str, Timing]:
    """Seconds of each in every turn; they take turns so that a noisy machine is noisy for all. `prepare` is done before
    each and not counted."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, work in contestants.items():
            if prepare is not None:
                prepare()
            start = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def medians_in_turns(
    contestants: dict[str, Callable[[int], object]], calls: Sequence[int], turns: int = TURNS
) -> dict[str, Timing]:
    """Seconds of one call of many short ones: the median of a turn, for every turn."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, work in contestants.items():
            of_turn: list[float] = []
            for call in calls:
                start = time.perf_counter()
                work(call)
                of_turn.append(time.perf_counter() - start)
            taken[name].append(median(of_turn))
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}
