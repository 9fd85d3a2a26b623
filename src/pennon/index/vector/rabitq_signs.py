"""A first look at RaBitQ codes: the signs alone, which give the distance of 1-bit codes.

faiss counts differing bits many times faster than anything multiplies numbers. So the items of the query become numbers
of a few bits, and these as many planes of bits: with s the signs of a row and p one of the planes, the number of items
that have a bit in both is (|s| + |p| - |s xor p|) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.index.vector.scan import widened
from pennon.index.vector.vectors import Codes, Floats

PLANES = 6
LEVELS = (1 << PLANES) - 1

# faiss counts in words of so many bytes.
WORD = 8

# Rows whose counts stay in the processor's caches.
ROWS_AT_ONCE = 4096

_faiss: Any = faiss


@dataclass(frozen=True, eq=False)
class Signs:
    """Of the rows of a partition, with the factors that belong to them."""

    codes: Codes  # [n, bytes], bytes filled up to whole words
    factors: Floats  # [3, n]: add, scale, and how far the distances of signs may be off, per unit of the query

    @classmethod
    def of(cls, codes: Codes, add: Floats, scale: Floats, error: Floats) -> Signs:
        return cls(widened(codes, -(-codes.shape[1] // WORD) * WORD), np.stack([add, scale, error]))

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.factors.nbytes

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> Signs:
        return Signs(self.codes.take(positions, axis=0), self.factors.take(positions, axis=1))


class SignQuery:
    """A query, asked what the sums of its items are where a row has a bit."""

    def __init__(self, point: Floats, code_bytes: int) -> None:
        low = point.min()
        step = max((point.max() - low) / LEVELS, np.finfo(np.float32).tiny)
        levels = np.rint((point - low) / step).astype(np.uint8)
        bits = levels >> np.arange(PLANES, dtype=np.uint8)[:, None] & 1
        # The last plane has no bits: what differs from it is all bits of a row.
        self._planes = np.zeros((PLANES + 1, code_bytes), dtype=np.uint8)
        self._planes[:PLANES, : -(-len(point) // 8)] = np.packbits(bits, axis=1, bitorder="little")
        # low * |s| + step / 2 * Σ 2^j (|s| + |p_j| - |s xor p_j|)
        weights = np.append(-step / 2 * 2.0 ** np.arange(PLANES), low + step / 2 * LEVELS)
        self._weights = weights.astype(np.float32)
        self._rest = np.float32(step / 2 * levels.sum(dtype=np.int64))
        # 5 standard deviations of the sum of so many roundings as a row has bits, about half of all.
        self.rounding = float(step * np.sqrt(len(point)))

    def products(self, codes: Codes, out: Floats) -> None:
        """The rounding of items may shift them by `rounding`."""
        for start in range(0, len(codes), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            np.matmul(self._weights, _differing(self._planes, codes[rows]), out=out[rows])
        out += self._rest


def _differing(planes: Codes, codes: Codes) -> Floats:
    """In how many bits each row differs from each plane, [planes, rows]."""
    counts = np.empty((len(planes), len(codes)), dtype=np.int32)
    arrays = faiss.swig_ptr(planes), faiss.swig_ptr(codes)
    _faiss.hammings(*arrays, *counts.shape, codes.shape[1], faiss.swig_ptr(counts))
    return counts.astype(np.float32)
