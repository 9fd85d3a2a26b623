"""Kernels of exact graphs: the links of all nodes from the distances between them.

The distances of few nodes are a table. Those of many are measured again when they are needed, from points that stay in
the processor's caches, where the table would not: the distance of two nodes is the sum of their terms, and of the
products of their items times a scale.

A distance is the bits of a float32 that is not negative: such integers sort like the distances. A candidate is its
distance above its number, so that candidates sort by distance, then number; infinity and NaN are no distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import Tuple, float32, int64, uint8, uint32, uint64, void
from numba.types import bool_ as boolean

from pennon.index.arrays import Float32s, Int, Int64s, UInt32s, UInt64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, GIVEN_U64, MADE_I64, MADE_U64, compiled, given
from pennon.index.memory import address_of, float32_at, int8_at, uint32_at

FAR_CANDIDATES = 32
INFINITE = np.uint32(0x7F80_0000)
NUMBER_BITS, NUMBER_MASK = np.uint64(32), np.uint64(0xFFFF_FFFF)

# Bins of distances, by their bits, and the most candidates of one that are sorted by moving each to its place.
BINS = 1024
MOVED = 48

# Sums of products may be added in any order, several at once.
SUMS = frozenset({"reassoc", "contract", "nsz"})

# Where distances come from: a table of `side` rows, or if that is 0 points, their dimension, whether they are bytes,
# their terms, and the scale.
SPACE = (int64, int64, int64, int64, boolean, int64, float32)
LINKS = Tuple((int64[::1], int64[::1], uint32[::1]))


@compiled(void(MADE_U64, int64, int64))
def sort(keys: UInt64s, count: Int, crowd: Int) -> None:
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
def nearest(row: Int, side: Int, width: Int, bins: Int64s, keys: UInt64s) -> int:
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
    sort(keys, total, crowd)
    return min(total, width)


@compiled(uint32(int64, int64, boolean, int64, float32, int64, int64), fastmath=SUMS, inline=True)
def measured(points: Int, dim: Int, small: bool, terms: Int, scale: np.float32, left: Int, right: Int) -> Any:
    """The distance of two nodes by their points."""
    if small:
        first, second, total = points + left * dim, points + right * dim, np.int32(0)
        for at in range(dim):
            total = np.int32(total + np.int32(int8_at(first, at)) * np.int32(int8_at(second, at)))
        product = np.float32(total)
    else:
        first, second, product = points + left * dim * 4, points + right * dim * 4, np.float32(0)
        for at in range(dim):
            product += float32_at(first, at) * float32_at(second, at)
    return np.float32(abs(float32_at(terms, left) + float32_at(terms, right) + scale * product)).view(np.uint32)


@compiled(int64(*SPACE, int64, GIVEN_U64, int64, MADE_U64, MADE_I64))
def choose(
    table: Int,
    side: Int,
    points: Int,
    dim: Int,
    small: bool,
    terms: Int,
    scale: np.float32,
    keep: Int,
    keys: UInt64s,
    count: Int,
    left: UInt64s,
    chosen: Int64s,
) -> int:
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
            other = np.int64(key & NUMBER_MASK)
            between = uint32_at(row, other) if side else measured(points, dim, small, terms, scale, number, other)
            if np.uint32(key >> NUMBER_BITS) < between:
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


@compiled(uint64(uint32, int64), inline=True)
def candidate(bits: Any, number: Int) -> Any:
    return np.uint64(bits) << NUMBER_BITS | np.uint64(number)


@compiled(Tuple((int64[:, ::1], int64[::1]))(given(uint32, 2), GIVEN_I64, int64, int64))
def _choices(table: Any, landmarks: Int64s, m: Int, width: Int) -> tuple[Int64s, Int64s]:
    """The m choices of each node, and how many they are."""
    side, first = len(table), address_of(table)
    most = max(width, side) + FAR_CANDIDATES
    bins, keys, left = np.empty(BINS, np.int64), np.empty(most, np.uint64), np.empty(most, np.uint64)
    far, own, counts = np.empty(len(landmarks), np.uint64), np.empty((side, m), np.int64), np.empty(side, np.int64)
    for node in range(side):
        row = first + node * side * 4
        count = nearest(row, side, width, bins, keys)
        farthest = keys[count - 1] if count else np.uint64(0)
        for at in range(len(landmarks)):
            far[at] = candidate(uint32_at(row, landmarks[at]), landmarks[at])
        if len(far):
            sort(far, len(far), len(far))
        for key in far[:FAR_CANDIDATES]:
            if key > farthest and key >> NUMBER_BITS < INFINITE:
                keys[count] = key
                count += 1
        counts[node] = choose(first, side, 0, 0, False, 0, np.float32(0), m, keys, count, left, own[node])
    return own, counts


@compiled(LINKS(given(uint32, 2), given(uint8, 2), int64, GIVEN_F32, float32, given(int64, 2), GIVEN_I64, int64, int64))
def both_ways(
    table: Any,
    points: Any,
    dim: Int,
    terms: Float32s,
    scale: np.float32,
    own: Int64s,
    counts: Int64s,
    limit: Int,
    width: Int,
) -> tuple[Int64s, Int64s, UInt32s]:
    """Links to the choices of each node, and back; at most `limit` per node. Links of node i are from offsets[i] to
    offsets[i + 1], by ascending number; also their distances. `points` has a line of bytes for each node."""
    nodes, side, small = len(own), len(table), points.shape[1] == dim
    distances, items, sums = address_of(table), address_of(points), address_of(terms)
    arriving = np.zeros(nodes + 1, np.int64)
    for node in range(nodes):
        for other in own[node, : counts[node]]:
            arriving[other + 1] += 1
    for node in range(nodes):
        arriving[node + 1] += arriving[node]
    comers, ends = np.empty(arriving[nodes], np.int64), arriving[:-1].copy()
    for node in range(nodes):
        for other in own[node, : counts[node]]:
            comers[ends[other]] = node
            ends[other] += 1
    keys, left, chosen = np.empty(nodes, np.uint64), np.empty(nodes, np.uint64), np.empty(limit, np.int64)
    offsets = np.zeros(nodes + 1, np.int64)
    others, bits = np.empty(nodes * limit, np.int64), np.empty(nodes * limit, np.uint32)
    for node in range(nodes):
        row, count = distances + node * side * 4, 0
        # Both lists are ascending.
        at, end, mine = arriving[node], arriving[node + 1], 0
        while at < end or mine < counts[node]:
            comer = comers[at] if at < end else nodes
            number = own[node, mine] if mine < counts[node] else nodes
            at += comer <= number
            mine += number <= comer
            number = min(number, comer)
            between = uint32_at(row, number) if side else measured(items, dim, small, sums, scale, node, number)
            keys[count] = candidate(between, number)
            count += 1
        if count > limit:
            sort(keys, count, count)
            while count and keys[count - 1] >> NUMBER_BITS >= INFINITE:
                count -= 1
            count = min(count, max(width, limit))
            count = choose(distances, side, items, dim, small, sums, scale, limit, keys, count, left, chosen)
            for at in range(count):
                number = chosen[at]
                between = uint32_at(row, number) if side else measured(items, dim, small, sums, scale, node, number)
                keys[at] = candidate(between, number)
        start = offsets[node]
        for at in range(count):
            others[start + at] = np.int64(keys[at] & NUMBER_MASK)
            bits[start + at] = np.uint32(keys[at] >> NUMBER_BITS)
        offsets[node + 1] = start + count
    end = offsets[nodes]
    return offsets, others[:end].copy(), bits[:end].copy()


@compiled(LINKS(given(uint32, 2), GIVEN_I64, int64, int64, int64))
def links(table: Any, landmarks: Int64s, m: Int, limit: Int, width: Int) -> tuple[Int64s, Int64s, UInt32s]:
    """The m choices of each node, and the reverse links, from the distances between all.

    A cluster larger than the list of `width` candidates would have no link to the outside. So each node also considers
    the nearest of the landmarks that are farther away.
    """
    own, counts = _choices(table, landmarks, m, width)
    nothing = np.empty((0, 0), np.uint8)
    return both_ways(table, nothing, 0, np.empty(0, np.float32), np.float32(0), own, counts, limit, width)
