"""Sorting pairs of a key and an id by the key: stable, compiled, in the processor's caches.

Rows go to buckets by the high bits of their keys, whose rows stay in the order they came in. A bucket is then sorted by
its own bits, eleven at a time from the low end. Of random keys only as many bits are sorted as there are rows, and some
more; what the others leave in disorder is repaired by insertion, or if that is much, all bits are sorted.

A pair takes two words of one array, so that a row is written to one place.
"""

from __future__ import annotations

import numpy as np
from numba.types import int64, uint16, uint64, void

from pennon.index.arrays import Int, Int64s, UInt16s, UInt64s, Word
from pennon.index.compiled import GIVEN_I64, GIVEN_U64, MADE_I64, MADE_U64, compiled

# Bits of a pass over many rows, and over few, where clearing the counts of more would take longer than a second pass.
DIGIT, SMALL_DIGIT = 11, 8
FEW_ROWS = 4096
# Up to this number, rows are sorted by insertion.
INSERTED_ROWS = 32
# Bits that are sorted in excess of those that number the rows.
SPARE_BITS = 8
MOST_PASSES = 8
# Rows moved by insertion, for each row; more take longer than the bits that were not sorted.
MOVED = 1


@compiled(void(GIVEN_U64, uint64, int64, MADE_I64))
def count_buckets(keys: UInt64s, low: Int, shift: Int, counts: Int64s) -> None:
    """Add the keys of each bucket, which is `key - low` without its lowest `shift` bits."""
    down = np.uint64(shift)
    for place in range(len(keys)):
        counts[np.int64((keys[place] - low) >> down)] += 1


@compiled(void(GIVEN_U64, GIVEN_U64, uint64, int64, MADE_I64, MADE_U64))
def fill_buckets(keys: UInt64s, ids: UInt64s, low: Int, shift: Int, ends: Int64s, pairs: UInt64s) -> None:
    """Append rows to their buckets, whose ends are given, and moved."""
    down = np.uint64(shift)
    for place in range(len(keys)):
        key = keys[place]
        bucket = np.int64((key - low) >> down)
        at = ends[bucket]
        ends[bucket] = at + 1
        pairs[2 * at] = key
        pairs[2 * at + 1] = ids[place]


@compiled(int64(uint64), inline=True)
def bit_length(word: Word) -> Int:
    bits, rest = 0, np.uint64(word)
    while rest:
        bits += 1
        rest >>= np.uint64(1)
    return bits


@compiled(void(MADE_U64, int64, int64), inline=True)
def insertion_sort(pairs: UInt64s, start: Int, stop: Int) -> None:
    for place in range(start + 1, stop):
        key, row = pairs[2 * place], pairs[2 * place + 1]
        at = place
        while at > start and pairs[2 * at - 2] > key:
            pairs[2 * at] = pairs[2 * at - 2]
            pairs[2 * at + 1] = pairs[2 * at - 1]
            at -= 1
        pairs[2 * at], pairs[2 * at + 1] = key, row


@compiled(int64(MADE_U64, int64, int64, int64), inline=True)
def repair(pairs: UInt64s, start: Int, stop: Int, most: Int) -> Int:
    """Sort by insertion; 0 if rows were still out of order when more than `most` had been moved."""
    moved = 0
    for place in range(start + 1, stop):
        key = pairs[2 * place]
        if pairs[2 * place - 2] > key:
            row = pairs[2 * place + 1]
            at = place
            while at > start and pairs[2 * at - 2] > key:
                pairs[2 * at] = pairs[2 * at - 2]
                pairs[2 * at + 1] = pairs[2 * at - 1]
                at -= 1
            pairs[2 * at], pairs[2 * at + 1] = key, row
            moved += place - at
            if moved > most:
                return 0
    return 1


@compiled(void(MADE_U64, MADE_U64, int64, int64, int64, int64, MADE_I64))
def sort_digits(pairs: UInt64s, spare: UInt64s, start: Int, stop: Int, drop: Int, bits: Int, counts: Int64s) -> None:
    """Sort pairs [start, stop) by bits [drop, drop + bits) of their keys; the rows go back and forth to `spare`, whose
    first row is the one at `start`."""
    rows = stop - start
    widest = SMALL_DIGIT if rows < FEW_ROWS else DIGIT
    passes = (bits + widest - 1) // widest
    if passes == 0:
        return
    width = (bits + passes - 1) // passes
    size, mask = 1 << width, np.uint64((1 << width) - 1)
    counts[: passes * size] = 0
    for place in range(start, stop):
        rest = pairs[2 * place] >> np.uint64(drop)
        for number in range(passes):
            counts[number * size + np.int64(rest & mask)] += 1
            rest >>= np.uint64(width)
    away = False
    for number in range(passes):
        first, at, single = number * size, 0, False
        for digit in range(first, first + size):
            count = counts[digit]
            single |= count == rows
            counts[digit] = at
            at += count
        if single:
            continue
        down = np.uint64(drop + number * width)
        if away:
            for place in range(rows):
                key = spare[2 * place]
                digit = first + np.int64((key >> down) & mask)
                to = start + counts[digit]
                counts[digit] += 1
                pairs[2 * to], pairs[2 * to + 1] = key, spare[2 * place + 1]
        else:
            for place in range(start, stop):
                key = pairs[2 * place]
                digit = first + np.int64((key >> down) & mask)
                to = counts[digit]
                counts[digit] += 1
                spare[2 * to], spare[2 * to + 1] = key, pairs[2 * place + 1]
        away = not away
    if away:
        pairs[2 * start : 2 * stop] = spare[: 2 * rows]


