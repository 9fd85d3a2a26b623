"""Distances to partitions of RaBitQ codes.

A code of b bits is a number u in 0..2^b - 1 per dimension that represents u - (2^b - 1) / 2. With q' the rotated query
and t = Σ (u - (2^b - 1) / 2) q', the raw-query estimate is t * scale + add + |q - c|² for l2 and cosine, and
t * scale + (add - 1) q·c / c·c + 1 - q·c for dot. The older residual-query estimate rotates q - c instead, has 1 bit
with the values ±1/√D, and adds |q - c|² or -q·c. All of them are t * scale + slope * add + shift: a row has its scale
and add, a query has its slope and shift in a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.products import inner_products
from pennon.index.vector.quantizers.base import ScorerBase
from pennon.index.vector.search.list_scanner import POSITION_BITS, keys_of, widened
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Codes, Floats, Mask, Numbers, Positions, Words, row_chunks

# In units of the error stored with a row, 1.9 standard deviations: added to the distance of the k-th row and subtracted
# from a row's own before that row is skipped. Together they make a miss practically impossible.
SIFTING_ERRORS = 2

WORD_BYTES = 8

# [8, 256]: the items of eight that a byte selects.
BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype(np.float32)


@dataclass(frozen=True, eq=False)
class RotatedQueries:
    """One query in several partitions, or several in one."""

    points: Floats  # rotated, one for each query
    sums: Floats  # of the items of each point
    slopes: Floats | None  # for each query or partition, as the rest; None if all are 1
    shifts: Floats
    lengths: Floats  # of the vectors in products with the grid; errors of rows grow with it


@dataclass(frozen=True, eq=False)
class Planes:
    """One query for the first pass over signs: its items as numbers of a few bits, a plane for each bit."""

    words: Words  # [dim / 64, planes]
    scale: Floats  # the `query` argument of the kernels, and `places` for each partition
    places: Floats

    @classmethod
    def of(cls, rotated: RotatedQueries) -> Planes:
        point, bits = rotated.points[0], np.arange(kernels().PLANES, dtype=np.uint8)[:, None]
        low = point.min()
        step = max((point.max() - low) / np.float32((1 << len(bits)) - 1), np.finfo(np.float32).tiny)
        numbers = np.rint((point - low) / step).astype(np.uint8)
        # 5 standard deviations of the sum of as many rounding errors as a row has set bits, about half of all.
        rounding = step * np.sqrt(len(point))
        slopes = np.ones_like(rotated.shifts) if rotated.slopes is None else rotated.slopes
        return cls(
            in_words(np.packbits(numbers >> bits & 1, axis=1, bitorder="little")),
            np.array([low, step, rotated.sums[0] / 2, rounding], dtype=np.float32),
            np.stack([slopes, rotated.shifts, rotated.lengths * np.float32(SIFTING_ERRORS)], axis=1),
        )


def in_words(codes: Codes) -> Words:
    """Rows of bytes as columns of words, padded with zeros."""
    words = widened(codes, -(-codes.shape[1] // WORD_BYTES) * WORD_BYTES).view(np.uint64)
    return np.ascontiguousarray(words.T)


@dataclass(frozen=True)
class Estimator:
    """Computes distances from the codes of an index."""

    scanned_queries: ClassVar[int] = 2

    metric: Metric
    dim: int
    extra_bits: int
    residual_query: bool

    @property
    def middle(self) -> float:
        """The middle of the range of numbers in a dimension of a code."""
        return (1 << self.extra_bits) - 0.5

    def rotate(self, queries: Floats, centroids: Floats, turned_centroids: Floats | None) -> RotatedQueries:
        """For queries prepared by `RabitQuantizer.prepare`: several with one centroid, or one with several."""
        plain, points = queries[:, : self.dim], queries[:, self.dim :]
        if turned_centroids is not None:
            points = (points - turned_centroids) * np.float32(2 / np.sqrt(self.dim))
        sums = points.sum(axis=1)
        if self.metric.by_l2:
            shifts = squared_lengths(plain - centroids)
            return RotatedQueries(points, sums, None, shifts, np.sqrt(shifts))
        products = (plain * centroids).sum(axis=1)
        squared = np.broadcast_to(squared_lengths(centroids), products.shape)
        slopes = np.divide(products, squared, out=np.zeros_like(products), where=squared > 0)
        lengths = np.sqrt(squared_lengths(plain - slopes[:, None] * centroids))
        if self.residual_query:
            return RotatedQueries(points, sums, None, -products, lengths)
        return RotatedQueries(points, sums, slopes, 1 - products - slopes, lengths)

    def scan(
        self, query: Floats, probed: Sequence[RabitScorer], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        if self.residual_query:
            return self._scan_residual(query, probed, k, allowed)
        rotated = self.rotate(query, np.stack([one.centroid for one in probed]), None)
        compare = kernels().nearest_numbers if self.extra_bits else kernels().nearest_signs
        point = rotated.points[0] if self.extra_bits else rotated.points[0].reshape(-1, 8) @ BITS
        middle, planes = rotated.sums[0] * np.float32(self.middle), Planes.of(rotated)
        highs, values = np.full((2, k), np.inf, dtype=np.float32)
        keys = np.full(k, -1, dtype=np.int64)
        for number, (one, mask) in enumerate(zip(probed, masks(probed, allowed), strict=True)):
            look = one.signs.words, one.signs.factors, planes.words, planes.scale, planes.places[number], mask, highs
            compare(*look, one.codes, one.factors, point, middle, number << POSITION_BITS, values, keys)
        order = np.lexsort((keys, values))
        return values[order], keys[order]

    def floats(self, codes: Numbers) -> Floats:
        if not self.extra_bits:
            codes = np.unpackbits(codes, axis=1, count=self.dim, bitorder="little")
        return codes.astype(np.float32)

    def _scan_residual(
        self, query: Floats, probed: Sequence[RabitScorer], k: int, allowed: Mask | None
    ) -> tuple[Floats, Positions]:
        found = np.concatenate([one.distances(query)[0] for one in probed])
        if allowed is not None:
            found[~allowed] = np.inf
        values, numbers = smallest(found[None], k)
        return values[0], keys_of(numbers[0], [len(one) for one in probed])


@dataclass(frozen=True, eq=False)
class Signs:
    """The signs of the rows of a partition, with their factors."""

    words: Words  # [dim / 64, n]
    factors: Floats  # [3, n]: add, scale, and the maximum error of distances by signs, per unit of the query

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.factors.nbytes

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> Signs:
        return Signs(self.words.take(positions, axis=1), self.factors.take(positions, axis=1))


@dataclass(frozen=True, eq=False)
class RabitScorer(ScorerBase):
    codes: Numbers  # [n, dim] numbers, or [n, dim / 8] bytes of bits
    factors: Floats  # [2, n], add and scale
    quantizer: Estimator
    signs: Signs
    centroid: Floats
    turned_centroid: Floats | None = None  # residual-query only

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.factors.nbytes + self.signs.nbytes + 2 * self.centroid.nbytes

    @cached_property
    def addresses(self) -> tuple[int, int, int, int]:
        """Of the words of signs and their factors, of codes and their factors."""
        arrays = self.signs.words, self.signs.factors, self.codes, self.factors
        assert all(array.flags.c_contiguous for array in arrays)
        words, sign_factors, codes, factors = (array.ctypes.data for array in arrays)
        return words, sign_factors, codes, factors

    def distances(self, queries: Floats) -> Floats:
        turned = None if self.turned_centroid is None else self.turned_centroid[None]
        rotated = self.quantizer.rotate(queries, self.centroid[None], turned)
        found, (add, scale) = np.empty((len(queries), len(self)), dtype=np.float32), self.factors
        for rows in row_chunks(len(self), self.quantizer.dim):
            inner_products(rotated.points, self.quantizer.floats(self.codes[rows]), found[:, rows])
        found -= rotated.sums[:, None] * np.float32(self.quantizer.middle)
        found *= scale
        found += add if rotated.slopes is None else np.outer(rotated.slopes, add)
        found += rotated.shifts[:, None]
        return found

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> RabitScorer:
        codes, factors = self.codes.take(positions, axis=0), self.factors.take(positions, axis=1)
        return replace(self, codes=codes, factors=factors, signs=self.signs.take(positions))

    def joined(self, others: Sequence[RabitScorer]) -> RabitScorer:
        parts = [self, *others]
        words = np.concatenate([part.signs.words for part in parts], axis=1)
        signs = Signs(words, np.concatenate([part.signs.factors for part in parts], axis=1))
        factors = np.concatenate([part.factors for part in parts], axis=1)
        return replace(self, codes=np.concatenate([part.codes for part in parts]), factors=factors, signs=signs)


def masks(probed: Sequence[RabitScorer], allowed: Mask | None) -> list[Mask]:
    """The mask of each partition; an empty one allows all."""
    if allowed is None:
        return [np.empty(0, dtype=np.bool_)] * len(probed)
    return np.split(allowed, np.cumsum([len(one) for one in probed])[:-1])


def kernels() -> ModuleType:
    """Imported on demand: importing the compiler alone takes time and memory."""
    from pennon.index.vector.quantizers.rabitq import kernels as compiled  # noqa: PLC0415

    return compiled
