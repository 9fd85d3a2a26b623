"""The scalar values of JSON documents and the paths to them, straight from their UTF-8 bytes.

A path is the keys that lead to a value with dots between them; elements of an array have the path of the array. Path
and type of a value, `a.b,str,`, are numbered like tokens, in a separate table. `state` has what the next call
continues with:

    0  distinct paths    1  values    2  document    3  bytes of values
"""

from __future__ import annotations

import numpy as np
from numba.types import UniTuple, boolean, int64

from pennon.index.arrays import Bytes, Int, Int32s, Int64s, UInt64s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, MADE_I32, MADE_I64, MADE_U8, MADE_U64, compiled
from pennon.index.inverted.analysis.kernels import hash_bytes, number_of

VALUES, DOCUMENT, USED = 1, 2, 3
# As deep as pylance goes, which refuses deeper documents.
DEEPEST = 127
DONE, NO_ROOM, INVALID, TOO_DEEP = 0, 1, 2, 3

# Types as terms have them, in the order of their numbers.
_SUFFIXES = np.frombuffer(b",str,,number,,bool,,null,", dtype=np.uint8)
_SUFFIX_ENDS = np.array([0, 5, 13, 19, 25])
_STR, _NUMBER, _BOOL, _NULL = 0, 1, 2, 3
_LITERALS = np.frombuffer(b"truefalsenull", dtype=np.uint8)
_BEFORE_VALUE, _BEFORE_KEY, _AFTER_VALUE = 0, 1, 2
_OBJECT, _ARRAY = 0, 1
_QUOTE, _BACKSLASH, _COMMA, _COLON, _DOT, _SLASH = 34, 92, 44, 58, 46, 47


@compiled(int64(GIVEN_U8, int64, int64))
def _hex(data: Bytes, at: Int, end: Int) -> Int:
    """The number of four hexadecimal digits, -1 where they are none."""
    if at + 4 > end:
        return -1
    value = 0
    for place in range(at, at + 4):
        byte = np.int64(data[place])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        value = value << 4 | digit
    return value


@compiled(UniTuple(int64, 2)(GIVEN_U8, int64, int64, MADE_U8, int64))
def _put_string(data: Bytes, at: Int, end: Int, out: Bytes, to: Int) -> tuple[Int, Int]:
    """Writes a string without its escapes, from behind the opening quote on; where it ends in both, -1 where it does
    not. It never has more bytes than there are between its quotes."""
    while at < end:
        byte = np.int64(data[at])
        at += 1
        if byte == _QUOTE:
            return at, to
        if byte < 0x20:
            break
        if byte != _BACKSLASH:
            out[to] = byte
            to += 1
            continue
        if at >= end:
            break
        escape = np.int64(data[at])
        at += 1
        if escape == 117:  # u
            code = _hex(data, at, end)
            at += 4
            if 0xD800 <= code < 0xDC00 and at + 6 <= end and data[at] == _BACKSLASH and data[at + 1] == 117:
                low = _hex(data, at + 2, end)
                at += 6
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) if 0xDC00 <= low < 0xE000 else -1
            if code < 0 or 0xD800 <= code < 0xE000:
                break
            if code < 0x80:
                out[to] = code
                to += 1
            else:
                further = 1 if code < 0x800 else 2 if code < 0x10000 else 3
                out[to] = (0xF00 >> further & 0xFF) | code >> 6 * further
                for place in range(1, further + 1):
                    out[to + place] = 0x80 | (code >> 6 * (further - place) & 0x3F)
                to += further + 1
            continue
        if escape in (_QUOTE, _BACKSLASH, _SLASH):
            out[to] = escape
        elif escape == 98:  # b
            out[to] = 8
        elif escape == 102:  # f
            out[to] = 12
        elif escape == 110:  # n
            out[to] = 10
        elif escape == 114:  # r
            out[to] = 13
        elif escape == 116:  # t
            out[to] = 9
        else:
            break
        to += 1
    return np.int64(-1), np.int64(-1)


@compiled(int64(GIVEN_U8, int64, int64))
def _number_end(data: Bytes, at: Int, end: Int) -> Int:
    """Where a number that starts at a place ends, -1 where none does."""
    start, digits = at, 0
    while at < end:
        byte = np.int64(data[at])
        if 48 <= byte <= 57:
            digits += 1
        elif not (byte == 45 or byte == 43 or byte == _DOT or byte == 101 or byte == 69):  # - + . e E
            break
        at += 1
    first = np.int64(data[start])
    return at if digits and (first == 45 or 48 <= first <= 57) else np.int64(-1)


@compiled(boolean(GIVEN_U8, int64, int64, int64, int64))
def _is_literal(data: Bytes, at: Int, end: Int, first: Int, last: Int) -> bool:
    same = at + last - first <= end
    for place in range(last - first if same else 0):
        same = same and data[at + place] == _LITERALS[first + place]
    return bool(same)


