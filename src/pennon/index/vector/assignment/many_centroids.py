"""The nearest of many centroids, without comparing each vector with all of them.

Centroids form groups of up to 48, or a quarter of the square root of their number. A vector is compared with the means
of the groups, then with the members of those groups that are almost as near as the nearest. From the best of those it
walks on to their neighbors, as long as one is nearer. On real vectors that finds the nearest centroid of 999 in 1,000;
the others get one that is almost as near. In k-means, the walk starts from the centroid of the pass before, and is all
that is needed. Groups and neighbors follow from the centroids alone: equal centroids give equal answers.

As in `ivf` and `kmeans`, scores are products of [x, 1] with columns [-2c, |c|²], or [-c, 0] by inner products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from pennon.index.arrays import Int32s
from pennon.index.vector.assignment.all_centroids import columns_of, in_panels
from pennon.index.vector.assignment.balanced_groups import balanced_groups, means_of
from pennon.index.vector.assignment.neighborhood import Neighborhood, in_blocks
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions

# Fewer centroids are all compared, which takes no longer.
MANY_CENTROIDS = 8192
# Centroids of a group, at most, and more of very many: with small groups, the kernel would compare vectors with places
# that have no centroid.
GROUPED = 48
# A vector is compared with its nearest groups, and then with those that are farther than the nearest one by at most
# this many times the distance of the best centroid so far.
FIRST_GROUPS, MOST_GROUPS = 4, 48
REACH = np.float32(0.6)
# Only groups up to this much farther than the nearest one are considered at all.
SLACK = np.float32(0.5)
# Centroids whose neighbors are compared: the best ones of this many groups.
WALKS = 3
# Scores of vectors and means that are computed at once, 8 MiB, and the least number of vectors.
PROBED_SCORES, PROBED_ROWS = 1 << 21, 1024


@dataclass(frozen=True, eq=False)
class ManyCentroids:
    """`means` has a column for each group of centroids; those of its members are in the panels from its `first_panels`
    on, and `members` has their ids in the same order."""

    around: Neighborhood
    means: Floats
    panels: Any
    terms: Floats
    first_panels: Positions
    members: Positions

    @classmethod
    def of(cls, centroids: Floats, *, by_l2: bool, threads: int = 1) -> Self:
        """Centroids that are not finite are never the nearest."""
        known = np.flatnonzero(np.isfinite(centroids).all(axis=1))
        usable = np.ascontiguousarray(centroids[known], dtype=np.float32)
        groups = balanced_groups(usable, max(GROUPED, round(len(usable) ** 0.5 / 4)))
        means = columns_of(means_of(usable, groups), by_l2)
        members = [known[some] for some in groups]
        around = Neighborhood.of(centroids, by_l2=by_l2, groups=members, threads=threads)
        parts = [in_panels(columns_of(usable[some], by_l2)) for some in groups]
        panels, terms = np.concatenate([items for items, _ in parts]), np.concatenate([own for _, own in parts])
        ids = [np.resize(own, len(terms)) for own, (_, terms) in zip(members, parts, strict=True)]
        first_panels = np.cumsum([0, *(len(items) for items, _ in parts)])
        return cls(around, means, panels, terms, first_panels, np.concatenate(ids))

    def nearest(self, points: Floats, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid, and its score; the same bits for any number of threads."""
        ids = np.full((len(points), WALKS), -1, dtype=np.int32)
        best = np.full((len(points), WALKS), np.inf, dtype=np.float32)

        def search(block: slice) -> None:
            own = np.ascontiguousarray(points[block])
            step = max(PROBED_ROWS, PROBED_SCORES // self.means.shape[1])
            for start in range(0, len(own), step):
                some = slice(start, start + step)
                self._probe(own[some], ids[block][some], best[block][some])
            self.around.walk(own, ids[block], best[block])

        in_blocks(search, len(points), threads)
        return ids[:, 0].astype(np.int64), best[:, 0].copy()

    @cached_property
    def _longest(self) -> np.float32:
        """The length of the longest centroid: about 1 if they are directions."""
        lengths = squared_lengths(self.around.centroids)
        return np.sqrt(lengths[np.isfinite(lengths)].max(initial=0))

    def _probe(self, points: Floats, ids: Int32s, best: Floats) -> None:
        rests = squared_lengths(points[:, :-1])
        # No inner product is larger than the product of the lengths.
        rests = rests if self.around.by_l2 else np.sqrt(rests) * self._longest
        scores = points @ self.means
        nearest = scores.min(axis=1)
        slack = nearest + SLACK * np.maximum(nearest + rests, 0)
        first = self._compare(points, scores, slack, np.empty((len(points), 0), np.int32), FIRST_GROUPS, ids, best)
        limits = np.minimum(nearest + REACH * np.maximum(best[:, 0] + rests, 0), slack)
        self._compare(points, scores, limits, first, MOST_GROUPS - FIRST_GROUPS, ids, best)

    def _compare(
        self, points: Floats, scores: Floats, limits: Floats, known: Int32s, most: int, ids: Int32s, best: Floats
    ) -> Int32s:
        """Compare points with the members of the nearest groups, up to the limits of their scores and without the known
        ones, and return these groups."""
        # Imported here: queries rank centroids too, and need no kernels.
        from pennon.index.vector.assignment.kernels import deal_out, near_groups  # noqa: PLC0415
        from pennon.index.vector.assignment.lowest_kernels import lowest_of_groups  # noqa: PLC0415

        most = min(most, self.means.shape[1])
        lowest, groups = np.empty((len(points), most), np.float32), np.empty((len(points), most), np.int32)
        near_groups(scores, limits, known, lowest, groups)
        starts, rows = np.empty(self.means.shape[1] + 1, np.int64), np.empty(groups.size, np.int64)
        deal_out(groups, starts, rows)
        given = self.panels, self.terms, self.first_panels, self.members
        lowest_of_groups(points, starts, rows, *given, best, ids)
        return groups
