"""The nearest of all centroids: a score for every vector and centroid, of which only the lowest is kept.

Scores are products of [x, 1] with columns [-2c, |c|²], or [-c, 0] by inner products: distances without the part that
depends only on x. numpy writes them to memory, and is as fast as its BLAS on this processor; our kernel keeps them in
registers, and is as fast everywhere. It has to be compiled or loaded first, so numpy does what is little work.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions, Vectors

# Rows of a product of numpy, few enough for its scores to stay in the processor's caches, and the maximum of its
# scores: 32 MiB.
PRODUCT_ROWS, SCORES = 384, 1 << 23
# Multiplications from which on our kernel does the work, and from which on several threads share the rows.
MUCH_WORK, SHARED_WORK = 1 << 26, 1 << 28


class Nearest(NamedTuple):
    """Of every vector: the nearest centroid, its score, and the vector's own squared length."""

    ids: Positions
    scores: Floats
    lengths: Floats


@dataclass(frozen=True, eq=False)
class AllCentroids:
    """A column for each centroid, relative to a middle, and below the items its term."""

    columns: Floats

    @classmethod
    def of(cls, centroids: Vectors, *, by_l2: bool) -> Self:
        """Centroids that are not finite are never the nearest."""
        finite = np.asarray(np.isfinite(centroids).all(axis=1))
        columns = columns_of(np.where(finite[:, None], centroids, 0).astype(np.float32, copy=False), by_l2)
        columns[-1, ~finite] = np.inf
        return cls(columns)

    @property
    def dim(self) -> int:
        return len(self.columns) - 1

    def nearest(
        self,
        vectors: Floats,
        middle: Vectors | None = None,
        first_item: int = 0,
        threads: int = 1,
        work: int | None = None,
    ) -> Nearest:
        """Of the items from `first_item` on of each vector, less those of the middle. The same bits for any number of
        threads. `work` is the number of multiplications of what this is a part of."""
        work = len(vectors) * self.columns.size if work is None else work
        scores, lengths = np.empty((2, len(vectors)), dtype=np.float32)
        found = Nearest(np.empty(len(vectors), dtype=np.int64), scores, lengths)
        own = np.zeros(self.dim, np.float32) if middle is None else middle.astype(np.float32)
        compare = self._by_numpy
        if work >= MUCH_WORK:
            compare, vectors = self._by_kernel, np.ascontiguousarray(vectors)
        if threads == 1 or work < SHARED_WORK:
            compare(vectors, first_item, own, range(len(vectors)), found)
        else:
            # Every thread has whole blocks, of which products of numpy are alike.
            step = -(-len(vectors) // threads // PRODUCT_ROWS) * PRODUCT_ROWS
            shares = [range(at, min(at + step, len(vectors))) for at in range(0, len(vectors), step)]
            with ThreadPoolExecutor(threads) as workers:
                list(workers.map(lambda rows: compare(vectors, first_item, own, rows, found), shares))
        return found

    def _by_numpy(self, vectors: Floats, first_item: int, middle: Floats, rows: range, found: Nearest) -> None:
        k = self.columns.shape[1]
        step = max(min(PRODUCT_ROWS, SCORES // k), 1)
        scores = np.empty((min(step, len(rows)), k), dtype=np.float32)
        for at in rows[::step]:
            cut = slice(at, min(at + step, rows.stop))
            points = vectors[cut, first_item : first_item + self.dim] - middle
            all_ = np.matmul(points, self.columns[:-1], out=scores[: len(points)])
            all_ += self.columns[-1]
            found.ids[cut] = best = all_.argmin(axis=1)
            found.scores[cut] = all_.reshape(-1).take(np.arange(0, all_.size, k) + best)
            found.lengths[cut] = squared_lengths(points)

    def _by_kernel(self, vectors: Floats, first_item: int, middle: Floats, rows: range, found: Nearest) -> None:
        # Imported here: queries rank centroids too, and need no kernels.
        from pennon.index.vector.assignment.lowest_kernels import lowest_scores  # noqa: PLC0415

        lowest_scores(vectors, first_item, rows.start, rows.stop, middle, *self._panels, *found)

    @cached_property
    def _panels(self) -> tuple[Any, Floats]:
        return in_panels(self.columns)


def columns_of(centroids: Floats, by_l2: bool) -> Floats:
    """Columns [-2c, |c|²], or [-c, 0] by inner products: the products of [x, 1] with them are scores."""
    columns = np.empty((centroids.shape[1] + 1, len(centroids)), dtype=np.float32)
    columns[:-1] = centroids.T * np.float32(-2 if by_l2 else -1)
    columns[-1] = squared_lengths(centroids) if by_l2 else 0
    return columns


def in_panels(columns: Floats) -> tuple[Any, Floats]:
    """Columns in the form of the kernel, the last panel filled up: their items, panel by panel and in a panel item by
    item, and their terms."""
    from pennon.index.vector.assignment.lowest_kernels import COLUMNS  # noqa: PLC0415

    dim, k = len(columns) - 1, columns.shape[1]
    count = -(-k // COLUMNS)
    wide = np.zeros((dim + 1, count * COLUMNS), dtype=np.float32)
    wide[-1] = np.inf
    wide[:, :k] = columns
    items = wide[:-1].reshape(dim, count, COLUMNS).transpose(1, 0, 2)
    return np.ascontiguousarray(items), wide[-1].copy()
