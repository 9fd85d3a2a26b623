"""The byte layout of RaBitQ codes in their columns.

`_rabit_codes` has one bit per dimension, dimension i in bit i % 8 of byte i // 8. Packed, as pylance does, the bytes
of a partition are rearranged in blocks of 32 rows for its vector instructions: per byte of the code there are 16 bytes
with the low halves of the block's rows and 16 with the high halves, byte j of each holding row ORDER[j] in its low and
row ORDER[j] + 16 in its high half. Rows beyond the last whole block follow byte by byte, `[bytes][rows]`.

`__blocked_ex_codes` has the further 1 to 8 bits of multi-bit codes. It cuts the dimensions into blocks of 64, zero
padded, of 8 bytes per bit. With v[i] the value of dimension i of a block, k = 0..3 its run of 16 dimensions and
b = 0..15 the place in the run:

    1 bit   8 bytes, bit i is v[i]
    2 bits  byte b is v[b] | v[16+b] << 2 | v[32+b] << 4 | v[48+b] << 6
    4 bits  byte 8k+b, b < 8, is v[16k+b] | v[16k+8+b] << 4
    5 bits  byte b is v[b] | v[16+b] << 4 and byte 16+b is v[32+b] | v[48+b] << 4, of the low 4 bits; top plane
    6 bits  byte 16k+b, k < 3, is v[16k+b] | (v[48+b] >> 2k & 3) << 6
    8 bits  byte i is v[i]

3 and 7 bits are the low 2 and 6 bits, then the top plane: 8 bytes with the top bit of dimension 16k+b at bit
8 * (b % 8) + 2k + b // 8. An older column `__ex_codes` is a plain stream of bits, lowest first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.vectors import Codes

# numpy's stubs type a shift by a plain number as a signed integer.
Bytes = npt.NDArray[Any]

BLOCK_ROWS = 32
ORDER = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
_ORDER_PAIR = np.concatenate([ORDER, ORDER + 16])

BLOCK = 64
_TOP_BIT = np.array([8 * (b % 8) + 2 * k + b // 8 for k in range(4) for b in range(16)])


def pack_rows(codes: Codes) -> Bytes:
    """The code bytes of one partition, [n, bytes], in blocks of 32 rows."""
    count, width = codes.shape
    whole = count - count % BLOCK_ROWS
    blocks = codes[:whole].reshape(-1, BLOCK_ROWS, width).transpose(0, 2, 1)[:, :, _ORDER_PAIR]
    first, second = blocks[:, :, :16], blocks[:, :, 16:]
    packed = np.concatenate([first & 15 | second << 4, first >> 4 | second & 0xF0], axis=2)
    return np.concatenate([packed.reshape(-1), codes[whole:].T.reshape(-1)]).reshape(count, width)


def unpack_rows(packed: Codes) -> Codes:
    count, width = packed.shape
    whole = count - count % BLOCK_ROWS
    halves = packed[:whole].reshape(-1, width, 2, 16)
    low, high = halves[:, :, 0], halves[:, :, 1]
    blocks = np.empty((len(halves), width, BLOCK_ROWS), dtype=np.uint8)
    blocks[:, :, _ORDER_PAIR] = np.concatenate([low & 15 | high << 4, low >> 4 | high & 0xF0], axis=2)
    rest = packed[whole:].reshape(width, count - whole).T
    return np.concatenate([blocks.transpose(0, 2, 1).reshape(whole, width), rest])


def blocked_width(dim: int, bits: int) -> int:
    return -(-dim // BLOCK) * 8 * bits


def pack_blocked(values: Codes, bits: int) -> Codes:
    """[n, dim] values below 2^bits as [n, blocked_width]."""
    count, dim = values.shape
    padded = np.zeros((count, -(-dim // BLOCK) * BLOCK), dtype=np.uint8)
    padded[:, :dim] = values
    blocks = padded.reshape(-1, BLOCK)
    low = bits - 1 if bits in (3, 5, 7) else bits
    parts = [_pack_low(blocks.reshape(-1, 4, 16) & np.uint8((1 << low) - 1), bits)]
    if low != bits:
        plane = np.zeros_like(blocks)
        plane[:, _TOP_BIT] = blocks >> low
        parts.append(np.packbits(plane, axis=1, bitorder="little"))
    return np.concatenate(parts, axis=1).reshape(count, blocked_width(dim, bits))


def unpack_blocked(packed: Codes, bits: int, dim: int) -> Codes:
    blocks = packed.reshape(-1, 8 * bits)
    low = bits - 1 if bits in (3, 5, 7) else bits
    values = _unpack_low(blocks[:, : 8 * low], bits).reshape(-1, BLOCK)
    if low != bits:
        values |= np.unpackbits(blocks[:, 8 * low :], axis=1, bitorder="little")[:, _TOP_BIT] << np.uint8(low)
    return np.ascontiguousarray(values.reshape(len(packed), -(-dim // BLOCK) * BLOCK)[:, :dim])


def unpack_stream(stream: Codes, bits: int, dim: int) -> Codes:
    """[n, bytes] of consecutive values, lowest bit first, as [n, dim]."""
    planes = np.unpackbits(stream, axis=1, count=dim * bits, bitorder="little")
    return np.packbits(planes.reshape(-1, bits), axis=1, bitorder="little").reshape(len(stream), dim)


def _pack_low(runs: Bytes, bits: int) -> Bytes:
    """[blocks, 4 runs, 16] of values, without their top bit if it has a separate plane."""
    first, second, third, fourth = (runs[:, k] for k in range(4))
    if bits == 1:
        return np.packbits(runs.reshape(-1, BLOCK), axis=1, bitorder="little")
    if bits in (2, 3):
        return first | second << 2 | third << 4 | fourth << 6
    if bits == 4:
        return (runs[:, :, :8] | runs[:, :, 8:] << 4).reshape(-1, 32)
    if bits == 5:
        return np.concatenate([first | second << 4, third | fourth << 4], axis=1)
    if bits in (6, 7):
        return np.concatenate([runs[:, k] | (fourth >> 2 * k & 3) << 6 for k in range(3)], axis=1)
    return runs.reshape(-1, BLOCK)


def _unpack_low(blocks: Bytes, bits: int) -> Bytes:
    if bits == 1:
        return np.unpackbits(blocks, axis=1, bitorder="little")
    if bits in (2, 3):
        return np.stack([blocks >> 2 * k & 3 for k in range(4)], axis=1)
    if bits == 4:
        halves = blocks.reshape(-1, 4, 8)
        return np.concatenate([halves & 15, halves >> 4], axis=2)
    if bits == 5:
        halves = blocks.reshape(-1, 2, 16)
        return np.stack([halves & 15, halves >> 4], axis=2)
    if bits in (6, 7):
        thirds = blocks.reshape(-1, 3, 16)
        fourth = thirds[:, 0] >> 6 | thirds[:, 1] >> 6 << 2 | thirds[:, 2] >> 6 << 4
        return np.concatenate([thirds & 63, fourth[:, None]], axis=1)
    return blocks.copy()
