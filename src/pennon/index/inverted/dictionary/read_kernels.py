"""Reading a dictionary: one key, all of them, or those near to a word. Damaged bytes never lead outside of it."""

from __future__ import annotations

import numpy as np
from numba.types import UniTuple, int64

from pennon.index.arrays import Bytes, Int, Int64s
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, MADE_I64, MADE_U8, compiled
from pennon.index.inverted.dictionary.node_kernels import read_node, read_transition

ABSENT, DAMAGED, NO_ROOM = -1, -2, -3


@compiled(int64(GIVEN_U8, int64, GIVEN_U8))
def find(data: Bytes, root: Int, key: Bytes) -> Int:
    """The value of a key, `ABSENT` or `DAMAGED`."""
    value, node = 0, read_node(data, root)
    for byte in key:
        if node[0] < 0:
            return DAMAGED
        target = np.int64(-2)
        for place in range(node[0]):
            symbol, output, next_ = read_transition(data, node, place)
            if symbol == byte:
                value, target = value + output, next_
                break
        if target == -2:
            return ABSENT
        if target < 0:
            return DAMAGED
        node = read_node(data, target)
    if node[0] < 0:
        return DAMAGED
    return value + node[2] if node[1] else ABSENT


@compiled(UniTuple(int64, 2)(GIVEN_U8, int64, MADE_U8, MADE_I64, MADE_I64))
def list_all(data: Bytes, root: Int, keys: Bytes, ends: Int64s, values: Int64s) -> tuple[Int, Int]:
    """All keys in order and their values: how many there are and how many bytes they have. `DAMAGED` or `NO_ROOM`
    instead of the first; a damaged dictionary can have more keys than any room would do for."""
    deepest = 64
    addresses, places, sums = np.empty(deepest, np.int64), np.zeros(deepest, np.int64), np.zeros(deepest, np.int64)
    path = np.empty(deepest, np.uint8)
    addresses[0], depth, count, used = root, 0, 0, 0
    while depth >= 0:
        node = read_node(data, addresses[depth])
        if node[0] < 0:
            return DAMAGED, used
        if places[depth] == 0 and node[1]:
            if count + 1 >= len(ends) or used + depth > len(keys):
                return NO_ROOM, used
            keys[used : used + depth] = path[:depth]
            used += depth
            values[count] = sums[depth] + node[2]
            count += 1
            ends[count] = used
        if places[depth] == node[0]:
            depth -= 1
            continue
        symbol, output, target = read_transition(data, node, places[depth])
        if target < 0:
            return DAMAGED, used
        places[depth] += 1
        if depth + 1 == deepest:
            deepest *= 2
            addresses = np.concatenate((addresses, np.empty_like(addresses)))
            places = np.concatenate((places, np.zeros_like(places)))
            sums = np.concatenate((sums, np.zeros_like(sums)))
            path = np.concatenate((path, np.empty_like(path)))
        path[depth] = symbol
        depth += 1
        addresses[depth], places[depth], sums[depth] = target, 0, sums[depth - 1] + output
    return count, used


@compiled(int64(GIVEN_U8, int64, GIVEN_I64, int64, int64, MADE_U8, MADE_I64, MADE_I64))
def find_near(
    data: Bytes, root: Int, word: Int64s, distance: Int, prefix: Int, keys: Bytes, ends: Int64s, values: Int64s
) -> Int:
    """The first keys, as many as there is room for, within an edit distance of a word and with its first `prefix`
    characters. Characters are code points. The number of keys, `DAMAGED` or `NO_ROOM`.

    Rows of the edit distance between the path and every prefix of the word, one per character of the path; a path
    goes no further than the distance allows, so no deeper than the word is long and the distance beyond.
    """
    width = len(word) + 1
    deepest = len(word) + distance + 2
    rows = np.empty((deepest, width), np.int64)
    rows[0] = np.arange(width)
    # Up to four bytes for each character.
    addresses, places = np.empty(4 * deepest, np.int64), np.zeros(4 * deepest, np.int64)
    sums, path = np.zeros(4 * deepest, np.int64), np.empty(4 * deepest, np.uint8)
    characters, codes = np.zeros(4 * deepest, np.int64), np.zeros(4 * deepest, np.int64)
    missing = np.zeros(4 * deepest, np.int64)  # bytes that the character begun at a depth still needs
    addresses[0], depth, count, used = root, 0, 0, 0
    while depth >= 0 and count + 1 < len(ends):
        node = read_node(data, addresses[depth])
        if node[0] < 0:
            return DAMAGED
        whole = node[1] and missing[depth] == 0 and characters[depth] >= prefix
        if places[depth] == 0 and whole and rows[characters[depth], width - 1] <= distance:
            if used + depth > len(keys):
                return NO_ROOM
            keys[used : used + depth] = path[:depth]
            used += depth
            values[count] = sums[depth] + node[2]
            count += 1
            ends[count] = used
        if places[depth] == node[0]:
            depth -= 1
            continue
        symbol, output, target = read_transition(data, node, places[depth])
        if target < 0:
            return DAMAGED
        places[depth] += 1
        if depth + 1 == len(addresses):
            continue
        if missing[depth] == 0:
            size = 1 if symbol < 0xC2 else 2 if symbol < 0xE0 else 3 if symbol < 0xF0 else 4
            code = symbol if size == 1 else symbol & (0x7F >> size)
            left = size - 1
        else:
            code, left = codes[depth] << 6 | (symbol & 0x3F), missing[depth] - 1
        number = characters[depth]
        if left == 0:
            if number + 1 == deepest or (number < prefix and word[number] != code):
                continue
            best = rows[number + 1, 0] = number + 1
            for at in range(1, width):
                edits = rows[number, at - 1] + (0 if word[at - 1] == code else 1)
                edits = min(edits, rows[number, at] + 1, rows[number + 1, at - 1] + 1)
                rows[number + 1, at] = edits
                best = min(best, edits)
            if best > distance:
                continue
            number += 1
        path[depth] = symbol
        depth += 1
        addresses[depth], places[depth], sums[depth] = target, 0, sums[depth - 1] + output
        characters[depth], codes[depth], missing[depth] = number, code, left
    return count
