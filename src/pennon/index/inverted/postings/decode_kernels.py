"""Posting lists from bytes, which may be damaged: all values are checked before they are used."""

from __future__ import annotations

import numpy as np
from numba import carray
from numba.types import boolean, float32, int64

from pennon.index.arrays import Bytes, Float32s, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, GIVEN_U32, MADE_F32, MADE_I64, MADE_U32, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK, saturation
from pennon.index.inverted.postings.pack_kernels import GROUP, get_group, get_varint, length_of
from pennon.index.memory import address_of, pointer, put_uint32, uint8_at, uint32_at

# Of two frequencies up to this one the higher counts for more, however floats are rounded.
_EXACT_FREQ = 1 << 10
_SLACK = np.float32(1.00001)


@compiled(boolean(int64, int64, int64, int64, int64, int64, int64, int64, int64), inline=True)
def decode_block(
    data: Int, size: Int, start: Int, end: Int, count: Int, lowest: Int, limit: Int, docs: Int, freqs: Int
) -> bool:
    """The `count` postings of a block in bytes [start, end) of `size`, with documents in [lowest, limit), ascending,
    and frequencies above 0. False where they are not. Bytes, documents and frequencies are given by their addresses."""
    if start < 0 or end > size:
        return False
    at = start + 4
    if count == BLOCK:
        if at + 4 > end:
            return False
        doc = np.int64(uint8_at(data, at)) | np.int64(uint8_at(data, at + 1)) << 8
        doc |= np.int64(uint8_at(data, at + 2)) << 16 | np.int64(uint8_at(data, at + 3)) << 24
        at = get_group(data, at + 4, end, docs)
        if at < 0 or uint32_at(docs, 0) != 0 or doc < lowest:
            return False
        step = np.uint32(1)
        for place in range(1, BLOCK):
            step = min(step, uint32_at(docs, place))
        if step == 0:
            return False
        for place in range(BLOCK):
            doc += np.int64(uint32_at(docs, place))
            put_uint32(docs, place, np.uint32(doc))
        if doc >= limit:
            return False
        at = get_group(data, at, end, freqs)
        if at < 0:
            return False
    else:
        given = carray(pointer(data), (size,), np.uint8)
        doc = np.int64(0)
        for place in range(count):
            step, at = get_varint(given, at, end)
            doc += step
            if at < 0 or doc >= limit or (doc < lowest if place == 0 else step == 0):
                return False
            put_uint32(docs, place, np.uint32(doc))
        for place in range(count):
            freq, at = get_varint(given, at, end)
            if at < 0 or freq >= 1 << 32:
                return False
            put_uint32(freqs, place, np.uint32(freq))
    lowest_freq = np.uint32(1)
    for place in range(count):
        lowest_freq = min(lowest_freq, uint32_at(freqs, place))
    return bool(lowest_freq > 0)


@compiled(boolean(GIVEN_U8, GIVEN_I64, GIVEN_I64, GIVEN_I64, int64, MADE_U32, MADE_U32))
def decode_lists(
    data: Bytes,
    block_ends: Int64s,
    term_blocks: Int64s,
    posting_ends: Int64s,
    limit: Int,
    docs: UInt32s,
    freqs: UInt32s,
) -> bool:
    """All postings of some terms: the blocks of each are given by `term_blocks`, its postings by `posting_ends`."""
    for term in range(len(term_blocks) - 1):
        at, end, lowest = posting_ends[term], posting_ends[term + 1], np.int64(0)
        for block in range(term_blocks[term], term_blocks[term + 1]):
            count = min(BLOCK, end - at)
            if count <= 0:
                return False
            start, stop = block_ends[block], block_ends[block + 1]
            here = address_of(docs) + 4 * at, address_of(freqs) + 4 * at
            if not decode_block(address_of(data), len(data), start, stop, count, lowest, limit, *here):
                return False
            at += count
            lowest = np.int64(docs[at - 1]) + 1
        if at != end:
            return False
    return True


