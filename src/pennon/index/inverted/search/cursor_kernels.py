"""A cursor for each posting list of a query, and the best documents so far.

Lists are given as addresses of arrays that the caller keeps alive, a row of `lists` each: a kernel takes any number of
lists, and none of them is copied. Blocks are decoded when a document of theirs is needed; until then the last
document and the highest saturation of a block, which the impacts give, are all that is looked at. Functions that are
called for every block take addresses of `lists`, `cursors` and the decoded documents and frequencies, too.
"""

from __future__ import annotations

import numpy as np
from numba.types import Array, boolean, float32, int64, void

from pennon.index.arrays import Float32s, Int, Int64s
from pennon.index.compiled import MADE_F32, MADE_I64, MADE_U32, compiled
from pennon.index.inverted.postings.decode_kernels import decode_block
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.memory import float32_at, int64_at, put_int64, uint32_at

# The columns of a row of `lists`.
SIZE, BLOCKS, BYTES, DATA, ENDS, LASTS, BOUNDS, STREAM_BYTES, STREAM, STREAM_STARTS = range(10)
COLUMNS = 10
# The columns of a row of `cursors`: the block at the cursor, the block that is decoded or -1, and the place in it.
AT_BLOCK, DECODED, PLACE = 0, 1, 2
CURSOR_COLUMNS = 3
# `counters`: documents offered, blocks decoded, blocks skipped.
OFFERED, READ, SKIPPED = 0, 1, 2
END = 1 << 40

LISTS, CURSORS = Array(int64, 2, "C", readonly=True), int64[:, ::1]
DECODED_BLOCKS = MADE_U32  # a row of postings for each list, one after another
HEAP = MADE_F32, MADE_I64, MADE_I64


@compiled(int64(int64, int64, int64), inline=True)
def field_of(lists: Int, term: Int, column: Int) -> Int:
    """A column of the row of a list."""
    return int64_at(lists, term * COLUMNS + column)


@compiled(int64(int64, int64, int64), inline=True)
def last_of(lists: Int, term: Int, block: Int) -> Int:
    """The last document of a block."""
    return int64_at(field_of(lists, term, LASTS), block)


@compiled(float32(int64, int64, int64), inline=True)
def bound_of(lists: Int, term: Int, block: Int) -> np.float32:
    """The highest saturation of a block."""
    return float32_at(field_of(lists, term, BOUNDS), block)


@compiled(boolean(int64, int64, int64, int64), inline=True)
def seek_block(lists: Int, cursors: Int, term: Int, doc: Int) -> bool:
    """Puts the cursor at the first block with a document that is not before `doc`; False where there is none."""
    low, count = int64_at(cursors, term * CURSOR_COLUMNS + AT_BLOCK), field_of(lists, term, BLOCKS)
    if low < count and last_of(lists, term, low) < doc:
        # In steps that double, then by halves.
        step = 1
        while low + step < count and last_of(lists, term, low + step) < doc:
            low += step
            step *= 2
        high = min(low + step, count)
        while low + 1 < high:
            middle = (low + high) // 2
            if last_of(lists, term, middle) < doc:
                low = middle
            else:
                high = middle
        put_int64(cursors, term * CURSOR_COLUMNS + AT_BLOCK, high)
        return high < count
    return low < count


@compiled(boolean(int64, int64, int64, int64, int64, int64, int64), inline=True)
def decode_at(lists: Int, cursors: Int, docs: Int, freqs: Int, term: Int, limit: Int, counters: Int) -> bool:
    """Decodes the block at the cursor, unless it is decoded; False where it is damaged."""
    cursor = term * CURSOR_COLUMNS
    block = int64_at(cursors, cursor + AT_BLOCK)
    if int64_at(cursors, cursor + DECODED) == block:
        return True
    put_int64(counters, READ, int64_at(counters, READ) + 1)
    count = min(BLOCK, field_of(lists, term, SIZE) - block * BLOCK)
    ends = field_of(lists, term, ENDS)
    lowest = last_of(lists, term, block - 1) + 1 if block else 0
    last, docs = last_of(lists, term, block), docs + 4 * BLOCK * term
    if not decode_block(
        field_of(lists, term, DATA),
        field_of(lists, term, BYTES),
        int64_at(ends, block),
        int64_at(ends, block + 1),
        count,
        lowest,
        min(limit, last + 1),
        docs,
        freqs + 4 * BLOCK * term,
    ):
        return False
    put_int64(cursors, cursor + DECODED, block)
    put_int64(cursors, cursor + PLACE, 0)
    return bool(uint32_at(docs, count - 1) == last)


@compiled(int64(int64, int64, int64, int64), inline=True)
def seek_doc(cursors: Int, docs: Int, term: Int, doc: Int) -> Int:
    """The first document of the decoded block that is not before `doc`; one exists, as the cursor is at its block."""
    place, first = int64_at(cursors, term * CURSOR_COLUMNS + PLACE), term * BLOCK
    while place + 1 < BLOCK and uint32_at(docs, first + place) < doc:
        place += 1
    put_int64(cursors, term * CURSOR_COLUMNS + PLACE, place)
    return np.int64(uint32_at(docs, first + place))


@compiled(void(*HEAP, float32, int64))
def offer(scores: Float32s, keys: Int64s, counters: Int64s, score: np.float32, key: Int) -> None:
    """A document for the best so far, a heap whose first is the worst: of equal scores the one with the higher key.

    Unused places have a score of minus infinity. Where documents are not to be compared, because there is room for
    all, `counters[OFFERED]` is where the next one goes; it is -1 otherwise.
    """
    if counters[OFFERED] >= 0:
        at = counters[OFFERED]
        scores[at], keys[at] = score, key
        counters[OFFERED] += 1
        return
    if score < scores[0] or (score == scores[0] and key > keys[0]):
        return
    at, count = 0, len(scores)
    while 2 * at + 1 < count:
        child = 2 * at + 1
        other = child + 1
        if other < count and (
            scores[other] < scores[child] or (scores[other] == scores[child] and keys[other] > keys[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and keys[child] < key):
            break
        scores[at], keys[at] = scores[child], keys[child]
        at = child
    scores[at], keys[at] = score, key


@compiled(float32(MADE_F32, MADE_I64), inline=True)
def threshold_of(scores: Float32s, counters: Int64s) -> np.float32:
    """The score that a document must exceed."""
    return scores[0] if counters[OFFERED] < 0 else np.float32(-np.inf)
