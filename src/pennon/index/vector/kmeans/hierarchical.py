"""k-means for many centroids: found group by group, then refined in passes over all points.

Points form about √k groups, and each group gets centroids in proportion to its loss. In the passes, a point is compared
only with the neighbors of its centroid, so that training costs a small part of the products of points and centroids.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np

from pennon.errors import InvalidArgument
from pennon.index.threads import one_thread
from pennon.index.vector.kmeans.nearest import nearest_centroids
from pennon.index.vector.kmeans.partials import summed, totals
from pennon.index.vector.kmeans.passes import Clustering, passes
from pennon.index.vector.kmeans.points import Doubles, middle_of, prepared, prepared_blocks
from pennon.index.vector.kmeans.separation import with_split_centroids
from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.vectors import Positions, Vectors

# Up to this many centroids, training without groups takes little longer, and partitions follow the data more closely:
# they are less even, and the same probes find a little more.
UNGROUPED_CENTROIDS = 4096
# Points that the first centroids are trained on, for each of them.
START_POINTS = 16
# Points that the centroids of groups are trained on, for each of them.
GROUP_POINTS = 256
GROUP_PASSES, INNER_PASSES = 4, 8
# Passes over all points cost little here, and stop when the loss falls by no more than this share.
REFINED_TOLERANCE = 2e-3


def train_many(points: Vectors, k: int, *, spherical: bool = False, max_iters: int = 50, seed: int = 0) -> Clustering:
    """Like `train_kmeans`, for many centroids: equal points and seed give equal ones, with any number of threads."""
    if k > len(points):
        raise InvalidArgument(f"{k} partitions cannot be trained on {len(points)} vectors", "Use fewer partitions")
    some = np.random.default_rng(seed).permutation(len(points))[: START_POINTS * k]
    start = hierarchical_start(points.take(np.sort(some), axis=0), k, spherical=spherical, seed=seed)
    middle = middle_of(start, spherical)
    rng, threads = np.random.default_rng(seed), faiss.omp_get_max_threads()
    rows, centroids = prepared(points, middle, spherical, threads=threads), (start - middle).astype(np.float32)
    with one_thread():
        # A walk from a centroid of another group would end too early.
        nearest, distances = nearest_centroids(rows, centroids, spherical, threads)
        found = summed(rows, nearest, distances, k, threads)
        known = nearest, distances
        centroids, known = with_split_centroids(rows, centroids, found, known, spherical, threads, rng)
        (centroids, loss, iterations), _, _ = passes(
            rows,
            centroids,
            spherical=spherical,
            tolerance=REFINED_TOLERANCE,
            max_iters=max_iters,
            threads=threads,
            rng=rng,
            last=True,
            known=known,
        )
    return Clustering((centroids + middle).astype(np.result_type(points, np.float32)), loss, iterations)


def hierarchical_start(points: Vectors, k: int, *, spherical: bool = False, seed: int = 0) -> Vectors:
    """k centroids for passes to start with: the loss is a few percent above that of full training."""
    ids, losses = _grouped(points, round(k**0.5), spherical, seed)
    sizes = np.bincount(ids, minlength=len(losses))
    shares = _shares(losses if losses.any() else sizes.astype(np.float64), sizes, k)
    members = np.split(np.argsort(ids, kind="stable"), np.cumsum(sizes)[:-1])

    def train(group: int) -> Vectors:
        own, share = points.take(members[group], axis=0), int(shares[group])
        with one_thread():
            return train_kmeans(own, share, spherical=spherical, max_iters=INNER_PASSES, seed=seed + group).centroids

    with ThreadPoolExecutor(faiss.omp_get_max_threads()) as workers:
        return np.concatenate(list(workers.map(train, np.flatnonzero(shares).tolist())))


def _grouped(points: Vectors, count: int, spherical: bool, seed: int) -> tuple[Positions, Doubles]:
    """The group of each point, and the loss of each group."""
    some = np.random.default_rng(seed).permutation(len(points))[: max(count, count * GROUP_POINTS)]
    drawn = points.take(np.sort(some), axis=0)
    groups = train_kmeans(drawn, count, spherical=spherical, max_iters=GROUP_PASSES, seed=seed).centroids
    middle, threads = middle_of(groups, spherical), faiss.omp_get_max_threads()
    local = (groups - middle).astype(np.float32)
    with one_thread():
        nearest = [
            nearest_centroids(rows, local, spherical, threads) for _, rows in prepared_blocks(points, middle, spherical)
        ]
    ids = np.concatenate([ids for ids, _ in nearest])
    return ids, totals(ids, np.concatenate([distances for _, distances in nearest]), count)


def _shares(weights: Doubles, limits: Positions, total: int) -> Positions:
    """Numbers in proportion to the weights that add up to the total, each from 1 to its limit; 0 if the limit is 0."""
    ideal = weights * (total / weights.sum())
    shares = np.minimum(np.maximum(ideal.astype(np.int64), 1), limits)
    while missing := total - int(shares.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(shares < limits if step > 0 else shares > 1)
        shares[able[np.argsort(step * (shares - ideal)[able], kind="stable")][: abs(missing)]] += step
    return shares
