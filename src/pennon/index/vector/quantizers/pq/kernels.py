"""Many queries against lists of PQ codes.

The distance of a row is the sum of one number for each byte of its code, out of a table of the query and the list. The
table stays in the nearest cache while the codes of a list pass by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import float32, int64, void

from pennon.index.arrays import Flags, Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_FLAGS, GIVEN_I64, MADE_F32, MADE_I64, compiled, given
from pennon.index.memory import address_of, float32_at, uint8_at

CODES = 256


@compiled(float32(int64, int64, int64), inline=True)
def _distance(table: Int, code: Int, width: Int) -> np.float32:
    """Four sums at once: one waits for the memory while others are added up."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    whole = width // 4 * 4
    for at in range(0, whole, 4):
        a += float32_at(table, at * CODES + np.int64(uint8_at(code, at)))
        b += float32_at(table, (at + 1) * CODES + np.int64(uint8_at(code, at + 1)))
        c += float32_at(table, (at + 2) * CODES + np.int64(uint8_at(code, at + 2)))
        d += float32_at(table, (at + 3) * CODES + np.int64(uint8_at(code, at + 3)))
    for at in range(whole, width):
        a += float32_at(table, at * CODES + np.int64(uint8_at(code, at)))
    return np.float32((a + b) + (c + d))


@compiled(void(MADE_F32, MADE_I64, float32, int64))
def _replace_worst(values: Float32s, found: Int64s, value: np.float32, number: Int) -> None:
    """In a heap whose first is the largest."""
    at, count = 0, len(values)
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[at], found[at] = values[child], found[child]
        at = child
    values[at], found[at] = value, number


@compiled(
    void(
        given(float32, 2),
        given(float32, 2),
        given(int64, 2),
        given(float32, 2),
        GIVEN_I64,
        GIVEN_I64,
        GIVEN_I64,
        GIVEN_FLAGS,
        float32[:, ::1],
        int64[:, ::1],
        int64,
        int64,
    )
)
def scan_lists(
    of_queries: Any,
    of_lists: Any,
    places: Any,
    nearby: Any,
    codes: Int64s,
    counts: Int64s,
    starts: Any,
    allowed: Flags,
    values: Any,
    found: Any,
    low: Int,
    high: Int,
) -> None:
    """Offers queries [low, high) the rows of the lists at their places, -1 for none, and keeps the smallest sums. A sum
    is of `nearby`, and of the numbers of the query's and the list's table that a code names; `of_lists` may be empty.
    `codes` are addresses; rows are numbered from `starts`. An empty `allowed` allows all."""
    size = of_queries.shape[1]
    width, table = size // CODES, np.empty(size, np.float32)
    for query in range(low, high):
        best, rows = values[query], found[query]
        for probe in range(places.shape[1]):
            place = places[query, probe]
            if place < 0:
                continue
            if len(of_lists):
                for at in range(size):
                    table[at] = of_queries[query, at] + of_lists[place, at]
            else:
                table[:] = of_queries[query]
            near, address, start = nearby[query, probe], address_of(table), starts[place]
            worst = best[0]
            for row in range(counts[place]):
                sum_ = np.float32(near + _distance(address, codes[place] + row * width, width))
                if sum_ < worst and (len(allowed) == 0 or allowed[start + row]):
                    _replace_worst(best, rows, sum_, start + row)
                    worst = best[0]
        table[0] = 0
