"""Centroids that cover several separate clusters, which keep them in every pass: each gets a second centroid.

Such a centroid is recognized by a few centroids in its place that reduce the loss of its points to a small share; for
evenly distributed points each one reduces the loss only a little.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from pennon.index.vector.assignment.many_centroids import MANY_CENTROIDS
from pennon.index.vector.kmeans.nearest import nearest_centroids
from pennon.index.vector.kmeans.partials import Partials, partials_of, summed, updated
from pennon.index.vector.kmeans.points import as_centroids
from pennon.index.vector.vectors import Floats, Positions, Vectors

# A centroid with this many times the mean loss covers several clusters.
SEVERAL_LOSS = 4.0
# The share of the loss that remains where a centroid covers separate clusters.
SPLIT_LOSS = 0.25
SPLIT_CLUSTERS = 6
SPLIT_POINTS = 2048
SPLIT_ROUNDS = 16
# Items of the points of a centroid from which on several are split at once.
SHARED_ITEMS = 1 << 18
# The nearest centroids of one that is taken away, one of which gets its points.
NEAREST_OTHERS = 4


def with_split_centroids(
    rows: Floats,
    centroids: Vectors,
    found: Partials,
    known: tuple[Positions, Floats],
    spherical: bool,
    threads: int,
    rng: np.random.Generator,
) -> tuple[Vectors, tuple[Positions, Floats]]:
    """Give a second centroid to each one that covers distant clusters, taken from where its removal costs least.
    `found` are the partials of a recent pass, `known` the nearest centroids and their distances; also returns the new
    ones."""
    ids, distances = known
    for _ in range(SPLIT_ROUNDS):
        suspects = np.flatnonzero(found.losses > SEVERAL_LOSS * found.losses.mean())
        if not len(suspects):
            break
        own = [_some_points(rows[ids == i], rng) for i in suspects]
        # Many short calls of numpy are slower in several threads.
        shared = threads if sum(points.size for points in own) >= SHARED_ITEMS * len(own) else 1
        with ThreadPoolExecutor(shared) as workers:
            pairs_of = list(workers.map(lambda points: _split_centroid(points, spherical), own))
        split = {i: pair for i, pair in zip(suspects.tolist(), pairs_of, strict=True) if pair is not None}
        if not split:
            break
        # Without a centroid, most of its points would go to the nearest other one.
        steps, others = faiss.knn(centroids, centroids, min(NEAREST_OTHERS, len(centroids)))
        steps = steps[:, 1]
        missed = np.linalg.norm(found.sums, axis=1) * steps / 2 if spherical else found.counts * steps
        missed[list(split)] = np.inf
        worst = sorted(split, key=lambda i: -found.losses[i])
        pairs = list(zip(worst, np.argsort(missed, kind="stable").tolist(), strict=False))
        pairs = [(i, spare) for i, spare in pairs if missed[spare] < found.losses[i] / 2]
        if not pairs:
            break
        centroids, start = centroids.copy(), np.arange(len(centroids))
        for i, spare in pairs:
            centroids[[i, spare]] = split[i]
        spares = np.array([spare for _, spare in pairs])
        start[spares] = others[spares, (~np.isin(others[spares], spares)).argmax(axis=1)]
        many = len(centroids) > MANY_CENTROIDS
        ids, distances = nearest_centroids(rows, centroids, spherical, threads, start[ids] if many else None)
        found = summed(rows, ids, distances, len(centroids), threads)
        centroids = updated(centroids, found, spherical=spherical, seed=rng)
        ids, distances = nearest_centroids(rows, centroids, spherical, threads, ids if many else None)
        found = summed(rows, ids, distances, len(centroids), threads)
    return centroids, (ids, distances)


def _some_points(rows: Floats, rng: np.random.Generator) -> Floats:
    return rows[rng.choice(len(rows), SPLIT_POINTS, replace=False)] if len(rows) > SPLIT_POINTS else rows


def _split_centroid(rows: Floats, spherical: bool) -> Vectors | None:
    """Two centroids in place of one, if these points form distant clusters; else None."""
    if len(rows) < 2:
        return None
    points = rows[:, :-2]
    middle = as_centroids(points.mean(axis=0, keepdims=True), spherical)
    distances = nearest_centroids(rows, middle, spherical)[1]
    before = distances.sum(dtype=np.float64)
    # Add one centroid at a time, at the farthest point.
    centroids = as_centroids(points[distances.argmax()][None], spherical)
    distances = nearest_centroids(rows, centroids, spherical)[1]
    for count in range(2, min(SPLIT_CLUSTERS, len(rows)) + 1):
        centroids = np.concatenate([centroids, as_centroids(points[distances.argmax()][None], spherical)])
        for _ in range(2):
            centroids = updated(centroids, partials_of(rows, centroids, spherical), spherical=spherical, refill=np.inf)
        ids, distances = nearest_centroids(rows, centroids, spherical)
        if distances.sum(dtype=np.float64) < SPLIT_LOSS * count ** (-2 / points.shape[1]) * before:
            return centroids[np.argsort(-np.bincount(ids, minlength=count), kind="stable")[:2]]
    return None
