"""Values of rows here and there in a page of mini-blocks, decoded together.

Of the chunks that hold some of the rows, those next to each other are read at once: to read a gap of some kilobytes
takes less time than another call. At most about `BATCH_BYTES` are decoded at a time, which fit the cache of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

# Reads bytes of a file: position and length.
ReadAt = Callable[[int, int], bytes]
# Fills a part of a buffer with the bytes of a file from a position on.
ReadInto = Callable[[int, memoryview], None]
Numbers = npt.NDArray[Any]
Places = npt.NDArray[np.int64]

PACKED_VALUES = 1024
HEADER_BYTES = 8
GAP_BYTES = 1 << 14
BATCH_BYTES = 1 << 20
_BLOCK_ORDER = np.array([0, 4, 2, 6, 1, 5, 3, 7])


class OtherLayout(Exception):
    """A page that only pylance reads, or that is damaged, which pylance reports."""


class Scratch:
    """Memory that batches are read into one after the other: the system clears memory before it lends it to a process,
    which takes as long as reading into it."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def of_size(self, size: int) -> memoryview:
        """Part of the memory, which the next call returns again."""
        if len(self._bytes) < size:
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks of a page that hold some rows: where each starts and ends, in bytes, how many values it has, which rows of
    those that are wanted are in it (from `firsts[n]` to `firsts[n + 1]`), and the places of the rows in their chunks.
    """

    starts: Places
    ends: Places
    values: Places
    firsts: Places
    places: Places


@dataclass(frozen=True, eq=False)
class Batch:
    """The bytes of some chunks, where each of them starts, their sizes and numbers of values; and for each row its
    chunk, and its place there."""

    content: memoryview
    starts: Places
    sizes: Places
    values: Places
    chunk: Places
    places: Places

    def sizes_of_values(self, large: bool) -> Places:
        """What the headers of the chunks record. Raises OtherLayout where there are levels."""
        headers = np.frombuffer(self.content, "<u8")[self.starts >> 3].astype(np.int64)
        if (headers & 0xFFFF).any():
            raise OtherLayout("a chunk with levels")
        found = (headers >> 16) & (0xFFFF_FFFF if large else 0xFFFF)
        if (found + HEADER_BYTES > self.sizes).any():
            raise OtherLayout("a chunk of another size")
        return found


def read_batches(read_into: ReadInto, base: int, chunks: Chunks, scratch: Scratch) -> Iterator[Batch]:
    """The chunks of a page whose chunks start at `base`, in batches, each valid until the next one."""
    starts, ends = chunks.starts, chunks.ends
    apart = starts[1:] - ends[:-1] > GAP_BYTES
    apart |= starts[1:] // BATCH_BYTES != starts[:-1] // BATCH_BYTES
    edges = np.concatenate([[0], np.flatnonzero(apart) + 1, [len(starts)]])
    begins, stops = starts[edges[:-1]], ends[edges[1:] - 1]
    read = np.cumsum(stops - begins)
    # What each range of chunks is moved by in the bytes that are read of all.
    moved = np.repeat(read - stops, np.diff(edges))
    part = (read - 1) // BATCH_BYTES
    cuts = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(part)]
    for low, high in pairwise(cuts):
        before = int(read[low - 1]) if low else 0
        content = scratch.of_size(int(read[high - 1]) - before)
        filled = 0
        for begin, stop in zip(begins[low:high].tolist(), stops[low:high].tolist(), strict=True):
            read_into(base + begin, content[filled : filled + stop - begin])
            filled += stop - begin
        own = slice(edges[low], edges[high])
        local = starts[own] + moved[own] - before
        rows = chunks.firsts[edges[low] : edges[high] + 1]
        chunk = np.repeat(np.arange(len(local)), np.diff(rows))
        yield Batch(content, local, (ends - starts)[own], chunks.values[own], chunk, chunks.places[rows[0] : rows[-1]])


def flat_values(batch: Batch, item: int, large: bool) -> Numbers:
    if (batch.sizes_of_values(large) != batch.values * item).any():
        raise OtherLayout("a chunk of another size")
    values = np.frombuffer(batch.content, f"<u{item}")
    return values.take(((batch.starts + HEADER_BYTES) // item)[batch.chunk] + batch.places)


def packed_values(batch: Batch, item: int, large: bool) -> Numbers:
    bits, words = 8 * item, np.frombuffer(batch.content, f"<u{item}")
    first = (batch.starts + HEADER_BYTES) // item
    widths = words[first].astype(np.int64)
    if (widths > bits).any() or (widths < 0).any():
        raise OtherLayout("values of too many bits")
    if (batch.sizes_of_values(large) != item + widths * (PACKED_VALUES // 8)).any():
        raise OtherLayout("a chunk of another size")
    if batch.values[-1] > PACKED_VALUES:
        raise OtherLayout("chunks of packed values of another length")
    row, lane = packed_places(bits)
    lanes = PACKED_VALUES // bits
    width = widths[batch.chunk]
    start = row[batch.places] * width
    word = start // bits
    at = (first + 1)[batch.chunk] + lane[batch.places]
    last = np.maximum(width - 1, 0)
    # A chunk of width 0 has no words: what is read for it instead is masked out.
    most = len(words) - 1
    low = words.take(np.minimum(at + word * lanes, most))
    high = words.take(np.minimum(at + np.minimum(word + 1, last) * lanes, most))
    right = (start % bits).astype(words.dtype)
    low >>= right
    high <<= words.dtype.type(bits - 1) - right
    high <<= words.dtype.type(1)
    low |= high
    low &= _masks(bits)[width]
    return low


@lru_cache(maxsize=4)
def packed_places(bits: int) -> tuple[Places, Places]:
    """For each of 1,024 packed values its place in its lane, and the lane."""
    row, lane = np.divmod(np.arange(PACKED_VALUES), PACKED_VALUES // bits)
    place = np.empty(PACKED_VALUES, dtype=np.intp)
    place[_BLOCK_ORDER[row // 8] * 16 + (row % 8) * 128 + lane] = np.arange(PACKED_VALUES)
    return row[place], lane[place]


@lru_cache(maxsize=4)
def _masks(bits: int) -> Numbers:
    """The mask of each width."""
    return np.array([(1 << width) - 1 for width in range(bits + 1)], dtype=f"<u{bits // 8}")
