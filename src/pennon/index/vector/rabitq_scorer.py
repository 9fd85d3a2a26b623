"""Distances to partitions of RaBitQ codes.

A code of b bits is a number u in 0..2^b - 1 per dimension that stands for u - (2^b - 1) / 2. With q' the rotated query
and t = Σ (u - (2^b - 1) / 2) q', the raw-query estimate is t * scale + add + |q - c|² for l2 and cosine, and
t * scale + (add - 1) q·c / c·c + 1 - q·c for dot. The older residual-query estimate rotates q - c instead, has 1 bit
with the values ±1/√D, and adds |q - c|² or -q·c. All of them are t * scale + slope * add + shift: a row has its scale
and add, a query has its slope and shift in a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.products import inner_products
from pennon.index.vector.quantizer import ScorerBase
from pennon.index.vector.rabitq_signs import SignQuery, Signs
from pennon.index.vector.scan import keys_of
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Mask, Positions, row_chunks

# [n, dim] numbers, or [n, dim / 8] bytes of bits.
Numbers = npt.NDArray[np.unsignedinteger[Any]]

# Signs alone tell which rows may be among the nearest, where there are more rows than this.
SIFTED_ROWS = 2048
# In units of the error stored with a row, 1.9 standard deviations: what is added to the distance of the k-th and taken
# from a row's own before that row is passed over. The two together make a miss all but impossible.
SIFTING_ERRORS = 2


@dataclass(frozen=True, eq=False)
class Asked:
    """One query in several partitions, or several in one."""

    points: Floats  # rotated, one for each query
    sums: Floats  # of the items of each point
    slopes: Floats | None  # for each query or partition, as the rest; None where all are 1
    shifts: Floats
    lengths: Floats  # of what products with the grid stand for; errors of rows grow with it

    def distances(self, products: Floats, middle: float, add: Floats, scale: Floats, counts: Positions) -> Floats:
        """Of one query, in place of its products with the rows of the partitions, so many of each."""
        found = products
        found -= self.sums * np.float32(middle)
        found *= scale
        found += add if self.slopes is None else np.repeat(self.slopes, counts) * add
        found += np.repeat(self.shifts, counts)
        return found


@dataclass(frozen=True)
class Estimator:
    """How the codes of an index become distances."""

    scanned_queries: ClassVar[int] = 2

    metric: Metric
    dim: int
    extra_bits: int
    residual_query: bool

    @property
    def middle(self) -> float:
        """Of the numbers that a code can be in a dimension."""
        return (1 << self.extra_bits) - 0.5

    def ask(self, queries: Floats, centroids: Floats, turned_centroids: Floats | None) -> Asked:
        """Of queries as `RabitQuantizer.prepare` gives them. There is one of them, or one centroid."""
        plain, points = queries[:, : self.dim], queries[:, self.dim :]
        if turned_centroids is not None:
            points = (points - turned_centroids) * np.float32(2 / np.sqrt(self.dim))
        sums = points.sum(axis=1)
        if self.metric.by_l2:
            shifts = squared_lengths(plain - centroids)
            return Asked(points, sums, None, shifts, np.sqrt(shifts))
        products = (plain * centroids).sum(axis=1)
        squared = np.broadcast_to(squared_lengths(centroids), products.shape)
        slopes = np.divide(products, squared, out=np.zeros_like(products), where=squared > 0)
        lengths = np.sqrt(squared_lengths(plain - slopes[:, None] * centroids))
        if self.residual_query:
            return Asked(points, sums, None, -products, lengths)
        return Asked(points, sums, slopes, 1 - products - slopes, lengths)

    def scan(
        self, query: Floats, probed: Sequence[RabitScorer], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        counts = np.array([len(one) for one in probed])
        if self.residual_query:
            found = np.concatenate([one.distances(query)[0] for one in probed])
            if allowed is not None:
                found[~allowed] = np.inf
            values, numbers = smallest(found[None], k)
            return values[0], keys_of(numbers[0], counts)
        asked = self.ask(query, np.stack([one.centroid for one in probed]), None)
        rows = None if allowed is None else np.flatnonzero(allowed)
        if (counts.sum() if rows is None else len(rows)) > SIFTED_ROWS:
            rows = self._sifted(asked, probed, counts, k, allowed)
        if rows is None:
            values, numbers = self._measured(asked, probed, counts, k)
            return values, keys_of(numbers, counts)
        parts, picked = _picked(probed, counts, rows)
        values, numbers = self._measured(asked, parts, picked, k)
        return values, keys_of(np.append(rows, -1)[numbers], counts)

    def floats(self, codes: Numbers) -> Floats:
        if not self.extra_bits:
            codes = np.unpackbits(codes, axis=1, count=self.dim, bitorder="little")
        return codes.astype(np.float32)

    def _sifted(
        self, asked: Asked, probed: Sequence[RabitScorer], counts: Positions, k: int, allowed: Mask | None
    ) -> Positions:
        """The rows that may be among the nearest, judged by their signs."""
        query = SignQuery(asked.points[0], probed[0].signs.codes.shape[1])
        ends = np.cumsum(counts)
        rough = np.empty(ends[-1], dtype=np.float32)
        slopes = [None] * len(probed) if asked.slopes is None else asked.slopes.tolist()
        half = asked.sums[0] / np.float32(2)
        for one, end, slope, shift in zip(probed, ends.tolist(), slopes, asked.shifts.tolist(), strict=True):
            part = rough[end - len(one) : end]
            query.products(one.signs.codes, part)
            add, scale, _ = one.signs.factors
            part -= half
            part *= scale
            part += add if slope is None else add * np.float32(slope)
            part += np.float32(shift)
        if allowed is not None:
            rough[~allowed] = np.inf
        nearest = smallest(rough[None], k)[1][0]
        if nearest[-1] < 0:
            return np.flatnonzero(np.isfinite(rough))
        found, weights = rough[nearest], asked.lengths * np.float32(SIFTING_ERRORS)
        for one, end, weight in zip(probed, ends.tolist(), weights, strict=True):
            _, scale, error = one.signs.factors
            part = rough[end - len(one) : end]
            if self.extra_bits:
                part -= error * weight
            part += scale * np.float32(query.rounding)  # scales are negative
        # What distances are at least has been taken from what they are about, so twice that is what they are at most.
        # The k-th smallest of these is no more than the greatest of any k of them.
        return np.flatnonzero(rough <= (2 * found - rough[nearest]).max())

    def _measured(self, asked: Asked, parts: Sequence[Coded], counts: Positions, k: int) -> tuple[Floats, Positions]:
        """The nearest of rows, which are numbered through."""
        codes, products = np.concatenate([part.codes for part in parts]), np.empty(counts.sum(), dtype=np.float32)
        for rows in row_chunks(len(codes), self.dim):
            np.matmul(self.floats(codes[rows]), asked.points[0], out=products[rows])
        add, scale = np.concatenate([part.factors for part in parts], axis=1)
        found = asked.distances(products, self.middle, add, scale, counts)
        values, numbers = smallest(found[None], k)
        return values[0], numbers[0]


@dataclass(frozen=True, eq=False)
class Coded:
    """Some rows of a partition."""

    codes: Numbers
    factors: Floats  # [2, n], add and scale


@dataclass(frozen=True, eq=False)
class RabitScorer(Coded, ScorerBase):
    quantizer: Estimator
    signs: Signs
    centroid: Floats
    turned_centroid: Floats | None = None  # residual-query only

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        extra = self.codes.nbytes + self.factors.nbytes if self.quantizer.extra_bits else 0
        return extra + self.signs.nbytes + 2 * self.centroid.nbytes

    def distances(self, queries: Floats) -> Floats:
        turned = None if self.turned_centroid is None else self.turned_centroid[None]
        asked = self.quantizer.ask(queries, self.centroid[None], turned)
        found, (add, scale) = np.empty((len(queries), len(self)), dtype=np.float32), self.factors
        for rows in row_chunks(len(self), self.quantizer.dim):
            inner_products(asked.points, self.quantizer.floats(self.codes[rows]), found[:, rows])
        found -= asked.sums[:, None] * np.float32(self.quantizer.middle)
        found *= scale
        found += add if asked.slopes is None else np.outer(asked.slopes, add)
        found += asked.shifts[:, None]
        return found

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> RabitScorer:
        codes, factors = self.codes.take(positions, axis=0), self.factors.take(positions, axis=1)
        return replace(self, codes=codes, factors=factors, signs=self.signs.take(positions))


def _picked(probed: Sequence[RabitScorer], counts: Positions, rows: Positions) -> tuple[list[Coded], Positions]:
    """Some rows, ascending and numbered through the partitions: those of each partition that has any, and how many of
    each partition they are."""
    ends = np.cumsum(counts)
    pieces = list(zip(probed, ends - counts, _cuts(rows, ends), strict=True))
    picked = np.array([stop - start for _, _, (start, stop) in pieces])
    chosen = [(one, rows[start:stop] - first) for one, first, (start, stop) in pieces if start < stop]
    chosen = chosen or [(probed[0], rows)]
    return [Coded(one.codes.take(at, axis=0), one.factors.take(at, axis=1)) for one, at in chosen], picked


def _cuts(rows: Positions, ends: Positions) -> Iterator[tuple[int, int]]:
    """Where the ascending rows of each partition begin and end."""
    return pairwise([0, *np.searchsorted(rows, ends).tolist()])
