"""Sorting byte strings by the words of eight bytes that they consist of; compiled.

Strings are given by their bytes, one after another, and the offset of each, and of the end. Rows are sorted by their
first word; those that share it by the second, and so on, depth first: what a string has next is then still in the
caches. Past its end a string is continued by zeros; of strings that differ only in those, the shortest comes first.
"""

from __future__ import annotations

import numpy as np
from numba.types import boolean, int64, uint16, uint64, void

from pennon.index.arrays import Bytes, Int, Int64s, UInt16s, UInt64s, Word
from pennon.index.compiled import GIVEN_I64, GIVEN_U8, MADE_I64, MADE_U8, MADE_U64, compiled
from pennon.index.memory import address_of, big_endian_at, fetch_ahead, put_word, uint8_at, word_from
from pennon.index.radix_kernels import sort_pairs

WORD = 8
# Strings that are looked for in advance: their bytes, and before that their offsets.
AHEAD = 16


@compiled(uint64(int64, int64, int64))
def short_word(data: Int, at: Int, left: Int) -> Word:
    """Bytes from a place on as the word they begin, of data that have fewer than a word has."""
    word = np.uint64(0)
    for byte in range(left):
        word |= np.uint64(uint8_at(data, at + byte)) << np.uint64(8 * (WORD - 1 - byte))
    return word


@compiled(uint64(int64, int64, int64, int64, int64), inline=True)
def word_at(data: Int, size: Int, start: Int, length: Int, depth: Int) -> Word:
    """The word at a depth of a string, of data that are given by their address and size."""
    left, at = length - depth, start + depth
    if left <= 0:
        return np.uint64(0)
    if at + WORD <= size:
        word = big_endian_at(data, at)
    else:
        # The last bytes of the data: read those that end with them.
        back = at + WORD - size
        if size >= WORD:
            word = big_endian_at(data, size - WORD) << np.uint64(8 * back)
        else:
            return short_word(data, at, left)
    if left < WORD:
        drop = np.uint64(8 * (WORD - left))
        word = (word >> drop) << drop
    return word


@compiled(void(GIVEN_U8, GIVEN_I64, MADE_U64))
def first_words(data: Bytes, offsets: Int64s, words: UInt64s) -> None:
    address, size = address_of(data), len(data)
    for row in range(len(words)):
        words[row] = word_at(address, size, offsets[row], offsets[row + 1] - offsets[row], 0)


@compiled(int64(MADE_U64, int64, int64, int64, MADE_I64, int64), inline=True)
def push_ties(pairs: UInt64s, start: Int, stop: Int, depth: Int, waiting: Int64s, left: Int) -> Int:
    """Append the groups of equal words in sorted pairs [start, stop), with the depth to sort them at."""
    place = start
    while place < stop:
        end = place + 1
        while end < stop and pairs[2 * end] == pairs[2 * place]:
            end += 1
        if end - place > 1:
            waiting[3 * left], waiting[3 * left + 1], waiting[3 * left + 2] = place, end, depth
            left += 1
        place = end
    return left


@compiled(void(MADE_U64, MADE_U64, GIVEN_I64, int64, int64, MADE_I64, GIVEN_U8, GIVEN_I64, MADE_I64, MADE_I64))
def sort_string_buckets(
    pairs: UInt64s,
    spare: UInt64s,
    buckets: Int64s,
    first: Int,
    last: Int,
    counts: Int64s,
    data: Bytes,
    offsets: Int64s,
    waiting: Int64s,
    rows: Int64s,
) -> None:
    """Sort buckets [first, last) of pairs of a first word and a row, and write the rows. `waiting` has room for three
    numbers of every second row of the largest bucket."""
    address, size, edges = address_of(data), len(data), address_of(offsets)
    random = 1
    for bucket in range(first, last):
        start, stop = buckets[bucket], buckets[bucket + 1]
        random = sort_pairs(pairs, spare, start, stop, counts, random)
        left = push_ties(pairs, start, stop, WORD, waiting, 0)
        while left:
            left -= 1
            start, stop, depth = waiting[3 * left], waiting[3 * left + 1], waiting[3 * left + 2]
            longest = 0
            for place in range(start, stop):
                if place + 2 * AHEAD < stop:
                    fetch_ahead(edges + WORD * np.int64(pairs[2 * (place + 2 * AHEAD) + 1]))
                if place + AHEAD < stop:
                    fetch_ahead(address + offsets[np.int64(pairs[2 * (place + AHEAD) + 1])] + depth)
                row = np.int64(pairs[2 * place + 1])
                begin, length = offsets[row], offsets[row + 1] - offsets[row]
                longest = max(longest, length)
                pairs[2 * place] = word_at(address, size, begin, length, depth)
            if longest <= depth:
                for place in range(start, stop):
                    row = np.int64(pairs[2 * place + 1])
                    pairs[2 * place] = np.uint64(offsets[row + 1] - offsets[row])
            random = sort_pairs(pairs, spare, start, stop, counts, random)
            if longest > depth:
                left = push_ties(pairs, start, stop, depth + WORD, waiting, left)
    begin = buckets[first]
    for place in range(begin, buckets[last]):
        rows[place - begin] = np.int64(pairs[2 * place + 1])


