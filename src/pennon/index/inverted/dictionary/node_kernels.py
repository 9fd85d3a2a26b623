"""Reading one node of a dictionary. Everything is checked against the bytes there are: they may be damaged."""

from __future__ import annotations

import numpy as np
from numba.types import UniTuple, int64

from pennon.index.arrays import Bytes, Int
from pennon.index.compiled import GIVEN_U8, compiled

HEADER = 16
FOOTER = 20
FREQUENT = np.frombuffer(b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG", dtype=np.uint8)

# Of a node: transitions (-1: damaged), whether a key ends, its output, where inputs, distances and outputs end, the
# bytes of a distance and of an output, the byte before the node; a node with one transition has its parts in place of
# the three ends: input, distance, output.
NODE = UniTuple(int64, 9)
DAMAGED = (-1, 0, 0, 0, 0, 0, 0, 0, 0)


@compiled(int64(GIVEN_U8, int64, int64))
def little_endian(data: Bytes, at: Int, size: Int) -> Int:
    """A number of up to 8 bytes; -1 where it is none below 2**63."""
    value = np.uint64(0)
    for place in range(size):
        value |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return np.int64(value) if value < np.uint64(1 << 63) else np.int64(-1)


@compiled(NODE(GIVEN_U8, int64))
def read_node(data: Bytes, address: Int) -> tuple[Int, Int, Int, Int, Int, Int, Int, Int, Int]:
    """The shape of the node at an address."""
    if address == 0:
        return (0, 1, 0, 0, 0, 0, 0, 0, 0)
    if address < HEADER or address >= len(data) - FOOTER:
        return DAMAGED
    state = np.int64(data[address])
    at = address  # one past the byte that is next to be read, going back
    if state >= 0x80:
        common = state & 63
        if common:
            symbol = np.int64(FREQUENT[common - 1])
        else:
            at -= 1
            symbol = np.int64(data[at])
        if state >= 0xC0:
            return (1, 0, 0, symbol, 1, 0, -1, 0, at)
        at -= 1
        sizes = np.int64(data[at])
        far, out = sizes >> 4, sizes & 15
        if far > 8 or out > 8 or at - far - out < HEADER:
            return DAMAGED
        distance = little_endian(data, at - far, far)
        output = little_endian(data, at - far - out, out)
        if distance < 0 or output < 0:
            return DAMAGED
        return (1, 0, 0, symbol, distance, output, -1, 0, at - far - out)
    final, count = state >> 6 & 1, state & 63
    if count == 0:
        at -= 1
        count = np.int64(data[at])
        if count == 1:
            count = np.int64(256)
    at -= 1
    sizes = np.int64(data[at])
    far, out = sizes >> 4, sizes & 15
    if count > 32:
        at -= 256
    inputs = at
    distances = inputs - count
    outputs = distances - count * far
    end = outputs - count * out - final * out
    if far > 8 or out > 8 or end < HEADER:
        return DAMAGED
    output = little_endian(data, end, out) if final and out else np.int64(0)
    if output < 0:
        return DAMAGED
    return (count, final, output, inputs, distances, outputs, far, out, end)


@compiled(UniTuple(int64, 3)(GIVEN_U8, NODE, int64))
def read_transition(
    data: Bytes, node: tuple[Int, Int, Int, Int, Int, Int, Int, Int, Int], place: Int
) -> tuple[Int, Int, Int]:
    """Input, output and target of a transition; a target of -1 where it is damaged."""
    _, _, _, inputs, distances, outputs, far, out, end = node
    if far < 0:
        # One transition: the parts are in the places of the ends.
        symbol, distance, output = inputs, distances, outputs
    else:
        symbol = np.int64(data[inputs - place - 1])
        distance = little_endian(data, distances - (place + 1) * far, far)
        output = little_endian(data, outputs - (place + 1) * out, out)
    if distance == 0:
        return symbol, output, np.int64(0)
    target = end - distance
    if distance < 0 or output < 0 or target < HEADER:
        return symbol, np.int64(0), np.int64(-1)
    return symbol, output, target
