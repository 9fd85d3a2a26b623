"""Documents that have any of the terms, the best of them, without looking at blocks that cannot have one.

Documents are worked off in windows that no block of any list ends in. Lists are in ascending order of their size: rare
terms weigh more. Scores of a window are added up list by list; as soon as the lists that are left cannot lift a new
document among the best, they only add to those that other lists have found, and not even that where it would not help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import boolean, float32, int64, void

from pennon.index.arrays import Flags, Float32s, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, MADE_F32, MADE_U32, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.search.cursor_kernels import (
    AT_BLOCK,
    BLOCKS,
    CURSORS,
    DECODED,
    DECODED_BLOCKS,
    END,
    HEAP,
    LISTS,
    PLACE,
    SIZE,
    SKIPPED,
    bound_of,
    decode_at,
    last_of,
    offer,
    seek_block,
    seek_doc,
    threshold_of,
)

_WINDOW = 1 << 12
# Sums of bounds are rounded otherwise than sums of scores.
_SLACK = np.float32(1.00001)


@compiled(boolean(LISTS, float32, GIVEN_F32, GIVEN_FLAGS, int64, *HEAP))
def _search_one(
    lists: Any,
    weight: np.float32,
    norms: Float32s,
    allowed: Flags,
    first: Int,
    scores: Float32s,
    keys: Int64s,
    counters: Int64s,
) -> bool:
    """As `search_any`, of a single list: block by block."""
    cursors = np.zeros((1, 3), np.int64)
    cursors[0, DECODED] = -1
    docs, freqs = np.empty((1, BLOCK), np.uint32), np.empty((1, BLOCK), np.uint32)
    for block in range(lists[0, BLOCKS]):
        if bound_of(lists, 0, block) * weight * _SLACK <= threshold_of(scores, counters):
            counters[SKIPPED] += 1
            continue
        cursors[0, AT_BLOCK] = block
        if not decode_at(lists, cursors, docs, freqs, 0, len(norms), counters):
            return False
        for place in range(min(BLOCK, lists[0, SIZE] - block * BLOCK)):
            doc = docs[0, place]
            freq = np.float32(freqs[0, place])
            score = np.float32(weight * (freq / (freq + norms[doc])))
            if score > threshold_of(scores, counters) and (len(allowed) == 0 or allowed[doc]):
                offer(scores, keys, counters, score, first + doc)
    return True


@compiled(void(MADE_U32, MADE_U32, GIVEN_F32, float32, int64, MADE_F32))
def _score_block(
    docs: UInt32s, freqs: UInt32s, norms: Float32s, weight: np.float32, count: Int, scored: Float32s
) -> None:
    """What a term counts for in the documents of a block; without branches, for several of them at once."""
    for place in range(count):
        freq = np.float32(freqs[place])
        scored[place] = weight * (freq / (freq + norms[docs[place]]))


@compiled(int64(LISTS, CURSORS, DECODED_BLOCKS, int64, int64))
def _next_doc(lists: Any, cursors: Any, docs: Any, term: Int, doc: Int) -> Int:
    """Where a list goes on from `doc`: its next document, or before it the start of a block that is not decoded."""
    if not seek_block(lists, cursors, term, doc):
        return END
    block = cursors[term, AT_BLOCK]
    if cursors[term, DECODED] == block:
        return seek_doc(cursors, docs, term, doc)
    return max(doc, last_of(lists, term, block - 1) + 1 if block else 0)


@compiled(boolean(LISTS, GIVEN_F32, GIVEN_F32, GIVEN_FLAGS, int64, *HEAP))
def search_any(
    lists: Any,
    weights: Float32s,
    norms: Float32s,
    allowed: Flags,
    first: Int,
    scores: Float32s,
    keys: Int64s,
    counters: Int64s,
) -> bool:
    """Offers the documents of lists, with keys counted from `first`. A score is the sum of weights times saturation;
    `norms` are of the documents' lengths. An empty `allowed` allows all. False where a list is damaged."""
    count = len(lists)
    if count == 1:
        return _search_one(lists, weights[0], norms, allowed, first, scores, keys, counters)
    cursors = np.zeros((count, 3), np.int64)
    cursors[:, DECODED] = -1
    docs, freqs = np.empty((count, BLOCK), np.uint32), np.empty((count, BLOCK), np.uint32)
    scored = np.empty((count, BLOCK), np.float32)
    starts, left = np.empty(count, np.int64), np.empty(count + 1, np.float32)
    # Scores of the documents in a window; below 0 where none has been found.
    sums, found = np.full(_WINDOW, np.float32(-1)), np.empty(_WINDOW, np.int64)
    at = np.int64(0)
    while True:
        low = np.int64(END)
        for term in range(count):
            starts[term] = _next_doc(lists, cursors, docs, term, at)
            low = min(low, starts[term])
        if low == END:
            return True
        high = low + _WINDOW
        for term in range(count):
            if starts[term] < END:
                block = cursors[term, AT_BLOCK]
                if starts[term] > low and cursors[term, DECODED] != block:
                    high = min(high, starts[term])
                else:
                    high = min(high, last_of(lists, term, block) + 1)
        # What a list and those after it can add at most.
        left[count] = 0
        for term in range(count - 1, -1, -1):
            left[term] = left[term + 1]
            if starts[term] < high:
                left[term] += weights[term] * bound_of(lists, term, cursors[term, AT_BLOCK])
        threshold = threshold_of(scores, counters)
        at, touched = high, 0
        for term in range(count):
            if starts[term] >= high:
                continue
            only_found = left[term] * _SLACK <= threshold
            if only_found:
                helps = False
                for number in range(touched):
                    if (sums[found[number]] + left[term]) * _SLACK > threshold:
                        helps = True
                        break
                if not helps:
                    if cursors[term, DECODED] != cursors[term, AT_BLOCK]:
                        counters[SKIPPED] += 1
                    break
            last = min(BLOCK, lists[term, SIZE] - cursors[term, AT_BLOCK] * BLOCK)
            if cursors[term, DECODED] != cursors[term, AT_BLOCK]:
                if not decode_at(lists, cursors, docs, freqs, term, len(norms), counters):
                    return False
                _score_block(docs[term], freqs[term], norms, weights[term], last, scored[term])
            seek_doc(cursors, docs, term, low)
            for place in range(cursors[term, PLACE], last):
                doc = docs[term, place]
                if doc >= high:
                    break
                slot = doc - low
                known = sums[slot]
                if known < 0 and only_found:
                    continue
                score = scored[term, place]
                if known >= 0:
                    sums[slot] = known + score
                # What the lists after this one cannot lift among the best is not looked for in them.
                elif (score + left[term + 1]) * _SLACK > threshold and (len(allowed) == 0 or allowed[doc]):
                    sums[slot] = score
                    found[touched] = slot
                    touched += 1
        for place in range(touched):
            slot = found[place]
            score = np.float32(sums[slot])
            sums[slot] = -1
            if score > threshold:
                offer(scores, keys, counters, score, first + low + slot)
                threshold = threshold_of(scores, counters)
