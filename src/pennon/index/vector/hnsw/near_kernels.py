"""Kernels that find the nearest of many nodes without a table of all distances.

Each node keeps a list of candidates. The distances of some nodes to all later ones come as a block of a matrix product,
and both ends of a distance use it, so that each is computed once. A node takes the distances up to a limit: when its
list is full, it keeps about as many as will be among the nearest of all, by the share of the nodes that it has met. The
nodes come in random order for that.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numba.types import Tuple, float32, int64, uint8, uint32, uint64, void

from pennon.index.arrays import Float32s, Int, Int64s, UInt32s, UInt64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, GIVEN_U64, MADE_I64, MADE_U32, MADE_U64, compiled, given
from pennon.index.memory import address_of, uint32_at
from pennon.index.vector.hnsw.exact_kernels import (
    BINS,
    FAR_CANDIDATES,
    NUMBER_BITS,
    NUMBER_MASK,
    candidate,
    choose,
    nearest,
    sort,
)

# A distance may have the sign of a rounding error.
MAGNITUDE = np.uint32(0x7FFF_FFFF)
# How many standard deviations more than its share of the nearest a list keeps.
MARGIN = 3.0
# Bins of candidates by distance, and the share of a list that must be free after it was cut.
LIST_BINS = 256
FREE_SHARE = 4
# Distances compared at once.
LANES = 16

_LANES = ir.VectorType(ir.IntType(32), LANES)


@intrinsic
def _lanes_within(_: Any, distances: Any, limits: Any, own: Any) -> Any:
    """The lanes of the distances at an address that are not above `own`, a bit for each, and above them the lanes that
    are not above the limits at the other address."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        narrow, wide = ir.IntType(LANES), ir.IntType(64)

        def load(address: Any) -> Any:
            return builder.load(builder.inttoptr(address, _LANES.as_pointer()), align=4)

        first = builder.insert_element(ir.Constant(_LANES, ir.Undefined), arguments[2], ir.IntType(32)(0))
        limit = builder.shuffle_vector(first, first, ir.Constant(_LANES, [0] * LANES))
        bits = builder.and_(load(arguments[0]), ir.Constant(_LANES, [int(MAGNITUDE)] * LANES))
        # Magnitudes have no sign, and signed comparisons are faster on older processors.
        mine = builder.bitcast(builder.icmp_signed("<=", bits, limit), narrow)
        theirs = builder.bitcast(builder.icmp_signed("<=", bits, load(arguments[1])), narrow)
        return builder.or_(builder.zext(mine, wide), builder.shl(builder.zext(theirs, wide), wide(LANES)))

    return uint64(int64, int64, uint32), generate


