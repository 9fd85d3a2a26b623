"""k-means in one process."""

from __future__ import annotations

from functools import partial

import faiss
import numpy as np

from pennon.errors import InvalidArgument
from pennon.index.threads import one_thread
from pennon.index.vector.kmeans.nearest import nearest_centroids
from pennon.index.vector.kmeans.partials import partials_of, updated
from pennon.index.vector.kmeans.passes import TOLERANCE, Clustering, passes
from pennon.index.vector.kmeans.points import directions, middle_of, prepared
from pennon.index.vector.kmeans.separation import SEVERAL_LOSS, with_split_centroids
from pennon.index.vector.vectors import Vectors

# Training starts with half of the points: first in this many batches, with new centroids after each, then in full
# passes while the loss falls. Only the last passes use all points.
BATCHES = 4
BATCH_POINTS = 8  # at least, per centroid


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
    middle = middle_of(drawn, spherical)
    centroids = (directions(drawn) if spherical else drawn - middle).astype(np.float32)
    threads, known = faiss.omp_get_max_threads(), None
    rows = prepared(points, middle, spherical, order, threads)
    half = rows[: len(rows) // 2]
    repeat = partial(passes, spherical=spherical, tolerance=tolerance, max_iters=max_iters, threads=threads, rng=rng)
    with one_thread():
        if len(half) >= BATCH_POINTS * k:
            for batch in np.array_split(half, min(BATCHES, len(half) // (BATCH_POINTS * k))):
                found = partials_of(batch, centroids, spherical, threads)
                # A centroid without points moves only to one that covers several clusters. Moved to any other, it would
                # make partitions more even than the data, and a search that probes few of them would read fewer rows.
                centroids = updated(centroids, found, spherical=spherical, refill=SEVERAL_LOSS, seed=rng)
            (centroids, _, _), found, nearest = repeat(half, centroids, last=False)
            known = nearest_centroids(half, centroids, spherical, threads, nearest)
            centroids, known = with_split_centroids(half, centroids, found, known, spherical, threads, rng)
            others = nearest_centroids(rows[len(half) :], centroids, spherical, threads)
            known = np.concatenate([known[0], others[0]]), np.concatenate([known[1], others[1]])
        (centroids, loss, iterations), _, _ = repeat(rows, centroids, last=True, known=known)
    return Clustering((centroids + middle).astype(np.result_type(points, np.float32)), loss, iterations)
