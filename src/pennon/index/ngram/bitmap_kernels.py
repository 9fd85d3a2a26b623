"""Roaring bitmaps of 32-bit numbers in their portable form, many at a time: a posting list has one for every fragment,
and most are a few bytes.

Layout, little endian: u32 cookie 12346, u32 containers; for each container u16 high half and u16 cardinality - 1; for
each u32 its position; then the containers: up to 4096 numbers as u16 in order, more as 8192 bytes of bits. With the
cookie 12347 in the low half of the first u32 the high half is the number of containers - 1, a bit for each marks
containers of runs (u16 count, then u16 start and u16 length - 1 of each), and from 4 containers on there are their
positions. Like pylance, Pennon writes the first form only and reads both.

A treemap has 64-bit numbers: u64 entries, and for each u32 high half and a bitmap.
"""

from __future__ import annotations

import numpy as np
from numba.types import int64, void

from pennon.index.arrays import Bytes, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, GIVEN_U32, MADE_I64, MADE_U8, MADE_U32, compiled

PLAIN, WITH_RUNS = 12346, 12347
MOST_IN_ARRAY = 4096
BITSET_BYTES = 8192
DAMAGED = -1


@compiled(int64(GIVEN_U8, int64))
def _u16(data: Bytes, at: Int) -> Int:
    return np.int64(data[at]) | np.int64(data[at + 1]) << 8


@compiled(int64(GIVEN_U8, int64))
def _u32(data: Bytes, at: Int) -> Int:
    return _u16(data, at) | _u16(data, at + 2) << 16


@compiled(void(MADE_U8, int64, int64))
def _put_u16(data: Bytes, at: Int, value: Int) -> None:
    data[at] = value & 0xFF
    data[at + 1] = (value >> 8) & 0xFF


@compiled(void(MADE_U8, int64, int64))
def _put_u32(data: Bytes, at: Int, value: Int) -> None:
    _put_u16(data, at, value & 0xFFFF)
    _put_u16(data, at + 2, value >> 16)


@compiled(void(GIVEN_U32, GIVEN_I64, MADE_I64))
def encoded_sizes(values: UInt32s, ends: Int64s, sizes: Int64s) -> None:
    """Bytes of the bitmap of each list of ascending numbers."""
    start = 0
    for number in range(len(ends)):
        size, count, key = 8, 0, np.int64(-1)
        for at in range(start, ends[number]):
            if np.int64(values[at] >> 16) != key:
                size += 8 + (2 * count if count <= MOST_IN_ARRAY else BITSET_BYTES)
                key, count = np.int64(values[at] >> 16), 0
            count += 1
        sizes[number] = size + (2 * count if count <= MOST_IN_ARRAY else BITSET_BYTES)
        start = ends[number]


@compiled(void(GIVEN_U32, GIVEN_I64, GIVEN_I64, MADE_U8))
def encode(values: UInt32s, ends: Int64s, places: Int64s, data: Bytes) -> None:
    """Write the bitmap of each list of ascending numbers, at its position in zeroed bytes."""
    start = 0
    for number in range(len(ends)):
        stop, place = ends[number], places[number]
        containers, key = 0, np.int64(-1)
        for at in range(start, stop):
            if np.int64(values[at] >> 16) != key:
                key = np.int64(values[at] >> 16)
                containers += 1
        _put_u32(data, place, PLAIN)
        _put_u32(data, place + 4, containers)
        header, begins, content = place + 8, place + 8 + 4 * containers, place + 8 + 8 * containers
        at = start
        while at < stop:
            key, until = np.int64(values[at] >> 16), at
            while until < stop and np.int64(values[until] >> 16) == key:
                until += 1
            _put_u16(data, header, key)
            _put_u16(data, header + 2, until - at - 1)
            _put_u32(data, begins, content - place)
            header, begins = header + 4, begins + 4
            if until - at <= MOST_IN_ARRAY:
                for value in values[at:until]:
                    _put_u16(data, content, np.int64(value & 0xFFFF))
                    content += 2
            else:
                for value in values[at:until]:
                    low = np.int64(value & 0xFFFF)
                    data[content + (low >> 3)] |= np.uint8(1 << (low & 7))
                content += BITSET_BYTES
            at = until
        start = stop


