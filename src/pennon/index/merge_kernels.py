"""Merging sorted parts of keys with an id each: pair by pair, compiled, without branches that depend on the keys.

A pair is merged from both ends at once: one comparison does not wait for the other. The order of equal keys is that of
the parts. Every pass over the rows halves the number of parts.
"""

from __future__ import annotations

import numpy as np
from numba.types import int64, uint64, void

from pennon.index.arrays import Int, Int64s, UInt64s, Word
from pennon.index.compiled import GIVEN_I64, MADE_U64, compiled


@compiled(void(MADE_U64, MADE_U64, uint64, uint64, uint64, MADE_U64, MADE_U64))
def merge_two(
    keys: UInt64s, ids: UInt64s, low: Word, middle: Word, high: Word, out_keys: UInt64s, out_ids: UInt64s
) -> None:
    """Merge rows [low, middle) and [middle, high) into the same places of other arrays."""
    if low == middle or middle == high or keys[middle - np.uint64(1)] <= keys[middle]:
        out_keys[low:high] = keys[low:high]
        out_ids[low:high] = ids[low:high]
        return
    one = np.uint64(1)
    left, right, to = low, middle, low
    left_end, right_end, end = middle, high, high
    while True:
        # As many steps at either end, neither part can run out of rows.
        steps = min(left_end - left, right_end - right) >> one
        if steps == 0:
            break
        for _ in range(steps):
            a, b = keys[left], keys[right]
            later = np.uint64(b < a)
            out_keys[to] = b if later else a
            out_ids[to] = ids[right if later else left]
            right += later
            left += one - later
            to += one
            a, b = keys[left_end - one], keys[right_end - one]
            greater = np.uint64(b < a)
            end -= one
            out_keys[end] = a if greater else b
            out_ids[end] = ids[left_end - one if greater else right_end - one]
            left_end -= greater
            right_end -= one - greater
    while to < end:
        later = right < right_end and (left == left_end or keys[right] < keys[left])
        at = right if later else left
        out_keys[to], out_ids[to] = keys[at], ids[at]
        right += np.uint64(later)
        left += one - np.uint64(later)
        to += one


@compiled(int64(MADE_U64, MADE_U64, GIVEN_I64, MADE_U64, MADE_U64))
def merge_parts(keys: UInt64s, ids: UInt64s, starts: Int64s, spare_keys: UInt64s, spare_ids: UInt64s) -> Int:
    """Merge the parts [starts[n], starts[n + 1]). The rows go back and forth to the spare arrays; 1 if they end
    there."""
    count, step, away = len(starts) - 1, 1, 0
    while step < count:
        for first in range(0, count, 2 * step):
            low, middle = np.uint64(starts[first]), np.uint64(starts[min(first + step, count)])
            high = np.uint64(starts[min(first + 2 * step, count)])
            if away:
                merge_two(spare_keys, spare_ids, low, middle, high, keys, ids)
            else:
                merge_two(keys, ids, low, middle, high, spare_keys, spare_ids)
        away = 1 - away
        step *= 2
    return away
