"""Groups of neighboring centroids, all of about the same size.

Groups of k-means differ in size by a factor of ten and more, and most vectors would be compared with the largest ones.
Here a tree of halves, each cut across the direction in which it is longest, gives groups of equal size; then, as in
k-means, every centroid moves to the nearest mean that has a place left.
"""

from __future__ import annotations

import faiss
import numpy as np

from pennon.index.arrays import Int32s
from pennon.index.vector.vectors import Floats, Positions

PASSES = 3
# Iterations that find the longest direction of a half, about.
DIRECTION_STEPS = 4
# Places of a group, for each centroid that it would have if all were equal.
ROOM = 1.25
# The nearest groups of a centroid that are considered for it.
CHOICES = 12


def balanced_groups(centroids: Floats, size: int) -> list[Positions]:
    """The positions of each group's members. Equal centroids give equal groups."""
    # Imported here: queries rank centroids too, and need no kernels.
    from pennon.index.vector.assignment.kernels import fill_groups  # noqa: PLC0415

    groups = _halves(centroids, np.arange(len(centroids)), size)
    for _ in range(PASSES if len(groups) > 1 else 0):
        means = means_of(centroids, groups)
        distances, choices = faiss.knn(centroids, means, min(CHOICES, len(means)))
        # Those that would lose most elsewhere choose first.
        order = np.argsort(distances[:, 0] - distances[:, 1], kind="stable").astype(np.int32)
        places = np.full(len(means), int(ROOM * len(centroids) / len(means)) + 1)
        found = np.empty(len(centroids), dtype=np.int32)
        fill_groups(order, choices.astype(np.int32), places, found)
        groups = _members(found)
    return groups


def _members(numbers: Int32s) -> list[Positions]:
    """The positions of each number that occurs."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))
    return [some for some in np.split(order, ends[:-1]) if len(some)]


def means_of(centroids: Floats, groups: list[Positions]) -> Floats:
    return np.stack([centroids[members].mean(axis=0) for members in groups])


def _halves(centroids: Floats, members: Positions, size: int) -> list[Positions]:
    if len(members) <= size:
        return [members]
    points = centroids[members] - centroids[members].mean(axis=0)
    longest = points[np.einsum("ij,ij->i", points, points).argmax()]
    for _ in range(DIRECTION_STEPS):
        longest = points.T @ (points @ longest)
        longest /= max(float(np.linalg.norm(longest)), np.finfo(np.float32).tiny)
    order = members[np.argsort(points @ longest, kind="stable")]
    middle = len(order) // 2
    return _halves(centroids, order[:middle], size) + _halves(centroids, order[middle:], size)
