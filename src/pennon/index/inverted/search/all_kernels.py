"""Documents that have all of the terms, and of those the ones that have them as a phrase.

The shortest list leads; the others are sought for its documents, block by block. Where the blocks at the cursors cannot
have one of the best documents together, all of them are skipped up to where the first of them ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import boolean, int64

from pennon.index.arrays import Flags, Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_FLAGS, GIVEN_I64, compiled
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.postings.pack_kernels import GROUP
from pennon.index.inverted.search.cursor_kernels import (
    AT_BLOCK,
    DECODED,
    HEAP,
    LISTS,
    PLACE,
    SKIPPED,
    bound_of,
    decode_at,
    last_of,
    offer,
    seek_block,
    seek_doc,
    threshold_of,
)
from pennon.index.inverted.search.phrase_kernels import STREAM_COLUMNS, is_phrase, most_positions
from pennon.index.memory import address_of

_SLACK = np.float32(1.00001)
# Room for the positions of a term in a document; more is made where it is needed.
_FIRST_POSITIONS = 64


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
    docs, freqs = np.empty(count * BLOCK, np.uint32), np.empty(count * BLOCK, np.uint32)
    phrase = len(order) > 0
    streams = np.full((count if phrase else 0, STREAM_COLUMNS), -1, np.int64)
    groups = np.empty(count * GROUP if phrase else 0, np.uint32)
    positions = np.empty((2, _FIRST_POSITIONS if phrase else 0), np.uint32)
    all_lists, all_cursors = address_of(lists), address_of(cursors)
    doc, good_until = np.int64(0), np.int64(-1)
    while True:
        if doc > good_until:
            bound, good_until = np.float32(0), np.int64(limit)
            for term in range(count):
                if not seek_block(all_lists, all_cursors, term, doc):
                    return True
                bound += weights[term] * bound_of(all_lists, term, cursors[term, AT_BLOCK])
                good_until = min(good_until, last_of(all_lists, term, cursors[term, AT_BLOCK]))
            if bound * _SLACK <= threshold_of(scores, counters):
                counters[SKIPPED] += count
                doc = good_until + 1
                continue
        together = True
        for term in range(count):
            if not seek_block(all_lists, all_cursors, term, doc):
                return True
            if not decode_at(
                all_lists, all_cursors, address_of(docs), address_of(freqs), term, limit, address_of(counters)
            ):
                return False
            found = seek_doc(all_cursors, address_of(docs), term, doc)
            if found != doc:
                doc = found
                together = term == 0
                if not together:
                    break
        if not together:
            continue
        score = np.float32(0)
        for term in range(count):
            freq = np.float32(freqs[term * BLOCK + cursors[term, PLACE]])
            score += weights[term] * (freq / (freq + norms[doc]))
        if score > threshold_of(scores, counters) and (len(allowed) == 0 or allowed[doc]):
            holds = 1
            if phrase:
                most = most_positions(lists, cursors, freqs)
                if most > positions.shape[1]:
                    positions = np.empty((2, 2 * most), np.uint32)
                given = lists, cursors, freqs, order, distances, slop
                holds = is_phrase(*given, streams, groups, positions) if most >= 0 else -1
                if holds < 0:
                    return False
            if holds:
                offer(scores, keys, counters, score, first + doc)
        doc += 1
