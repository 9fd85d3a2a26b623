"""The description of a segment in the report: its parameters, figures, and one chart of how evenly its parts are
filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.wording import plural

Sizes = npt.NDArray[np.integer[Any]]

HISTOGRAM_BINS = 24
MAX_BARS = 60
MAX_RANKED = 8


@dataclass(frozen=True)
class Bar:
    """`title` is the tooltip; `label` names the bar where bars are listed by name."""

    value: float
    title: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """Vertical bars, or, if `ranked`, one line for each bar with its label. `label` is for screen readers, `ends` are
    captions of the left and the right end, `text` explains the chart. Without bars only the text is shown. Figures are
    in the description's `measures` and not repeated in `text`."""

    title: str
    label: str
    text: str
    bars: tuple[Bar, ...] = ()
    ends: tuple[str, str] | None = None
    ranked: bool = False


@dataclass(frozen=True)
class Description:
    """`measures` are figures under their names in `snake_case`; `parameters` are what the index was built with."""

    parameters: tuple[tuple[str, str], ...] = ()
    measures: Mapping[str, int | float] = field(default_factory=dict)
    chart: Chart | None = None


def histogram(sizes: Sizes, part: str, unit: str, lowest: int = 0) -> tuple[Bar, ...]:
    """A histogram of the parts by their number of units, where sizes are given above the lowest. Bins are whole numbers
    of units, so that the sizes in a bin name it."""
    if not len(sizes):
        return ()
    width = max(1, -(-(int(sizes.max()) + 1) // HISTOGRAM_BINS))
    counts = np.bincount(sizes // width).tolist()
    names = (_bin(at, width, unit, lowest) for at in range(len(counts)))
    return tuple(Bar(count, f"{name}: {plural(count, part)}") for name, count in zip(names, counts, strict=True))


def in_order(counts: Sequence[int], part: str, unit: str) -> tuple[Bar, ...]:
    """The parts in order; if there are very many, neighbors are combined by their mean."""
    step = max(1, -(-len(counts) // MAX_BARS))
    bars: list[Bar] = []
    for at in range(0, len(counts), step):
        some = counts[at : at + step]
        name = f"{part} {at + 1}" if len(some) == 1 else f"{part}s {at + 1} to {at + len(some)}, on average"
        mean = sum(some) / len(some)
        bars.append(Bar(mean, f"{name}: {plural(round(mean), unit)}"))
    return tuple(bars)


def ranking(counts: Sequence[tuple[str, int]], unit: str, at_most: int = MAX_RANKED) -> tuple[Bar, ...]:
    """The largest of some named counts, the largest first."""
    largest = sorted(counts, key=lambda each: -each[1])[:at_most]
    return tuple(Bar(count, f"{name}: {plural(count, unit)}", name) for name, count in largest)


def skew(sizes: Sizes) -> float:
    """The ratio of the largest part to the mean."""
    total = int(sizes.sum())
    return int(sizes.max()) * len(sizes) / total if total else 1.0


def _bin(at: int, width: int, unit: str, lowest: int) -> str:
    first = lowest + at * width
    return plural(first, unit) if width == 1 else f"{first:,} to {first + width - 1:,} {unit}s"
