"""Tokens of texts, straight from their UTF-8 bytes, numbered by first appearance.

A table of distinct tokens grows with the texts: their bytes one after another in `arena`, their ends in `ends`, and
`slots`, a hash table with open addressing: of each token its hash, then its number, from 1, and whether it is long.
`state` has what the next call continues with:

    0  distinct tokens    1  tokens put into `found`    2  element    3  byte within its text, -1 before the element

A kernel returns False where there is no room for the next token; the caller makes room and calls it again.
"""

from __future__ import annotations

import numpy as np
from numba.types import boolean, int32, int64, uint64, void

from pennon.index.arrays import Bytes, Flags, Int, Int32s, Int64s, UInt64s
from pennon.index.compiled import (
    GIVEN_FLAGS,
    GIVEN_I64,
    GIVEN_U8,
    GIVEN_U64,
    MADE_I32,
    MADE_I64,
    MADE_U8,
    MADE_U64,
    compiled,
)

UNIQUES, FOUND, ELEMENT, BYTE = 0, 1, 2, 3
# Bytes of a token that fit into a word next to their number.
_SHORT = 7
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_LONG, _NUMBER = np.uint64(1 << 32), np.uint64(0xFFFF_FFFF)

_TEXTS = GIVEN_U8, GIVEN_I64, GIVEN_I64
_TABLE = MADE_U64, MADE_I64, MADE_U8
_OUT = MADE_I64, MADE_I32, MADE_I64


@compiled(int64(GIVEN_U8, int64, int64), inline=True)
def _width(data: Bytes, at: Int, end: Int) -> Int:
    """Bytes of the code point at a place; 1 where the bytes are no UTF-8."""
    byte = data[at]
    width = 1 if byte < 0xC2 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
    return width if at + width <= end else 1


@compiled(int64(GIVEN_U8, int64, int64), inline=True)
def _code_point(data: Bytes, at: Int, width: Int) -> Int:
    """0xFFFD where the bytes are no UTF-8."""
    first = np.int64(data[at])
    if width == 1:
        return first if first < 0x80 else np.int64(0xFFFD)
    code = first & (0x7F >> width)
    for further in range(1, width):
        code = (code << 6) | np.int64(data[at + further] & 0x3F)
    return code if code < 0x110000 else np.int64(0xFFFD)


@compiled(uint64(GIVEN_U8, int64), inline=True)
def _word(data: Bytes, at: Int) -> np.uint64:
    """Eight bytes as a number; the compiler makes one load of it."""
    word = np.uint64(data[at]) | np.uint64(data[at + 1]) << np.uint64(8)
    word |= np.uint64(data[at + 2]) << np.uint64(16) | np.uint64(data[at + 3]) << np.uint64(24)
    word |= np.uint64(data[at + 4]) << np.uint64(32) | np.uint64(data[at + 5]) << np.uint64(40)
    return word | np.uint64(data[at + 6]) << np.uint64(48) | np.uint64(data[at + 7]) << np.uint64(56)


@compiled(uint64(GIVEN_U8, int64, int64), inline=True)
def hash_bytes(data: Bytes, start: Int, stop: Int) -> np.uint64:
    """A hash of bytes [start, stop). Of up to `_SHORT` bytes, no two have the same one: their number and they are the
    bits of one word, which is only mixed."""
    mixed, at = np.uint64(0), start
    while at + 8 <= stop:
        mixed = (mixed ^ _word(data, at)) * _ODD
        mixed ^= mixed >> np.uint64(32)
        at += 8
    left, word = stop - at, np.uint64(0)
    if at + 8 <= len(data):
        word = _word(data, at) & ((np.uint64(1) << np.uint64(8 * left)) - np.uint64(1))
    else:
        for place in range(left):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    mixed = (mixed ^ word ^ np.uint64(stop - start) << np.uint64(56)) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


@compiled(int32(GIVEN_U8, int64, int64, uint64, *_TABLE, MADE_I64), inline=True)
def number_of(
    data: Bytes,
    start: Int,
    stop: Int,
    hashed: np.uint64,
    slots: UInt64s,
    ends: Int64s,
    arena: Bytes,
    state: Int64s,
) -> np.int32:
    """The number of a token, a new one where it is not in the table; -1 where there is no room for it."""
    mask, length = len(slots) // 2 - 1, stop - start
    slot = np.int64(hashed) & mask
    long = _LONG if length > _SHORT else np.uint64(0)
    while slots[2 * slot + 1]:
        entry = slots[2 * slot + 1]
        if slots[2 * slot] == hashed and entry & _LONG == long:
            known = np.int64(entry & _NUMBER) - 1
            same = True
            if long:
                first = ends[known]
                same = ends[known + 1] - first == length
                for place in range(length if same else 0):
                    if arena[first + place] != data[start + place]:
                        same = False
                        break
            if same:
                return np.int32(known)
        slot = (slot + 1) & mask
    fresh = state[UNIQUES]
    used = ends[fresh]
    if 4 * fresh + 4 > len(slots) or fresh + 2 > len(ends) or used + length > len(arena):
        return np.int32(-1)
    slots[2 * slot], slots[2 * slot + 1] = hashed, np.uint64(fresh + 1) | long
    arena[used : used + length] = data[start:stop]
    ends[fresh + 1] = used + length
    state[UNIQUES] = fresh + 1
    return np.int32(fresh)


