"""A Hilbert curve through the boxes of a tree: boxes with similar places on it are near each other.

Coordinates may be on any scale, and outliers must not push all others into one cell, so an axis is divided by the
quantiles of a sample rather than evenly. Any order of leaves is valid; this one makes pages small.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pennon.index.rtree.geometries import Boxes

Keys = npt.NDArray[np.uint32]

BITS = 16
QUANTILES = 1025
SAMPLED = 1 << 16
# Rows whose keys are computed together.
ROWS_AT_ONCE = 1 << 14
# Beyond this the differences of doubles overflow; infinity is as good as this.
FARTHEST = 1e300


@dataclass(frozen=True, eq=False)
class Curve:
    """The quantiles of each axis, ascending and distinct, with the cells [0, 2**BITS) that they are mapped to."""

    edges: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
    cells: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

    @classmethod
    def of(cls, boxes: Boxes) -> Curve:
        """A curve for boxes like these."""
        centers = _centers(boxes[:: max(1, len(boxes) // SAMPLED)])
        axes = [_axis(centers[:, at]) for at in range(2)]
        return cls((axes[0][0], axes[1][0]), (axes[0][1], axes[1][1]))

    def keys(self, boxes: Boxes) -> Keys:
        """The place of each box on the curve, by its center. Some rows at a time stay in the processor's cache."""
        keys = np.empty(len(boxes), dtype=np.uint32)
        for start in range(0, len(boxes), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            centers = _centers(boxes[rows])
            x, y = (np.interp(centers[:, at], self.edges[at], self.cells[at]).astype(np.uint32) for at in range(2))
            keys[rows] = _hilbert(x, y)
        return keys


def order_of(keys: Keys) -> npt.NDArray[np.int64]:
    """The places of up to 2**32 keys in ascending order, of equal ones the first first. Numbers that are sorted
    themselves are sorted several times as fast as their places."""
    numbered = keys.astype(np.uint64) << np.uint64(32) | np.arange(len(keys), dtype=np.uint64)
    numbered.sort()
    return (numbered & np.uint64(0xFFFFFFFF)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class CurveRanges:
    """Consecutive ranges of a curve, one for each task."""

    curve: Curve
    cuts: Keys

    @classmethod
    def of(cls, boxes: Boxes, count: int) -> CurveRanges:
        """At most `count` ranges with about equally many of these boxes."""
        curve = Curve.of(boxes)
        ascending = np.sort(curve.keys(boxes))
        places = [len(boxes) * number // count for number in range(1, count)] if len(boxes) else []
        return cls(curve, np.unique(ascending[places]))

    @property
    def count(self) -> int:
        return len(self.cuts) + 1

    def edges(self, ascending: Keys) -> list[tuple[int, int, int]]:
        """Where ascending keys are cut: the number of each range with keys, its first and its last row."""
        ends = [0, *np.searchsorted(ascending, self.cuts).tolist(), len(ascending)]
        return [(number, start, stop) for number, (start, stop) in enumerate(pairwise(ends)) if stop > start]


def _centers(boxes: Boxes) -> npt.NDArray[np.float64]:
    near = np.clip(boxes, -FARTHEST, FARTHEST)
    return near[:, :2] / 2 + near[:, 2:] / 2


def _axis(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if not len(values):
        return np.zeros(1), np.zeros(1)
    quantiles = np.quantile(values, np.linspace(0, 1, QUANTILES))
    edges, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
    # A value of many rows has the middle of its cells.
    return edges, (first + (counts - 1) / 2) * ((1 << BITS) - 1) / (QUANTILES - 1)


def _hilbert(x: Keys, y: Keys) -> Keys:
    """The distance along the curve of the cells (x, y), level by level from the largest squares. Overwrites both."""
    keys, one = np.zeros(len(x), dtype=np.uint32), np.uint32(1)
    for bit in range(BITS - 1, -1, -1):
        right, upper = (x >> np.uint32(bit)) & one, (y >> np.uint32(bit)) & one
        keys |= ((np.uint32(3) * right) ^ upper) << np.uint32(2 * bit)
        # The lower squares are turned: mirrored, if they are to the right, and transposed. Masks are all bits or none.
        lower = upper - one
        mirrored = lower & (np.uint32(0) - right)
        x ^= mirrored
        y ^= mirrored
        exchanged = (x ^ y) & lower
        x ^= exchanged
        y ^= exchanged
    return keys
