"""Postings put in place: from tokens of documents to lists of terms, and from lists of several partitions to one."""

from __future__ import annotations

import numpy as np
from numba.types import int64, void

from pennon.index.arrays import Int, Int32s, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I32, GIVEN_I64, GIVEN_U32, MADE_I32, MADE_I64, MADE_U32, compiled

DEAD = 0xFFFF_FFFF
_DEAD = np.uint32(DEAD)


@compiled(int64(GIVEN_I32, GIVEN_I64, GIVEN_I32, int64, MADE_I32, MADE_I64, MADE_I64, MADE_U32))
def count_postings(
    numbers: Int32s,
    documents: Int64s,
    terms: Int32s,
    first: Int,
    latest: Int32s,
    postings: Int64s,
    occurrences: Int64s,
    lengths: UInt32s,
) -> Int:
    """Adds up, for each term, its postings and occurrences in some documents, and for each document its tokens.

    `terms` has the term of each token, -1 where it has none; `latest` the last document of each term. Documents
    without a term have no number; returns the number of the next one that has.
    """
    doc = first
    for place in range(len(documents) - 1):
        length = 0
        for at in range(documents[place], documents[place + 1]):
            term = terms[numbers[at]]
            if term >= 0:
                length += 1
                occurrences[term] += 1
                if latest[term] != doc:
                    latest[term] = doc
                    postings[term] += 1
        lengths[place] = length
        if length:
            doc += 1
    return doc


@compiled(
    int64(
        *(GIVEN_I32, GIVEN_I64, GIVEN_I32, int64, int64),
        *(MADE_I32, MADE_I64, MADE_I64, MADE_U32, MADE_U32, MADE_U32),
    )
)
def place_tokens(
    numbers: Int32s,
    documents: Int64s,
    terms: Int32s,
    first: Int,
    rule: Int,
    latest: Int32s,
    cursors: Int64s,
    position_cursors: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    positions: UInt32s,
) -> Int:
    """Puts the tokens of some documents into the lists of their terms, whose next places the cursors are. A position
    is 0, the place of the token in its document, or the number of terms before it, by `rule`; without room for
    positions there are none."""
    doc, with_positions = first, len(positions) > 0
    for place in range(len(documents) - 1):
        start, terms_before = documents[place], 0
        for at in range(start, documents[place + 1]):
            term = terms[numbers[at]]
            if term < 0:
                continue
            if latest[term] != doc:
                latest[term] = doc
                docs[cursors[term]] = doc
                freqs[cursors[term]] = 1
                cursors[term] += 1
            else:
                freqs[cursors[term] - 1] += np.uint32(1)
            if with_positions:
                positions[position_cursors[term]] = 0 if rule == 0 else at - start if rule == 1 else terms_before
                position_cursors[term] += 1
            terms_before += 1
        if terms_before:
            doc += 1
    return doc


@compiled(void(GIVEN_I64, GIVEN_I64, GIVEN_U32, GIVEN_U32, GIVEN_U32, MADE_I64, MADE_I64))
def count_live(
    targets: Int64s,
    ends: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    new_docs: UInt32s,
    postings: Int64s,
    occurrences: Int64s,
) -> None:
    """Adds up the postings and occurrences of lists in their target lists, but for dead documents."""
    for term in range(len(targets)):
        target = targets[term]
        for at in range(ends[term], ends[term + 1]):
            if new_docs[docs[at]] != _DEAD:
                postings[target] += 1
                occurrences[target] += np.int64(freqs[at])


@compiled(
    void(
        *(GIVEN_I64, GIVEN_I64, GIVEN_U32, GIVEN_U32, GIVEN_U32, GIVEN_U32),
        *(MADE_I64, MADE_I64, MADE_U32, MADE_U32, MADE_U32),
    )
)
def place_lists(
    targets: Int64s,
    ends: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    positions: UInt32s,
    new_docs: UInt32s,
    cursors: Int64s,
    position_cursors: Int64s,
    merged_docs: UInt32s,
    merged_freqs: UInt32s,
    merged_positions: UInt32s,
) -> None:
    """Appends lists to their target lists, whose next places the cursors are, with new numbers of documents."""
    taken, with_positions = np.int64(0), len(positions) > 0
    for term in range(len(targets)):
        at_target, at_position = cursors[targets[term]], position_cursors[targets[term]]
        for at in range(ends[term], ends[term + 1]):
            doc, freq = new_docs[docs[at]], np.int64(freqs[at])
            if doc != _DEAD:
                merged_docs[at_target] = doc
                merged_freqs[at_target] = freqs[at]
                at_target += 1
                if with_positions:
                    merged_positions[at_position : at_position + freq] = positions[taken : taken + freq]
                    at_position += freq
            if with_positions:
                taken += freq
        cursors[targets[term]], position_cursors[targets[term]] = at_target, at_position