@compiled(boolean(*_TEXTS, GIVEN_FLAGS, *_TABLE, *_OUT))
def encode_words(
    data: Bytes,
    starts: Int64s,
    stops: Int64s,
    in_words: Flags,
    slots: UInt64s,
    ends: Int64s,
    arena: Bytes,
    state: Int64s,
    found: Int32s,
    found_ends: Int64s,
) -> bool:
    """Maximal runs of the code points that `in_words` marks. `found` gets the tokens, `found_ends` how many of them
    there are up to the end of each element."""
    count = state[FOUND]
    for element in range(state[ELEMENT], len(starts)):
        end = stops[element]
        at = max(starts[element], state[BYTE])
        state[BYTE] = -1
        while at < end:
            start = at
            while at < end:
                byte = data[at]
                if byte < 0x80:
                    if not in_words[byte]:
                        break
                    at += 1
                else:
                    width = _width(data, at, end)
                    if not in_words[_code_point(data, at, width)]:
                        break
                    at += width
            if at == start:
                at += _width(data, at, end)
                continue
            number = np.int32(-1)
            if count < len(found):
                hashed = hash_bytes(data, start, at)
                number = number_of(data, start, at, hashed, slots, ends, arena, state)
            if number < 0:
                state[FOUND], state[ELEMENT], state[BYTE] = count, element, start
                return False
            found[count] = number
            count += 1
        found_ends[element] = count
    state[FOUND], state[ELEMENT] = count, len(starts)
    return True


@compiled(boolean(*_TEXTS, *_TABLE, *_OUT))
def encode_whole(
    data: Bytes,
    starts: Int64s,
    stops: Int64s,
    slots: UInt64s,
    ends: Int64s,
    arena: Bytes,
    state: Int64s,
    found: Int32s,
    found_ends: Int64s,
) -> bool:
    """Every element is one token."""
    count = state[FOUND]
    for element in range(state[ELEMENT], len(starts)):
        start, stop = starts[element], stops[element]
        number = np.int32(-1)
        if count < len(found):
            hashed = hash_bytes(data, start, stop)
            number = number_of(data, start, stop, hashed, slots, ends, arena, state)
        if number < 0:
            state[FOUND], state[ELEMENT] = count, element
            return False
        found[count] = number
        count += 1
        found_ends[element] = count
    state[FOUND], state[ELEMENT] = count, len(starts)
    return True


@compiled(boolean(*_TEXTS, int64, int64, boolean, *_TABLE, *_OUT))
def encode_ngrams(
    data: Bytes,
    starts: Int64s,
    stops: Int64s,
    shortest: Int,
    longest: Int,
    prefix_only: bool,
    slots: UInt64s,
    ends: Int64s,
    arena: Bytes,
    state: Int64s,
    found: Int32s,
    found_ends: Int64s,
) -> bool:
    """Runs of `shortest` to `longest` code points, by where they start and then by length."""
    count = state[FOUND]
    for element in range(state[ELEMENT], len(starts)):
        end = stops[element]
        at = max(starts[element], state[BYTE])
        state[BYTE] = -1
        while at < end and not (prefix_only and at > starts[element]):
            stop, points, before = at, 0, count
            while stop < end and points < longest:
                stop += _width(data, stop, end)
                points += 1
                if points < shortest:
                    continue
                number = np.int32(-1)
                if count < len(found):
                    hashed = hash_bytes(data, at, stop)
                    number = number_of(data, at, stop, hashed, slots, ends, arena, state)
                if number < 0:
                    # All the runs that start here come again.
                    state[FOUND], state[ELEMENT], state[BYTE] = before, element, at
                    return False
                found[count] = number
                count += 1
            if points < shortest:
                break
            at += _width(data, at, end)
        found_ends[element] = count
    state[FOUND], state[ELEMENT] = count, len(starts)
    return True


@compiled(void(MADE_U64, GIVEN_U64))
def fill_slots(slots: UInt64s, known: UInt64s) -> None:
    """Puts what is in a hash table into a new, larger one."""
    mask = len(slots) // 2 - 1
    for entry in range(0, len(known), 2):
        if known[entry + 1]:
            slot = np.int64(known[entry]) & mask
            while slots[2 * slot + 1]:
                slot = (slot + 1) & mask
            slots[2 * slot], slots[2 * slot + 1] = known[entry], known[entry + 1]
