"""Passes over all points in memory, each from the nearest centroids of the one before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pennon.index.vector.kmeans.nearest import nearest_centroids
from pennon.index.vector.kmeans.partials import Partials, summed, updated
from pennon.index.vector.vectors import Floats, Positions, Vectors

# Passes move a centroid beyond the mean of its points, because it would continue in that direction for many passes.
STRIDE = 1.8

# The passes stop when the loss falls by no more than this share.
TOLERANCE = 3e-3


class Clustering(NamedTuple):
    centroids: Vectors  # float32, for points in float64 float64
    loss: float  # of the last pass, before its centroids moved
    iterations: int  # passes over all points


def passes(
    rows: Floats,
    centroids: Vectors,
    *,
    spherical: bool,
    tolerance: float,
    max_iters: int,
    threads: int,
    rng: np.random.Generator,
    last: bool,
    known: tuple[Positions, Floats] | None = None,
) -> tuple[Clustering, Partials, Positions]:
    """Passes over all these points until the loss hardly falls; also returns the partials and the nearest centroids of
    the last pass. `known` are the nearest of the given centroids and their distances, which the first pass then need
    not find."""
    loss, iterations = np.inf, 0
    nearest, distances = known or nearest_centroids(rows, centroids, spherical, threads)
    while True:
        found = summed(rows, nearest, distances, len(centroids), threads)
        iterations += 1
        done = iterations >= max_iters or loss - found.loss <= tolerance * found.loss
        loss = found.loss
        ends = done and last
        stride, refill = (1.0, np.inf) if ends else (STRIDE, 0.0)
        centroids = updated(centroids, found, spherical=spherical, stride=stride, refill=refill, seed=rng)
        if done:
            return Clustering(centroids, loss, iterations), found, nearest
        nearest, distances = nearest_centroids(rows, centroids, spherical, threads, nearest)
