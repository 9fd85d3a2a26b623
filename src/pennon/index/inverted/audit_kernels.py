"""What documents hold, in a number each: the sum of a hash of every term, and of its position where there are some.

The number follows from the text alone, and from posting lists alone, so that the two are compared without either being
kept. Words that are exchanged, missing or in another place change it but for a chance of one in 2**64.
"""

from __future__ import annotations

import numpy as np
from numba.types import boolean, int64, uint64, void

from pennon.index.arrays import Bytes, Flags, Int, Int32s, Int64s, UInt32s, UInt64s
from pennon.index.compiled import (
    GIVEN_FLAGS,
    GIVEN_I32,
    GIVEN_I64,
    GIVEN_U8,
    GIVEN_U32,
    GIVEN_U64,
    MADE_U32,
    MADE_U64,
    compiled,
)
from pennon.index.inverted.analysis.kernels import hash_bytes


@compiled(uint64(uint64, int64), inline=True)
def _mixed(term: np.uint64, position: Int) -> np.uint64:
    """The end of splitmix64."""
    word = term + np.uint64(position + 1) * np.uint64(0x9E37_79B9_7F4A_7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return word ^ (word >> np.uint64(31))


@compiled(void(GIVEN_U8, GIVEN_I64, MADE_U64))
def hash_terms(data: Bytes, ends: Int64s, hashes: UInt64s) -> None:
    """Of each term; `ends` has where they end in the data, from 0."""
    for term in range(len(hashes)):
        hashes[term] = hash_bytes(data, ends[term], ends[term + 1])


@compiled(void(GIVEN_I32, GIVEN_I64, GIVEN_U64, GIVEN_FLAGS, int64, MADE_U32, MADE_U64))
def sum_documents(
    numbers: Int32s,
    documents: Int64s,
    hashes: UInt64s,
    kept: Flags,
    rule: Int,
    lengths: UInt32s,
    sums: UInt64s,
) -> None:
    """Of documents: how many of their tokens are kept, and the sum of these. Positions follow a rule: 0, the place of
    the token, or the number of terms before it."""
    for document in range(len(documents) - 1):
        start, length, total = documents[document], 0, np.uint64(0)
        for at in range(start, documents[document + 1]):
            number = np.int64(numbers[at])
            if kept[number]:
                position = 0 if rule == 0 else at - start if rule == 1 else length
                total += _mixed(hashes[number], position)
                length += 1
        lengths[document], sums[document] = length, total


@compiled(void(GIVEN_I64, GIVEN_U32, GIVEN_U32, GIVEN_U32, boolean, GIVEN_U64, MADE_U32, MADE_U64))
def sum_postings(
    ends: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    positions: UInt32s,
    with_positions: bool,
    hashes: UInt64s,
    lengths: UInt32s,
    sums: UInt64s,
) -> None:
    """Adds the posting lists of terms to the documents in them. Without positions, all are 0."""
    taken = 0
    for term in range(len(ends) - 1):
        for at in range(ends[term], ends[term + 1]):
            doc, freq = docs[at], np.int64(freqs[at])
            lengths[doc] += freqs[at]
            if with_positions:
                for place in range(taken, taken + freq):
                    sums[doc] += _mixed(hashes[term], np.int64(positions[place]))
                taken += freq
            else:
                sums[doc] += np.uint64(freq) * _mixed(hashes[term], 0)
