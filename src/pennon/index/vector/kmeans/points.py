"""Points in the form for products.

The distances of many points are one float32 matrix product: with x kept as [x, 1, |x|²] and c as [-2c, |c|², 1] it is
|x - c|²; spherical, they are [x, 1, |x|] and [-c, 0, 1]. For l2 both are first shifted to the mean of the centroids, so
that a common offset of the data costs no precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Floats, Positions, Vectors, row_chunks

Doubles = npt.NDArray[np.float64]

BLOCK_ROWS = 1 << 16


def middle_of(centroids: Vectors, spherical: bool) -> Doubles:
    """What points and centroids are relative to."""
    return np.zeros(centroids.shape[1]) if spherical else centroids.mean(axis=0, dtype=np.float64)


def prepared(
    points: Vectors, middle: Doubles, spherical: bool, order: Positions | None = None, threads: int = 1
) -> Floats:
    """Points in the form for products, in the given order."""
    dim = points.shape[1]
    wide = np.result_type(points, np.float32)
    middle = middle.astype(wide)
    rows = np.empty((len(points) if order is None else len(order), dim + 2), dtype=np.float32)

    def fill(cut: slice) -> None:
        chunk = points[cut] if order is None else points.take(order[cut], axis=0)
        rows[cut, :dim] = np.subtract(chunk, middle, dtype=wide)
        lengths = squared_lengths(rows[cut, :dim])
        rows[cut, dim] = 1
        rows[cut, dim + 1] = np.sqrt(lengths) if spherical else lengths

    cuts = row_chunks(len(rows), dim)
    if threads == 1:
        for cut in cuts:
            fill(cut)
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(fill, cuts))
    return rows


def prepared_blocks(points: Vectors, middle: Doubles, spherical: bool) -> Iterator[tuple[int, Floats]]:
    """All points in blocks, each with the position of its first point."""
    for start in range(0, len(points), BLOCK_ROWS):
        yield start, prepared(points[start : start + BLOCK_ROWS], middle, spherical)


def as_centroids(points: Floats, spherical: bool) -> Floats:
    """Points in place of which centroids are: their directions, if k-means is spherical."""
    return directions(points).astype(np.float32) if spherical else points


def directions(vectors: Vectors) -> Doubles:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
