"""Kernels of exact graphs: the links of all nodes from the distances between them.

A distance is the bits of a float32 that is not negative: such integers sort like the distances. A candidate is its
distance above its number, so that candidates sort by distance, then number; infinity and NaN are no distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import Tuple, int64, uint32, void

from pennon.index.arrays import Int, Int64s, UInt32s, UInt64s
from pennon.index.compiled import GIVEN_I64, GIVEN_U64, MADE_I64, MADE_U64, compiled, given
from pennon.index.memory import address_of, uint32_at

FAR_CANDIDATES = 32
INFINITE = np.uint32(0x7F80_0000)
NUMBER_BITS, NUMBER_MASK = np.uint64(32), np.uint64(0xFFFF_FFFF)

# Bins of distances, by their bits, and the most candidates of one that are sorted by moving each to its place.
BINS = 1024
MOVED = 48


@compiled(void(MADE_U64, int64, int64))
def _sort(keys: UInt64s, count: Int, crowd: Int) -> None:
    """Sort the first `count`. At most `crowd` neighbors are out of order."""
    if crowd > MOVED:
        keys[:count].sort()
        return
    for at in range(1, count):
        key, to = keys[at], at
        while to > 0 and keys[to - 1] > key:
            keys[to] = keys[to - 1]
            to -= 1
        keys[to] = key


@compiled(int64(int64, int64, int64, MADE_I64, MADE_U64))
def _nearest(row: Int, side: Int, width: Int, bins: Int64s, keys: UInt64s) -> int:
    """Put the nearest `width` of a row of distances into `keys`, ascending, and return their number; all if there are
    fewer. `row` is an address."""
    low, high = INFINITE, np.uint32(0)
    for at in range(side):
        bits = uint32_at(row, at)
        low = min(low, bits)
        high = max(high, bits if bits < INFINITE else np.uint32(0))
    shift = np.uint32(0)
    while (high - low) >> shift >= BINS and high > low:
        shift += np.uint32(1)
    bins[:] = 0
    for at in range(side):
        bits = uint32_at(row, at)
        if bits < INFINITE:
            bins[(bits - low) >> shift] += 1
    # The starts of the bins that have the nearest.
    total, last, crowd = 0, 0, 0
    while last < BINS and total < width:
        count = bins[last]
        bins[last] = total
        total += count
        crowd = max(crowd, count)
        last += 1
    for at in range(side):
        bits = uint32_at(row, at)
        if bits < INFINITE:
            place = np.int64((bits - low) >> shift)
            if place < last:
                keys[bins[place]] = np.uint64(bits) << NUMBER_BITS | np.uint64(at)
                bins[place] += 1
    _sort(keys, total, crowd)
    return min(total, width)


@compiled(int64(int64, int64, int64, GIVEN_U64, int64, MADE_U64, MADE_I64))
def _choose(table: Int, side: Int, keep: Int, keys: UInt64s, count: Int, left: UInt64s, chosen: Int64s) -> int:
    """Choose up to `keep` of ascending candidates, and return how many.

    First, from near to far, those that are nearer to the node than to any chosen node: links in all directions. The
    rest of the list is filled with the nearest of the rejected ones; without them dot loses 2 points of recall.
    """
    remaining, diverse = count, 0
    left[:count] = keys[:count]
    while remaining and diverse < keep:
        number = np.int64(left[0] & NUMBER_MASK)
        chosen[diverse] = number
        diverse += 1
        row, kept = table + number * side * 4, 0
        for at in range(1, remaining):
            key = left[at]
            left[kept] = key
            if np.uint32(key >> NUMBER_BITS) < uint32_at(row, np.int64(key & NUMBER_MASK)):
                kept += 1
        remaining = kept
    taken, passed = diverse, 0
    for at in range(count):
        if taken == keep:
            break
        number = np.int64(keys[at] & NUMBER_MASK)
        if passed < diverse and number == chosen[passed]:
            passed += 1
        else:
            chosen[taken] = number
            taken += 1
    chosen[:taken].sort()
    return taken


@compiled(Tuple((int64[::1], int64[::1], uint32[::1]))(given(uint32, 2), GIVEN_I64, int64, int64, int64))
def links(table: Any, landmarks: Int64s, m: Int, limit: Int, width: Int) -> tuple[Int64s, Int64s, UInt32s]:
    """The m choices of each node, and the reverse links; at most `limit` per node. Links of node i are from offsets[i]
    to offsets[i + 1], by ascending number; also their distances.

    A cluster larger than the list of `width` candidates would have no link to the outside. So each node also considers
    the nearest of the landmarks that are farther away.
    """
    side, first = len(table), address_of(table)
    most = max(width, limit, side) + FAR_CANDIDATES
    bins, keys, left = np.empty(BINS, np.int64), np.empty(most, np.uint64), np.empty(most, np.uint64)
    far, own = np.empty(len(landmarks), np.uint64), np.empty((side, m), np.int64)
    chosen, counts, arriving = np.empty(max(m, limit), np.int64), np.empty(side, np.int64), np.zeros(side + 1, np.int64)
    for node in range(side):
        row = first + node * side * 4
        count = _nearest(row, side, width, bins, keys)
        farthest = keys[count - 1] if count else np.uint64(0)
        for at in range(len(landmarks)):
            number = landmarks[at]
            far[at] = np.uint64(uint32_at(row, number)) << NUMBER_BITS | np.uint64(number)
        if len(far):
            _sort(far, len(far), len(far))
        for key in far[:FAR_CANDIDATES]:
            if key > farthest and key >> NUMBER_BITS < INFINITE:
                keys[count] = key
                count += 1
        taken = _choose(first, side, m, keys, count, left, chosen)
        own[node, :taken] = chosen[:taken]
        counts[node] = taken
        for other in chosen[:taken]:
            arriving[other + 1] += 1
    for node in range(side):
        arriving[node + 1] += arriving[node]
    comers, ends = np.empty(arriving[side], np.int64), arriving[:-1].copy()
    for node in range(side):
        for other in own[node, : counts[node]]:
            comers[ends[other]] = node
            ends[other] += 1
    offsets = np.zeros(side + 1, np.int64)
    others, bits = np.empty(side * limit, np.int64), np.empty(side * limit, np.uint32)
    for node in range(side):
        row, count = first + node * side * 4, 0
        # Both lists are ascending.
        at, end, mine = arriving[node], arriving[node + 1], 0
        while at < end or mine < counts[node]:
            comer = comers[at] if at < end else side
            number = own[node, mine] if mine < counts[node] else side
            at += comer <= number
            mine += number <= comer
            number = min(number, comer)
            keys[count] = np.uint64(uint32_at(row, number)) << NUMBER_BITS | np.uint64(number)
            count += 1
        start = offsets[node]
        if count > limit:
            _sort(keys, count, count)
            while count and keys[count - 1] >> NUMBER_BITS >= INFINITE:
                count -= 1
            count = _choose(first, side, limit, keys, min(count, max(width, limit)), left, chosen)
            others[start : start + count] = chosen[:count]
        else:
            for at in range(count):
                others[start + at] = np.int64(keys[at] & NUMBER_MASK)
        for at in range(start, start + count):
            bits[at] = uint32_at(row, others[at])
        offsets[node + 1] = start + count
    end = offsets[side]
    return offsets, others[:end].copy(), bits[:end].copy()