@compiled(int64(GIVEN_I64, GIVEN_I64, MADE_I64))
def place_strings(offsets: Int64s, rows: Int64s, places: Int64s) -> Int:
    """The offsets of some strings one after another, and the number of their bytes."""
    at, count, address = 0, len(rows), address_of(offsets)
    for number in range(count):
        if number + AHEAD < count:
            fetch_ahead(address + WORD * rows[number + AHEAD])
        places[number] = at
        at += offsets[rows[number] + 1] - offsets[rows[number]]
    places[count] = at
    return places[count]


@compiled(void(GIVEN_U8, GIVEN_I64, GIVEN_I64, GIVEN_I64, MADE_U8))
def copy_strings(data: Bytes, offsets: Int64s, rows: Int64s, places: Int64s, copies: Bytes) -> None:
    """Copy some strings to their places. Whole words are written: there must be room for one more after the last."""
    source, target, edges, size = address_of(data), address_of(copies), address_of(offsets), len(data)
    count = len(rows)
    for number in range(count):
        if number + 2 * AHEAD < count:
            fetch_ahead(edges + WORD * rows[number + 2 * AHEAD])
        if number + AHEAD < count:
            fetch_ahead(source + offsets[rows[number + AHEAD]])
        start, at = offsets[rows[number]], places[number]
        length = places[number + 1] - at
        if start + length + WORD <= size:
            for depth in range(0, length, WORD):
                put_word(target + at + depth, word_from(source + start + depth))
        else:
            for depth in range(length):
                copies[at + depth] = data[start + depth]


@compiled(int64(int64, int64, int64, int64, int64, int64, int64, int64))
def compare(
    data: Int, size: Int, start: Int, length: Int, other: Int, other_size: Int, other_start: Int, other_length: Int
) -> Int:
    """Below 0, 0 or above 0 as a string comes before, is, or comes after another."""
    for depth in range(0, min(length, other_length), WORD):
        word = word_at(data, size, start, length, depth)
        its = word_at(other, other_size, other_start, other_length, depth)
        if word != its:
            return -1 if word < its else 1
    return length - other_length


@compiled(boolean(GIVEN_U8, GIVEN_I64))
def is_ascending(data: Bytes, offsets: Int64s) -> bool:
    address, size = address_of(data), len(data)
    for row in range(1, len(offsets) - 1):
        last, start, end = offsets[row - 1], offsets[row], offsets[row + 1]
        if compare(address, size, last, start - last, address, size, start, end - start) > 0:
            return False
    return True


@compiled(void(GIVEN_U8, GIVEN_I64, GIVEN_U8, GIVEN_I64, uint16[::1], uint16[::1]))
def find_ranges(
    data: Bytes, offsets: Int64s, cut_data: Bytes, cut_offsets: Int64s, above: UInt16s, reached: UInt16s
) -> None:
    """For each string the number of ascending cuts that are smaller, and of those that are not greater."""
    address, size, cut_address, cut_size = address_of(data), len(data), address_of(cut_data), len(cut_data)
    cuts = len(cut_offsets) - 1
    words = np.empty(cuts, dtype=np.uint64)
    for cut in range(cuts):
        words[cut] = word_at(cut_address, cut_size, cut_offsets[cut], cut_offsets[cut + 1] - cut_offsets[cut], 0)
    for row in range(len(above)):
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        word = word_at(address, size, start, length, 0)
        low, high = 0, cuts
        while low < high:
            middle = (low + high) >> 1
            if words[middle] < word:
                low = middle + 1
            else:
                high = middle
        found = -1
        while low < cuts and words[low] == word:
            its, end = cut_offsets[low], cut_offsets[low + 1]
            order = compare(address, size, start, length, cut_address, cut_size, its, end - its)
            if order == 0 and found < 0:
                found = low
            if order < 0:
                break
            low += 1
        above[row] = low if found < 0 else found
        reached[row] = low
