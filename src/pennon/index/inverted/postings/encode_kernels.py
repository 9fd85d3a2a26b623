"""Posting lists as bytes."""

from __future__ import annotations

import math

import numpy as np
from numba.types import UniTuple, boolean, float32, int64

from pennon.index.arrays import Bytes, Float32s, Int, Int32s, Int64s, UInt32s
from pennon.index.compiled import GIVEN_I64, GIVEN_U32, MADE_F32, MADE_I32, MADE_I64, MADE_U8, MADE_U32, compiled
from pennon.index.inverted.postings.pack_kernels import GROUP, code_of, put_group, put_varint

BLOCK = 128
SUPERBLOCK = 32 * BLOCK
_FREQUENT = 256
_POSTINGS = GIVEN_U32, GIVEN_U32, GIVEN_U32


@compiled(float32(int64, int64))
def inverse_frequency(num_docs: Int, frequency: Int) -> np.float32:
    """How much a term weighs that is in `frequency` of all documents."""
    half, one, found = np.float32(0.5), np.float32(1), np.float32(frequency)
    return np.float32(math.log(np.float32((np.float32(num_docs) - found + half) / (found + half) + one)))


@compiled(float32(float32, float32, float32))
def saturation(frequency: np.float32, length: np.float32, average: np.float32) -> np.float32:
    """What a frequency counts for in a document of a length, from 0 to 1."""
    k1, b, one = np.float32(1.2), np.float32(0.75), np.float32(1)
    norm = np.float32(k1 * np.float32(np.float32(one - b) + np.float32(np.float32(b * length) / average)))
    return np.float32(frequency / np.float32(frequency + norm))


@compiled(int64(MADE_U8, int64, *_POSTINGS, MADE_I64, MADE_I64, MADE_I64))
def _put_impact(
    out: Bytes,
    at: Int,
    docs: UInt32s,
    freqs: UInt32s,
    lengths: UInt32s,
    shortest: Int64s,
    pair_freqs: Int64s,
    pair_lengths: Int64s,
) -> Int:
    """`shortest` is scratch that holds -1 throughout, before and after."""
    highest, last = np.int64(0), len(docs)
    for place in range(last):
        highest = max(highest, np.int64(freqs[place]))
    pairs, best = 0, np.int64(1) << 40
    if highest <= _FREQUENT:
        for place in range(last):
            freq, length = freqs[place], np.int64(lengths[docs[place]])
            if shortest[freq] < 0 or length < shortest[freq]:
                shortest[freq] = length
        for freq in range(highest, -1, -1):
            length = shortest[freq]
            shortest[freq] = -1
            if 0 <= length < best:
                pair_freqs[pairs], pair_lengths[pairs] = freq, length
                pairs, best = pairs + 1, length
    else:
        order = np.argsort(freqs)
        place = last - 1
        while place >= 0:
            freq, length = freqs[order[place]], np.int64(1) << 40
            while place >= 0 and freqs[order[place]] == freq:
                length = min(length, np.int64(lengths[docs[order[place]]]))
                place -= 1
            if length < best:
                pair_freqs[pairs], pair_lengths[pairs] = freq, length
                pairs, best = pairs + 1, length
    # Ascending; of equal codes the higher frequency stays. Written over what was read.
    kept = 0
    for pair in range(pairs - 1, -1, -1):
        code = code_of(pair_lengths[pair])
        if kept == 0 or pair_lengths[pairs + kept - 1] != code:
            kept += 1
        pair_freqs[pairs + kept - 1], pair_lengths[pairs + kept - 1] = pair_freqs[pair], code
    at = put_varint(out, at, np.int64(docs[last - 1]))
    at = put_varint(out, at, kept)
    freq_before, code_before = np.int64(0), np.int64(0)
    for pair in range(pairs, pairs + kept):
        step = pair_lengths[pair] - code_before
        at = put_varint(out, at, (pair_freqs[pair] - freq_before - 1) << 1 | (1 if step != 1 else 0))
        if step != 1:
            out[at] = step
            at += 1
        freq_before, code_before = pair_freqs[pair], pair_lengths[pair]
    return at