@compiled(int64(GIVEN_U8, int64, int64, MADE_U32, int64))
def _decode_container(data: Bytes, at: Int, count: Int, values: UInt32s, key: Int) -> Int:
    """Decode an array or bitmap container into `values`, and return the count."""
    if count <= MOST_IN_ARRAY:
        before = np.int64(-1)
        for number in range(count):
            low = _u16(data, at + 2 * number)
            if low <= before:
                return DAMAGED
            before = low
            values[number] = np.uint32(key << 16 | low)
        return count
    found = 0
    for byte in range(BITSET_BYTES):
        bits = np.int64(data[at + byte])
        bit = 0
        while bits:
            if bits & 1:
                if found == count:
                    return DAMAGED
                values[found] = np.uint32(key << 16 | byte << 3 | bit)
                found += 1
            bits >>= 1
            bit += 1
    return found if found == count else DAMAGED


@compiled(int64(GIVEN_U8, int64, int64, MADE_I64))
def measure(data: Bytes, start: Int, stop: Int, size: Int64s) -> Int:
    """The cardinality of the bitmap at a position, and in `size[0]` its bytes; DAMAGED if it extends beyond `stop`."""
    if stop - start < 8:
        return DAMAGED
    cookie = _u32(data, start)
    if cookie == PLAIN:
        containers = _u32(data, start + 4)
        header = start + 8
        flags = np.int64(-1)
        content = header + 8 * containers
    elif cookie & 0xFFFF == WITH_RUNS:
        containers = (cookie >> 16) + 1
        flags = start + 4
        header = flags + (containers + 7) // 8
        content = header + 4 * containers + (4 * containers if containers >= 4 else 0)
    else:
        return DAMAGED
    if containers > 1 << 16 or content > stop:
        return DAMAGED
    total = 0
    for number in range(containers):
        count = _u16(data, header + 4 * number + 2) + 1
        if flags >= 0 and data[flags + (number >> 3)] >> (number & 7) & 1:
            if content + 2 > stop:
                return DAMAGED
            content += 2 + 4 * _u16(data, content)
        else:
            content += 2 * count if count <= MOST_IN_ARRAY else BITSET_BYTES
        total += count
    size[0] = content - start
    return total if content <= stop else DAMAGED


@compiled(int64(GIVEN_U8, int64, MADE_U32))
def decode(data: Bytes, start: Int, values: UInt32s) -> Int:
    """Decode a measured bitmap into `values`, which must be large enough; DAMAGED if the numbers are not ascending or
    their count differs from the header."""
    cookie = _u32(data, start)
    containers = _u32(data, start + 4) if cookie == PLAIN else (cookie >> 16) + 1
    flags = np.int64(-1) if cookie == PLAIN else np.int64(start + 4)
    header = start + 8 if cookie == PLAIN else flags + (containers + 7) // 8
    content = header + 4 * containers + (4 * containers if cookie == PLAIN or containers >= 4 else 0)
    found, before = 0, np.int64(-1)
    for number in range(containers):
        key = _u16(data, header + 4 * number)
        count = _u16(data, header + 4 * number + 2) + 1
        if key <= before:
            return DAMAGED
        before = key
        if flags >= 0 and data[flags + (number >> 3)] >> (number & 7) & 1:
            runs, reached, wanted = _u16(data, content), np.int64(-1), found + count
            for run in range(runs):
                low = _u16(data, content + 2 + 4 * run)
                length = _u16(data, content + 4 + 4 * run) + 1
                if low <= reached or low + length > 1 << 16 or found + length > wanted:
                    return DAMAGED
                reached = low + length - 1
                for value in range(low, low + length):
                    values[found] = np.uint32(key << 16 | value)
                    found += 1
            if found != wanted:
                return DAMAGED
            content += 2 + 4 * runs
        else:
            if _decode_container(data, content, count, values[found:], key) != count:
                return DAMAGED
            found += count
            content += 2 * count if count <= MOST_IN_ARRAY else BITSET_BYTES
    return found


