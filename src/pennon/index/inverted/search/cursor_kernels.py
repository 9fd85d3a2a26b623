"""A cursor for each posting list of a query, and the best documents so far.

Lists are given as addresses of arrays that the caller keeps alive, a row of `lists` each: a kernel takes any number of
lists, and none of them is copied. Blocks are decoded when a document of theirs is needed; until then the last
document and the highest saturation of a block, which the impacts give, are all that is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numba.core import cgutils
from numba.extending import intrinsic
from numba.types import Array, boolean, float32, int64, uint32, void, voidptr

from pennon.index.arrays import Float32s, Int, Int64s
from pennon.index.compiled import MADE_F32, MADE_I64, compiled
from pennon.index.inverted.postings.decode_kernels import decode_block
from pennon.index.inverted.postings.encode_kernels import BLOCK

# The columns of a row of `lists`.
SIZE, BLOCKS, BYTES, DATA, ENDS, LASTS, BOUNDS, STREAM_BYTES, STREAM, STREAM_STARTS = range(10)
COLUMNS = 10
# The columns of a row of `cursors`: the block at the cursor, the block that is decoded or -1, and the place in it.
AT_BLOCK, DECODED, PLACE = 0, 1, 2
# `counters`: documents offered, blocks decoded, blocks skipped.
OFFERED, READ, SKIPPED = 0, 1, 2
END = 1 << 40

LISTS, CURSORS = Array(int64, 2, "C", readonly=True), int64[:, ::1]
DECODED_BLOCKS = uint32[:, ::1]
HEAP = MADE_F32, MADE_I64, MADE_I64


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return voidptr(address), generate


@compiled(int64(LISTS, int64, int64))
def last_of(lists: Any, term: Int, block: Int) -> Int:
    """The last document of a block."""
    return carray(pointer(lists[term, LASTS]), (lists[term, BLOCKS],), np.int64)[block]


@compiled(float32(LISTS, int64, int64))
def bound_of(lists: Any, term: Int, block: Int) -> np.float32:
    """The highest saturation of a block."""
    return carray(pointer(lists[term, BOUNDS]), (lists[term, BLOCKS],), np.float32)[block]


@compiled(boolean(LISTS, CURSORS, int64, int64))
def seek_block(lists: Any, cursors: Any, term: Int, doc: Int) -> bool:
    """Puts the cursor at the first block with a document that is not before `doc`; False where there is none."""
    low, count = cursors[term, AT_BLOCK], lists[term, BLOCKS]
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
        cursors[term, AT_BLOCK] = high
        return high < count
    return low < count


@compiled(boolean(LISTS, CURSORS, DECODED_BLOCKS, DECODED_BLOCKS, int64, int64, MADE_I64))
def decode_at(lists: Any, cursors: Any, docs: Any, freqs: Any, term: Int, limit: Int, counters: Int64s) -> bool:
    """Decodes the block at the cursor, unless it is decoded; False where it is damaged."""
    block = cursors[term, AT_BLOCK]
    if cursors[term, DECODED] == block:
        return True
    counters[READ] += 1
    count = min(BLOCK, lists[term, SIZE] - block * BLOCK)
    data = carray(pointer(lists[term, DATA]), (lists[term, BYTES],), np.uint8)
    ends = carray(pointer(lists[term, ENDS]), (lists[term, BLOCKS] + 1,), np.int64)
    lowest = last_of(lists, term, block - 1) + 1 if block else 0
    last = last_of(lists, term, block)
    given = data, ends[block], ends[block + 1], count, lowest, min(limit, last + 1)
    if not decode_block(*given, docs[term], freqs[term]) or docs[term, count - 1] != last:
        return False
    cursors[term, DECODED], cursors[term, PLACE] = block, 0
    return True


@compiled(int64(CURSORS, DECODED_BLOCKS, int64, int64))
def seek_doc(cursors: Any, docs: Any, term: Int, doc: Int) -> Int:
    """The first document of the decoded block that is not before `doc`; one exists, as the cursor is at its block."""
    place = cursors[term, PLACE]
    while place + 1 < BLOCK and docs[term, place] < doc:
        place += 1
    cursors[term, PLACE] = place
    return np.int64(docs[term, place])


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


@compiled(float32(MADE_F32, MADE_I64))
def threshold_of(scores: Float32s, counters: Int64s) -> np.float32:
    """The score that a document must exceed."""
    return scores[0] if counters[OFFERED] < 0 else np.float32(-np.inf)
