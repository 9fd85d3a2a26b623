"""One query against the vectors of many partitions, in one call: what a call of faiss for each of them takes is more
than the comparison of a few rows that a filter leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import bool_ as boolean
from numba.types import float32, int64, void

from pennon.index.arrays import Flags, Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_FLAGS, GIVEN_I64, MADE_F32, MADE_I64, compiled, given
from pennon.index.memory import address_of, float32_at
from pennon.index.vector.quantizers.pq.kernels import replace_worst

# Sums of a distance may be added up in any order.
_ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})


@compiled(float32(int64, int64, int64), fastmath=_ANY_ORDER)
def _squared_l2(point: Int, row: Int, dim: Int) -> np.float32:
    total = np.float32(0)
    for item in range(dim):
        difference = float32_at(point, item) - float32_at(row, item)
        total += difference * difference
    return total


@compiled(float32(int64, int64, int64), fastmath=_ANY_ORDER)
def _product(point: Int, row: Int, dim: Int) -> np.float32:
    total = np.float32(0)
    for item in range(dim):
        total += float32_at(point, item) * float32_at(row, item)
    return total


@compiled(void(given(float32, 2), GIVEN_I64, GIVEN_I64, GIVEN_FLAGS, boolean, MADE_F32, MADE_I64))
def scan_vectors(
    points: Any, lists: Int64s, counts: Int64s, allowed: Flags, by_l2: bool, values: Float32s, rows: Int64s
) -> None:
    """Offers the rows of all lists, whose vectors `lists` has the addresses of, to one query; numbers count through all
    of them. There is a point for every list, or one. An empty `allowed` allows all. Values are squared l2, or inner
    products times -1."""
    dim, start = points.shape[1], 0
    for place in range(len(lists)):
        point = address_of(points) + (place if len(points) > 1 else 0) * dim * 4
        for number in range(counts[place]):
            if len(allowed) and not allowed[start + number]:
                continue
            row = lists[place] + number * dim * 4
            value = _squared_l2(point, row, dim) if by_l2 else -_product(point, row, dim)
            if value < values[0]:
                replace_worst(values, rows, value, start + number)
        start += counts[place]