@compiled(int64(GIVEN_U8, GIVEN_I64, MADE_I64, MADE_U32, MADE_I64, MADE_I64, MADE_I64))
def split_treemaps(
    data: Bytes, offsets: Int64s, owners: Int64s, highs: UInt32s, starts: Int64s, stops: Int64s, counts: Int64s
) -> Int:
    """Find the bitmaps of consecutive treemaps: the treemap of each, its high half, its position and its cardinality.
    Returns the number of bitmaps; DAMAGED if treemaps contradict their headers."""
    found, size = 0, np.zeros(1, np.int64)
    for number in range(len(offsets) - 1):
        at, stop = offsets[number], offsets[number + 1]
        if stop - at < 8 or _u32(data, at + 4) != 0:
            return DAMAGED
        entries, before = _u32(data, at), np.int64(-1)
        at += 8
        for _ in range(entries):
            if stop - at < 12 or found == len(owners):
                return DAMAGED
            high = _u32(data, at)
            if high <= before:
                return DAMAGED
            before = high
            count = measure(data, at + 4, stop, size)
            if count < 0:
                return DAMAGED
            owners[found], highs[found], counts[found] = number, np.uint32(high), count
            starts[found], stops[found] = at + 4, at + 4 + size[0]
            at = stops[found]
            found += 1
        if at != stop:
            return DAMAGED
    return found


@compiled(int64(GIVEN_U8, GIVEN_I64, GIVEN_I64, MADE_U32))
def decode_all(data: Bytes, starts: Int64s, ends: Int64s, values: UInt32s) -> Int:
    """Decode measured bitmaps one after another; `ends` gets the end of each. DAMAGED as `decode`."""
    at = 0
    for number in range(len(starts)):
        if decode(data, starts[number], values[at : ends[number]]) != ends[number] - at:
            return DAMAGED
        at = ends[number]
    return at


@compiled(int64(GIVEN_U8, GIVEN_I64, GIVEN_I64, MADE_I64))
def measure_all(data: Bytes, starts: Int64s, stops: Int64s, counts: Int64s) -> Int:
    """The cardinality of each bitmap. DAMAGED as `measure`, or if one does not fill all its bytes."""
    size = np.zeros(1, np.int64)
    for number in range(len(starts)):
        counts[number] = measure(data, starts[number], stops[number], size)
        if counts[number] < 0 or size[0] != stops[number] - starts[number]:
            return DAMAGED
    return 0


@compiled(void(GIVEN_U8, GIVEN_I64, GIVEN_I64, GIVEN_U32, GIVEN_I64, GIVEN_I64, MADE_U8))
def write_treemaps(
    data: Bytes, starts: Int64s, stops: Int64s, highs: UInt32s, bounds: Int64s, places: Int64s, out: Bytes
) -> None:
    """Write treemaps of the bitmaps from bound to bound, each at its position."""
    for number in range(len(bounds) - 1):
        at = places[number]
        _put_u32(out, at, bounds[number + 1] - bounds[number])
        _put_u32(out, at + 4, 0)
        at += 8
        for entry in range(bounds[number], bounds[number + 1]):
            _put_u32(out, at, np.int64(highs[entry]))
            size = stops[entry] - starts[entry]
            out[at + 4 : at + 4 + size] = data[starts[entry] : stops[entry]]
            at += 4 + size


@compiled(void(GIVEN_U8, GIVEN_I64, GIVEN_I64, MADE_U8))
def copy_all(data: Bytes, starts: Int64s, stops: Int64s, out: Bytes) -> None:
    """Copy bitmaps to consecutive positions."""
    at = 0
    for number in range(len(starts)):
        size = stops[number] - starts[number]
        out[at : at + size] = data[starts[number] : stops[number]]
        at += size
