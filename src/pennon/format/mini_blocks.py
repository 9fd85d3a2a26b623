"""Columns of numbers in a Lance file, decoded here where few rows are wanted: to set up a reader of pylance and to wake
its threads takes longer than to read them.

Since version 2.1 a page of such a column without NULLs has one of two layouts. A constant page has one value, in its
description. Other pages have two buffers: a word for each chunk, u16 or (`has_large_chunk`) u32, and the chunks.

    word   log2 of the number of values (4 bits; of the last chunk 0, it has the rest), size in 8 bytes less one
    chunk  u16 number of levels (0), u16 or u32 size of the values, padding to 8 bytes, values, padding to 8 bytes

Values are flat or bit-packed. Bit-packed ones start with a number of the same size, the width in bits, followed by
1,024 values of that width, interleaved as FastLanes does it: of the 64-bit values, 16 lanes of 64 values each.
Pages of any other layout are left to pylance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, Protocol

import numpy as np
from google.protobuf.message import DecodeError

from pennon.format.pb import lance_pb2 as pb
from pennon.format.scattered_values import (
    HEADER_BYTES,
    PACKED_VALUES,
    Chunks,
    Numbers,
    OtherLayout,
    Places,
    ReadAt,
    ReadInto,
    Scratch,
    flat_values,
    packed_places,
    packed_values,
    read_batches,
)

ALL_VALID = [1]
PAGE_LAYOUT = "/lance.encodings21.PageLayout"


class NumberColumn:
    """A column whose values have 1, 2, 4 or 8 bytes each. Pages are looked at when they are read."""

    def __init__(self, metadata: pb.ColumnMetadata, item_bytes: int) -> None:
        self._metadata, self._item = metadata, item_bytes
        self._starts = [0, *accumulate(page.length for page in metadata.pages)]
        self._pages: dict[int, _Page] = {}

    @property
    def rows(self) -> int:
        return self._starts[-1]

    def read(self, read_at: ReadAt, start: int, count: int) -> bytes:
        """The values of neighboring rows. Raises OtherLayout."""
        number, parts = bisect_right(self._starts, start) - 1, list[bytes]()
        while count > 0:
            here = min(count, self._starts[number + 1] - start)
            if here:
                parts.append(self._page(number).read(read_at, start - self._starts[number], here))
            number, start, count = number + 1, start + here, count - here
        return b"".join(parts)

    def take(self, read_at: ReadAt, rows: Sequence[int]) -> bytes:
        """The values of few rows, in any order. Raises OtherLayout."""
        return b"".join([self.read(read_at, row, 1) for row in rows])

    def gather(self, read_at: ReadAt, read_into: ReadInto, rows: Places, scratch: Scratch) -> Numbers:
        """The values of many ascending rows, as unsigned numbers of their size. Raises OtherLayout."""
        parts: list[Numbers] = []
        edges = np.searchsorted(rows, self._starts).tolist()
        for number, (low, high) in enumerate(pairwise(edges)):
            if low < high:
                page, offsets = self._page(number), rows[low:high] - self._starts[number]
                parts += page.gather(read_at, read_into, offsets, scratch)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _page(self, number: int) -> _Page:
        found = self._pages.get(number)
        if found is None:
            self._pages[number] = found = _Page(self._metadata.pages[number], self._item)
        return found


class _Page:
    def __init__(self, page: pb.PageMetadata, item: int) -> None:
        self._layout = _layout(page.encoding, item)
        self._rows, self._item = page.length, item
        self._buffers = list(zip(page.buffer_offsets, page.buffer_sizes, strict=True))
        self._chunks: _Chunks | None = None
        self._reading = Lock()
        if len(self._buffers) != (2 if self._layout.constant is None else 0) or (
            self._layout.rows is not None and self._layout.rows != self._rows
        ):
            raise OtherLayout("other buffers than those of its layout")

    def read(self, read_at: ReadAt, start: int, count: int) -> bytes:
        layout, item = self._layout, self._item
        if layout.constant is not None:
            return layout.constant * count
        first, places, counts = self._all_chunks(read_at).holding(start, count)
        base = places[0]
        content = read_at(self._buffers[1][0] + base, places[-1] - base)
        starts = [place - base for place in places[:-1]]
        decoded = (_unpacked if layout.packed else _flat)(content, starts, counts, item, layout.large)
        skipped = (start - first) * item
        return decoded[skipped : skipped + count * item]

    def gather(self, read_at: ReadAt, read_into: ReadInto, rows: Places, scratch: Scratch) -> list[Numbers]:
        layout, item = self._layout, self._item
        if layout.constant is not None:
            return [np.full(len(rows), np.frombuffer(layout.constant, f"<u{item}")[0])]
        chunks = self._all_chunks(read_at).of_rows(rows)
        decode = packed_values if layout.packed else flat_values
        batches = read_batches(read_into, self._buffers[1][0], chunks, scratch)
        return [decode(batch, item, layout.large) for batch in batches]

    def _all_chunks(self, read_at: ReadAt) -> _Chunks:
        chunks = self._chunks
        if chunks is None:
            with self._reading:  # threads that read other rows of the page wait for one request
                chunks = self._chunks = self._chunks or self._read_chunks(read_at)
        return chunks

    def _read_chunks(self, read_at: ReadAt) -> _Chunks:
        words = read_at(*self._buffers[0])
        width, size = 4 if self._layout.large else 2, self._buffers[1][1]
        return _chunks(words, width, self._rows, size, self._layout.packed)


@dataclass(frozen=True)
class _Layout:
    """Either a constant, or chunks of values for a number of rows."""

    constant: bytes | None = None
    rows: int | None = None
    packed: bool = False
    large: bool = False


class _Chunks(Protocol):
    def holding(self, start: int, count: int) -> tuple[int, list[int], list[int]]:
        """The chunks with some rows: the first row of the first, where each starts and the last ends, and the number of
        values of each."""
        ...

    def of_rows(self, rows: Places) -> Chunks:
        """The chunks with some ascending rows."""
        ...


@dataclass(frozen=True)
class _EqualChunks:
    """Chunks of one size and number of values, but for the last."""

    size: int
    values: int
    number: int
    end: int
    rows: int

    def holding(self, start: int, count: int) -> tuple[int, list[int], list[int]]:
        low, high = start // self.values, -(-(start + count) // self.values)
        high = min(high, self.number)
        low = min(low, high - 1)
        places, counts = [number * self.size for number in range(low, high + 1)], [self.values] * (high - low)
        if high == self.number:
            places[-1], counts[-1] = self.end, self.rows - (high - 1) * self.values
        return low * self.values, places, counts

    def of_rows(self, rows: Places) -> Chunks:
        # Beyond the last full chunk, all rows are in the last one.
        numbers = np.minimum(rows // self.values, self.number - 1)
        chosen, firsts = _held(numbers)
        starts, values = chosen * self.size, np.full(len(chosen), self.values)
        ends = starts + self.size
        if chosen[-1] == self.number - 1:
            ends[-1], values[-1] = self.end, self.rows - (self.number - 1) * self.values
        return Chunks(starts, ends, values, firsts, rows - numbers * self.values)


@dataclass(frozen=True, eq=False)
class _UnequalChunks:
    """Where chunks start, and their first rows; each with the end of the last one."""

    places: Places
    firsts: Places

    def holding(self, start: int, count: int) -> tuple[int, list[int], list[int]]:
        low = int(self.firsts.searchsorted(start, "right")) - 1
        high = int(self.firsts.searchsorted(start + count, "left"))
        firsts = self.firsts[low : high + 1]
        return int(firsts[0]), self.places[low : high + 1].tolist(), np.diff(firsts).tolist()

    def of_rows(self, rows: Places) -> Chunks:
        numbers = self.firsts.searchsorted(rows, "right") - 1
        chosen, firsts = _held(numbers)
        values = self.firsts[chosen + 1] - self.firsts[chosen]
        return Chunks(self.places[chosen], self.places[chosen + 1], values, firsts, rows - self.firsts[numbers])


def _held(numbers: Places) -> tuple[Places, Places]:
    """Each number of an ascending array once; and where its first is, with the end of the last."""
    edges = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    firsts = np.concatenate([[0], edges, [len(numbers)]])
    return numbers[firsts[:-1]], firsts


def _chunks(words: bytes, width: int, rows: int, size: int, packed: bool) -> _Chunks:
    number = len(words) // width
    if not number or len(words) % width or number > rows:
        raise OtherLayout("chunks that are not those of the page")
    first, last = int.from_bytes(words[:width], "little"), int.from_bytes(words[-width:], "little")
    if words[:-width] == words[:width] * (number - 1):
        each, values, ending = ((first >> 4) + 1) * 8, 1 << (first & 15), ((last >> 4) + 1) * 8
        before = number - 1
        found = _EqualChunks(each, values if before else rows, number, before * each + ending, rows)
        valid = before * found.values < rows and found.end <= size
        valid = valid and (not packed or not before or values == PACKED_VALUES)
        # The last chunk may have any number of values, but no more than fit a chunk.
    else:
        numbers = np.frombuffer(words, f"<u{width}").astype(np.int64)
        places, firsts = np.zeros((2, number + 1), dtype=np.int64)
        np.cumsum(((numbers >> 4) + 1) * 8, out=places[1:])
        np.cumsum(1 << (numbers[:-1] & 15), out=firsts[1:-1])
        firsts[-1] = rows
        found = _UnequalChunks(places, firsts)
        valid = firsts[-2] < rows and places[-1] <= size
        valid = valid and (not packed or bool((np.diff(firsts[:-1]) == PACKED_VALUES).all()))
    if not valid:
        raise OtherLayout("chunks that are not those of the page")
    return found


def _flat(content: bytes, starts: list[int], counts: list[int], item: int, large: bool) -> bytes:
    pieces: list[bytes] = []
    for start, count in zip(starts, counts, strict=True):
        at, size = start + HEADER_BYTES, count * item
        _check_header(content, start, size, large)
        pieces.append(content[at : at + size])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpacked(content: bytes, starts: list[int], counts: list[int], item: int, large: bool) -> bytes:
    bits, kind = 8 * item, np.dtype(f"<u{item}")
    if max(counts) > PACKED_VALUES or any(count != PACKED_VALUES for count in counts[:-1]):
        raise OtherLayout("chunks of packed values of another length")
    widths: list[int] = []
    pieces: list[bytes] = []
    for start in starts:
        at = start + HEADER_BYTES + item
        width = int.from_bytes(content[at - item : at], "little")
        size = width * PACKED_VALUES // 8
        if width > bits:
            raise OtherLayout(f"values of {width} bits")
        _check_header(content, start, item + size, large)
        widths.append(width)
        pieces.append(content[at : at + size])
    if widths.count(widths[0]) == len(widths):
        return unpack(np.frombuffer(b"".join(pieces), kind).reshape(len(widths), -1), widths[0], bits).tobytes()
    packed = [np.frombuffer(piece, kind)[None] for piece in pieces]
    return b"".join([unpack(each, width, bits).tobytes() for each, width in zip(packed, widths, strict=True)])


def _check_header(content: bytes, at: int, size: int, large: bool) -> None:
    expected = (size << 16).to_bytes(6 if large else 4, "little")
    if not content.startswith(expected, at) or at + HEADER_BYTES + size > len(content):
        raise OtherLayout("a chunk with levels, or of another size")


def unpack(packed: Numbers, width: int, bits: int) -> Numbers:
    """Chunks of 1,024 values, each of `width` bits, as numbers of `bits` bits; one row for each chunk."""
    if width == 0:
        return np.zeros((len(packed), PACKED_VALUES), dtype=packed.dtype)
    words, following, right, left, mask = _unpacking(width, bits)
    values = packed.take(words, axis=1)
    values >>= right
    upper = packed.take(following, axis=1)
    upper <<= left
    upper <<= mask.dtype.type(1)
    values |= upper
    values &= mask
    return values


@lru_cache(maxsize=256)
def _unpacking(width: int, bits: int) -> tuple[Numbers, Numbers, Numbers, Numbers, Any]:
    """For each value the word it starts in and the one that may have the rest, how far either is shifted, less one for
    the second; and the mask."""
    kind, lanes = np.dtype(f"<u{bits // 8}"), PACKED_VALUES // bits
    row, lane = packed_places(bits)
    start = row * width
    word = start // bits
    right = (start % bits).astype(kind)
    words, following = word * lanes + lane, np.minimum(word + 1, width - 1) * lanes + lane
    return words, following, right, kind.type(bits - 1) - right, kind.type((1 << width) - 1)


@lru_cache(maxsize=256)
def _layout(encoding: bytes, item: int) -> _Layout:
    try:
        described = pb.PageEncoding.FromString(encoding).direct.encoding
        layout = pb.PageLayout.FromString(described.value)
    except DecodeError as error:
        raise OtherLayout(str(error)) from error
    if described.type_url != PAGE_LAYOUT:
        raise OtherLayout(described.type_url)
    if layout.HasField("mini_block_layout"):
        return _mini_blocks(layout.mini_block_layout, item)
    constant = layout.constant_layout
    has_levels = constant.HasField("rep_compression") or constant.HasField("def_compression")
    if constant.layers != ALL_VALID or has_levels or len(constant.inline_value) != item:
        raise OtherLayout("another layout")
    return _Layout(constant.inline_value)


def _mini_blocks(layout: pb.MiniBlockLayout, item: int) -> _Layout:
    values = layout.value_compression
    packed = values.HasField("inline_bitpacking")
    fixed = values.inline_bitpacking if packed else values.flat
    has_levels = layout.HasField("rep_compression") or layout.HasField("def_compression")
    plain = layout.layers == ALL_VALID and not has_levels and not layout.HasField("dictionary")
    if not plain or layout.num_buffers != 1 or layout.repetition_index_depth or fixed.HasField("compression"):
        raise OtherLayout("another layout")
    if fixed.bits_per_value != 8 * item:
        raise OtherLayout("values of another size")
    return _Layout(None, layout.num_items, packed, layout.has_large_chunk)
