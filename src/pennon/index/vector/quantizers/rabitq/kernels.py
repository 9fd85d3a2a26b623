"""Compiled kernels to compare one query with a partition of RaBitQ codes: numpy would need many passes over the rows.

A first pass over all rows uses signs only, and the query's items as numbers of a few bits: it only counts the bits that
rows share with each bit plane, which processors do for several rows at once. Rows that may be among the nearest are
then measured: signs a byte at a time, by a table with the sum of the query's items for every byte; other codes by their
numbers. The best so far are kept in a heap, the worst of them first, across partitions.

Importing this compiles it, unless an earlier process has cached the result on disk: a few seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic
from numba.types import bool_ as boolean
from numba.types import float32, int64, none, uint8, uint16, uint32, uint64

from pennon.index.arrays import Int
from pennon.index.compiled import compiled, given
from pennon.index.vector.vectors import Codes, Floats, Mask, Numbers, Positions, Words

# The number of bits of a query's items in the first pass.
PLANES = 6


_FLOATS, _TABLE, _WORDS, _MASK = given(float32, 1), given(float32, 2), given(uint64, 2), given(boolean, 1)
_LOOK = _WORDS, _TABLE, _WORDS, _FLOATS, _FLOATS, _MASK, float32[::1]
_HEAP = float32[::1], int64[::1]

# Sums may be computed in any order; nothing is assumed about infinities and NaNs, which do occur.
ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})


@intrinsic
def _bits(_: Any, word: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), generate


@compiled(uint32(*[uint64] * 4), fastmath=ANY_ORDER)
def _weighted(a: np.uint64, b: np.uint64, c: np.uint64, first: np.uint64) -> np.uint32:
    """The bit counts of three words, weighted by powers of two."""
    return np.uint32((_bits(a) + (_bits(b) << np.uint64(1)) + (_bits(c) << np.uint64(2))) << first)


@compiled(none(float32[::1], float32), fastmath=ANY_ORDER)
def _lower_worst(values: Floats, value: np.float32) -> None:
    """Replace the first, largest value of a heap."""
    at = 0
    while 2 * at + 1 < len(values):
        child = 2 * at + 1
        if child + 1 < len(values) and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[at] = values[child]
        at = child
    values[at] = value


@compiled(none(*_HEAP, float32, int64), fastmath=ANY_ORDER)
def replace_worst(values: Floats, keys: Positions, value: np.float32, key: Int) -> None:
    """As `_lower_worst`, for values with keys."""
    at = 0
    while 2 * at + 1 < len(values):
        child = 2 * at + 1
        if child + 1 < len(values) and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[at], keys[at] = values[child], keys[child]
        at = child
    values[at], keys[at] = value, key


@compiled(float32[::1](*_LOOK), fastmath=ANY_ORDER)
def _lower_bounds(
    signs: Words, factors: Floats, planes: Words, query: Floats, place: Floats, allowed: Mask, highs: Floats
) -> Floats:
    """A lower bound on the distance of each row, infinite if it is not allowed; an empty mask allows all.

    `signs` and `planes` have a row for each word of a code. `query` has the value of number 0 and the step between
    numbers, half the sum of the items, and the maximum error of a product by rounding; `place` the slope and shift of
    this partition and the weight of errors; `highs` is a heap of the smallest upper bounds on distances.
    """
    rows = signs.shape[1]
    ones, shared = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32)
    for word in range(len(signs)):
        a, b, c = planes[word, 0], planes[word, 1], planes[word, 2]
        d, e, f = planes[word, 3], planes[word, 4], planes[word, 5]
        for row in range(rows):
            sign = signs[word, row]
            ones[row] += np.uint32(_bits(sign))
            low = _weighted(sign & a, sign & b, sign & c, np.uint64(0))
            shared[row] += low + _weighted(sign & d, sign & e, sign & f, np.uint64(3))
    lows, tops = np.empty(rows, np.float32), np.empty(rows, np.float32)
    base, step, half, rounding = query[0], query[1], query[2], query[3]
    slope, shift, weight = place[0], place[1], place[2]
    add, scale, error = factors[0], factors[1], factors[2]
    for row in range(rows):
        product = base * np.float32(np.int32(ones[row])) + step * np.float32(np.int32(shared[row]))
        distance = (product - half) * scale[row] + add[row] * slope + shift
        slack = error[row] * weight + abs(scale[row]) * rounding
        lows[row] = distance - slack
        tops[row] = distance + slack
    if len(allowed):
        for row in range(rows):
            if not allowed[row]:
                lows[row] = tops[row] = np.inf
    for row in range(rows):
        if tops[row] < highs[0]:
            _lower_worst(highs, tops[row])
    return lows


@compiled(float32(given(uint8, 1), _TABLE), fastmath=ANY_ORDER)
def _sum(code: Codes, table: Floats) -> np.float32:
    total = np.float32(0)
    for byte in range(len(code)):
        total += table[byte, code[byte]]
    return total


@compiled(none(*_LOOK, given(uint8, 2), _TABLE, _TABLE, float32, int64, *_HEAP), fastmath=ANY_ORDER)
def nearest_signs(
    signs: Words,
    sign_factors: Floats,
    planes: Words,
    query: Floats,
    place: Floats,
    allowed: Mask,
    highs: Floats,
    codes: Codes,
    factors: Floats,
    table: Floats,
    middle: np.float32,
    first: int,
    values: Floats,
    keys: Positions,
) -> None:
    """Put the nearest rows into the heap, with keys that count from `first`, after a pass that computes lower
    bounds."""
    lows = _lower_bounds(signs, sign_factors, planes, query, place, allowed, highs)
    for row in range(len(codes)):
        if lows[row] <= highs[0] and lows[row] < values[0]:
            distance = (_sum(codes[row], table) - middle) * factors[1, row] + factors[0, row] * place[0] + place[1]
            if distance < values[0]:
                replace_worst(values, keys, distance, first + row)


@compiled(
    *(none(*_LOOK, given(item, 2), _TABLE, _FLOATS, float32, int64, *_HEAP) for item in (uint8, uint16)),
    fastmath=ANY_ORDER,
)
def nearest_numbers(
    signs: Words,
    sign_factors: Floats,
    planes: Words,
    query: Floats,
    place: Floats,
    allowed: Mask,
    highs: Floats,
    codes: Numbers,
    factors: Floats,
    point: Floats,
    middle: np.float32,
    first: int,
    values: Floats,
    keys: Positions,
) -> None:
    """As `nearest_signs`, for codes with a number per dimension."""
    lows = _lower_bounds(signs, sign_factors, planes, query, place, allowed, highs)
    for row in range(len(codes)):
        if lows[row] <= highs[0] and lows[row] < values[0]:
            product = np.float32(0)
            for item in range(len(point)):
                product += np.float32(codes[row, item]) * point[item]
            distance = (product - middle) * factors[1, row] + factors[0, row] * place[0] + place[1]
            if distance < values[0]:
                replace_worst(values, keys, distance, first + row)
