"""The nearest centroid of every point: by products with all centroids, or if they are many by those next to it."""

from __future__ import annotations

import numpy as np

from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.assignment.balanced_groups import balanced_groups
from pennon.index.vector.assignment.many_centroids import MANY_CENTROIDS, ManyCentroids
from pennon.index.vector.assignment.neighborhood import COMPARED_CENTROIDS, Neighborhood
from pennon.index.vector.vectors import Floats, Positions

# Up to this many dimensions, points are always compared with all centroids.
FEW_DIMENSIONS = 16

# From this many centroids on, points are compared only with the neighbors of their centroid of the pass before.
WALKED_CENTROIDS = 1024


def walked(centroids: Floats) -> bool:
    """Whether points walk from their centroid of the pass before; else they are compared with all."""
    return len(centroids) >= WALKED_CENTROIDS and centroids.shape[1] > FEW_DIMENSIONS


def nearest_centroids(
    rows: Floats,
    centroids: Floats,
    spherical: bool,
    threads: int = 1,
    start: Positions | None = None,
    groups: ManyCentroids | None = None,
    around: Neighborhood | None = None,
) -> tuple[Positions, Floats]:
    """The nearest centroid of each prepared point, and the distance; the same bits for any number of threads. Of many
    centroids, the nearest that is found from `start`, those of the pass before. `groups` and `around` are those of the
    centroids, if they are known."""
    k, dim = centroids.shape
    if start is not None and walked(centroids):
        ids, nearest = (around or neighborhood_of(centroids, spherical, threads)).nearest(
            rows[:, : dim + 1], start, threads
        )
    elif groups is not None or (k >= MANY_CENTROIDS and len(rows) >= k):
        many = groups or ManyCentroids.of(centroids, by_l2=not spherical, threads=threads)
        ids, nearest = many.nearest(rows[:, : dim + 1], threads)
    else:
        ids, nearest, _ = AllCentroids.of(centroids, by_l2=not spherical).nearest(rows, threads=threads)
    nearest += rows[:, dim + 1]
    return ids, np.maximum(nearest, 0, out=nearest)


def neighborhood_of(centroids: Floats, spherical: bool, threads: int = 1) -> Neighborhood:
    """For walks from the centroids of the pass before."""
    many = len(centroids) > COMPARED_CENTROIDS
    groups = balanced_groups(centroids, round(len(centroids) ** 0.5 / 4)) if many else ()
    return Neighborhood.of(centroids, by_l2=not spherical, groups=groups, threads=threads)
