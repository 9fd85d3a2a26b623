"""Whether a document has its terms as a phrase: the positions of postings, out of the streams of their blocks.

Documents come in ascending order, so that what was read of a stream serves those after it: the group of 128 positions
that is at hand, and how many positions the postings before have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numba.types import boolean, int64, uint32

from pennon.index.arrays import Bytes, Int, Int64s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.postings.pack_kernels import GROUP, get_group, get_varint
from pennon.index.inverted.search.cursor_kernels import (
    AT_BLOCK,
    BLOCKS,
    CURSORS,
    DECODED_BLOCKS,
    LISTS,
    PLACE,
    SIZE,
    STREAM,
    STREAM_BYTES,
    STREAM_STARTS,
)
from pennon.index.memory import address_of, pointer

# The columns of a row of `streams`: the block that is read; which of its groups is at hand, where the next starts and
# where all end; its positions; and the posting up to which positions are counted, with their number.
OF_BLOCK, AT_GROUP, NEXT, STOP, TOTAL, COUNTED, BEFORE = range(7)
STREAM_COLUMNS = 7
STREAMS, POSITIONS = int64[:, ::1], uint32[:, ::1]


@compiled(boolean(LISTS, DECODED_BLOCKS, STREAMS, int64, int64))
def _open_stream(lists: Any, freqs: Any, streams: Any, term: Int, block: Int) -> bool:
    """Starts with the positions of a block; False where it cannot have as many as its postings demand."""
    starts = carray(pointer(lists[term, STREAM_STARTS]), (lists[term, BLOCKS] + 1,), np.int64)
    start, stop = starts[block], starts[block + 1]
    total = np.int64(0)
    for place in range(min(BLOCK, lists[term, SIZE] - block * BLOCK)):
        total += np.int64(freqs[term * BLOCK + place])
    if start < 0 or stop > lists[term, STREAM_BYTES] or start > stop or total > GROUP * (stop - start):
        return False
    streams[term, OF_BLOCK], streams[term, AT_GROUP], streams[term, NEXT] = block, -1, start
    streams[term, STOP], streams[term, TOTAL] = stop, total
    streams[term, COUNTED], streams[term, BEFORE] = 0, 0
    return True


@compiled(boolean(GIVEN_U8, STREAMS, DECODED_BLOCKS, int64, int64))
def _load_group(data: Bytes, streams: Any, groups: Any, term: Int, wanted: Int) -> bool:
    """Has a group at hand, which is not before the one that is; the last has what 128 does not divide. False where the
    stream is damaged."""
    at, stop, total = streams[term, NEXT], streams[term, STOP], streams[term, TOTAL]
    whole = total // GROUP
    for number in range(streams[term, AT_GROUP] + 1, wanted + 1):
        if number == whole:
            for slot in range(total - whole * GROUP):
                step, at = get_varint(data, at, stop)
                if at < 0:
                    return False
                groups[term * GROUP + slot] = np.uint32(step)
        elif number == wanted:
            at = get_group(address_of(data), at, stop, address_of(groups) + 4 * GROUP * term)
            if at < 0:
                return False
        else:
            # A byte with the bits, and 16 bytes for each of them.
            if at >= stop:
                return False
            at += 1 + 16 * np.int64(data[at])
    streams[term, AT_GROUP], streams[term, NEXT] = wanted, at
    return True


@compiled(boolean(LISTS, CURSORS, DECODED_BLOCKS, STREAMS, DECODED_BLOCKS, POSITIONS, int64, int64))
def _read_positions(
    lists: Any, cursors: Any, freqs: Any, streams: Any, groups: Any, positions: Any, term: Int, row: Int
) -> bool:
    """The positions of the posting at a cursor, into a row of `positions`. False where they are damaged."""
    block, place = cursors[term, AT_BLOCK], cursors[term, PLACE]
    if (streams[term, OF_BLOCK] != block or streams[term, COUNTED] > place) and not _open_stream(
        lists, freqs, streams, term, block
    ):
        return False
    before = streams[term, BEFORE]
    for number in range(streams[term, COUNTED], place):
        before += np.int64(freqs[term * BLOCK + number])
    streams[term, COUNTED], streams[term, BEFORE] = place, before
    data = carray(pointer(lists[term, STREAM]), (lists[term, STREAM_BYTES],), np.uint8)
    position, at = np.int64(0), before
    taken, wanted = np.int64(0), np.int64(freqs[term * BLOCK + place])
    while taken < wanted:
        group = at // GROUP
        # A term that a phrase has twice is read again, from a group that may be gone.
        if group < streams[term, AT_GROUP]:
            counted = streams[term, COUNTED]
            if not _open_stream(lists, freqs, streams, term, block):
                return False
            streams[term, COUNTED], streams[term, BEFORE] = counted, before
        if group > streams[term, AT_GROUP] and not _load_group(data, streams, groups, term, group):
            return False
        for slot in range(at - group * GROUP, min(GROUP, at - group * GROUP + wanted - taken)):
            position += np.int64(groups[term * GROUP + slot])
            positions[row, taken] = np.uint32(position)
            taken += 1
        at = before + taken
    return True


@compiled(int64(POSITIONS, int64, int64, int64, int64, int64))
def _follow(positions: Any, kept: Int, count: Int, wanted: Int, distance: Int, slop: Int) -> Int:
    """Keeps of the other row the positions that are `distance` after one of row `kept`, or up to `slop` more; how
    many."""
    at, found, other = 0, 0, 1 - kept
    for number in range(wanted):
        here = np.int64(positions[other, number])
        while at < count and np.int64(positions[kept, at]) + distance + slop < here:
            at += 1
        if at == count:
            break
        if np.int64(positions[kept, at]) + distance <= here:
            positions[other, found] = positions[other, number]
            found += 1
    return found


@compiled(int64(LISTS, CURSORS, DECODED_BLOCKS, GIVEN_I64, GIVEN_I64, int64, STREAMS, DECODED_BLOCKS, POSITIONS))
def is_phrase(
    lists: Any,
    cursors: Any,
    freqs: Any,
    order: Int64s,
    distances: Int64s,
    slop: Int,
    streams: Any,
    groups: Any,
    positions: Any,
) -> Int:
    """Whether the document at all cursors has the terms at the given distances, 1 or 0; -1 where positions are
    damaged. `order` has the list of each term of the phrase; the two rows of `positions` have room for any of them."""
    kept, count = 0, np.int64(0)
    for number in range(len(order)):
        term = order[number]
        wanted = np.int64(freqs[term * BLOCK + cursors[term, PLACE]])
        row = 1 - kept if number else kept
        if not _read_positions(lists, cursors, freqs, streams, groups, positions, term, row):
            return -1
        if number:
            count = _follow(positions, kept, count, wanted, distances[number], slop)
            kept = row
        else:
            count = wanted
        if count == 0:
            return 0
    return 1


@compiled(int64(LISTS, CURSORS, DECODED_BLOCKS))
def most_positions(lists: Any, cursors: Any, freqs: Any) -> Int:
    """The most positions of a posting at a cursor; -1 where there are more than its stream can have."""
    most = np.int64(0)
    for term in range(len(lists)):
        count = np.int64(freqs[term * BLOCK + cursors[term, PLACE]])
        if count > GROUP * lists[term, STREAM_BYTES]:
            return -1
        most = max(most, count)
    return most
