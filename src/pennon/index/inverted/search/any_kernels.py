"""Documents that have any of the terms, the best of them, without looking at blocks that cannot have one.

Documents are worked off in windows that no block of any list ends in. Lists are in ascending order of their size: rare
terms weigh more. Scores of a window are added up list by list; as soon as the lists that are left cannot lift a new
document among the best, they only add to those that other lists have found, and not even that where it would not help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import boolean, float32, int64, uint32, uint64, void

from pennon.index.arrays import Flags, Float32s, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, MADE_F32, MADE_U32, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.search.cursor_kernels import (
    AT_BLOCK,
    BLOCKS,
    CURSOR_COLUMNS,
    DECODED,
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
from pennon.index.memory import address_of, int64_at

_WINDOW = 1 << 12
# Sums of bounds are rounded otherwise than sums of scores.
_SLACK = np.float32(1.00001)


@compiled(float32(uint32, float32, float32), inline=True, raising=False)
def _score(freq: Any, norm: Any, weight: np.float32) -> np.float32:
    """What a term counts for in a document."""
    count = np.float32(freq)
    return np.float32(weight * (count / (count + norm)))


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
    docs, freqs = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    given, at = address_of(lists), (address_of(cursors), address_of(docs), address_of(freqs))
    for block in range(lists[0, BLOCKS]):
        if bound_of(given, 0, block) * weight <= threshold_of(scores, counters):
            counters[SKIPPED] += 1
            continue
        cursors[0, AT_BLOCK] = block
        if not decode_at(given, *at, 0, len(norms), address_of(counters)):
            return False
        for place in range(min(BLOCK, lists[0, SIZE] - block * BLOCK)):
            doc = docs[place]
            score = _score(freqs[place], norms[doc], weight)
            if score > threshold_of(scores, counters) and (len(allowed) == 0 or allowed[doc]):
                offer(scores, keys, counters, score, first + doc)
    return True


@compiled(void(MADE_U32, MADE_U32, GIVEN_F32, float32, uint64, uint64, MADE_F32), inline=True, raising=False)
def _score_block(
    docs: UInt32s, freqs: UInt32s, norms: Float32s, weight: np.float32, first: Any, end: Any, scored: Float32s
) -> None:
    """What a term counts for in the documents of a block; without branches, for several of them at once."""
    for place in range(first, end):
        scored[place] = _score(freqs[place], norms[docs[place]], weight)


@compiled(int64(int64, int64, int64, int64, int64), inline=True)
def _next_doc(lists: Int, cursors: Int, docs: Int, term: Int, doc: Int) -> Int:
    """Where a list goes on from `doc`: its next document, or before it the start of a block that is not decoded."""
    if not seek_block(lists, cursors, term, doc):
        return END
    block = int64_at(cursors, term * CURSOR_COLUMNS + AT_BLOCK)
    if int64_at(cursors, term * CURSOR_COLUMNS + DECODED) == block:
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
    docs, freqs = np.empty(count * BLOCK, np.uint32), np.empty(count * BLOCK, np.uint32)
    scored = np.empty(count * BLOCK, np.float32)
    scored_blocks = np.full(count, -1)
    starts, bounds, left = np.empty(count, np.int64), np.empty(count, np.float32), np.empty(count + 1, np.float32)
    # Scores of the documents in a window; below 0 where none has been found.
    sums, found = np.full(_WINDOW, np.float32(-1)), np.empty(_WINDOW, np.int64)
    at, one = np.int64(0), np.uint64(1)
    # The loop uses the arrays too, so that they outlive their addresses.
    all_lists, all_cursors = address_of(lists), address_of(cursors)
    all_docs, all_freqs = address_of(docs), address_of(freqs)
    while True:
        low = np.int64(END)
        for term in range(count):
            starts[term] = _next_doc(all_lists, all_cursors, all_docs, term, at)
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
                    high = min(high, last_of(all_lists, term, block) + 1)
        # What a list and those after it can add at most, and all together: summed up as scores are.
        left[count], most = 0, np.float32(0)
        for term in range(count):
            bounds[term] = 0
            if starts[term] < high:
                bounds[term] = weights[term] * bound_of(all_lists, term, cursors[term, AT_BLOCK])
            most += bounds[term]
        threshold = threshold_of(scores, counters)
        at, touched = high, 0
        if most <= threshold:
            for term in range(count):
                counters[SKIPPED] += starts[term] < high and cursors[term, DECODED] != cursors[term, AT_BLOCK]
            continue
        for term in range(count - 1, -1, -1):
            left[term] = left[term + 1] + bounds[term]
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
            base = np.uint64(term * BLOCK)
            last = base + np.uint64(min(BLOCK, lists[term, SIZE] - cursors[term, AT_BLOCK] * BLOCK))
            if not decode_at(all_lists, all_cursors, all_docs, all_freqs, term, len(norms), address_of(counters)):
                return False
            seek_doc(all_cursors, all_docs, term, low)
            place, rest = base + np.uint64(cursors[term, PLACE]), left[term + 1]
            if not only_found and scored_blocks[term] != cursors[term, AT_BLOCK]:
                _score_block(docs, freqs, norms, weights[term], base, last, scored)
                scored_blocks[term] = cursors[term, AT_BLOCK]
            if only_found:
                while place < last and docs[place] < high:
                    slot = np.uint64(docs[place] - low)
                    if sums[slot] >= 0:
                        sums[slot] += _score(freqs[place], norms[docs[place]], weights[term])
                    place += one
            elif touched == 0:
                while place < last and docs[place] < high:
                    # What the lists after this one cannot lift among the best is not looked for in them.
                    if (scored[place] + rest) * _SLACK > threshold:
                        doc = docs[place]
                        if len(allowed) == 0 or allowed[doc]:
                            sums[np.uint64(doc - low)] = scored[place]
                            found[touched] = doc - low
                            touched += 1
                    place += one
            else:
                while place < last and docs[place] < high:
                    slot = np.uint64(docs[place] - low)
                    known = sums[slot]
                    if known >= 0:
                        sums[slot] = known + scored[place]
                    elif (scored[place] + rest) * _SLACK > threshold and (len(allowed) == 0 or allowed[docs[place]]):
                        sums[slot] = scored[place]
                        found[touched] = slot
                        touched += 1
                    place += one
            cursors[term, PLACE] = min(np.int64(place - base), BLOCK - 1)
        for place in range(touched):
            slot = found[place]
            score = np.float32(sums[slot])
            sums[slot] = -1
            if score > threshold:
                offer(scores, keys, counters, score, first + low + slot)
                threshold = threshold_of(scores, counters)
