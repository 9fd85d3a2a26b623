"""The two halves of a pass: sums over the points of each centroid, and the centroids moved by them."""

from __future__ import annotations

import heapq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from pennon.index.vector.assignment.many_centroids import MANY_CENTROIDS, ManyCentroids
from pennon.index.vector.assignment.neighborhood import Neighborhood
from pennon.index.vector.kmeans.nearest import (
    FEW_DIMENSIONS,
    nearest_centroids,
    neighborhood_of,
    walked,
)
from pennon.index.vector.kmeans.points import Doubles, directions, middle_of, prepared_blocks
from pennon.index.vector.vectors import Floats, Positions, Vectors

# Items of points from which on a kernel adds them up.
MUCH_ADDED = 1 << 20


@dataclass(frozen=True, eq=False)
class Partials:
    """Per centroid the sum and the number of the points nearest to it, and the sum of their distances."""

    sums: Doubles
    counts: Positions
    losses: Doubles

    @property
    def loss(self) -> float:
        return float(self.losses.sum())

    def __add__(self, other: Partials) -> Partials:
        return Partials(self.sums + other.sums, self.counts + other.counts, self.losses + other.losses)


def partials(points: Vectors, centroids: Vectors, *, spherical: bool = False) -> Partials:
    """The partials of any number of points, in bounded memory; those of several blocks add up to those of all."""
    return Assigning.of(centroids, spherical=spherical).partials(points)[0]


@dataclass(frozen=True, eq=False)
class Assigning:
    """Centroids of a pass over points that arrive in pieces: what is needed to find the nearest is computed once."""

    middle: Doubles
    centroids: Floats  # relative to the middle
    spherical: bool
    groups: ManyCentroids | None
    around: Neighborhood | None

    @classmethod
    def of(cls, centroids: Vectors, *, spherical: bool = False, walks: bool = False) -> Self:
        """`walks` if the nearest centroids of the pass before are given for all points."""
        middle = middle_of(centroids, spherical)
        local = (centroids - middle).astype(np.float32)
        walks = walks and walked(local)
        many = not walks and len(local) >= MANY_CENTROIDS
        groups = ManyCentroids.of(local, by_l2=not spherical) if many else None
        return cls(middle, local, spherical, groups, neighborhood_of(local, spherical) if walks else None)

    def partials(self, points: Vectors, start: Positions | None = None) -> tuple[Partials, Positions]:
        """The partials of some points, and the nearest centroid of each, if possible found from `start`."""
        k, dim = self.centroids.shape
        found = Partials(np.zeros((k, dim)), np.zeros(k, np.int64), np.zeros(k))
        nearest = np.empty(len(points), dtype=np.int64)
        for at, rows in prepared_blocks(points, self.middle, self.spherical):
            some = slice(at, at + len(rows))
            ids, distances = nearest_centroids(
                rows,
                self.centroids,
                self.spherical,
                start=None if self.around is None or start is None else start[some],
                groups=self.groups,
                around=self.around,
            )
            nearest[some] = ids
            found += summed(rows, ids, distances, k)
        return Partials(found.sums + found.counts[:, None] * self.middle, found.counts, found.losses), nearest


def partials_of(rows: Floats, centroids: Floats, spherical: bool, threads: int = 1) -> Partials:
    """The partials of prepared points, relative to the middle like the centroids."""
    return summed(rows, *nearest_centroids(rows, centroids, spherical, threads), len(centroids), threads)


def summed(rows: Floats, ids: Positions, distances: Floats, k: int, threads: int = 1) -> Partials:
    """Sums over prepared points of which the nearest centroid and its distance are known; the same bits for any number
    of threads."""
    dim = rows.shape[1] - 2
    counts = np.bincount(ids, minlength=k)
    sums = np.zeros((k, dim))
    # Few dimensions are summed dimension by dimension, others centroid by centroid.
    if dim <= FEW_DIMENSIONS:
        for i, column in enumerate(rows[:, :dim].T.astype(np.float64, order="C")):
            sums[:, i] = totals(ids, column, k)
    elif rows.size >= MUCH_ADDED:
        # Kernels are compiled when they are imported; as many points are compared by some too.
        from pennon.index.vector.kmeans.kernels import add_up  # noqa: PLC0415

        # Every thread has some of the centroids.
        cuts = np.linspace(0, k, threads + 1).astype(np.int64).tolist()
        if threads == 1:
            add_up(rows, ids, 0, k, sums)
        else:
            with ThreadPoolExecutor(threads) as workers:
                list(workers.map(lambda first, end: add_up(rows, ids, first, end, sums), cuts, cuts[1:]))
    else:
        order = np.argsort(ids.astype(np.min_scalar_type(k)), kind="stable")
        ends = np.cumsum(counts)
        for i in np.flatnonzero(counts):
            members = rows.take(order[ends[i] - counts[i] : ends[i]], axis=0)
            np.add.reduce(members[:, :dim], axis=0, dtype=np.float64, out=sums[i])
    return Partials(sums, counts, totals(ids, distances, k))


def totals(ids: Positions, values: Vectors, k: int) -> Doubles:
    return np.bincount(ids, values, k).astype(np.float64, copy=False)


def updated(
    centroids: Vectors,
    found: Partials,
    *,
    spherical: bool = False,
    stride: float = 1.0,
    refill: float = 0.0,
    seed: int | np.random.Generator = 0,
) -> Vectors:
    """Centroids moved to the mean of their points, or `stride` times as far; a stride below 2 still lowers the loss.

    A centroid without points moves to the centroid with the greatest loss, to share its points, if that loss is at
    least `refill` times the mean. Use infinity for the last pass, after which no pass would divide the points.
    """
    moved = centroids.astype(np.float64)
    filled = found.counts > 0
    means = found.sums[filled] / found.counts[filled, None]
    moved[filled] += stride * ((directions(means) if spherical else means) - moved[filled])
    if np.isfinite(refill):
        _refill(moved, found, spherical, refill * found.loss / max(1, filled.sum()), np.random.default_rng(seed))
    return (directions(moved) if spherical else moved).astype(centroids.dtype)


def _refill(moved: Doubles, found: Partials, spherical: bool, least: float, rng: np.random.Generator) -> None:
    donors = np.flatnonzero((found.counts > 1) & (found.losses > 0))
    heap = [(-float(found.losses[i]), int(i)) for i in donors]
    heapq.heapify(heap)
    dim = moved.shape[1]
    for i in np.flatnonzero(found.counts == 0) if heap else ():
        loss, donor = heap[0]
        if -loss < least:
            break
        heapq.heapreplace(heap, (loss / 2, donor))
        # The length of the sum is the total length of its points minus their loss.
        weight = np.linalg.norm(found.sums[donor]) + found.losses[donor] if spherical else found.counts[donor]
        offset = rng.choice((-1, 1), dim) * (found.losses[donor] / weight / dim) ** 0.5 / 16
        moved[i] = moved[donor] - offset
        moved[donor] += offset
