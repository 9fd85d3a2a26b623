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

from pennon.index.vector.vectors import Floats, Mask, Positions, row_chunks
from pennon.jobs.near_duplicates.sketch import ROUNDOFF, Doubles, Sketch, coarse

Cell = npt.NDArray[np.int32]

# Scores of rows against centroids that are computed at once.
SCORES = 1 << 21
# Rows of both sides whose products are computed at once: 4 MiB, which stay in the processor's caches.
PRODUCT_ROWS = 1024
# Rows that visit the cells of a group together.
COMPARED_ROWS = 1 << 16


class Candidates(NamedTuple):
    """Places of rows that may be within the distance: of the first side, and of the second."""

    first: Positions
    second: Positions

    def where(self, kept: Mask) -> Candidates:
        return Candidates(self.first[kept], self.second[kept])


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

    def depths(self, sketches: Floats, cell: Cell | int) -> Doubles:
        """Distances to the centroids of cells: of one for each row, or of one for all."""
        return np.linalg.norm(sketches - self.centroids[cell], axis=1).astype(np.float64)

    def least_depths(self, sketches: Floats, depths: Doubles) -> Doubles:
        """How far from a centroid a row is at least if it is within reach of rows at these depths, by the triangle
        inequality."""
        reach = self.sketch.reach(self.radius, np.linalg.norm(sketches, axis=1))
        return depths * (1 - 4 * (self.sketch.width + 8) * ROUNDOFF) - reach

    def group_of(self, home: Cell) -> Positions:
        """The group of each cell."""
        return np.searchsorted(self.starts, home, side="right") - 1

    def cells_of(self, group: int) -> slice:
        """The cells of a group."""
        return slice(int(self.starts[group]), int(np.append(self.starts, len(self))[group + 1]))

    def _scores(self, sketches: Floats) -> Floats:
        """Squared distances to the centroids, without the part that depends only on the row."""
        return np.subtract(self._squares, sketches @ self._doubled, dtype=np.float32)

    def _blocks(self, rows: int) -> Iterator[slice]:
        step = max(64, SCORES // len(self))
        return (slice(start, start + step) for start in range(0, rows, step))

    @cached_property
    def _squares(self) -> Floats:
        return np.einsum("ij,ij->i", self.centroids, self.centroids)

    @cached_property
    def _doubled(self) -> Floats:
        return np.ascontiguousarray(self.centroids.T * np.float32(2))

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt(self._squares.max()))

    @cached_property
    def _between(self) -> Doubles:
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


@dataclass(frozen=True, eq=False)
class Compared:
    """Sketches of rows, prepared to be compared."""

    sketches: Floats
    coarse: Floats

    @classmethod
    def of(cls, sketches: Floats) -> Compared:
        return cls(sketches, coarse(sketches))

    def __len__(self) -> int:
        return len(self.sketches)

    def __getitem__(self, rows: slice | Positions) -> Compared:
        return Compared(self.sketches[rows], self.coarse[rows])


def compare(
    cells: Cells, first: Compared, second: Compared | None = None, limits: Positions | None = None
) -> Iterator[Candidates]:
    """Pairs of rows whose sketches are within reach of each other; without `second`, pairs of the first, once each.
    `limits` are ascending: the first rows of the other side that can be within reach of each row."""
    other = first if second is None else second
    squares = np.einsum("ij,ij->i", other.coarse, other.coarse)
    squares[np.isinf(squares)] = np.nan
    factors = np.concatenate([other.coarse, squares[:, None] * np.float32(-0.5)], axis=1).T
    rows = np.concatenate([first.coarse, np.ones((len(first), 1), dtype=np.float32)], axis=1)
    lengths = np.linalg.norm(first.sketches, axis=1).astype(np.float64)
    reach = cells.sketch.reach(cells.radius, lengths)
    slack = 4 * (rows.shape[1] + 8) * ROUNDOFF * (lengths + reach) ** 2
    with np.errstate(all="ignore"):
        least = ((lengths**2 - reach**2) / 2 - slack).astype(np.float32)
        least[np.isinf(least)] = np.nan
        for start in range(0, len(first), PRODUCT_ROWS):
            cut = slice(start, start + PRODUCT_ROWS)
            stop = len(other) if limits is None else int(limits[cut][-1])
            for begin in range(start if second is None else 0, stop, PRODUCT_ROWS):
                products = rows[cut] @ factors[:, begin : min(begin + PRODUCT_ROWS, stop)]
                far = products < least[cut, None]
                # What is not a number is not far: such rows are measured.
                a, b = np.divmod(np.flatnonzero(np.logical_not(far, out=far)), products.shape[1])
                found = Candidates(a + start, b + begin)
                if second is None and begin == start:
                    found = found.where(found.first < found.second)
                if len(found.first):
                    yield found.where(_near(first.sketches, other.sketches, found, reach))


def _near(first: Floats, second: Floats, found: Candidates, reach: Doubles) -> Mask:
    """Whether whole sketches are within reach, too."""
    near = np.empty(len(found.first), dtype=np.bool_)
    for some in row_chunks(len(near), first.shape[1]):
        apart = first[found.first[some]]
        apart -= second[found.second[some]]
        near[some] = ~(np.einsum("ij,ij->i", apart, apart) > reach[found.first[some]] ** 2 * (1 + 64 * ROUNDOFF))
    return near
