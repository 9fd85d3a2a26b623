"""The nearest of many centroids, without comparing each vector with all of them.

Centroids form groups, about twice the square root of their number. A vector is compared with the means of the groups,
then with the members of the nearest groups. From the best of those it walks on to the nearest of its neighbors, as long
as one is nearer. On real vectors that finds the nearest centroid of 999 in 1,000; the others get one that is almost as
near. In k-means, the walk starts from the centroid of the pass before, and is all that is needed. Groups and neighbors
follow from the centroids alone: equal centroids give equal answers.

As in `ivf` and `kmeans`, scores are products of [x, 1] with columns [-2c, |c|²], or [-c, 0] by inner products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import faiss
import numpy as np

from pennon.index.arrays import Int32s
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions

# With fewer centroids, products with all of them are faster.
MANY_CENTROIDS = 4096
PROBED_GROUPS = 16
NEIGHBORS = 32
# Vectors that are dealt out to the groups at once.
BLOCK_ROWS = 1 << 15

# Finds a number of groups of centroids: the group of each.
Grouping = Callable[[Floats, int], Positions]


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Centroids, and the nearest others of each, nearest first; -1 for those that are not finite."""

    centroids: Floats
    by_l2: bool
    neighbors: Int32s

    @classmethod
    def of(cls, centroids: Floats, *, by_l2: bool) -> Self:
        centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        known = np.flatnonzero(np.isfinite(centroids).all(axis=1))
        usable = centroids[known]
        near = faiss.knn(usable, usable, min(NEIGHBORS + 1, len(usable)), _metric(by_l2))[1]
        neighbors = np.full((len(centroids), near.shape[1]), -1, dtype=np.int32)
        neighbors[known] = known[near]
        return cls(centroids, by_l2, neighbors)

    def nearest(self, points: Floats, start: Positions, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid that a walk from `start` finds, and its score; the same bits for any
        number of threads."""
        ids, best = start.copy(), np.full(len(points), np.inf, dtype=np.float32)

        def search(block: slice) -> None:
            self.walk(points[block], ids[block], best[block])

        _in_blocks(search, len(points), threads)
        return ids, best

    def walk(self, points: Floats, ids: Positions, best: Floats) -> None:
        """From the given centroids on to nearer ones, in place."""
        # Imported here: queries rank centroids too, and need no kernels.
        from pennon.index.vector.assignment_kernels import walk  # noqa: PLC0415

        # Neighbors of one centroid after those of another stay in the processor's caches.
        order = np.argsort(ids.astype(np.min_scalar_type(len(self.centroids))), kind="stable")
        terms = squared_lengths(self.centroids) if self.by_l2 else np.zeros(len(self.centroids), dtype=np.float32)
        scale = np.float32(-2 if self.by_l2 else -1)
        walk(np.ascontiguousarray(points), order, self.centroids, terms, scale, self.neighbors, best, ids)


@dataclass(frozen=True, eq=False)
class ManyCentroids:
    """`means` has a column for each group of centroids, `factors` one for each of its members."""

    around: Neighborhood
    means: Floats
    factors: Sequence[Floats]
    members: Sequence[Positions]

    @classmethod
    def of(cls, centroids: Floats, grouping: Grouping, *, by_l2: bool) -> Self:
        """Centroids that are not finite are never the nearest."""
        around = Neighborhood.of(centroids, by_l2=by_l2)
        known = np.flatnonzero(np.isfinite(around.centroids).all(axis=1))
        usable = around.centroids[known]
        groups = grouping(usable, round(2 * len(usable) ** 0.5))
        inside = [some for group in range(int(groups.max()) + 1) if len(some := np.flatnonzero(groups == group))]
        means = np.stack([usable[some].mean(axis=0) for some in inside])
        factors = [_columns(usable[some], by_l2) for some in inside]
        return cls(around, _columns(means, by_l2), factors, [known[some] for some in inside])

    def nearest(self, points: Floats, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid, and its score; the same bits for any number of threads."""
        ids = np.zeros(len(points), dtype=np.int64)
        best = np.full(len(points), np.inf, dtype=np.float32)

        def search(block: slice) -> None:
            own = np.ascontiguousarray(points[block])
            self._probe(own, ids[block], best[block])
            self.around.walk(own, ids[block], best[block])

        _in_blocks(search, len(points), threads)
        return ids, best

    def _probe(self, points: Floats, ids: Positions, best: Floats) -> None:
        from pennon.index.vector.assignment_kernels import deal_out, keep_lowest  # noqa: PLC0415

        groups = len(self.members)
        probes = min(PROBED_GROUPS, groups)
        starts, rows = np.empty(groups + 1, dtype=np.int64), np.empty(len(points) * probes, dtype=np.int64)
        deal_out(points @ self.means, probes, starts, rows)
        for factors, members, start, stop in zip(self.factors, self.members, starts, starts[1:], strict=False):
            own = rows[start:stop]
            if len(own):
                keep_lowest(points.take(own, axis=0) @ factors, own, members, best, ids)


def _in_blocks(search: Callable[[slice], None], rows: int, threads: int) -> None:
    blocks = [slice(at, at + BLOCK_ROWS) for at in range(0, rows, BLOCK_ROWS)]
    if threads == 1 or len(blocks) <= 1:
        for block in blocks:
            search(block)
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(search, blocks))


def _columns(centroids: Floats, by_l2: bool) -> Floats:
    columns = np.empty((centroids.shape[1] + 1, len(centroids)), dtype=np.float32)
    columns[:-1] = centroids.T * np.float32(-2 if by_l2 else -1)
    columns[-1] = squared_lengths(centroids) if by_l2 else 0
    return columns


def _metric(by_l2: bool) -> int:
    return faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT
