"""Short forms of vectors that are never farther apart than the vectors themselves.

A sketch has the coordinates of a vector along the main axes of the column, and the length of the rest of the vector.
Two sketches are at most as far apart as their vectors, so rows whose sketches are too far apart are no near-duplicates:
most pairs are decided by a product of coarse sketches of some 30 items. The others are compared by their whole
sketches, and what is left is measured on the vectors of the table.

Distances here are Euclidean, between vectors as they are for l2, and of length 1 for cosine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Vectors, Words, row_chunks

Doubles = npt.NDArray[np.float64]

# The unit roundoff of float32.
ROUNDOFF = 2.0**-24
# Axes of a coarse sketch.
COARSE = 32
# Hashes of a vector: two, so that different vectors practically never share both.
HASHES = 2


@dataclass(frozen=True, eq=False)
class Sketch:
    """`axes` are columns of length 1 that are orthogonal to one another."""

    metric: Metric
    mean: Doubles
    axes: Floats

    @classmethod
    def of_sample(cls, metric: Metric, sample: Vectors, width: int) -> Sketch:
        """The first `width` principal axes of some vectors."""
        points = as_points(metric, sample).astype(np.float64)
        mean = points.mean(axis=0)
        points -= mean
        _, axes = np.linalg.eigh(points.T @ points)
        return cls(metric, mean, np.ascontiguousarray(axes[:, ::-1][:, :width], dtype=np.float32))

    @property
    def width(self) -> int:
        """The items of a sketch."""
        return self.axes.shape[1] + 1

    def of(self, vectors: Vectors) -> Floats:
        """The sketches of vectors that an index would hold. Their lengths are those of the vectors relative to the
        mean."""
        sketches = np.empty((len(vectors), self.width), dtype=np.float32)
        for rows in row_chunks(*vectors.shape):
            points = (as_points(self.metric, vectors[rows]) - self.mean).astype(np.float32)
            along = np.matmul(points, self.axes, out=sketches[rows, :-1])
            # By differences: the root of a difference of squares would lose half of the digits.
            points -= along @ self.axes.T
            sketches[rows, -1] = np.linalg.norm(points, axis=1)
        return sketches

    def reach(self, radius: float, lengths: Floats) -> Doubles:
        """How far apart the sketches of a row and of one within the radius can be, by the lengths of the first:
        rounding errors included."""
        error = (len(self.mean) + 8) * 4 * ROUNDOFF
        return radius * (1 + error) + 2 * error * lengths.astype(np.float64)


def coarse(sketches: Floats) -> Floats:
    """Sketches of sketches: their first items, and the length of the rest."""
    if sketches.shape[1] <= COARSE + 1:
        return sketches
    rest = np.linalg.norm(sketches[:, COARSE:], axis=1, keepdims=True)
    return np.concatenate([sketches[:, :COARSE], rest], axis=1)


def as_points(metric: Metric, vectors: Vectors) -> Vectors:
    """Vectors in float32 or float64, under cosine of length 1."""
    wide = vectors.astype(np.result_type(vectors, np.float32), copy=False)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True) if metric is Metric.COSINE else wide


def radius_of(metric: Metric, distance: float) -> float:
    """The Euclidean distance of vectors, of length 1 under cosine, at a distance on Lance's scale."""
    return float(np.sqrt(2 * distance if metric is Metric.COSINE else distance))


def hashes(vectors: npt.NDArray[Any]) -> Words:
    """Numbers that are equal for vectors with equal bytes, [rows, 2]."""
    factors = np.random.default_rng(0).integers(0, 1 << 63, (vectors.shape[1], HASHES), dtype=np.uint64) * 2 + 1
    words = np.ascontiguousarray(vectors).view(f"u{vectors.itemsize}")
    out = np.empty((len(vectors), HASHES), dtype=np.uint64)
    for rows in row_chunks(*vectors.shape):
        np.matmul(words[rows].astype(np.uint64), factors, out=out[rows])
    return out
