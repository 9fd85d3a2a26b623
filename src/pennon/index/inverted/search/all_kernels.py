"""Documents that have all of the terms, and of those the ones that have them as a phrase.

The shortest list leads; the others are sought for its documents, block by block. Where the blocks at the cursors cannot
have one of the best documents together, all of them are skipped up to where the first of them ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numba.types import boolean, int64

from pennon.index.arrays import Bytes, Flags, Float32s, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, GIVEN_I64, GIVEN_U8, GIVEN_U32, MADE_U32, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.postings.pack_kernels import GROUP, get_group, get_varint
from pennon.index.inverted.search.cursor_kernels import (
    AT_BLOCK,
    BLOCKS,
    CURSORS,
    DECODED,
    DECODED_BLOCKS,
    HEAP,
    LISTS,
    PLACE,
    SKIPPED,
    STREAM,
    STREAM_BYTES,
    STREAM_STARTS,
    bound_of,
    decode_at,
    last_of,
    offer,
    pointer,
    seek_block,
    seek_doc,
    threshold_of,
)

_SLACK = np.float32(1.00001)


@compiled(boolean(GIVEN_U8, int64, int64, GIVEN_U32, int64, MADE_U32, MADE_U32))
def _positions_at(
    data: Bytes, start: Int, end: Int, freqs: UInt32s, place: Int, positions: UInt32s, group: UInt32s
) -> bool:
    """The positions of one posting of a block, out of the stream in bytes [start, end). False where it is damaged."""
    if start < 0 or end > len(data) or start > end:
        return False
    total, before = np.int64(0), np.int64(0)
    for number in range(len(freqs)):
        if number == place:
            before = total
        total += np.int64(freqs[number])
    whole, wanted = total // GROUP, np.int64(freqs[place])
    if total > GROUP * (end - start):
        return False
    at, taken, position = start, np.int64(0), np.int64(0)
    skipped = min(before // GROUP, whole)
    for _ in range(skipped):
        # A byte with the bits, and 16 bytes for each of them.
        if at >= end:
            return False
        at += 1 + 16 * np.int64(data[at])
    for number in range(skipped, whole):
        if taken == wanted:
            return True
        at = get_group(data, at, end, group)
        if at < 0:
            return False
        slot = before + taken - number * GROUP
        while slot < GROUP and taken < wanted:
            position += np.int64(group[slot])
            positions[taken] = np.uint32(position)
            slot, taken = slot + 1, taken + 1
    for number in range(whole * GROUP, before + wanted):
        step, at = get_varint(data, at, end)
        if at < 0:
            return False
        if number >= before:
            position += step
            positions[taken] = np.uint32(position)
            taken += 1
    return True


@compiled(int64(MADE_U32, int64, GIVEN_U32, int64, int64))
def _follow(kept: UInt32s, count: Int, positions: UInt32s, distance: Int, slop: Int) -> Int:
    """Keeps the positions that are `distance` after one of those kept before, or up to `slop` more; how many."""
    at, found = 0, 0
    before = kept[:count].copy()
    for position in positions:
        here = np.int64(position)
        while at < count and np.int64(before[at]) + distance + slop < here:
            at += 1
        if at == count:
            break
        if np.int64(before[at]) + distance <= here:
            kept[found] = position
            found += 1
    return found


@compiled(int64(LISTS, CURSORS, DECODED_BLOCKS, GIVEN_I64, GIVEN_I64, int64))
def _is_phrase(lists: Any, cursors: Any, freqs: Any, order: Int64s, distances: Int64s, slop: Int) -> Int:
    """Whether the document at all cursors has the terms at the given distances, 1 or 0; -1 where positions are
    damaged. `order` has the list of each term of the phrase."""
    group, count = np.empty(GROUP, np.uint32), np.int64(0)
    kept = np.empty(0, np.uint32)
    for number in range(len(order)):
        term = order[number]
        block, place, blocks = cursors[term, AT_BLOCK], cursors[term, PLACE], lists[term, BLOCKS]
        data = carray(pointer(lists[term, STREAM]), (lists[term, STREAM_BYTES],), np.uint8)
        starts = carray(pointer(lists[term, STREAM_STARTS]), (blocks + 1,), np.int64)
        size = min(BLOCK, lists[term, 0] - block * BLOCK)
        wanted = np.int64(freqs[term, place])
        if wanted > GROUP * len(data):
            return -1
        positions = np.empty(wanted, np.uint32)
        given = data, starts[block], starts[block + 1], freqs[term, :size], place
        if not _positions_at(*given, positions, group):
            return -1
        if number == 0:
            kept, count = positions, wanted
        else:
            more = np.empty(max(wanted, count), np.uint32)
            more[:count] = kept[:count]
            kept = more
            count = _follow(kept, count, positions, distances[number], slop)
        if count == 0:
            return 0
    return 1


@compiled(boolean(LISTS, GIVEN_F32, GIVEN_F32, GIVEN_FLAGS, GIVEN_I64, GIVEN_I64, int64, int64, *HEAP))
def search_all(
    lists: Any,
    weights: Float32s,
    norms: Float32s,
    allowed: Flags,
    order: Int64s,
    distances: Int64s,
    slop: Int,
    first: Int,
    scores: Float32s,
    keys: Int64s,
    counters: Int64s,
) -> bool:
    """As `search_any`, of documents that have all terms. A phrase is given by `order`, the list of each of its terms,
    and how far each is from the one before; empty for none."""
    count, limit = len(lists), len(norms)
    cursors = np.zeros((count, 3), np.int64)
    cursors[:, DECODED] = -1
    docs, freqs = np.empty((count, BLOCK), np.uint32), np.empty((count, BLOCK), np.uint32)
    doc, good_until = np.int64(0), np.int64(-1)
    while True:
        if doc > good_until:
            bound, good_until = np.float32(0), np.int64(limit)
            for term in range(count):
                if not seek_block(lists, cursors, term, doc):
                    return True
                bound += weights[term] * bound_of(lists, term, cursors[term, AT_BLOCK])
                good_until = min(good_until, last_of(lists, term, cursors[term, AT_BLOCK]))
            if bound * _SLACK <= threshold_of(scores, counters):
                counters[SKIPPED] += count
                doc = good_until + 1
                continue
        together = True
        for term in range(count):
            if not seek_block(lists, cursors, term, doc):
                return True
            if not decode_at(lists, cursors, docs, freqs, term, limit, counters):
                return False
            found = seek_doc(cursors, docs, term, doc)
            if found != doc:
                doc = found
                together = term == 0
                if not together:
                    break
        if not together:
            continue
        score = np.float32(0)
        for term in range(count):
            freq = np.float32(freqs[term, cursors[term, PLACE]])
            score += weights[term] * (freq / (freq + norms[doc]))
        if score > threshold_of(scores, counters) and (len(allowed) == 0 or allowed[doc]):
            holds = _is_phrase(lists, cursors, freqs, order, distances, slop) if len(order) else 1
            if holds < 0:
                return False
            if holds:
                offer(scores, keys, counters, score, first + doc)
        doc += 1
