"""The nearest of many centroids, without comparing each vector with all of them.

Centroids form groups, about four times the square root of their number. A vector is compared with the means of the
groups, then with the members of those groups that are almost as near as the nearest. From the best of those it walks on
to their neighbors, as long as one is nearer. On real vectors that finds the nearest centroid of 999 in 1,000; the
others get one that is almost as near. In k-means, the walk starts from the centroid of the pass before, and is all that
is needed. Groups and neighbors follow from the centroids alone: equal centroids give equal answers.

As in `ivf` and `kmeans`, scores are products of [x, 1] with columns [-2c, |c|²], or [-c, 0] by inner products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pennon.index.arrays import Int32s
from pennon.index.vector.assignment.balanced_groups import balanced_groups, means_of
from pennon.index.vector.assignment.neighborhood import Neighborhood, columns_of, in_blocks
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions

# With fewer centroids, products with all of them are faster.
MANY_CENTROIDS = 8192
# A vector is compared with its nearest groups, and then with those that are farther than the nearest one by at most
# this many times the distance of the best centroid so far.
FIRST_GROUPS, MOST_GROUPS = 4, 48
REACH = np.float32(0.6)
# Only groups up to this much farther than the nearest one are considered at all.
SLACK = np.float32(0.5)
# Centroids whose neighbors are compared: the best ones of this many groups.
WALKS = 3
# Vectors compared with all means at once: the scores stay in the processor's caches.
PROBED_ROWS = 1024


@dataclass(frozen=True, eq=False)
class ManyCentroids:
    """`means` has a column for each group of centroids, `factors` one for each of its members."""

    around: Neighborhood
    means: Floats
    factors: Sequence[Floats]
    members: Sequence[Positions]

    @classmethod
    def of(cls, centroids: Floats, *, by_l2: bool, threads: int = 1) -> Self:
        """Centroids that are not finite are never the nearest."""
        known = np.flatnonzero(np.isfinite(centroids).all(axis=1))
        usable = np.ascontiguousarray(centroids[known], dtype=np.float32)
        groups = balanced_groups(usable, max(1, round(len(usable) ** 0.5 / 4)))
        means = columns_of(means_of(usable, groups), by_l2)
        factors = [columns_of(usable[some], by_l2) for some in groups]
        members = [known[some] for some in groups]
        return cls(Neighborhood.of(centroids, by_l2=by_l2, groups=members, threads=threads), means, factors, members)

    def nearest(self, points: Floats, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid, and its score; the same bits for any number of threads."""
        ids = np.full((len(points), WALKS), -1, dtype=np.int32)
        best = np.full((len(points), WALKS), np.inf, dtype=np.float32)

        def search(block: slice) -> None:
            own = np.ascontiguousarray(points[block])
            self._probe(own, ids[block], best[block])
            self.around.walk(own, ids[block], best[block])

        in_blocks(search, len(points), threads)
        return ids[:, 0].astype(np.int64), best[:, 0].copy()

    def _probe(self, points: Floats, ids: Int32s, best: Floats) -> None:
        from pennon.index.vector.assignment.kernels import near_groups  # noqa: PLC0415

        most = min(MOST_GROUPS, len(self.members))
        lowest = np.empty((len(points), most), dtype=np.float32)
        groups = np.empty((len(points), most), dtype=np.int32)
        rests = squared_lengths(points[:, :-1])
        rests = rests if self.around.by_l2 else np.sqrt(rests)
        scores = np.empty((min(PROBED_ROWS, len(points)), len(self.members)), dtype=np.float32)
        for start in range(0, len(points), PROBED_ROWS):
            some = slice(start, start + PROBED_ROWS)
            found = np.matmul(points[some], self.means, out=scores[: len(points) - start])
            near_groups(found, rests[some], SLACK, lowest[some], groups[some])
        limits = np.full(len(points), np.finfo(np.float32).max)
        self._compare(points, (lowest, groups, limits), range(min(FIRST_GROUPS, most)), ids, best)
        limits = lowest[:, 0] + REACH * np.maximum(best[:, 0] + rests, 0)
        self._compare(points, (lowest, groups, limits), range(min(FIRST_GROUPS, most), most), ids, best)

    def _compare(
        self, points: Floats, near: tuple[Floats, Int32s, Floats], numbers: range, ids: Int32s, best: Floats
    ) -> None:
        """Compare points with the members of some of their groups: scores, groups and the limits of the scores."""
        from pennon.index.vector.assignment.kernels import deal_out, keep_lowest  # noqa: PLC0415

        starts = np.empty(len(self.members) + 1, dtype=np.int64)
        rows = np.empty(len(points) * len(numbers), dtype=np.int64)
        deal_out(*near, numbers.start, numbers.stop, starts, rows)
        for factors, members, start, stop in zip(self.factors, self.members, starts, starts[1:], strict=False):
            own = rows[start:stop]
            if len(own):
                keep_lowest(points.take(own, axis=0) @ factors, own, members, best, ids)