@compiled(int64(MADE_U8, int64, GIVEN_U32, GIVEN_U32, float32, MADE_U32))
def _put_block(out: Bytes, at: Int, docs: UInt32s, freqs: UInt32s, score: np.float32, group: UInt32s) -> Int:
    out[at : at + 4] = np.array([score], np.float32).view(np.uint8)
    at += 4
    if len(docs) == BLOCK:
        out[at : at + 4] = docs[:1].copy().view(np.uint8)
        before = docs[0]
        for place in range(BLOCK):
            group[place] = docs[place] - before
            before = docs[place]
        return put_group(freqs, out, put_group(group, out, at + 4))
    before = np.uint32(0)
    for place in range(len(docs)):
        at = put_varint(out, at, np.int64(docs[place]) - np.int64(before))
        before = docs[place]
    for place in range(len(docs)):
        at = put_varint(out, at, np.int64(freqs[place]))
    return at


@compiled(int64(MADE_U8, int64, GIVEN_U32, GIVEN_U32, MADE_U32))
def _put_positions(out: Bytes, at: Int, freqs: UInt32s, positions: UInt32s, group: UInt32s) -> Int:
    filled, taken = 0, 0
    for place in range(len(freqs)):
        before = np.uint32(0)
        for number in range(taken, taken + freqs[place]):
            group[filled] = positions[number] - before
            before = positions[number]
            filled += 1
            if filled == GROUP:
                at = put_group(group, out, at)
                filled = 0
        taken += np.int64(freqs[place])
    for place in range(filled):
        at = put_varint(out, at, np.int64(group[place]))
    return at


@compiled(
    UniTuple(int64, 3)(
        GIVEN_I64,
        *_POSTINGS,
        GIVEN_U32,
        int64,
        float32,
        boolean,
        *(MADE_U8, MADE_I64, MADE_F32),
        *(MADE_U8, MADE_I64, MADE_I32),
        *(MADE_U8, MADE_I64, MADE_U32),
    )
)
def encode_lists(
    term_ends: Int64s,
    docs: UInt32s,
    freqs: UInt32s,
    lengths: UInt32s,
    positions: UInt32s,
    num_docs: Int,
    average: np.float32,
    with_positions: bool,
    blocks: Bytes,
    block_ends: Int64s,
    scores: Float32s,
    impacts: Bytes,
    impact_ends: Int64s,
    impact_terms: Int32s,
    streams: Bytes,
    stream_ends: Int64s,
    stream_blocks: UInt32s,
) -> tuple[Int, Int, Int]:
    """The lists of terms that follow one another: bytes of blocks, of impacts and of positions, returned as how many
    there are of each. `lengths` are of all documents; the average and their number are those of the partition."""
    block, impact, at, impact_at, stream_at, taken = 0, 0, 0, 0, 0, 0
    shortest = np.full(_FREQUENT + 1, -1, np.int64)
    group = np.empty(GROUP, np.uint32)
    pair_freqs, pair_lengths = np.empty(2 * SUPERBLOCK, np.int64), np.empty(2 * SUPERBLOCK, np.int64)
    for term in range(len(term_ends) - 1):
        start, end = term_ends[term], term_ends[term + 1]
        scale = np.float32(inverse_frequency(num_docs, end - start) * np.float32(np.float32(1.2) + np.float32(1)))
        highest, stream_start = np.float32(0), stream_at
        for first in range(start, end, BLOCK):
            last = min(first + BLOCK, end)
            score, occurrences = np.float32(0), np.int64(0)
            for place in range(first, last):
                length = np.float32(lengths[docs[place]])
                score = max(score, saturation(np.float32(freqs[place]), length, average))
                occurrences += np.int64(freqs[place])
            score = np.float32(score * scale)
            highest = max(highest, score)
            at = _put_block(blocks, at, docs[first:last], freqs[first:last], score, group)
            block += 1
            block_ends[block] = at
            impact_at = _put_impact(
                impacts, impact_at, docs[first:last], freqs[first:last], lengths, shortest, pair_freqs, pair_lengths
            )
            impact += 1
            impact_ends[impact] = impact_at
            if with_positions:
                stream_blocks[block - 1] = stream_at - stream_start
                taken_here = positions[taken : taken + occurrences]
                stream_at = _put_positions(streams, stream_at, freqs[first:last], taken_here, group)
                taken += occurrences
        for first in range(start, end, SUPERBLOCK):
            last = min(first + SUPERBLOCK, end)
            impact_at = _put_impact(
                impacts, impact_at, docs[first:last], freqs[first:last], lengths, shortest, pair_freqs, pair_lengths
            )
            impact += 1
            impact_ends[impact] = impact_at
        impact_terms[term + 1] = impact
        scores[term] = highest
        if with_positions:
            stream_ends[term + 1] = stream_at
    return at, impact_at, stream_at
