"""Cells of sketches: which rows can be near-duplicates of which.

A sketch belongs to the cell of the nearest centroid. The plane halfway between two centroids separates their cells, so
a row can only have a near-duplicate in another cell if the plane is within reach. Of two cells, one compares the rows
of both, so that no pair is found twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pennon.index.vector.vectors import Floats, Mask, Positions
from pennon.jobs.near_duplicates.sketch import ROUNDOFF, Sketch

Cell = npt.NDArray[np.int32]

# Scores of rows against centroids that are computed at once.
SCORES = 1 << 21
# Rows of both sides whose products are computed at once: 4 MiB, which stay in the processor's caches.
PRODUCT_ROWS = 1024


class Candidates(NamedTuple):
    """Places of rows that may be within the distance: of the first side, and of the second."""

    first: Positions
    second: Positions


@dataclass(frozen=True, eq=False)
class Cells:
    """Centroids of sketches, [cells, width]; `starts` are the first cells of groups, each of which one task compares.
    `radius` is the Euclidean distance of near-duplicates."""

    sketch: Sketch
    radius: float
    centroids: Floats
    starts: Positions

    def __len__(self) -> int:
        return len(self.centroids)

    def home(self, sketches: Floats) -> Cell:
        """The cell of each row."""
        found = np.empty(len(sketches), dtype=np.int32)
        for rows in self._blocks(len(sketches)):
            found[rows] = self._scores(sketches[rows]).argmin(axis=1)
        return found

    def visits(self, sketches: Floats, home: Cell, within: slice = slice(None)) -> Mask:
        """For each row, the cells that compare it with their own rows, out of some cells; its home is one of them."""
        lengths = np.linalg.norm(sketches, axis=1)
        reach = self.sketch.reach(self.radius, lengths)
        visits = np.empty((len(sketches), len(self._squares[within])), dtype=np.bool_)
        for rows in self._blocks(len(sketches)):
            scores, own = self._scores(sketches[rows]).astype(np.float64), home[rows]
            beyond = scores[:, within] - scores[np.arange(len(own)), own][:, None]
            bound = 2 * self._between[own][:, within] * reach[rows, None]
            bound += 8 * (self.sketch.width + 8) * ROUNDOFF * (lengths[rows, None] + self._longest) ** 2
            # What is not a number is too far to be compared by sketches: such rows are measured.
            visits[rows] = ~(beyond > bound) & self._owned[own][:, within]
        return visits

    def group_of(self, home: Cell) -> Positions:
        """The group of each cell."""
        return np.searchsorted(self.starts, home, side="right") - 1

    def cells_of(self, group: int) -> slice:
        """The cells of a group."""
        return slice(int(self.starts[group]), int(np.append(self.starts, len(self))[group + 1]))

    def _scores(self, sketches: Floats) -> Floats:
        """Squared distances to the centroids, without the part that depends only on the row."""
        return self._squares - np.float32(2) * (sketches @ self.centroids.T)

    def _blocks(self, rows: int) -> Iterator[slice]:
        step = max(64, SCORES // len(self))
        return (slice(start, start + step) for start in range(0, rows, step))

    @cached_property
    def _squares(self) -> Floats:
        return np.einsum("ij,ij->i", self.centroids, self.centroids)

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt(self._squares.max()))

    @cached_property
    def _between(self) -> npt.NDArray[np.float64]:
        """Distances between centroids."""
        wide = self.centroids.astype(np.float64)
        squares = np.einsum("ij,ij->i", wide, wide)
        return np.sqrt(np.maximum(squares[:, None] + squares - 2 * wide @ wide.T, 0))

    @cached_property
    def _owned(self) -> Mask:
        """Whether rows of one cell (first axis) are sent to the other. Of every two cells one is sent to, in turns."""
        numbers = np.arange(len(self))
        lower = numbers[:, None] > numbers
        even = (numbers[:, None] + numbers) % 2 == 0
        return (lower == even) | (numbers[:, None] == numbers)


def compare(cells: Cells, first: Floats, second: Floats | None = None) -> Iterator[Candidates]:
    """Pairs of rows whose sketches are within reach of each other; without `second`, pairs of the first, once each."""
    other = first if second is None else second
    squares = np.einsum("ij,ij->i", other, other)
    factors = np.concatenate([other, squares[:, None] * np.float32(-0.5)], axis=1).T
    lengths = np.linalg.norm(first, axis=1).astype(np.float64)
    reach = cells.sketch.reach(cells.radius, lengths)
    slack = 4 * (cells.sketch.width + 8) * ROUNDOFF * (lengths + reach) ** 2
    least = ((lengths**2 - reach**2) / 2 - slack).astype(np.float32)
    rows = np.concatenate([first, np.ones((len(first), 1), dtype=np.float32)], axis=1)
    with np.errstate(all="ignore"):
        for start in range(0, len(first), PRODUCT_ROWS):
            cut = slice(start, start + PRODUCT_ROWS)
            for begin in range(start if second is None else 0, len(other), PRODUCT_ROWS):
                products = rows[cut] @ factors[:, begin : begin + PRODUCT_ROWS]
                near = np.flatnonzero(~(products < least[cut, None]))
                if not len(near):
                    continue
                found = Candidates(near // products.shape[1] + start, near % products.shape[1] + begin)
                if second is None and begin == start:
                    kept = found.first < found.second
                    found = Candidates(found.first[kept], found.second[kept])
                yield found
