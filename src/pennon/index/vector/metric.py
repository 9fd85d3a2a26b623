"""The metrics l2, cosine, dot and hamming, on the scale of the distances that Lance reports.

l2 is the squared Euclidean distance, cosine is 1 - cos, dot is 1 - x·y, hamming is the number of bits in which vectors
of bytes differ. Inside an index cosine is l2 on vectors of length 1, and hamming is l2 between bits as numbers, so
clustering and quantizers have only two cases: l2 and the inner product.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.errors import InvalidArgument
from pennon.index.vector.bits import as_bits, hamming_distances, to_bits
from pennon.index.vector.vectors import Floats, Mask, Vectors, row_chunks, sums_in_order


class Metric(StrEnum):
    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"

    @classmethod
    def named(cls, name: str) -> Metric:
        """pylance writes lower case and reads any case; `euclidean` is its alias for l2."""
        lowered = name.lower()
        try:
            return cls("l2" if lowered == "euclidean" else lowered)
        except ValueError:
            known = ", ".join(metric.value for metric in cls)
            raise InvalidArgument(f"unknown metric {name!r}", f"Use one of {known}") from None

    @classmethod
    def default(cls, element: np.dtype[Any]) -> Metric:
        """The metric of a column, by the type of its items, if neither an index nor the user names one."""
        return cls.HAMMING if element == np.uint8 else cls.L2

    def measures(self, element: np.dtype[Any]) -> bool:
        """Whether it is defined for vectors of such items: hamming for bytes, all others for floats."""
        return (self is Metric.HAMMING) == (element == np.uint8)

    @property
    def by_l2(self) -> bool:
        """Whether prepared vectors are compared by l2; by the inner product otherwise."""
        return self is not Metric.DOT

    def indexable(self, vectors: Vectors) -> Mask:
        """The rows that an index contains: all items finite and, under cosine, a length above 0.

        A row whose squared length overflows float32 has no distance to anything; pylance fails to build an index over
        such a row, Pennon leaves it out like an infinite one.
        """
        if self is Metric.HAMMING:
            return np.ones(len(vectors), dtype=np.bool_)
        lengths = squared_lengths(vectors)
        mask = np.isfinite(lengths)
        if self is Metric.COSINE:
            # float32 may lose the length of a short float64 vector.
            mask &= _lengths_like_pylance(vectors) > 0 if vectors.dtype == np.float64 else lengths > 0
        return mask

    def prepare(self, vectors: Vectors) -> Vectors:
        """Vectors in the form of the index: of length 1 under cosine, rounded to the column's type, else unchanged."""
        if self is not Metric.COSINE:
            return vectors
        lengths, prepared = _lengths_like_pylance(vectors)[:, None], np.empty(vectors.shape, dtype=vectors.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            # By chunks: float16 is widened for the division.
            for rows in row_chunks(*vectors.shape):
                np.divide(vectors[rows], lengths[rows], out=prepared[rows], casting="same_kind")
        return prepared

    def points(self, vectors: Vectors) -> Vectors:
        """Prepared vectors as the points whose l2 or inner product is measured: under hamming their bits."""
        return to_bits(vectors) if self is Metric.HAMMING else vectors

    def from_points(self, points: Vectors, element: np.dtype[Any]) -> npt.NDArray[Any]:
        """Points, such as means, in the form of the index; under hamming the nearest vectors of bits."""
        return as_bits(points) if self is Metric.HAMMING else points.astype(element)

    def distances(self, queries: Vectors, vectors: Vectors) -> Floats:
        """Exact distances of every query (rows) to every vector (columns); vectors as in the table.

        Under cosine a vector of length 0 is infinitely far from everything.
        """
        if self is Metric.HAMMING:
            return hamming_distances(queries, vectors)
        wide = np.result_type(queries, vectors, np.float32)
        queries = queries.astype(wide, copy=False)
        if vectors.dtype != wide:
            # float16 is widened by chunks, not as a whole.
            found = np.empty((len(queries), len(vectors)), dtype=np.float32)
            for rows in row_chunks(*vectors.shape):
                found[:, rows] = self.distances(queries, vectors[rows].astype(wide))
            return found
        if self is Metric.L2:
            return squared_l2(queries, vectors)
        found = queries @ vectors.T
        if self is Metric.COSINE:
            lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                found /= lengths
            found[lengths == 0] = -np.inf
        return np.subtract(1, found, dtype=wide).astype(np.float32, copy=False)


FLOAT_METRICS = (Metric.L2, Metric.COSINE, Metric.DOT)


def squared_lengths(vectors: Vectors) -> Floats:
    out = np.empty(len(vectors), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_chunks(*vectors.shape):
            chunk = vectors[rows].astype(np.float32, copy=False)
            np.einsum("ij,ij->i", chunk, chunk, out=out[rows])
    return out


def _lengths_like_pylance(vectors: Vectors) -> Vectors:
    """Lengths in float32, for float64 columns in float64."""
    wide = np.result_type(vectors, np.float32)
    out = np.empty(len(vectors), dtype=wide)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_chunks(*vectors.shape):
            chunk = vectors[rows].astype(wide, copy=False)
            out[rows] = np.sqrt(sums_in_order(chunk * chunk))
    return out


def squared_l2(queries: Vectors, vectors: Vectors) -> Floats:
    """Computed by differences, not by expanding the square: equal vectors of any length have distance 0."""
    out = np.empty((len(queries), len(vectors)), dtype=np.float32)
    if vectors.dtype == np.float32:
        queries, vectors = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
        for query, row in zip(queries, out, strict=True):
            _l2_to_many(_pointer(row), _pointer(query), _pointer(vectors), vectors.shape[1], len(vectors))
        return out
    for rows in row_chunks(*vectors.shape):
        for query, row in zip(queries, out, strict=True):
            difference = vectors[rows] - query
            row[rows] = np.einsum("ij,ij->i", difference, difference)
    return out


_pointer = faiss.swig_ptr
_l2_to_many = faiss.fvec_L2sqr_ny  # pyright: ignore[reportAttributeAccessIssue] - missing from faiss's stubs
