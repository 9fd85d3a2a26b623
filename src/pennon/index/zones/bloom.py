"""Bloom filters as in Parquet: split into blocks of 256 bits, over the XXH64 hash of a value with seed 0.

A hash selects a block by its upper half, `(h >> 32) * blocks >> 32`, and in each of the block's eight 32-bit words one
bit by its lower half, `(u32(h) * SALT[i]) >> 27`. A filter is stored as its words, little endian. The bytes of a value
are hashed: numbers at their width, text and binary as they are.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, lgamma, log
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.value_order import exchange_type

Hashes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]

BLOCK_BYTES = 32
LEAST_BYTES = BLOCK_BYTES
MOST_BYTES = 1 << 27
# Values of a block are Poisson distributed; more than this many have a negligible probability.
_MOST_PER_BLOCK = 750


def can_filter(type_: pa.DataType) -> bool:
    """Whether pylance supports Bloom filters on columns of this type."""
    if pa.types.is_integer(type_) or pa.types.is_float32(type_) or pa.types.is_float64(type_):
        return True
    if pa.types.is_date(type_) or pa.types.is_time(type_) or pa.types.is_timestamp(type_):
        return True
    return exchange_type(type_) in (pa.large_string(), pa.large_binary())


@lru_cache(maxsize=64)
def filter_bytes(items: int, probability: float) -> int:
    """The smallest power of two of bytes for which `items` distinct values have at most this rate of false
    positives."""
    low, high = 0, 64
    while high > low + 1:
        middle = (low + high) // 2
        if _false_positives(items, middle) <= probability:
            high = middle
        else:
            low = middle
    return min(max(1 << high, LEAST_BYTES), MOST_BYTES)


class FilterBuilder:
    """The filters of zones, filled batch by batch."""

    def __init__(self, size_bytes: int) -> None:
        self._words = size_bytes // 4
        self._current = np.zeros(self._words, dtype=np.uint32)
        self._number = -1

    def add(self, values: pa.Array, edges: Positions, zones: Positions) -> list[bytes]:
        """Insert the values of a batch, whose pieces start at `edges` and belong to `zones`. Returns the filters that
        are complete because a later zone has begun. NULLs are not inserted."""
        insert = _inserting(values)
        present = _present(values)
        complete: list[bytes] = []
        for start, stop, zone in zip(edges.tolist(), [*edges[1:].tolist(), len(values)], zones.tolist(), strict=True):
            if zone != self._number:
                complete += self.finish()
                self._number = zone
            insert(start, stop, present, self._current)
        return complete

    def finish(self) -> list[bytes]:
        """The filter of the last zone, if there is one."""
        if self._number < 0:
            return []
        done = self._current.tobytes()
        self._current[:] = 0
        self._number = -1
        return [done]


def hash_values(values: pa.Array) -> Hashes:
    """The hashes of values without NULLs."""
    words = _as_words(values)
    if words is not None:
        return _kernels().hash_words(words)
    return _kernels().hash_bytes(*_as_bytes(values))


def may_hold(words: Words, offsets: Positions, hashes: Hashes) -> npt.NDArray[np.bool_]:
    """For each filter, words[offsets[i]:offsets[i + 1]], whether it may contain any of the hashed values."""
    return _kernels().may_hold(words, offsets, hashes)


def may_hold_each(words: Words, offsets: Positions, filters: Positions, hashes: Hashes) -> npt.NDArray[np.bool_]:
    """For each hashed value, whether the filter of the given number may contain it."""
    return _kernels().may_hold_each(words, offsets, filters, hashes)


def _inserting(values: pa.Array):
    words = _as_words(values)
    if words is not None:
        insert_words = _kernels().insert_words
        return lambda start, stop, present, into: insert_words(words[start:stop], present[start:stop], into)
    data, offsets = _as_bytes(values)
    insert_bytes = _kernels().insert_bytes
    return lambda start, stop, present, into: insert_bytes(data, offsets[start : stop + 1], present[start:stop], into)


def _present(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return np.ones(len(values), dtype=np.bool_)
    return pc.is_valid(values).to_numpy(zero_copy_only=False)


def _as_words(values: pa.Array) -> npt.NDArray[np.unsignedinteger] | None:
    """The bits of numbers, dates and times, arbitrary for NULLs; None for text and binary."""
    type_ = values.type
    if exchange_type(type_) in (pa.large_string(), pa.large_binary()):
        return None
    width = type_.bit_width // 8
    content = values.buffers()[1]
    if content is None:
        return np.zeros(len(values), dtype=f"<u{width}")
    return np.frombuffer(content, dtype=f"<u{width}")[values.offset : values.offset + len(values)]


def _as_bytes(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Positions]:
    spelled = values.cast(exchange_type(values.type))
    _, offset_buffer, data_buffer = spelled.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[spelled.offset : spelled.offset + len(spelled) + 1]
    return np.frombuffer(data_buffer or b"", dtype=np.uint8), offsets


def _false_positives(items: int, log_bytes: int) -> float:
    """The expected rate of a filter with `items` distinct values (Putze, Sanders and Singler, 2007)."""
    bits = float(1 << log_bytes) * 8
    if items == 0:
        return 0.0
    if items / bits > 2:
        return 1.0
    mean = 256 * items / bits  # values of a block
    rate = 0.0
    for count in range(_MOST_PER_BLOCK - 1, 0, -1):
        all_set = 8 * log(1 - (1 - 1 / 32) ** count)
        rate += exp(count * log(mean) - mean - lgamma(count + 1) + all_set)
    return min(rate, 1.0)


def _kernels() -> ModuleType:
    """Imported when filters are built or queried: numba takes a second to import."""
    from pennon.index.zones import bloom_kernels  # noqa: PLC0415

    return bloom_kernels
