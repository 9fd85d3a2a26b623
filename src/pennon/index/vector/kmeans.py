"""k-means: partial sums of a block of points for given centroids, and the new centroids computed from all blocks.

Distributed training sends the centroids to every task, adds up the `partials` of the blocks and computes the `updated`
centroids, starting with those of a `hierarchical_start`. `train_kmeans` does all of this in one process.

A point's distance is the squared one to the nearest centroid. Spherical k-means is over directions: centroids have
length 1, and a point's distance is its length minus its inner product with the centroid.

The distances of many points are one float32 matrix product: with x kept as [x, 1, |x|²] and c as [-2c, |c|², 1] it is
|x - c|²; spherical, they are [x, 1, |x|] and [-c, 0, 1]. For l2 both are first shifted to the mean of the centroids, so
that a common offset of the data costs no precision.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from pennon.errors import InvalidArgument
from pennon.index.threads import one_thread
from pennon.index.vector.assignment import MANY_CENTROIDS, ManyCentroids, Neighborhood
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions, Vectors, row_chunks

Doubles = npt.NDArray[np.float64]

# Training starts with half of the points: first in this many batches, with new centroids after each, then in full
# passes while the loss falls. Only the last passes use all points.
BATCHES = 4
BATCH_POINTS = 8  # at least, per centroid

# A centroid that got no point of a batch moves only to one with this many times the mean loss, which covers several
# clusters. Moved to any other, it would make partitions more even than the data, and a search that probes few of them
# would read fewer rows.
MOVED_TO_LOSS = 4.0

# A centroid that covers several separate clusters keeps them in every pass. It is recognized by a few centroids in its
# place that reduce the loss of its points to this share; for evenly distributed points each one reduces the loss only a
# little.
SPLIT_LOSS = 0.25
SPLIT_CLUSTERS = 6
SPLIT_POINTS = 2048
SPLIT_ROUNDS = 16

# Passes move a centroid beyond the mean of its points, because it would continue in that direction for many passes.
STRIDE = 1.8

# The passes stop when the loss falls by no more than this share.
TOLERANCE = 3e-3

BLOCK_ROWS = 1 << 16

# Rows of a product, few enough for its distances to stay in the processor's caches, and the maximum of its distances:
# 32 MiB. From this many multiplications on, several threads share the rows.
PRODUCT_ROWS = 384
DISTANCES = 1 << 23
SHARED_PRODUCT = 1 << 28

# Passes over centroids that are to form groups.
GROUP_PASSES = 4

# Up to this many dimensions, sums are computed dimension by dimension, not centroid by centroid, and points are always
# compared with all centroids.
FEW_DIMENSIONS = 16

# From this many centroids on, points are compared only with the neighbors of their centroid of the pass before.
WALKED_CENTROIDS = 512


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


class Clustering(NamedTuple):
    centroids: Vectors  # float32, for points in float64 float64
    loss: float  # of the last pass, before its centroids moved
    iterations: int  # passes over all points


def groups_of(centroids: Vectors, *, spherical: bool = False) -> ManyCentroids | None:
    """Groups and neighbors of centroids for several calls of `partials`; None if they are few."""
    if len(centroids) < MANY_CENTROIDS:
        return None
    local = (centroids - _middle(centroids, spherical)).astype(np.float32)
    return ManyCentroids.of(local, group_points, by_l2=not spherical)


def partials(
    points: Vectors, centroids: Vectors, *, spherical: bool = False, groups: ManyCentroids | None = None
) -> Partials:
    """The partials of any number of points, in bounded memory; those of several blocks add up to those of all."""
    middle = _middle(centroids, spherical)
    local = (centroids - middle).astype(np.float32)
    found = Partials(np.zeros(centroids.shape), np.zeros(len(centroids), np.int64), np.zeros(len(centroids)))
    for rows in _blocks(points, middle, spherical):
        found += _partials(rows, local, spherical, groups=groups)
    return Partials(found.sums + found.counts[:, None] * middle, found.counts, found.losses)


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
    moved[filled] += stride * ((_directions(means) if spherical else means) - moved[filled])
    if np.isfinite(refill):
        _split(moved, found, spherical, refill * found.loss / max(1, filled.sum()), np.random.default_rng(seed))
    return (_directions(moved) if spherical else moved).astype(centroids.dtype)


def train_kmeans(
    points: Vectors,
    k: int,
    *,
    spherical: bool = False,
    max_iters: int = 50,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Clustering:
    """Equal points and seed give equal centroids. `max_iters` bounds the passes over all points; few are needed.

    Uses as many threads as OMP_NUM_THREADS allows.
    """
    if k > len(points):
        raise InvalidArgument(f"{k} partitions cannot be trained on {len(points)} vectors", "Use fewer partitions")
    rng = np.random.default_rng(seed)
    points = np.ascontiguousarray(points)
    order = rng.permutation(len(points))
    drawn = points[order[:k]]
    middle = _middle(drawn, spherical)
    centroids = (_directions(drawn) if spherical else drawn - middle).astype(np.float32)
    rows = _prepared(points, middle, spherical, order)
    half = rows[: len(rows) // 2]
    threads, start = faiss.omp_get_max_threads(), None
    passes = partial(_passes, spherical=spherical, tolerance=tolerance, max_iters=max_iters, threads=threads, rng=rng)
    with one_thread():
        if len(half) >= BATCH_POINTS * k:
            for batch in np.array_split(half, min(BATCHES, len(half) // (BATCH_POINTS * k))):
                found = _partials(batch, centroids, spherical, threads)
                centroids = updated(centroids, found, spherical=spherical, refill=MOVED_TO_LOSS, seed=rng)
            (centroids, _, _), found, nearest = passes(half, centroids, last=False)
            nearest = _nearest(half, centroids, spherical, threads, nearest)[0]
            centroids, nearest = _with_split_centroids(half, centroids, found, nearest, spherical, threads, rng)
            others = _nearest(rows[len(half) :], centroids, spherical, threads)[0]
            start = np.concatenate([nearest, others])
        (centroids, loss, iterations), _, _ = passes(rows, centroids, last=True, nearest=start)
    return Clustering((centroids + middle).astype(np.result_type(points, np.float32)), loss, iterations)


def _passes(
    rows: Floats,
    centroids: Vectors,
    *,
    spherical: bool,
    tolerance: float,
    max_iters: int,
    threads: int,
    rng: np.random.Generator,
    last: bool,
    nearest: Positions | None = None,
) -> tuple[Clustering, Partials, Positions]:
    """Passes over all these points until the loss hardly falls, if possible from their nearest centroids; also returns
    the partials and the nearest centroids of the last pass."""
    loss, iterations = np.inf, 0
    while True:
        nearest, distances = _nearest(rows, centroids, spherical, threads, nearest)
        found = _summed(rows, nearest, distances, len(centroids))
        iterations += 1
        done = iterations >= max_iters or loss - found.loss <= tolerance * found.loss
        loss = found.loss
        ends = done and last
        stride, refill = (1.0, np.inf) if ends else (STRIDE, 0.0)
        centroids = updated(centroids, found, spherical=spherical, stride=stride, refill=refill, seed=rng)
        if done:
            return Clustering(centroids, loss, iterations), found, nearest


def _with_split_centroids(
    rows: Floats,
    centroids: Vectors,
    found: Partials,
    ids: Positions,
    spherical: bool,
    threads: int,
    rng: np.random.Generator,
) -> tuple[Vectors, Positions]:
    """Give a second centroid to each one that covers distant clusters, taken from where its removal costs least.
    `found` are the partials of a recent pass, `ids` the nearest centroids; also returns the new ones."""
    for _ in range(SPLIT_ROUNDS):
        suspects = np.flatnonzero(found.losses > MOVED_TO_LOSS * found.losses.mean())
        if not len(suspects):
            break
        split = {
            i: pair for i in suspects.tolist() if (pair := _split_centroid(rows[ids == i], spherical, rng)) is not None
        }
        if not split:
            break
        # Without a centroid, most of its points would go to the nearest other one.
        steps = faiss.knn(centroids, centroids, 2)[0][:, 1]
        missed = np.linalg.norm(found.sums, axis=1) * steps / 2 if spherical else found.counts * steps
        missed[list(split)] = np.inf
        worst = sorted(split, key=lambda i: -found.losses[i])
        pairs = list(zip(worst, np.argsort(missed, kind="stable").tolist(), strict=False))
        pairs = [(i, spare) for i, spare in pairs if missed[spare] < found.losses[i] / 2]
        if not pairs:
            break
        centroids = centroids.copy()
        for i, spare in pairs:
            centroids[[i, spare]] = split[i]
        centroids = updated(centroids, _partials(rows, centroids, spherical, threads), spherical=spherical, seed=rng)
        ids, distances = _nearest(rows, centroids, spherical, threads)
        found = _summed(rows, ids, distances, len(centroids))
    return centroids, ids


def _split_centroid(rows: Floats, spherical: bool, rng: np.random.Generator) -> Vectors | None:
    """Two centroids in place of one, if these points form distant clusters; else None."""
    if len(rows) < 2:
        return None
    if len(rows) > SPLIT_POINTS:
        rows = rows[rng.choice(len(rows), SPLIT_POINTS, replace=False)]
    points = rows[:, :-2]
    distances = _nearest(rows, _centres(points.mean(axis=0, keepdims=True), spherical), spherical)[1]
    before = distances.sum(dtype=np.float64)
    # Add one centroid at a time, at the farthest point.
    centroids = _centres(points[distances.argmax()][None], spherical)
    for count in range(2, min(SPLIT_CLUSTERS, len(rows)) + 1):
        farthest = points[_nearest(rows, centroids, spherical)[1].argmax()][None]
        centroids = np.concatenate([centroids, _centres(farthest, spherical)])
        for _ in range(2):
            centroids = updated(centroids, _partials(rows, centroids, spherical), spherical=spherical, refill=np.inf)
        ids, distances = _nearest(rows, centroids, spherical)
        if distances.sum(dtype=np.float64) < SPLIT_LOSS * count ** (-2 / points.shape[1]) * before:
            return centroids[np.argsort(-np.bincount(ids, minlength=count), kind="stable")[:2]]
    return None


def hierarchical_start(points: Vectors, k: int, *, spherical: bool = False, seed: int = 0) -> Vectors:
    """k centroids from about √k groups of points, each with centroids in proportion to its loss.

    Far cheaper than a pass over all points and centroids, and a start for such passes: the loss is a few percent above
    that of full training.
    """
    groups = train_kmeans(points, round(k**0.5), spherical=spherical, max_iters=4, seed=seed).centroids
    middle = _middle(groups, spherical)
    local = (groups - middle).astype(np.float32)
    nearest = [_nearest(rows, local, spherical) for rows in _blocks(points, middle, spherical)]
    ids = np.concatenate([ids for ids, _ in nearest])
    sizes = np.bincount(ids, minlength=len(groups))
    losses = _totals(ids, np.concatenate([distances for _, distances in nearest]), len(groups))
    shares = _shares(losses if losses.any() else sizes.astype(np.float64), sizes, k)
    members = np.split(np.argsort(ids, kind="stable"), np.cumsum(sizes)[:-1])
    inner = [
        train_kmeans(points[rows], share, spherical=spherical, max_iters=8, seed=seed + i).centroids
        for i, (rows, share) in enumerate(zip(members, shares.tolist(), strict=True))
        if share
    ]
    return np.concatenate(inner)


def _middle(centroids: Vectors, spherical: bool) -> Doubles:
    return np.zeros(centroids.shape[1]) if spherical else centroids.mean(axis=0, dtype=np.float64)


def _centres(points: Floats, spherical: bool) -> Floats:
    return _directions(points).astype(np.float32) if spherical else points


def _directions(vectors: Vectors) -> Doubles:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _blocks(points: Vectors, middle: Doubles, spherical: bool) -> Iterator[Floats]:
    for start in range(0, len(points), BLOCK_ROWS):
        yield _prepared(points[start : start + BLOCK_ROWS], middle, spherical)


def _prepared(points: Vectors, middle: Doubles, spherical: bool, order: Positions | None = None) -> Floats:
    """Points in the form for products, in the given order."""
    dim = points.shape[1]
    wide = np.result_type(points, np.float32)
    middle = middle.astype(wide)
    rows = np.empty((len(points), dim + 2), dtype=np.float32)
    for cut in row_chunks(*points.shape):
        chunk = points[cut] if order is None else points.take(order[cut], axis=0)
        rows[cut, :dim] = np.subtract(chunk, middle, dtype=wide)
    lengths = squared_lengths(rows[:, :dim])
    rows[:, dim] = 1
    rows[:, dim + 1] = np.sqrt(lengths) if spherical else lengths
    return rows


def _nearest(
    rows: Floats,
    centroids: Floats,
    spherical: bool,
    threads: int = 1,
    start: Positions | None = None,
    groups: ManyCentroids | None = None,
) -> tuple[Positions, Floats]:
    """The nearest centroid of each prepared point, and the distance; the same bits for any number of threads. Of many
    centroids, the nearest that is found from `start`, those of the pass before."""
    k, dim = centroids.shape
    walks = start is not None and k >= WALKED_CENTROIDS and dim > FEW_DIMENSIONS
    if walks or (k >= MANY_CENTROIDS and len(rows) >= k):
        if start is not None:
            around = Neighborhood.of(centroids, by_l2=not spherical)
            ids, nearest = around.nearest(rows[:, : dim + 1], start, threads)
        else:
            many = groups or ManyCentroids.of(centroids, group_points, by_l2=not spherical)
            ids, nearest = many.nearest(rows[:, : dim + 1], threads)
        nearest += rows[:, dim + 1]
        return ids, np.maximum(nearest, 0, out=nearest)
    factors = np.ones((dim + 2, k), dtype=np.float32)
    factors[:dim] = centroids.T * np.float32(-1 if spherical else -2)
    factors[dim] = 0 if spherical else squared_lengths(centroids)
    ids, nearest = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.float32)
    step = max(min(PRODUCT_ROWS, DISTANCES // k), 1)

    def compare(starts: range) -> None:
        distances = np.empty((min(step, len(rows)), k), dtype=np.float32)
        for start in starts:
            cut, found = slice(start, start + step), distances[: len(rows) - start]
            np.matmul(rows[cut], factors, out=found)
            ids[cut] = best = found.argmin(axis=1)
            nearest[cut] = found.reshape(-1).take(np.arange(0, found.size, k) + best)

    starts = range(0, len(rows), step)
    if threads == 1 or len(rows) * factors.size < SHARED_PRODUCT:
        compare(starts)
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(compare, [starts[i::threads] for i in range(threads)]))
    return ids, np.maximum(nearest, 0, out=nearest)


def group_points(points: Floats, count: int) -> Positions:
    """The group of each point; the groups are about `count`, and close together."""
    groups = train_kmeans(points, count, max_iters=GROUP_PASSES).centroids
    middle = _middle(groups, spherical=False)
    return _nearest(_prepared(points, middle, spherical=False), (groups - middle).astype(np.float32), False)[0]


def _partials(
    rows: Floats, centroids: Floats, spherical: bool, threads: int = 1, groups: ManyCentroids | None = None
) -> Partials:
    return _summed(rows, *_nearest(rows, centroids, spherical, threads, groups=groups), len(centroids))


def _summed(rows: Floats, ids: Positions, distances: Floats, k: int) -> Partials:
    """Sums over prepared points of which the nearest centroid and its distance are known."""
    dim = rows.shape[1] - 2
    counts = np.bincount(ids, minlength=k)
    sums = np.zeros((k, dim))
    if dim <= FEW_DIMENSIONS:
        for i, column in enumerate(rows[:, :dim].T.astype(np.float64, order="C")):
            sums[:, i] = _totals(ids, column, k)
    else:
        order = np.argsort(ids.astype(np.min_scalar_type(k)), kind="stable")
        ends = np.cumsum(counts)
        for i in np.flatnonzero(counts):
            members = rows.take(order[ends[i] - counts[i] : ends[i]], axis=0)
            np.add.reduce(members[:, :dim], axis=0, dtype=np.float64, out=sums[i])
    return Partials(sums, counts, _totals(ids, distances, k))


def _totals(ids: Positions, values: Vectors, k: int) -> Doubles:
    return np.bincount(ids, values, k).astype(np.float64, copy=False)


def _split(moved: Doubles, found: Partials, spherical: bool, least: float, rng: np.random.Generator) -> None:
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


def _shares(weights: Doubles, limits: Positions, total: int) -> Positions:
    """Numbers in proportion to the weights that add up to the total, each from 1 to its limit; 0 if the limit is 0."""
    ideal = weights * (total / weights.sum())
    shares = np.minimum(np.maximum(ideal.astype(np.int64), 1), limits)
    while missing := total - int(shares.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(shares < limits if step > 0 else shares > 1)
        shares[able[np.argsort(step * (shares - ideal)[able], kind="stable")][: abs(missing)]] += step
    return shares
