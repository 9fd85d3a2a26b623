"""The rotation of RaBitQ, which spreads the information of a vector evenly over its dimensions.

A fast rotation is 4 rounds of sign flips and Walsh-Hadamard transforms and is stored as the flipped signs: 4 groups of
ceil(D / 8) bytes, dimension i in bit i % 8 of byte i // 8. With t the largest power of two that is not above D, a
round transforms all dimensions if t = D; otherwise the first t dimensions in even rounds and the last t in odd ones,
and then replaces the halves (a, b) of the vector by (a + b, a - b). Older indices store the rotation as a matrix.

Up to a few hundred dimensions, the matrix of these steps is faster than the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from pennon.index.vector.ivf import Model
from pennon.index.vector.vectors import Floats, Vectors, row_chunks

ROUNDS = 4
# Up to this dimension a matrix product takes less time per vector than the steps.
MATRIX_DIM = 512


@dataclass(frozen=True)
class FastRotation(Model):
    signs: bytes
    dim: int

    @classmethod
    def random(cls, dim: int, seed: int) -> Self:
        return cls(np.random.default_rng(seed).bytes(ROUNDS * -(-dim // 8)), dim)

    def __post_init__(self) -> None:
        if len(self.signs) != ROUNDS * -(-self.dim // 8):
            raise ValueError(f"{len(self.signs)} bytes of signs for {self.dim} dimensions")

    @cached_property
    def matrix(self) -> Floats:
        """The rotated axes as columns."""
        return np.ascontiguousarray(self._turn(np.eye(self.dim)).T, dtype=np.float32)

    def apply(self, vectors: Vectors) -> Floats:
        if self.dim <= MATRIX_DIM:
            return self.apply_to_queries(vectors)
        out = np.empty(vectors.shape, dtype=np.float32)
        for rows in row_chunks(*vectors.shape):
            out[rows] = self._turn(vectors[rows].astype(np.float32, copy=False))
        return out

    def apply_to_queries(self, queries: Vectors) -> Floats:
        return queries.astype(np.float32, copy=False) @ self.matrix.T

    def _turn(self, rows: Vectors) -> Vectors:
        dim, span = self.dim, 1 << (self.dim.bit_length() - 1)
        shrink = rows.dtype.type(1) / np.sqrt(rows.dtype.type(span))
        flips = np.unpackbits(np.frombuffer(self.signs, np.uint8).reshape(ROUNDS, -1), axis=1, bitorder="little")
        # One row per dimension: every step then runs over long contiguous rows.
        turned = rows.T.copy()
        for turn, flip in enumerate(flips[:, :dim]):
            turned[flip == 1] *= -1
            start = 0 if turn % 2 == 0 else dim - span
            _hadamard(turned[start : start + span])
            turned[start : start + span] *= shrink
            if span != dim:
                _sum_and_difference(turned[: dim // 2], turned[dim // 2 :])
        if span != dim:
            turned *= rows.dtype.type(0.25)  # each round stretched the vector by the square root of 2
        return turned.T


@dataclass(frozen=True, eq=False)
class MatrixRotation(Model):
    """Row i of the matrix times the vector is dimension i of the result. Stored in the column's type."""

    stored: Vectors

    def __post_init__(self) -> None:
        if self.stored.shape[0] != self.stored.shape[1]:
            raise ValueError(f"a rotation of shape {self.stored.shape}")

    @property
    def dim(self) -> int:
        return len(self.stored)

    @cached_property
    def matrix(self) -> Floats:
        return self.stored.astype(np.float32)

    def apply(self, vectors: Vectors) -> Floats:
        return vectors.astype(np.float32, copy=False) @ self.matrix.T

    def apply_to_queries(self, queries: Vectors) -> Floats:
        return self.apply(queries)


Rotation = FastRotation | MatrixRotation


def _hadamard(columns: Vectors) -> None:
    """The Walsh-Hadamard transform of each column, in place; there are a power of two of rows."""
    span, count = columns.shape
    half = 1
    while half < span:
        pairs = columns.reshape(-1, 2, half, count)
        _sum_and_difference(pairs[:, 0], pairs[:, 1])
        half *= 2


def _sum_and_difference(first: Vectors, second: Vectors) -> None:
    difference = first - second
    first += second
    second[...] = difference