@compiled(int64(GIVEN_U8, int64, int64, GIVEN_U32, MADE_U32, MADE_U32))
def decode_positions(data: Bytes, start: Int, end: Int, freqs: UInt32s, positions: UInt32s, group: UInt32s) -> Int:
    """The positions of a block's postings, whose stream is in bytes [start, end). How many there are, -1 where they are
    damaged or more than there is room for."""
    if start < 0 or end > len(data) or start > end:
        return -1
    total = np.int64(0)
    for place in range(len(freqs)):
        total += np.int64(freqs[place])
    if total > len(positions):
        return -1
    whole, at, doc = total // GROUP * GROUP, start, -1
    left, position = np.int64(0), np.int64(0)
    for number in range(total):
        if number < whole:
            if number % GROUP == 0:
                at = get_group(address_of(data), at, end, address_of(group))
            step = np.int64(group[number % GROUP])
        else:
            step, at = get_varint(data, at, end)
        if at < 0:
            return -1
        while left == 0:
            doc += 1
            left, position = np.int64(freqs[doc]), np.int64(0)
        position += step
        if position >= 1 << 32:
            return -1
        positions[number] = np.uint32(position)
        left -= 1
    return total


@compiled(int64(GIVEN_U8, GIVEN_I64, GIVEN_U32, GIVEN_I64, GIVEN_I64, GIVEN_U32, MADE_U32))
def decode_streams(
    data: Bytes,
    stream_ends: Int64s,
    stream_blocks: UInt32s,
    term_blocks: Int64s,
    posting_ends: Int64s,
    freqs: UInt32s,
    positions: UInt32s,
) -> Int:
    """The positions of all postings of some terms; how many, -1 where they are damaged."""
    group, used = np.empty(GROUP, np.uint32), np.int64(0)
    for term in range(len(term_blocks) - 1):
        at = posting_ends[term]
        for block in range(term_blocks[term], term_blocks[term + 1]):
            count = min(BLOCK, posting_ends[term + 1] - at)
            start = stream_ends[term] + np.int64(stream_blocks[block])
            end = stream_ends[term + 1]
            if block + 1 < term_blocks[term + 1]:
                end = min(end, stream_ends[term] + np.int64(stream_blocks[block + 1]))
            found = decode_positions(data, start, end, freqs[at : at + count], positions[used:], group)
            if found < 0:
                return -1
            used += found
            at += count
    return used


@compiled(boolean(GIVEN_U8, GIVEN_I64, int64, float32, MADE_I64, MADE_F32))
def read_impacts(
    data: Bytes, impact_ends: Int64s, limit: Int, average: np.float32, lasts: Int64s, bounds: Float32s
) -> bool:
    """Of each block its last document and a bound for the saturation of its postings, as floats have it. False where
    the entries are damaged or documents do not ascend below the limit."""
    before = np.int64(-1)
    for block in range(len(lasts)):
        at, end = impact_ends[block], impact_ends[block + 1]
        if at < 0 or end > len(data):
            return False
        last, at = get_varint(data, at, end)
        if at < 0 or last <= before or last >= limit:
            return False
        pairs, at = get_varint(data, at, end)
        freq, code, bound = np.int64(0), np.int64(0), np.float32(0)
        # A pair has at least one byte.
        if at < 0 or pairs > end - at or pairs == 0:
            return False
        for _ in range(pairs):
            item, at = get_varint(data, at, end)
            if at < 0:
                return False
            freq += (item >> 1) + 1
            step = np.int64(1)
            if item & 1:
                if at >= end:
                    return False
                step = np.int64(data[at])
                at += 1
            code += step
            if code > 255:
                return False
            found = saturation(np.float32(freq), np.float32(length_of(code)), average)
            bound = max(bound, found if freq <= _EXACT_FREQ else np.float32(found * _SLACK))
        lasts[block], bounds[block] = last, bound
        before = last
    return True