@intrinsic
def _lowest_bit(_: Any, word: Any) -> Any:
    """The place of the lowest bit that is set."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return int64(uint64), generate


@compiled(Tuple((uint32, uint32))(GIVEN_U64, int64, MADE_I64))
def _count(keys: UInt64s, count: Int, bins: Int64s) -> tuple[Any, Any]:
    """Count candidates by distance. A distance of some bits is in bin (bits - low) >> shift; returns low and shift."""
    low, high = np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(0)
    for at in range(count):
        low, high = min(low, keys[at]), max(high, keys[at])
    first, last = np.uint32(low >> NUMBER_BITS), np.uint32(high >> NUMBER_BITS)
    shift = np.uint32(0)
    while (last - first) >> shift >= LIST_BINS:
        shift += np.uint32(1)
    bins[:LIST_BINS] = 0
    for at in range(count):
        bins[(np.uint32(keys[at] >> NUMBER_BITS) - first) >> shift] += 1
    return first, shift


@compiled(Tuple((int64, uint32))(MADE_U64, int64, int64, MADE_I64))
def keep_nearest(keys: UInt64s, count: Int, wanted: Int, bins: Int64s) -> tuple[Any, Any]:
    """Keep at least the nearest `wanted`, and return how many there are, and a limit of their distances."""
    low, shift = _count(keys, count, bins)
    total, last = 0, np.uint32(0)
    while total < wanted:
        total += bins[last]
        last += np.uint32(1)
    limit = low + (last << shift) - np.uint32(1)
    if total > count - count // FREE_SHARE:
        # Many at almost the same distance.
        keys[:count].sort()
        return wanted, np.uint32(keys[wanted - 1] >> NUMBER_BITS)
    kept = 0
    for at in range(count):
        key = keys[at]
        keys[kept] = key
        kept += np.uint32(key >> NUMBER_BITS) <= limit
    return kept, limit


@compiled(int64(GIVEN_U64, int64, int64, MADE_I64, MADE_U64))
def nearest_of_list(given_keys: UInt64s, count: Int, width: Int, bins: Int64s, keys: UInt64s) -> int:
    """Put the nearest `width` candidates into `keys`, ascending, and return their number; all if there are fewer."""
    if not count:
        return 0
    low, shift = _count(given_keys, count, bins)
    total, last, crowd = 0, 0, 0
    while last < LIST_BINS and total < width:
        some = bins[last]
        bins[last] = total
        total += some
        crowd = max(crowd, some)
        last += 1
    for at in range(count):
        key = given_keys[at]
        place = np.int64((np.uint32(key >> NUMBER_BITS) - low) >> shift)
        if place < last:
            keys[bins[place]] = key
            bins[place] += 1
    sort(keys, total, crowd)
    return min(total, width)


@compiled(int64(int64, int64, int64), inline=True)
def expected(width: Int, met: Int, nodes: Int) -> Any:
    """Of how many that a node has met it keeps the nearest, so that the nearest `width` of all are among them."""
    share = width * met / nodes
    return min(width, np.int64(share + MARGIN * sqrt(share)) + 2)


@compiled(void(given(uint32, 2), int64, GIVEN_I64, int64, uint64[:, ::1], MADE_I64, MADE_U32))
def gather(block: Any, start: Int, names: Any, width: Int, lists: UInt64s, counts: Int64s, limits: UInt32s) -> None:
    """Add candidates from a block of distances, from nodes `start` on to themselves and to all later ones. Lists hold
    names of nodes."""
    nodes, space, columns = len(names), lists.shape[1], block.shape[1]
    bins, distances, bounds = np.empty(LIST_BINS, np.int64), address_of(block), address_of(limits)
    for line in range(len(block)):
        node, row = start + line, distances + line * columns * 4
        name, own, held = names[node], limits[node], counts[node]
        first = line + 1
        while first < columns:
            if first + LANES <= columns:
                found, step = _lanes_within(row + first * 4, bounds + (start + first) * 4, own), LANES
            else:
                bits, step = uint32_at(row, first) & MAGNITUDE, 1
                found = np.uint64(bits <= own) | np.uint64(bits <= limits[start + first]) << np.uint64(LANES)
            while found:
                lane = _lowest_bit(found)
                found &= found - np.uint64(1)
                column = first + (lane & (LANES - 1))
                bits, other = uint32_at(row, column) & MAGNITUDE, start + column
                if lane < LANES:
                    # The limit may have fallen since.
                    if bits > own:
                        continue
                    lists[node, held] = candidate(bits, names[other])
                    held += 1
                    if held == space:
                        held, own = keep_nearest(lists[node], held, expected(width, other, nodes), bins)
                else:
                    at = counts[other]
                    lists[other, at] = candidate(bits, name)
                    counts[other] = at + 1
                    if at + 1 == space:
                        wanted = expected(width, node + 1, nodes)
                        counts[other], limits[other] = keep_nearest(lists[other], space, wanted, bins)
            first += step
        counts[node], limits[node] = held, own


@compiled(void(given(uint32, 2), GIVEN_I64, GIVEN_I64, int64, uint64[:, ::1], MADE_I64))
def fill_again(block: Any, short: Int64s, names: Any, width: Int, lists: UInt64s, counts: Int64s) -> None:
    """The candidates of nodes `short` from their distances to all nodes, which are not negative."""
    nodes = len(names)
    bins, keys = np.empty(BINS, np.int64), np.empty(nodes, np.uint64)
    for line in range(len(short)):
        node, count = short[line], 0
        for key in keys[: nearest(address_of(block) + line * nodes * 4, nodes, width + 1, bins, keys)]:
            other = np.int64(key & NUMBER_MASK)
            if other != node and count < width:
                lists[node, count] = candidate(np.uint32(key >> NUMBER_BITS), names[other])
                count += 1
        counts[node] = count


@compiled(
    void(
        int64,
        given(uint32, 2),
        GIVEN_I64,
        given(uint8, 2),
        int64,
        GIVEN_F32,
        float32,
        int64,
        GIVEN_I64,
        uint64[:, ::1],
        GIVEN_I64,
        int64[:, ::1],
        MADE_I64,
    )
)
def choose_from_lists(
    start: Int,
    far: Any,
    landmarks: Int64s,
    points: Any,
    dim: Int,
    terms: Float32s,
    scale: np.float32,
    width: Int,
    places: Int64s,
    lists: UInt64s,
    found: Any,
    own: Int64s,
    counts: Int64s,
) -> None:
    """The choices of nodes `start` on, into `own` and `counts`. Node n has found[places[n]] candidates; line i of `far`
    has the distances of node start + i to the landmarks."""
    small, items, sums = points.shape[1] == dim, address_of(points), address_of(terms)
    most = max(lists.shape[1], len(landmarks)) + FAR_CANDIDATES
    bins, keys, left = np.empty(BINS, np.int64), np.empty(most, np.uint64), np.empty(most, np.uint64)
    for line in range(len(far)):
        node = start + line
        place = places[node]
        count = found[place]
        near = nearest_of_list(lists[place], count, width, bins, keys)
        farthest = keys[near - 1] if near else np.uint64(0)
        others = nearest(address_of(far) + line * len(landmarks) * 4, len(landmarks), FAR_CANDIDATES + 1, bins, left)
        added = 0
        for at in range(others):
            number = landmarks[np.int64(left[at] & NUMBER_MASK)]
            key = candidate(np.uint32(left[at] >> NUMBER_BITS), number)
            if number != node and added < FAR_CANDIDATES:
                added += 1
                if key > farthest:
                    keys[near] = key
                    near += 1
        counts[node] = choose(0, 0, items, dim, small, sums, scale, own.shape[1], keys, near, left, own[node])
