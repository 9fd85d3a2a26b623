"""Numbers as bytes: 128 at a time with equal bits each, one by one as varints, and lengths of documents as codes."""

from __future__ import annotations

import numpy as np
from numba.types import UniTuple, int64

from pennon.index.arrays import Bytes, Int, UInt32s
from pennon.index.compiled import GIVEN_U8, GIVEN_U32, MADE_U8, compiled
from pennon.index.memory import put_uint32, uint8_at, unpack_row

GROUP = 128
# The bytes of the longest varint of 32 bits.
VARINT_BYTES = 5


@compiled(int64(int64))
def bits_of(value: Int) -> Int:
    """The bits of a number below 2**63."""
    bits = 0
    while value:
        bits += 1
        value >>= 1
    return bits


@compiled(int64(GIVEN_U32, MADE_U8, int64))
def put_group(values: UInt32s, out: Bytes, at: Int) -> Int:
    """The bits of each of 128 numbers and the numbers; returns where they end."""
    seen = np.uint32(0)
    for place in range(GROUP):
        seen |= values[place]
    width = bits_of(np.int64(seen))
    out[at] = width
    at += 1
    for lane in range(4):
        gathered, have, word = np.uint64(0), 0, at + 4 * lane
        for row in range(32):
            gathered |= np.uint64(values[4 * row + lane]) << np.uint64(have)
            have += width
            if have >= 32:
                for byte in range(4):
                    out[word + byte] = np.uint8((gathered >> np.uint64(8 * byte)) & np.uint64(255))
                gathered >>= np.uint64(32)
                have -= 32
                word += 16
    return at + 16 * width


@compiled(int64(int64, int64, int64, int64), inline=True)
def get_group(data: Int, at: Int, end: Int, values: Int) -> Int:
    """Reads what `put_group` wrote. Bytes and numbers are given by their addresses; returns where the bytes end, -1
    where they would end after `end`."""
    if at >= end:
        return -1
    width = np.int64(uint8_at(data, at))
    at += 1
    if width > 32 or at + 16 * width > end:
        return -1
    if width == 0:
        for place in range(GROUP):
            put_uint32(values, place, 0)
        return at
    for row in range(32):
        low, shift = data + at + 16 * (row * width >> 5), row * width & 31
        unpack_row(low, low + 16 if shift + width > 32 else low, values + 16 * row, shift, width)
    return at + 16 * width


@compiled(int64(MADE_U8, int64, int64))
def put_varint(out: Bytes, at: Int, value: Int) -> Int:
    """Seven bits a byte, lowest first; returns where they end."""
    while value >= 128:
        out[at] = value & 127 | 128
        at += 1
        value >>= 7
    out[at] = value
    return at + 1


@compiled(UniTuple(int64, 2)(GIVEN_U8, int64, int64))
def get_varint(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """A number below 2**35 and where it ends, -1 where it would end after `end` or is larger."""
    value = np.int64(0)
    for place in range(VARINT_BYTES):
        if at >= end:
            break
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at
    return value, -1


@compiled(int64(int64))
def code_of(length: Int) -> Int:
    """Lengths below 8 as they are, others as an exponent and three bits; never of a longer document."""
    bits = bits_of(length)
    return length if bits < 4 else ((length >> (bits - 4)) & 7) | (bits - 3) << 3


@compiled(int64(int64))
def length_of(code: Int) -> Int:
    """The shortest length that has a code."""
    exponent = (code >> 3) - 1
    return code & 7 if exponent < 0 else (code & 7 | 8) << exponent
