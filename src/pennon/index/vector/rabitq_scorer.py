"""Distances to a partition of RaBitQ codes.

A code of b bits is a number u in 0..2^b - 1 per dimension that stands for u - (2^b - 1) / 2. With q' the rotated query
and t = Σ (u - (2^b - 1) / 2) q', the raw-query estimate is t * scale + add + |q - c|² for l2 and cosine, and
t * scale + (add - 1) q·c / c·c + 1 - q·c for dot. The older residual-query estimate rotates q - c instead, has 1 bit
with the values ±1/√D, and adds |q - c|² or -q·c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Positions, row_chunks


@dataclass(frozen=True, eq=False)
class RabitScorer:
    metric: Metric
    codes: npt.NDArray[np.unsignedinteger[Any]]  # [n, dim] numbers, or [n, dim / 8] bytes of bits
    extra_bits: int
    add: Floats
    scale: Floats
    centroid: Floats
    turned_centroid: Floats | None  # residual-query only

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.add.nbytes + self.scale.nbytes + 2 * self.centroid.nbytes

    def distances(self, queries: Floats) -> Floats:
        plain, turned = np.split(queries, 2, axis=1)
        if self.turned_centroid is not None:
            turned = (turned - self.turned_centroid) * np.float32(2 / np.sqrt(len(self.centroid)))
        found = self._products(np.ascontiguousarray(turned))
        found -= turned.sum(axis=1)[:, None] * np.float32((1 << self.extra_bits) - 0.5)
        found *= self.scale
        if self.metric.by_l2:
            found += self.add
            found += squared_lengths(plain - self.centroid)[:, None]
            return found
        products = plain @ self.centroid
        if self.turned_centroid is not None:
            found += self.add
            found -= products[:, None]
            return found
        length = self.centroid @ self.centroid
        shares = products / length if length > 0 else np.zeros_like(products)
        found += np.outer(shares, self.add - 1)
        found += 1 - products[:, None]
        return found

    def nearest(self, queries: Floats, k: int) -> tuple[Floats, Positions]:
        return smallest(self.distances(queries), k)

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> RabitScorer:
        return replace(self, codes=self.codes[positions], add=self.add[positions], scale=self.scale[positions])

    def _products(self, queries: Floats) -> Floats:
        dim = queries.shape[1]
        found = np.empty((len(queries), len(self)), dtype=np.float32)
        for rows in row_chunks(len(self), dim):
            codes = self.codes[rows]
            if not self.extra_bits:
                codes = np.unpackbits(codes, axis=1, count=dim, bitorder="little")
            np.matmul(queries, codes.astype(np.float32).T, out=found[:, rows])
        return found