@compiled(int64(MADE_U64, MADE_U64, int64, int64, MADE_I64, int64))
def sort_pairs(pairs: UInt64s, spare: UInt64s, start: Int, stop: Int, counts: Int64s, random: Int) -> Int:
    """Sort pairs [start, stop). `counts` has room for those of all passes. The result is `random`, for the next call: 0
    once sorting as for random keys has failed, which it would do again: words of text differ in few of their bits."""
    rows = stop - start
    if rows <= INSERTED_ROWS:
        insertion_sort(pairs, start, stop)
        return random
    first = last = pairs[2 * start]
    ascending, differing = True, np.uint64(0)
    for place in range(start, stop):
        key = pairs[2 * place]
        differing |= key ^ first
        ascending &= last <= key
        last = key
    if ascending:
        return random
    bits = bit_length(differing)
    # Some bits are the same in all keys, as in those of text.
    drop, wanted = bits, bit_length(np.uint64(rows)) + SPARE_BITS
    while drop > 0 and wanted > 0:
        drop -= 1
        wanted -= np.int64((differing >> np.uint64(drop)) & np.uint64(1))
    if drop >= SPARE_BITS and random:
        sort_digits(pairs, spare, start, stop, drop, bits - drop, counts)
        if repair(pairs, start, stop, MOVED * rows):
            return random
        random = 0
    sort_digits(pairs, spare, start, stop, 0, bits, counts)
    return random


@compiled(void(MADE_U64, MADE_U64, GIVEN_I64, int64, int64, MADE_I64, MADE_U64, MADE_U64))
def sort_buckets(
    pairs: UInt64s,
    spare: UInt64s,
    starts: Int64s,
    first: Int,
    last: Int,
    counts: Int64s,
    keys: UInt64s,
    ids: UInt64s,
) -> None:
    """Sort buckets [first, last), which follow one another, and write their keys and ids apart."""
    random = 1
    for bucket in range(first, last):
        random = sort_pairs(pairs, spare, starts[bucket], starts[bucket + 1], counts, random)
    begin = starts[first]
    for place in range(begin, starts[last]):
        keys[place - begin] = pairs[2 * place]
        ids[place - begin] = pairs[2 * place + 1]


@compiled(void(GIVEN_U64, GIVEN_U64, uint16[::1], uint16[::1]))
def find_ranges(keys: UInt64s, cuts: UInt64s, above: UInt16s, reached: UInt16s) -> None:
    """For each key the number of ascending cuts that are smaller, and of those that are not greater."""
    count = len(cuts)
    for place in range(len(keys)):
        key = keys[place]
        low, rest = 0, count
        while rest > 0:
            half = (rest + 1) >> 1
            low += half if cuts[low + half - 1] < key else 0
            rest -= half
        above[place] = low
        while low < count and cuts[low] == key:
            low += 1
        reached[place] = low


@compiled(void(GIVEN_U64, GIVEN_U64, uint16[::1], MADE_I64, MADE_U64, MADE_U64))
def scatter(keys: UInt64s, ids: UInt64s, numbers: UInt16s, ends: Int64s, out_keys: UInt64s, out_ids: UInt64s) -> None:
    """Append rows to the parts of their numbers, whose ends are given, and moved."""
    for place in range(len(keys)):
        number = numbers[place]
        at = ends[number]
        ends[number] = at + 1
        out_keys[at] = keys[place]
        out_ids[at] = ids[place]


@compiled(void(uint16[::1], MADE_I64, MADE_I64))
def order_of_numbers(numbers: UInt16s, ends: Int64s, order: Int64s) -> None:
    """The stable order of rows by their numbers; the ends of the rows of each number are given, and moved."""
    for place in range(len(numbers)):
        number = numbers[place]
        order[ends[number]] = place
        ends[number] += 1
