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
class ManyCentroids:
    """`means` has a column for each group, `factors` one for each of its members, `neighbors` the nearest centroids of
    each, nearest first."""

    centroids: Floats
    by_l2: bool
    means: Floats
    factors: Sequence[Floats]
    members: Sequence[Positions]
    neighbors: Int32s

    @classmethod
    def of(cls, centroids: Floats, grouping: Grouping, *, by_l2: bool) -> Self:
        """Centroids that are not finite are never the nearest."""
        centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        known = np.flatnonzero(np.isfinite(centroids).all(axis=1))
        usable = centroids[known]
        groups = grouping(usable, round(2 * len(usable) ** 0.5))
        inside = [some for group in range(int(groups.max()) + 1) if len(some := np.flatnonzero(groups == group))]
        means = np.stack([usable[some].mean(axis=0) for some in inside])
        near = faiss.knn(usable, usable, min(NEIGHBORS + 1, len(usable)), _metric(by_l2))[1]
        neighbors = np.full((len(centroids), near.shape[1]), -1, dtype=np.int32)
        neighbors[known] = known[near]
        return cls(
            centroids,
            by_l2,
            _columns(means, by_l2),
            [_columns(usable[some], by_l2) for some in inside],
            [known[some] for some in inside],
            neighbors,
        )

    def nearest(self, points: Floats, start: Positions | None = None, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid, and its score; the same bits for any number of threads. With `start`,
        a centroid near each, only the neighbors of those are compared."""
        ids = np.zeros(len(points), dtype=np.int64) if start is None else start.copy()
        best = np.full(len(points), np.inf, dtype=np.float32)
        blocks = [slice(at, at + BLOCK_ROWS) for at in range(0, len(points), BLOCK_ROWS)]

        def search(block: slice) -> None:
            self._search(points[block], ids[block], best[block], start is None)

        if threads == 1 or len(blocks) == 1:
            list(map(search, blocks))
        else:
            with ThreadPoolExecutor(threads) as workers:
                list(workers.map(search, blocks))
        return ids, best

    def _search(self, points: Floats, ids: Positions, best: Floats, probe: bool) -> None:
        # Imported here: queries rank centroids too, and need no kernels.
        from pennon.index.vector.assignment_kernels import walk  # noqa: PLC0415

        points = np.ascontiguousarray(points)
        if probe:
            self._probe(points, ids, best)
        # Neighbors of one centroid after those of another stay in the processor's caches.
        order = np.argsort(ids, kind="stable")
        terms = squared_lengths(self.centroids) if self.by_l2 else np.zeros(len(self.centroids), dtype=np.float32)
        scale = np.float32(-2 if self.by_l2 else -1)
        walk(points, order, self.centroids, terms, scale, self.neighbors, best, ids)

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


def _columns(centroids: Floats, by_l2: bool) -> Floats:
    columns = np.empty((centroids.shape[1] + 1, len(centroids)), dtype=np.float32)
    columns[:-1] = centroids.T * np.float32(-2 if by_l2 else -1)
    columns[-1] = squared_lengths(centroids) if by_l2 else 0
    return columns


def _metric(by_l2: bool) -> int:
    return faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT
