"""The neighbors of each centroid, and walks along them to the nearest centroid of a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import faiss
import numpy as np

from pennon.index.arrays import Int32s
from pennon.index.threads import one_thread
from pennon.index.vector.assignment.all_centroids import columns_of
from pennon.index.vector.assignment.balanced_groups import means_of
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions

NEIGHBORS = 32
# Up to this many centroids, each is compared with all others. Among more, neighbors are searched in the nearest groups,
# and about three of four are found.
COMPARED_CENTROIDS = 1 << 14
NEAR_GROUPS = 64
# Vectors at once, and centroids whose neighbors are searched at once.
BLOCK_ROWS, SEARCHED_CENTROIDS = 1 << 15, 1 << 10


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Centroids, and the nearest others of each, about; -1 for those that are not finite."""

    centroids: Floats
    by_l2: bool
    neighbors: Int32s

    @classmethod
    def of(cls, centroids: Floats, *, by_l2: bool, groups: Sequence[Positions] = (), threads: int = 1) -> Self:
        """`groups` are those of all finite centroids, used where they are too many to compare each with all others.
        Any number of threads finds the same neighbors."""
        centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        if len(centroids) > COMPARED_CENTROIDS and len(groups) > NEAR_GROUPS:
            return cls(centroids, by_l2, _near_groups(centroids, list(groups), by_l2))
        known = np.flatnonzero(np.isfinite(centroids).all(axis=1))
        usable = centroids[known]
        metric = faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT
        near = np.empty((len(usable), min(NEIGHBORS + 1, len(usable))), dtype=np.int64)

        def search(block: slice) -> None:
            with one_thread():
                near[block] = faiss.knn(usable[block], usable, near.shape[1], metric)[1]

        in_blocks(search, len(usable), threads, SEARCHED_CENTROIDS)
        neighbors = np.full((len(centroids), near.shape[1]), -1, dtype=np.int32)
        neighbors[known] = known[near]
        return cls(centroids, by_l2, neighbors)

    def nearest(self, points: Floats, start: Positions, threads: int = 1) -> tuple[Positions, Floats]:
        """For each [x, 1] the nearest centroid that a walk from `start` finds, and its score; the same bits for any
        number of threads."""
        ids = start.astype(np.int32).reshape(-1, 1)
        best = np.full((len(points), 1), np.inf, dtype=np.float32)

        def search(block: slice) -> None:
            self.walk(points[block], ids[block], best[block])

        in_blocks(search, len(points), threads)
        return ids[:, 0].astype(np.int64), best[:, 0]

    def walk(self, points: Floats, ids: Int32s, best: Floats) -> None:
        """From the given centroids of each vector on to nearer ones, in place. A longer list misses fewer."""
        # Imported here: queries rank centroids too, and need no kernels.
        from pennon.index.vector.assignment.kernels import walk  # noqa: PLC0415

        # Neighbors of one centroid after those of another stay in the processor's caches.
        order = np.argsort(ids[:, 0].astype(np.min_scalar_type(len(self.centroids))), kind="stable")
        terms = squared_lengths(self.centroids) if self.by_l2 else np.zeros(len(self.centroids), dtype=np.float32)
        scale = np.float32(-2 if self.by_l2 else -1)
        walk(np.ascontiguousarray(points), order, self.centroids, terms, scale, self.neighbors, best, ids)


def in_blocks(search: Callable[[slice], None], rows: int, threads: int, at_once: int = BLOCK_ROWS) -> None:
    blocks = [slice(at, at + at_once) for at in range(0, rows, at_once)]
    if threads == 1 or len(blocks) <= 1:
        for block in blocks:
            search(block)
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(search, blocks))


def _near_groups(centroids: Floats, groups: list[Positions], by_l2: bool) -> Int32s:
    means = means_of(centroids, groups)
    near = faiss.knn(means, means, NEAR_GROUPS)[1]
    neighbors = np.full((len(centroids), NEIGHBORS + 1), -1, dtype=np.int32)
    for members, others in zip(groups, near.tolist(), strict=True):
        candidates = np.concatenate([groups[other] for other in others])
        rows = np.ones((len(members), centroids.shape[1] + 1), dtype=np.float32)
        rows[:, :-1] = centroids[members]
        scores = rows @ columns_of(centroids[candidates], by_l2)
        count = min(NEIGHBORS + 1, len(candidates))
        neighbors[members, :count] = candidates[np.argpartition(scores, count - 1, axis=1)[:, :count]]
    return neighbors