@compiled(int64(GIVEN_U8, int64, int64))
def _skip_spaces(data: Bytes, at: Int, end: Int) -> Int:
    while at < end and (data[at] == 32 or 9 <= data[at] <= 10 or data[at] == 13):
        at += 1
    return at


@compiled(
    int64(
        *(GIVEN_U8, GIVEN_I64, GIVEN_I64),
        *(MADE_U8, MADE_U8, MADE_I64, MADE_I32, MADE_I64),
        *(MADE_U64, MADE_I64, MADE_U8, MADE_I64),
    )
)
def flatten(
    data: Bytes,
    starts: Int64s,
    stops: Int64s,
    path: Bytes,
    out: Bytes,
    value_ends: Int64s,
    value_paths: Int32s,
    document_ends: Int64s,
    slots: UInt64s,
    ends: Int64s,
    arena: Bytes,
    state: Int64s,
) -> Int:
    """The values of documents in their order: bytes in `out`, `value_ends` where each ends in it, from 0,
    `value_paths` the number of its path and type, `document_ends` how many there are up to each document. `path` has
    room for that of any value. `DONE`; `NO_ROOM` in the table of paths; or what is wrong with a document."""
    kinds, lengths = np.empty(DEEPEST, np.uint8), np.empty(DEEPEST, np.int64)
    known = np.empty(4, np.int32)  # numbers of the path so far, for each type; -1 before it was asked for
    for document in range(state[DOCUMENT], len(starts)):
        at, end = starts[document], stops[document]
        count, used = state[VALUES], state[USED]
        depth, length, want, opened = 0, np.int64(0), _BEFORE_VALUE, False
        known[:] = -1
        while True:
            at = _skip_spaces(data, at, end)
            if at >= end:
                if depth or want != _AFTER_VALUE:
                    return INVALID
                break
            byte = np.int64(data[at])
            if (byte == 125 or byte == 93) and (want == _AFTER_VALUE or opened):  # } ]
                if depth == 0 or kinds[depth - 1] != (_OBJECT if byte == 125 else _ARRAY):
                    return INVALID
                depth, want, opened = depth - 1, _AFTER_VALUE, False
                length = lengths[depth]
                known[:] = -1
                at += 1
                continue
            if want == _AFTER_VALUE:
                if depth == 0 or byte != _COMMA:
                    return INVALID
                want = _BEFORE_KEY if kinds[depth - 1] == _OBJECT else _BEFORE_VALUE
                at += 1
                continue
            opened = False
            if want == _BEFORE_KEY:
                if byte != _QUOTE:
                    return INVALID
                length = lengths[depth - 1]
                if length:
                    path[length] = _DOT
                    length += 1
                at, length = _put_string(data, at + 1, end, path, length)
                if at < 0:
                    return INVALID
                at = _skip_spaces(data, at, end)
                if at >= end or data[at] != _COLON:
                    return INVALID
                known[:] = -1
                at, want = at + 1, _BEFORE_VALUE
                continue
            if byte == 123 or byte == 91:  # { [
                if depth == DEEPEST:
                    return TOO_DEEP
                kinds[depth], lengths[depth] = _OBJECT if byte == 123 else _ARRAY, length
                want, opened = _BEFORE_KEY if byte == 123 else _BEFORE_VALUE, True
                depth += 1
                at += 1
                continue
            start = at
            if byte == _QUOTE:
                kind = _STR
                at, used = _put_string(data, at + 1, end, out, used)
            elif byte == 116:
                kind, at = _BOOL, at + 4 if _is_literal(data, at, end, 0, 4) else np.int64(-1)
            elif byte == 102:
                kind, at = _BOOL, at + 5 if _is_literal(data, at, end, 4, 9) else np.int64(-1)
            elif byte == 110:
                kind, at = _NULL, at + 4 if _is_literal(data, at, end, 9, 13) else np.int64(-1)
            else:
                kind, at = _NUMBER, _number_end(data, at, end)
            if at < 0:
                return INVALID
            if kind != _STR:
                out[used : used + at - start] = data[start:at]
                used += at - start
            if known[kind] < 0:
                suffix = _SUFFIXES[_SUFFIX_ENDS[kind] : _SUFFIX_ENDS[kind + 1]]
                whole = length + len(suffix)
                path[length:whole] = suffix
                hashed = hash_bytes(path, 0, whole)
                known[kind] = number_of(path, 0, whole, hashed, slots, ends, arena, state)
                if known[kind] < 0:
                    return NO_ROOM
            value_paths[count] = known[kind]
            value_ends[count + 1] = used
            count += 1
            want = _AFTER_VALUE
        document_ends[document] = count
        state[VALUES], state[USED], state[DOCUMENT] = count, used, document + 1
    return DONE
