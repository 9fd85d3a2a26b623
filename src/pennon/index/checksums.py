"""Digests of decoded rows, to detect a flipped bit in a value, an id or a code when it is read.

Lance files have no checksums, and for most contents of an index any bits are plausible. A digest is a sum modulo 2**64:
every item as a 64-bit word times an odd number that depends on its position in the run (a page, a partition) and its
column. One changed bit always changes the sum; other changes go undetected with a probability of about one in 2**60.
numpy computes the sum faster than memory delivers the rows. A digest covers values, not bytes of a file, so it stays
valid when rows are copied to a file of another version or encoding.

Items of more than eight bytes are first summed to one word. For items of variable length, the lengths are the words,
and a CRC-32 of their concatenated bytes is added at the end of a run.

A file of checksums is sealed for its segment: it begins with a CRC-32, in little endian, of the uuid of the segment and
all that follows. If the files of a segment are replaced by those of another one, checksums included, that is detected.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Digests = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
# Weights within an item come from a separate stream, after those of any column.
_ITEM_STREAM = 1 << 10
_CRC_WEIGHT = 0x9E37_79B9_7F4A_7C15
_SEAL_BYTES = 4


def sealed(directory: str, content: bytes) -> bytes:
    """The content of a file of checksums, for the directory of its segment."""
    return _seal(directory, content) + content


def unsealed(directory: str, content: bytes) -> bytes | None:
    """What was sealed; None if the file was damaged, or written for another segment."""
    kept = content[_SEAL_BYTES:]
    return kept if content[:_SEAL_BYTES] == _seal(directory, kept) else None


def _seal(directory: str, content: bytes) -> bytes:
    uuid = directory.rpartition("/")[2].encode()
    return zlib.crc32(content, zlib.crc32(uuid)).to_bytes(_SEAL_BYTES, "little")


@dataclass(frozen=True, eq=False)
class _Column:
    """A word for each row; for rows of variable length also their bytes, and the start of each row."""

    words: Words
    data: npt.NDArray[np.uint8] | None = None
    starts: npt.NDArray[np.int64] | None = None


class Digester:
    """Digests of consecutive runs, whose rows may arrive in pieces of any size."""

    def __init__(self, lengths: Iterable[int]) -> None:
        """The number of rows of each run; the last run may be shorter."""
        self._lengths = iter(lengths)
        self._left = self._place = 0
        self._crcs: dict[int, int] = {}
        self._found: list[int] = []
        self._page = 0  # rows of every run, if known

    @classmethod
    def of_pages(cls, rows: int) -> Digester:
        digester = cls(repeat(rows))
        digester._page = rows
        return digester

    def add(self, arrays: Sequence[pa.Array]) -> None:
        self._add([_column(array) for array in arrays], 0, len(arrays[0]) if arrays else 0)

    def _add(self, columns: Sequence[_Column], at: int, stop: int) -> None:
        while at < stop:
            if not self._left and (pages := self._whole_pages(columns, stop - at)):
                at += self._add_pages(columns, at, pages)
                continue
            while not self._left:
                self._begin()
            count = min(self._left, stop - at)
            self._found[-1] = (self._found[-1] + self._sum(columns, at, count)) & _MASK
            self._left -= count
            self._place += count
            at += count

    def _whole_pages(self, columns: Sequence[_Column], rows: int) -> int:
        """The number of pages that can be summed at once."""
        return rows // self._page if self._page and all(column.data is None for column in columns) else 0

    def _add_pages(self, columns: Sequence[_Column], at: int, pages: int) -> int:
        """Add whole pages, and return the number of their rows."""
        self._end()
        rows, sums = pages * self._page, np.zeros(pages, dtype=np.uint64)
        for number, column in enumerate(columns):
            words, factors = column.words[at : at + rows], weights(self._page, number)
            if pages == 1:
                sums += np.dot(words, factors)  # several times as fast as for many
            else:
                sums += np.einsum("ij,j->i", words.reshape(pages, self._page), factors)
        self._found += sums.tolist()
        return rows

    def finish(self) -> Digests:
        """The digests of all started runs, and of empty ones up to the end."""
        self._end()
        if not isinstance(self._lengths, repeat):
            self._found += [0 for _ in self._lengths]
        return np.array(self._found, dtype=np.uint64)

    def _begin(self) -> None:
        self._end()
        self._left, self._place = next(self._lengths), 0
        self._found.append(0)

    def _end(self) -> None:
        for number, crc in self._crcs.items():
            self._found[-1] = (self._found[-1] + crc * (_CRC_WEIGHT + 2 * number)) & _MASK
        self._crcs = {}

    def _sum(self, columns: Sequence[_Column], at: int, count: int) -> int:
        total, stop = 0, self._place + count
        for number, column in enumerate(columns):
            total += int(np.dot(column.words[at : at + count], weights(stop, number)[self._place :]))
            if column.data is not None and column.starts is not None:
                content = column.data[column.starts[at] : column.starts[at + count]]
                self._crcs[number] = zlib.crc32(content.data, self._crcs.get(number, 0))
        return total


def digests_of(arrays: Sequence[pa.Array], lengths: Iterable[int]) -> Digests:
    """The digests of rows that are all in memory."""
    digester = Digester(lengths)
    digester.add(arrays)
    return digester.finish()


def digests_of_runs(arrays: Sequence[pa.Array], lengths: Sequence[int]) -> Digests | None:
    """The digests of many short runs, which are all of the rows, at once; None for rows of variable length."""
    columns, sizes = [_column(array) for array in arrays], np.asarray(lengths, dtype=np.int64)
    if any(column.data is not None or len(column.words) != sizes.sum() for column in columns):
        return None
    found, filled = np.zeros(len(sizes), dtype=np.uint64), np.flatnonzero(sizes)
    starts = np.cumsum(sizes) - sizes
    places = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
    for number, column in enumerate(columns if len(filled) else ()):
        products = weights(int(sizes.max()), number).take(places)
        products *= column.words
        found[filled] += np.add.reduceat(products, starts[filled])
    return found


def digests_of_slices(arrays: Sequence[pa.Array], slices: Iterable[tuple[int, int]]) -> Digests:
    """The digests of some slices [start, stop) of rows that are all in memory."""
    columns = [_column(array) for array in arrays]
    return np.array([_digest(columns, start, stop) for start, stop in slices], dtype=np.uint64)


def chunks_of(table: pa.Table | pa.RecordBatch) -> Iterator[list[pa.Array]]:
    """The columns of a table, piece by piece."""
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    return (batch.columns for batch in batches if batch.num_rows)


def weights(count: int, stream: int) -> Words:
    """The first weights of a stream: splitmix64 of their numbers, made odd."""
    return _weights(max(10, (count - 1).bit_length()), stream)[:count]


@lru_cache(maxsize=64)
def _weights(bits: int, stream: int) -> Words:
    words = np.arange(1, (1 << bits) + 1, dtype=np.uint64) + np.uint64(stream << 40)
    words *= np.uint64(0x9E37_79B9_7F4A_7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    words ^= words >> np.uint64(31)
    words |= np.uint64(1)
    words.flags.writeable = False
    return words


def _digest(columns: Sequence[_Column], start: int, stop: int) -> int:
    digester = Digester([stop - start])
    digester._add(columns, start, stop)  # pyright: ignore[reportPrivateUsage]
    return int(digester.finish()[0])


def _column(array: pa.Array) -> _Column:
    form = _form(array.type)
    if form == "view":
        array = array.cast(pa.large_binary() if array.type == pa.binary_view() else pa.large_string())
    if form in ("view", "ragged"):
        return _ragged(array)
    if form == "word" and len(array):
        words = np.frombuffer(array.buffers()[1], dtype=np.uint64)[array.offset : array.offset + len(array)]
    elif form == "bit":
        words = array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
    else:
        words = _words(_bytes(array))
    if array.null_count:
        # Bytes under a NULL are not part of the value.
        words = np.where(array.is_valid().to_numpy(zero_copy_only=False), words, np.uint64(0))
    return _Column(words)


@lru_cache(maxsize=256)
def _form(type_: pa.DataType) -> str:
    """The way to turn items of a type into words; cached, since it is needed for every page."""
    if type_ in (pa.string_view(), pa.binary_view()):
        return "view"
    if type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return "ragged"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return "ragged"
    if pa.types.is_boolean(type_):
        return "bit"
    return "word" if pa.types.is_primitive(type_) and type_.bit_width == 64 else "bytes"


def _ragged(array: pa.Array) -> _Column:
    type_, item = array.type, 1
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = type_.value_type.bit_width // 8
        large, content = pa.types.is_large_list(type_), _bytes(array.values).reshape(-1)
    else:
        large, data = type_ in (pa.large_string(), pa.large_binary()), array.buffers()[2]
        content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    if not len(array):
        return _Column(np.empty(0, dtype=np.uint64))
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64 if large else np.int32)
    starts = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return _Column(np.diff(starts).astype(np.uint64), content, starts * item)


def _bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Rows of fixed width as a matrix of their bytes."""
    type_ = array.type
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        items = _bytes(array.values.slice(array.offset * size, len(array) * size))
        return items.reshape(len(array), size * items.shape[1])
    width = type_.byte_width if pa.types.is_fixed_size_binary(type_) else type_.bit_width // 8
    data = array.buffers()[1] if len(array) else None
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(len(array) * width, dtype=np.uint8)
    return content[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)


def _words(rows: npt.NDArray[np.uint8]) -> Words:
    """One word for each row of bytes."""
    count, width = rows.shape
    if width in (1, 2, 4):
        narrow: npt.NDArray[Any] = np.ascontiguousarray(rows).view(f"<u{width}")
        return narrow.reshape(count).astype(np.uint64)
    if width % 8:
        padded = np.zeros((count, -(-width // 8) * 8), dtype=np.uint8)
        padded[:, :width] = rows
        rows = padded
    words = np.ascontiguousarray(rows).view("<u8")
    if words.shape[1] == 1:
        return words.reshape(count)
    return np.einsum("ij,j->i", words, weights(words.shape[1], _ITEM_STREAM))
