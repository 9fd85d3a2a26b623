"""Sorting many rows: by compiled kernels where they are worth loading, else by numpy.

Rows are keys, unsigned words in the order of the values, with an id each. They are sorted bucket by bucket, so that a
caller may write the first rows while the others are not sorted yet. The order of equal keys is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TypeVar

import numpy as np

from pennon.index.arrays import Bytes, Int64s, UInt64s

# Kernels take a second to load: with fewer rows than this, only those that are loaded already are used.
WORTH_LOADING = 1 << 20
# With fewer rows numpy is as fast.
WORTH_CALLING = 1 << 12
# About the rows of a bucket, which fit the cache of a core twice, and the most bits of the number of a bucket.
BUCKET_ROWS = 1 << 14
BUCKET_BITS = 10
# The most sorted parts that are merged: each doubling of their number takes another pass over the rows.
MERGED_PARTS = 64

# Bytes of strings that follow one another, and the offset of each, and of the end.
Strings = tuple[Bytes, Int64s]

V = TypeVar("V")


def kernels(rows: int) -> tuple[ModuleType, ModuleType] | None:
    """The kernels for keys and for strings; None if numpy is to sort this many rows."""
    if rows < WORTH_CALLING or (rows < WORTH_LOADING and "numba" not in sys.modules):
        return None
    try:
        from pennon.index import radix_kernels, string_kernels  # noqa: PLC0415
    except ImportError:  # numba does not support the platform
        return None
    return radix_kernels, string_kernels


class Buckets:
    """Rows in buckets by the high bits of their keys: sorted bucket by bucket."""

    def __init__(
        self, radix: ModuleType, parts: Sequence[tuple[V, UInt64s]], keys_of: Callable[[V], UInt64s] = np.asarray
    ) -> None:
        """Parts are values with their ids. Keys are made of the values of one part at a time, and again for each step:
        those of all parts would take half the memory of the rows, and more time."""
        self._radix = radix
        self.rows = sum(len(ids) for _, ids in parts)
        filled = [(values, ids) for values, ids in parts if len(ids)]
        ends = [(keys.min(), keys.max()) for keys in (keys_of(values) for values, _ in filled)]
        low = min((least for least, _ in ends), default=np.uint64(0))
        span = max((int(most) for _, most in ends), default=0) - int(low)
        bits = span.bit_length()
        # Few different keys are sorted by this alone. No word can be shifted by 64 bits.
        high = bits if bits <= BUCKET_BITS else min(BUCKET_BITS, (self.rows // BUCKET_ROWS).bit_length())
        high = max(high, bits - 63)
        starts = np.zeros((1 << high) + 1, dtype=np.int64)
        for values, _ in filled:
            radix.count_buckets(keys_of(values), low, bits - high, starts[1:])
        self.starts = np.cumsum(starts)
        self.pairs = np.empty(2 * self.rows, dtype=np.uint64)
        places = self.starts[:-1].copy()
        for values, ids in filled:
            radix.fill_buckets(keys_of(values), ids, low, bits - high, places, self.pairs)
        self.largest = int(np.diff(self.starts).max(initial=0))
        self.spare = np.empty(2 * self.largest, dtype=np.uint64)
        self.counts = np.empty(radix.MOST_PASSES << radix.DIGIT, dtype=np.int64)

    def groups(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """Consecutive buckets [first, last) of at least `rows` rows together, and the number of their rows."""
        first = 0
        while first < len(self.starts) - 1:
            last = int(np.searchsorted(self.starts, self.starts[first] + rows))
            last = max(first + 1, min(last, len(self.starts) - 1))
            count = int(self.starts[last] - self.starts[first])
            if count:
                yield first, last, count
            first = last

    def sorted_rows(self, rows: int) -> Iterator[tuple[UInt64s, UInt64s]]:
        """Keys and ids in order, about `rows` at a time."""
        for first, last, count in self.groups(rows):
            keys, ids = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint64)
            self._radix.sort_buckets(self.pairs, self.spare, self.starts, first, last, self.counts, keys, ids)
            yield keys, ids


def merged_rows(parts: Sequence[tuple[UInt64s, UInt64s]]) -> tuple[UInt64s, UInt64s] | None:
    """Keys and ids of sorted parts in order; None if the rows are to be sorted instead."""
    starts = np.cumsum([0, *(len(keys) for keys, _ in parts)])
    if len(parts) > MERGED_PARTS or kernels(int(starts[-1])) is None:
        return None
    from pennon.index import merge_kernels  # noqa: PLC0415

    keys, ids = np.concatenate([keys for keys, _ in parts]), np.concatenate([ids for _, ids in parts])
    spare_keys, spare_ids = np.empty_like(keys), np.empty_like(ids)
    away = merge_kernels.merge_parts(keys, ids, starts, spare_keys, spare_ids)
    return (spare_keys, spare_ids) if away else (keys, ids)


def order_of_keys(keys: UInt64s) -> Int64s | None:
    """The stable order of keys; None if numpy is to find it."""
    found = kernels(len(keys))
    if found is None:
        return None
    buckets = Buckets(found[0], [(keys, np.arange(len(keys), dtype=np.uint64))])
    [(_, order)] = buckets.sorted_rows(len(keys))
    return order.view(np.int64)


def order_of_strings(strings: Strings) -> Int64s | None:
    """The stable order of strings; None if numpy is to find it."""
    data, offsets = strings
    rows = len(offsets) - 1
    found = kernels(rows)
    if found is None:
        return None
    radix, text = found
    words = np.empty(rows, dtype=np.uint64)
    text.first_words(data, offsets, words)
    buckets = Buckets(radix, [(words, np.arange(rows, dtype=np.uint64))])
    waiting = np.empty(3 * (buckets.largest // 2 + 1), dtype=np.int64)
    order = np.empty(rows, dtype=np.int64)
    text.sort_string_buckets(
        buckets.pairs,
        buckets.spare,
        buckets.starts,
        0,
        len(buckets.starts) - 1,
        buckets.counts,
        data,
        offsets,
        waiting,
        order,
    )
    return order
