"""Compiled kernels for hashing and Bloom filters: a value is hashed and inserted in one pass.

Importing this compiles it, unless an earlier process has cached the result on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import bool_ as boolean
from numba.types import int64, none, uint8, uint16, uint32, uint64

from pennon.index.compiled import compiled, given

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)

_BYTES, _OFFSETS, _MASK, _FILTER = given(uint8), given(int64), given(boolean), uint32[::1]
_WORDS, _HASHES = given(uint32), given(uint64)
_WIDTHS = (uint8, uint16, uint32, uint64)


@compiled(uint64(uint64, int64))
def _rotated(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled(uint64(uint64, uint64))
def _round(state: Any, word: Any) -> Any:
    return _rotated(state + word * P2, 31) * P1


@compiled(uint64(uint64))
def _mixed(state: Any) -> Any:
    state = (state ^ (state >> np.uint64(33))) * P2
    state = (state ^ (state >> np.uint64(29))) * P3
    return state ^ (state >> np.uint64(32))


@compiled(uint64(uint64, int64))
def _hash_word(word: Any, width: Any) -> Any:
    """XXH64 of the `width` low bytes of a word: 1, 2, 4 or 8."""
    state = P5 + np.uint64(width)
    if width == 8:
        state = _rotated(state ^ _round(np.uint64(0), word), 27) * P1 + P4
    elif width == 4:
        state = _rotated(state ^ (word * P1), 23) * P2 + P3
    else:
        for at in range(width):
            state = _rotated(state ^ (((word >> np.uint64(8 * at)) & np.uint64(0xFF)) * P5), 11) * P1
    return _mixed(state)


@compiled(uint64(_BYTES, int64))
def _word_at(data: Any, at: Any) -> Any:
    word = np.uint64(0)
    for byte in range(8):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return word


@compiled(uint64(_BYTES, int64, int64))
def _hash_range(data: Any, start: Any, stop: Any) -> Any:
    """XXH64 of the bytes [start, stop)."""
    length, at = stop - start, start
    if length >= 32:
        a, b, c, d = P1 + P2, P2, np.uint64(0), np.uint64(0) - P1
        while at + 32 <= stop:
            a, b = _round(a, _word_at(data, at)), _round(b, _word_at(data, at + 8))
            c, d = _round(c, _word_at(data, at + 16)), _round(d, _word_at(data, at + 24))
            at += 32
        state = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        for lane in (a, b, c, d):
            state = (state ^ _round(np.uint64(0), lane)) * P1 + P4
    else:
        state = P5
    state += np.uint64(length)
    while at + 8 <= stop:
        state = _rotated(state ^ _round(np.uint64(0), _word_at(data, at)), 27) * P1 + P4
        at += 8
    if at + 4 <= stop:
        word = np.uint64(0)
        for byte in range(4):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        state = _rotated(state ^ (word * P1), 23) * P2 + P3
        at += 4
    while at < stop:
        state = _rotated(state ^ (np.uint64(data[at]) * P5), 11) * P1
        at += 1
    return _mixed(state)


@compiled(none(_FILTER, uint64))
def _insert(words: Any, hash_: Any) -> None:
    first = np.int64(((hash_ >> np.uint64(32)) * np.uint64(len(words) // 8)) >> np.uint64(32)) * 8
    low = np.uint32(hash_ & np.uint64(0xFFFF_FFFF))
    for at in range(8):
        words[first + at] |= np.uint32(1) << (np.uint32(low * SALT[at]) >> np.uint32(27))


@compiled(boolean(_WORDS, int64, int64, uint64))
def _holds(words: Any, start: Any, stop: Any, hash_: Any) -> Any:
    first = start + np.int64(((hash_ >> np.uint64(32)) * np.uint64((stop - start) // 8)) >> np.uint64(32)) * 8
    low = np.uint32(hash_ & np.uint64(0xFFFF_FFFF))
    for at in range(8):
        bit = np.uint32(1) << (np.uint32(low * SALT[at]) >> np.uint32(27))
        if not words[first + at] & bit:
            return False
    return True


@compiled(*(none(given(width), _MASK, _FILTER) for width in _WIDTHS))
def insert_words(values: Any, present: Any, words: Any) -> None:
    for row in range(len(values)):
        if present[row]:
            _insert(words, _hash_word(np.uint64(values[row]), values.itemsize))


@compiled(none(_BYTES, _OFFSETS, _MASK, _FILTER))
def insert_bytes(data: Any, offsets: Any, present: Any, words: Any) -> None:
    for row in range(len(offsets) - 1):
        if present[row]:
            _insert(words, _hash_range(data, offsets[row], offsets[row + 1]))


@compiled(*(uint64[::1](given(width)) for width in _WIDTHS))
def hash_words(values: Any) -> Any:
    found = np.empty(len(values), dtype=np.uint64)
    for row in range(len(values)):
        found[row] = _hash_word(np.uint64(values[row]), values.itemsize)
    return found


@compiled(uint64[::1](_BYTES, _OFFSETS))
def hash_bytes(data: Any, offsets: Any) -> Any:
    found = np.empty(len(offsets) - 1, dtype=np.uint64)
    for row in range(len(found)):
        found[row] = _hash_range(data, offsets[row], offsets[row + 1])
    return found


@compiled(boolean[::1](_WORDS, _OFFSETS, _HASHES))
def may_hold(words: Any, offsets: Any, hashes: Any) -> Any:
    found = np.zeros(len(offsets) - 1, dtype=np.bool_)
    for zone in range(len(found)):
        for hash_ in hashes:
            if _holds(words, offsets[zone], offsets[zone + 1], hash_):
                found[zone] = True
                break
    return found


@compiled(boolean[::1](_WORDS, _OFFSETS, _OFFSETS, _HASHES))
def may_hold_each(words: Any, offsets: Any, filters: Any, hashes: Any) -> Any:
    found = np.zeros(len(hashes), dtype=np.bool_)
    for row in range(len(hashes)):
        zone = filters[row]
        found[row] = _holds(words, offsets[zone], offsets[zone + 1], hashes[row])
    return found
