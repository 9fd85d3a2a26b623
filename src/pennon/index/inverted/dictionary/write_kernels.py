"""Writing a dictionary from sorted keys, byte for byte as pylance does.

Keys arrive in order; the nodes of the last one are unfinished, a row each of `inputs`, `outputs` and `targets` and one
pending transition as well. What a new key does not share is written, deepest node first. Outputs are pushed towards the
root as far as keys agree on them. Nodes equal to one that was recently written are shared: a table of 10,000 buckets
has the addresses of the last two nodes of each.
"""

from __future__ import annotations

import numpy as np
from numba.types import boolean, int64

from pennon.index.arrays import Bytes, Int, Int64s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, MADE_I64, MADE_U8, compiled
from pennon.index.inverted.dictionary.node_kernels import FREQUENT, HEADER, read_node, read_transition

_BUCKETS = 10_000
_NODE = MADE_U8, MADE_I64, MADE_I64, int64, int64
_COMMON = np.zeros(256, dtype=np.uint8)
_COMMON[FREQUENT] = np.arange(1, len(FREQUENT) + 1)


@compiled(int64(int64))
def _size(value: Int) -> Int:
    """Bytes of a number, at least one."""
    size = 1
    while value >= 256:
        value >>= 8
        size += 1
    return size


@compiled(int64(MADE_U8, int64, int64, int64))
def _put(out: Bytes, at: Int, value: Int, size: Int) -> Int:
    for place in range(size):
        out[at + place] = (value >> (8 * place)) & 255
    return at + size


@compiled(int64(MADE_U8, int64, int64, *_NODE))
def _write_node(
    out: Bytes,
    start: Int,
    previous: Int,
    inputs: Bytes,
    outputs: Int64s,
    targets: Int64s,
    count: Int,
    final_output: Int,
) -> Int:
    """Where the bytes of a node end that start at `start`; its address is the byte before. A `final_output` of -1 is
    that of a node in which no key ends."""
    at = start
    if count == 1 and final_output < 0:
        common = _COMMON[inputs[0]]
        if targets[0] == previous and outputs[0] == 0:
            if common == 0:
                out[at] = inputs[0]
                at += 1
            out[at] = 0xC0 | common
            return at + 1
        size = _size(outputs[0]) if outputs[0] else 0
        at = _put(out, at, outputs[0], size)
        distance = start - targets[0] if targets[0] else 0
        far = _size(distance)
        at = _put(out, at, distance, far)
        out[at] = far << 4 | size
        at += 1
        if common == 0:
            out[at] = inputs[0]
            at += 1
        out[at] = 0x80 | common
        return at + 1
    far, size, any_output = 0, _size(max(final_output, 0)), final_output > 0
    for place in range(count):
        far = max(far, _size(start - targets[place] if targets[place] else 0))
        size = max(size, _size(outputs[place]))
        any_output |= outputs[place] != 0
    if any_output:
        if final_output >= 0:
            at = _put(out, at, final_output, size)
        for place in range(count - 1, -1, -1):
            at = _put(out, at, outputs[place], size)
    else:
        size = 0
    for place in range(count - 1, -1, -1):
        at = _put(out, at, start - targets[place] if targets[place] else 0, far)
    for place in range(count - 1, -1, -1):
        out[at] = inputs[place]
        at += 1
    if count > 32:
        out[at : at + 256] = 255
        for place in range(count):
            out[at + inputs[place]] = place
        at += 256
    out[at] = far << 4 | size
    at += 1
    if count == 0 or count > 63:
        out[at] = 1 if count == 256 else count
        at += 1
    out[at] = (64 if final_output >= 0 else 0) | (count if count <= 63 else 0)
    return at + 1


@compiled(boolean(MADE_U8, int64, *_NODE))
def _is_node(
    out: Bytes, address: Int, inputs: Bytes, outputs: Int64s, targets: Int64s, count: Int, final_output: Int
) -> bool:
    """Whether the node at an address is the one given."""
    node = read_node(out, address)
    if node[0] != count or (node[2] if node[1] else -1) != final_output:
        return False
    for place in range(count):
        symbol, output, target = read_transition(out, node, place)
        if symbol != inputs[place] or output != outputs[place] or target != targets[place]:
            return False
    return True


@compiled(int64(*_NODE))
def _bucket(inputs: Bytes, outputs: Int64s, targets: Int64s, count: Int, final_output: Int) -> Int:
    mixed, prime = np.uint64(14695981039346656037), np.uint64(1099511628211)
    mixed = (mixed ^ np.uint64(final_output >= 0)) * prime
    mixed = (mixed ^ np.uint64(max(final_output, 0))) * prime
    for place in range(count):
        mixed = (mixed ^ np.uint64(inputs[place])) * prime
        mixed = (mixed ^ np.uint64(outputs[place])) * prime
        mixed = (mixed ^ np.uint64(targets[place])) * prime
    return np.int64(mixed % np.uint64(_BUCKETS))


