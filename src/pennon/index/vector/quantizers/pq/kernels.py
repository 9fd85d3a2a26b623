"""One query against a list of PQ codes.

The distance of a row is the sum of one number for each byte of its code, out of a table of the query and the list. The
table stays in the nearest cache while the codes of a list pass by.
"""

from __future__ import annotations

import numpy as np
from numba.types import float32, int64, void

from pennon.index.arrays import Flags, Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, MADE_F32, MADE_I64, compiled
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
def replace_worst(values: Float32s, found: Int64s, value: np.float32, number: Int) -> None:
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


@compiled(void(GIVEN_F32, float32, int64, int64, int64, GIVEN_FLAGS, MADE_F32, MADE_I64))
def scan_list(
    table: Float32s, near: np.float32, codes: Int, count: Int, start: Int, allowed: Flags, best: Float32s, rows: Int64s
) -> None:
    """Offers one query the rows of a list. `codes` is their address, `start` the number of the first; an empty
    `allowed` allows all."""
    width, address = len(table) // CODES, address_of(table)
    worst = best[0]
    for row in range(count):
        sum_ = np.float32(near + _distance(address, codes + row * width, width))
        if sum_ < worst and (len(allowed) == 0 or allowed[start + row]):
            replace_worst(best, rows, sum_, start + row)
            worst = best[0]
