"""Digests of posting lists as they are encoded: one changed bit always changes the 64 bits, of which 32 are kept."""

from __future__ import annotations

import numpy as np
from numba.types import int64, uint64, void

from pennon.index.arrays import Bytes, Int, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, GIVEN_U32, MADE_U32, compiled

_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_START = np.uint64(0xCBF2_9CE4_8422_2325)


@compiled(uint64(uint64, uint64))
def _mixed(digest: np.uint64, word: np.uint64) -> np.uint64:
    digest = (digest ^ word) * _ODD
    return digest ^ (digest >> np.uint64(29))


@compiled(uint64(uint64, GIVEN_U8, int64, int64))
def _of_bytes(digest: np.uint64, data: Bytes, start: Int, stop: Int) -> np.uint64:
    """Goes on with bytes [start, stop), in words of eight; what is outside of the data is left out."""
    if start < 0 or stop < start or stop > len(data):
        return _mixed(digest, np.uint64(stop - start))
    at = start
    while at + 8 <= stop:
        word = np.uint64(0)
        for place in range(8):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
        digest = _mixed(digest, word)
        at += 8
    word = np.uint64(0)
    for place in range(stop - at):
        word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return _mixed(_mixed(digest, word), np.uint64(stop - start))


@compiled(void(GIVEN_I64, GIVEN_I64, GIVEN_U8, GIVEN_I64, GIVEN_I64, GIVEN_U8, GIVEN_I64, MADE_U32))
def digest_lists(
    sizes: Int64s,
    term_blocks: Int64s,
    block_data: Bytes,
    block_ends: Int64s,
    impact_terms: Int64s,
    impact_data: Bytes,
    impact_ends: Int64s,
    digests: UInt32s,
) -> None:
    """Of each term: its number of postings, its blocks and its impacts, with the cuts between them."""
    for term in range(len(sizes)):
        digest = _mixed(_START, np.uint64(sizes[term]))
        for block in range(term_blocks[term], term_blocks[term + 1]):
            digest = _of_bytes(digest, block_data, block_ends[block], block_ends[block + 1])
        for entry in range(impact_terms[term], impact_terms[term + 1]):
            digest = _of_bytes(digest, impact_data, impact_ends[entry], impact_ends[entry + 1])
        digests[term] = np.uint32((digest ^ digest >> np.uint64(32)) & np.uint64(0xFFFF_FFFF))


@compiled(void(GIVEN_I64, GIVEN_U8, GIVEN_I64, GIVEN_U32, MADE_U32))
def digest_streams(
    term_blocks: Int64s, stream_data: Bytes, stream_ends: Int64s, stream_blocks: UInt32s, digests: UInt32s
) -> None:
    """Of each term: its positions, and where those of each block begin."""
    for term in range(len(digests)):
        digest = _of_bytes(_START, stream_data, stream_ends[term], stream_ends[term + 1])
        for block in range(term_blocks[term], term_blocks[term + 1]):
            digest = _mixed(digest, np.uint64(stream_blocks[block]))
        digests[term] = np.uint32((digest ^ digest >> np.uint64(32)) & np.uint64(0xFFFF_FFFF))
