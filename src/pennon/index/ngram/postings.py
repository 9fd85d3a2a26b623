"""Posting lists in pieces: for a token and the high half of ids, a bitmap of low halves.

On tables without stable row ids the high half is the fragment, so that pieces of different fragments are joined without
decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import OFFSET_BITS, Addresses, fragment_of, offset_of
from pennon.index.ngram.folding import TOKEN_LIMIT

UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# The schema of pieces exchanged between tasks.
PIECES = pa.schema([("token", pa.uint32()), ("high", pa.uint32()), ("bitmap", pa.large_binary())])
# Bytes of bitmaps joined at once. When decoded, a byte may become 8 numbers.
WINDOW_BYTES = 8 << 20


class DamagedPostings(ValueError):
    """Bytes that are not a valid posting list."""


@dataclass(frozen=True, eq=False)
class Postings:
    """Pieces, ascending by token and high half, each once. Bitmaps are `data[starts[i]:stops[i]]`, in that order."""

    tokens: UInt32s
    highs: UInt32s
    data: Bytes
    starts: Int64s
    stops: Int64s

    @classmethod
    def of_values(cls, tokens: UInt32s, highs: UInt32s, values: UInt32s, ends: Int64s) -> Postings:
        """From the ascending low halves of each piece; `ends` is the end of each."""
        kernels = _kernels()
        sizes = np.empty(len(ends), dtype=np.int64)
        kernels.encoded_sizes(values, ends, sizes)
        stops = np.cumsum(sizes)
        data = np.zeros(int(stops[-1]) if len(stops) else 0, dtype=np.uint8)
        kernels.encode(values, ends, stops - sizes, data)
        return cls(tokens, highs, data, stops - sizes, stops)

    @classmethod
    def of_ids(cls, tokens: UInt32s, ids: Addresses) -> Postings:
        """From pairs of a token and an id, in any order, possibly repeated."""
        if not _in_order(tokens, ids):
            order = np.lexsort((ids, tokens))
            tokens, ids = tokens[order], ids[order]
            fresh = np.ones(len(ids), dtype=np.bool_)
            fresh[1:] = (ids[1:] != ids[:-1]) | (tokens[1:] != tokens[:-1])
            tokens, ids = tokens[fresh], ids[fresh]
        highs, lows = fragment_of(ids), offset_of(ids)
        first = _firsts(tokens, highs)
        ends = np.append(first[1:], len(tokens)).astype(np.int64) if len(first) else np.empty(0, dtype=np.int64)
        return cls.of_values(tokens[first], highs[first], lows, ends)

    @classmethod
    def of_lists(cls, tokens: UInt32s, lists: pa.Array) -> Postings:
        """From posting lists in the format of files. Raises DamagedPostings if they are invalid."""
        data, offsets = _binary(lists)
        most = int(offsets[-1] - offsets[0]) // 12 + 1  # the minimum size of an entry
        owners, highs = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint32)
        starts, stops, counts = (np.empty(most, dtype=np.int64) for _ in range(3))
        found = _kernels().split_treemaps(data, offsets, owners, highs, starts, stops, counts)
        if found < 0:
            raise DamagedPostings
        return cls(tokens[owners[:found]], highs[:found].copy(), data, starts[:found].copy(), stops[:found].copy())

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch) -> Postings:
        """From the result of `to_batch`, or a part of it."""
        data, offsets = _binary(batch.column(2))
        return cls(batch.column(0).to_numpy(), batch.column(1).to_numpy(), data, offsets[:-1], offsets[1:])

    def to_batch(self) -> pa.RecordBatch:
        """In the form of `PIECES`."""
        dense = self._dense()
        offsets = np.concatenate([dense.starts[:1], dense.stops]) if len(self) else np.zeros(1, dtype=np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(dense.data)]
        bitmaps = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
        return pa.record_batch([pa.array(self.tokens), pa.array(self.highs), bitmaps], schema=PIECES)

    def __len__(self) -> int:
        return len(self.tokens)

    def slice(self, start: int, stop: int) -> Postings:
        return Postings(
            self.tokens[start:stop], self.highs[start:stop], self.data, self.starts[start:stop], self.stops[start:stop]
        )

    def between(self, low: int, high: int) -> Postings:
        """Pieces of the tokens in [low, high)."""
        return self.slice(*np.searchsorted(self.tokens, np.array([low, high], dtype=np.uint32)).tolist())

    @property
    def nbytes(self) -> int:
        return int(self.stops[-1] - self.starts[0]) + 24 * len(self) if len(self) else 0

    def ids(self) -> tuple[UInt32s, Addresses]:
        """The token of every id, and the ids. Raises DamagedPostings if bitmaps are not sorted."""
        counts = self.counts()
        values, ends = np.empty(int(counts.sum()), dtype=np.uint32), np.cumsum(counts)
        if _kernels().decode_all(self.data, self.starts, ends, values) < 0:
            raise DamagedPostings
        highs = np.repeat(self.highs.astype(np.uint64), counts)
        return np.repeat(self.tokens, counts), (highs << OFFSET_BITS) | values

    def cut(self, most_ids: int) -> Iterator[Postings]:
        """The same pieces, with at most this many ids at a time; one piece may have more."""
        reached = np.cumsum(self.counts())
        start = 0
        while start < len(self):
            before = int(reached[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(reached, before + most_ids, "right")))
            yield self.slice(start, stop)
            start = stop

    def counts(self) -> Int64s:
        """The number of ids of each piece."""
        counts = np.empty(len(self), dtype=np.int64)
        if _kernels().measure_all(self.data, self.starts, self.stops, counts) < 0:
            raise DamagedPostings
        return counts

    def _dense(self) -> Postings:
        """A copy without gaps between the bitmaps."""
        if bool((self.starts[1:] == self.stops[:-1]).all()):
            return self
        sizes = self.stops - self.starts
        stops = np.cumsum(sizes)
        data = np.empty(int(stops[-1]), dtype=np.uint8)
        _kernels().copy_all(self.data, self.starts, self.stops, data)
        return Postings(self.tokens, self.highs, data, stops - sizes, stops)


def join_postings(parts: Sequence[Postings]) -> Iterator[tuple[UInt32s, pa.Array]]:
    """Sorted tokens and their posting lists in the format of files, a few MiB at a time. Raises DamagedPostings as
    `ids`."""
    for low, high in _windows(parts):
        joined = _united(_gathered([part.between(low, high) for part in parts]))
        if len(joined):
            first = _firsts(joined.tokens)
            yield joined.tokens[first], _lists(joined, first)


def _windows(parts: Sequence[Postings]) -> Iterator[tuple[int, int]]:
    """Ranges of tokens whose bitmaps fit into a window; a single token may exceed it."""
    sizes = np.zeros(TOKEN_LIMIT, dtype=np.int64)
    for part in parts:
        np.add.at(sizes, part.tokens, part.stops - part.starts)
    reached = np.cumsum(sizes)
    low = 0
    while low < TOKEN_LIMIT and (int(reached[-1]) > int(reached[low - 1]) if low else reached[-1] > 0):
        before = int(reached[low - 1]) if low else 0
        high = max(int(np.searchsorted(reached, before + WINDOW_BYTES, "right")), low + 1)
        yield low, high
        low = high


def _gathered(parts: Sequence[Postings]) -> Postings:
    """All pieces, sorted; those of one token and high half are adjacent."""
    parts = [part for part in parts if len(part)]
    if not parts:
        nothing = np.empty(0, dtype=np.int64)
        return Postings(nothing.astype(np.uint32), nothing.astype(np.uint32), np.empty(0, np.uint8), nothing, nothing)
    if len(parts) == 1:
        return parts[0]
    tokens, highs = (np.concatenate([getattr(part, name) for part in parts]) for name in ("tokens", "highs"))
    shifts = np.cumsum([0] + [int(part.stops[-1] - part.starts[0]) for part in parts])
    moved = [shift - part.starts[0] for part, shift in zip(parts, shifts, strict=False)]
    data = np.concatenate([part.data[part.starts[0] : part.stops[-1]] for part in parts])
    starts = np.concatenate([part.starts + by for part, by in zip(parts, moved, strict=True)])
    stops = np.concatenate([part.stops + by for part, by in zip(parts, moved, strict=True)])
    order = np.lexsort((highs, tokens))
    return Postings(tokens[order], highs[order], data, starts[order], stops[order])


def _united(gathered: Postings) -> Postings:
    """Join pieces of one token and high half."""
    first = _firsts(gathered.tokens, gathered.highs)
    if len(first) == len(gathered):
        return gathered
    runs = np.diff(np.append(first, len(gathered)))
    several = np.repeat(runs > 1, runs)
    united = Postings.of_ids(*_chosen(gathered, several).ids())
    single = _chosen(gathered, ~several)
    shift = len(gathered.data)
    tokens, highs = np.concatenate([single.tokens, united.tokens]), np.concatenate([single.highs, united.highs])
    order = np.lexsort((highs, tokens))
    starts = np.concatenate([single.starts, united.starts + shift])[order]
    stops = np.concatenate([single.stops, united.stops + shift])[order]
    return Postings(tokens[order], highs[order], np.concatenate([gathered.data, united.data]), starts, stops)


def _chosen(postings: Postings, which: npt.NDArray[np.bool_]) -> Postings:
    return Postings(
        postings.tokens[which], postings.highs[which], postings.data, postings.starts[which], postings.stops[which]
    )


def _in_order(tokens: UInt32s, ids: Addresses) -> bool:
    """Whether tokens and ids are sorted, as they are if a compaction keeps the order of rows."""
    same = tokens[1:] == tokens[:-1]
    return bool(((tokens[1:] > tokens[:-1]) | (same & (ids[1:] > ids[:-1]))).all())


def _firsts(*keys: UInt32s) -> Int64s:
    """The positions where a key differs from the previous one."""
    fresh = np.ones(len(keys[0]), dtype=np.bool_)
    fresh[1:] = False
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(fresh)


def _lists(postings: Postings, first: Int64s) -> pa.Array:
    """u64 entries, and for each its high half and its bitmap."""
    bounds = np.append(first, len(postings)).astype(np.int64)
    reached = np.concatenate([[0], np.cumsum(postings.stops - postings.starts + 4)])
    offsets = reached[bounds] + 8 * np.arange(len(bounds))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a posting list of 2 GiB and more")
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    _kernels().write_treemaps(
        postings.data, postings.starts, postings.stops, postings.highs, bounds, offsets[:-1].copy(), data
    )
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(first), buffers)


def _binary(array: pa.Array) -> tuple[Bytes, Int64s]:
    """Bytes and offsets of a binary array without NULLs."""
    wide = array if pa.types.is_large_binary(array.type) else array.cast(pa.large_binary())
    _, offset_buffer, data_buffer = wide.buffers()
    if offset_buffer is None or not len(wide):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return np.frombuffer(data_buffer or b"", dtype=np.uint8), offsets


@cache
def _kernels() -> ModuleType:
    """Imported when postings are first encoded or decoded: numba takes a second to load, and queries do not need it."""
    from pennon.index.ngram import bitmap_kernels  # noqa: PLC0415

    return bitmap_kernels