@compiled(int64(MADE_U8, MADE_I64, MADE_I64, *_NODE))
def _freeze(
    out: Bytes,
    progress: Int64s,
    recent: Int64s,
    inputs: Bytes,
    outputs: Int64s,
    targets: Int64s,
    count: Int,
    final_output: Int,
) -> Int:
    """The address of a node that is complete: of an equal one, or written now. `progress` has where the bytes end and
    the address of the node before."""
    if count == 0 and final_output == 0:
        return 0
    first = 2 * _bucket(inputs, outputs, targets, count, final_output)
    if recent[first] and _is_node(out, recent[first], inputs, outputs, targets, count, final_output):
        return recent[first]
    if recent[first + 1] and _is_node(out, recent[first + 1], inputs, outputs, targets, count, final_output):
        recent[first], recent[first + 1] = recent[first + 1], recent[first]
        return recent[first]
    end = _write_node(out, progress[0], progress[1], inputs, outputs, targets, count, final_output)
    progress[0], progress[1] = end, end - 1
    recent[first], recent[first + 1] = end - 1, recent[first]
    return end - 1


@compiled(int64(GIVEN_U8, GIVEN_I64, GIVEN_I64, MADE_U8, int64, int64))
def write_dictionary(keys: Bytes, ends: Int64s, values: Int64s, out: Bytes, longest: Int, most: Int) -> Int:
    """Where the bytes end, but for the checksum. `longest` is the length of the longest key, `most` a bound for the
    transitions of unfinished nodes."""
    # Of the node at each depth: where its transitions start, how many there are, the output of a key that ends there,
    # and the transition to the next depth, which is not among them yet. Only the deepest node gets transitions, so
    # those of all depths are one stack.
    firsts, counts = np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64)
    finals = np.full(longest + 1, -1, np.int64)
    pending, pending_output = np.full(longest + 1, -1, np.int64), np.zeros(longest + 1, np.int64)
    inputs, outputs, targets = np.empty(most, np.uint8), np.empty(most, np.int64), np.empty(most, np.int64)
    recent = np.zeros(2 * _BUCKETS, np.int64)
    progress = np.array([HEADER, 1])
    _put(out, 0, 3, 8)
    _put(out, 8, 0, 8)
    depth, last = 0, len(ends) - 1
    for key in range(last + 1):
        start = ends[key] if key < last else 0
        length = ends[key + 1] - start if key < last else 0
        value = values[key] if key < last else 0
        shared = 0
        while shared < length and pending[shared] == keys[start + shared]:
            common = min(pending_output[shared], value)
            pushed = pending_output[shared] - common
            pending_output[shared] = common
            value -= common
            shared += 1
            if pushed:
                if finals[shared] >= 0:
                    finals[shared] += pushed
                for place in range(firsts[shared], firsts[shared] + counts[shared]):
                    outputs[place] += pushed
                if pending[shared] >= 0:
                    pending_output[shared] += pushed
        while depth > shared:
            at, count = firsts[depth], counts[depth]
            node = inputs[at : at + count], outputs[at : at + count], targets[at : at + count]
            address = _freeze(out, progress, recent, *node, count, finals[depth])
            counts[depth], finals[depth] = 0, -1
            depth -= 1
            at = firsts[depth] + counts[depth]
            inputs[at], outputs[at], targets[at] = pending[depth], pending_output[depth], address
            counts[depth] += 1
            pending[depth] = -1
        if key == last:
            break
        if length == 0:
            finals[0] = value
            continue
        for place in range(shared, length):
            pending[place] = keys[start + place]
            pending_output[place] = value if place == shared else 0
            firsts[place + 1] = firsts[place] + counts[place]
        depth = length
        finals[depth] = 0
    count = counts[0]
    root = _freeze(out, progress, recent, inputs[:count], outputs[:count], targets[:count], count, finals[0])
    return _put(out, _put(out, progress[0], last, 8), root, 8)


@compiled(int64(GIVEN_U8, int64))
def checksum(data: Bytes, count: Int) -> Int:
    """CRC-32C of the first bytes, masked as the format has it."""
    table = np.empty(256, np.uint32)
    for byte in range(256):
        item = np.uint32(byte)
        for _ in range(8):
            item = (item >> np.uint32(1)) ^ (np.uint32(0x82F63B78) if item & np.uint32(1) else np.uint32(0))
        table[byte] = item
    crc = np.uint32(0xFFFFFFFF)
    for at in range(count):
        crc = table[(crc ^ np.uint32(data[at])) & np.uint32(255)] ^ (crc >> np.uint32(8))
    plain = np.int64(crc ^ np.uint32(0xFFFFFFFF))
    return (((plain >> 15) | (plain << 17)) + 0xA282EAD8) & 0xFFFFFFFF
