"""Trigrams of texts, directly from their UTF-8 bytes, and the rows of each in order.

Tokens are counted while texts are read, each once per row; then the number of every row is put into the lists of its
tokens, so that only the distinct tokens are sorted. `state` is kept between calls:

    0  tokens in `found`    1  distinct tokens in `seen`

Importing this compiles it, unless an earlier process has cached the result on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba.types import int64, void

from pennon.index.arrays import Bytes, Flags, Int16s, Int32s, Int64s, UInt32s
from pennon.index.compiled import (
    GIVEN_FLAGS,
    GIVEN_I16,
    GIVEN_I32,
    GIVEN_I64,
    GIVEN_U8,
    GIVEN_U32,
    MADE_I64,
    MADE_U32,
    compiled,
)

FOUND, SEEN = 0, 1
# The maximum number of letters per byte of text: one character of 3 bytes becomes 5.
LETTERS_PER_BYTE = 2


@compiled(
    int64(
        GIVEN_U8, GIVEN_I64, GIVEN_FLAGS, int64, int64, GIVEN_I16, GIVEN_I16, GIVEN_I32,
        MADE_U32, MADE_U32, MADE_U32, MADE_U32, MADE_I64, MADE_I64,
    )
)  # fmt: skip
def find_tokens(
    data: Bytes,
    offsets: Int64s,
    present: Flags,
    first: int,
    row: int,
    number_of: Int16s,
    codes: Int16s,
    bounds: Int32s,
    counts: UInt32s,
    last: UInt32s,
    found: UInt32s,
    seen: UInt32s,
    ends: Int64s,
    state: Int64s,
) -> int:
    """Find the tokens of texts from `first` on while there is room, and return the number of texts read.

    `row` is the number of the first of them; `ends` gets the end of the tokens of each row in `found`. `counts` and
    `last` are by token: its rows, and the last of them plus one. NULL has token 0.
    """
    tokens, distinct = state[FOUND], state[SEEN]
    texts = len(offsets) - 1
    for text in range(first, texts):
        start, stop = offsets[text], offsets[text + 1]
        if tokens + LETTERS_PER_BYTE * (stop - start) + 1 > len(found):
            state[FOUND], state[SEEN] = tokens, distinct
            return text - first
        mark = np.uint32(row + 1)
        if not present[text]:
            if counts[0] == 0:
                seen[distinct] = 0
                distinct += 1
            counts[0] += np.uint32(1)
            last[0] = mark
            found[tokens] = 0
            tokens += 1
            stop = start
        before, middle, run = 0, 0, 0
        at = start
        while at < stop:
            byte = np.int64(data[at])
            width = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            point = byte
            if width > 1:
                point = byte & (0x7F >> width)
                for further in range(at + 1, min(at + width, stop)):
                    point = (point << 6) | np.int64(data[further] & 0x3F)
            elif byte >= 0x80:
                point = len(number_of)
            at += width
            number = np.int64(number_of[point]) if point < len(number_of) else np.int64(-1)
            if number < 0:
                run = 0
                continue
            for place in range(bounds[number], bounds[number + 1]):
                code = np.int64(codes[place])
                if code < 0:
                    run = 0
                    continue
                if run >= 2:
                    token = before * 1369 + middle * 37 + code
                    if last[token] != mark:
                        last[token] = mark
                        if counts[token] == 0:
                            seen[distinct] = np.uint32(token)
                            distinct += 1
                        counts[token] += np.uint32(1)
                        found[tokens] = np.uint32(token)
                        tokens += 1
                before, middle = middle, code
                run += 1
        ends[row] = tokens
        row += 1
    state[FOUND], state[SEEN] = tokens, distinct
    return texts - first


@compiled(void(GIVEN_U32, GIVEN_I64, GIVEN_I64, GIVEN_U32, MADE_I64, MADE_U32))
def place_rows(
    found: UInt32s, ends: Int64s, order: Int64s, values: UInt32s, places: Int64s, rows: npt.NDArray[np.uint32]
) -> None:
    """Append the value of each row, taken in `order`, to the list of each of its tokens."""
    for row in order:
        start = ends[row - 1] if row else 0
        for at in range(start, ends[row]):
            token = found[at]
            rows[places[token]] = values[row]
            places[token] += 1
