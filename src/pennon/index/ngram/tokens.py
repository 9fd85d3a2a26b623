"""The tokens of texts: of the few in a query, and of all rows of a column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses, fragment_of, offset_of
from pennon.index.ngram.folding import TOKEN_LIMIT, fold_tables, prepared, token
from pennon.index.ngram.postings import Postings

UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]
N = TypeVar("N", np.uint32, np.int64)

# Bytes of a token of a row until postings are encoded: its number, its row, and about as much in a bitmap.
BYTES_PER_TOKEN = 12
LEAST_TOKENS = 1 << 16
FIRST_ROWS = 1 << 17


def is_text(type_: pa.DataType) -> bool:
    """Whether the values of a column are texts."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def tokens_of(pieces: Iterable[str]) -> frozenset[int]:
    """Tokens of every text that contains the pieces, in any letter case: characters that differ only in case become the
    same letters."""
    found: set[int | None] = set()
    for text in map(prepared, pieces):
        found.update(map(token, text, text[1:], text[2:]))
    return frozenset(number for number in found if number is not None)


def token_sets(texts: pa.Array) -> tuple[UInt32s, Int64s]:
    """The distinct tokens of each text, unsorted, and the end of those of each text."""
    collector = _Collector(_most_tokens(texts))
    collector.add(texts)
    return collector.found[: collector.tokens], collector.ends[: len(texts)]


def collect_postings(batches: Iterable[tuple[pa.Array, Addresses]], memory_bytes: int) -> Iterator[Postings]:
    """The postings of texts and their ids: for ids of one high half at a time, and as many rows as fit into memory."""
    collector = _Collector(max(LEAST_TOKENS, memory_bytes // BYTES_PER_TOKEN))
    for texts, ids in batches:
        highs = fragment_of(ids)
        edges = [0, *(np.flatnonzero(highs[1:] != highs[:-1]) + 1).tolist(), len(ids)]
        for start, stop in pairwise(edges):
            if collector.rows and collector.high != highs[start]:
                yield collector.postings()
            collector.high = int(highs[start])
            while (read := collector.add(texts.slice(start, stop - start), offset_of(ids[start:stop]))) < stop - start:
                start += read
                if collector.rows:
                    yield collector.postings()
                else:
                    collector.widen(_most_tokens(texts.slice(start, 1)))
    if collector.rows:
        yield collector.postings()


class _Collector:
    """Collects tokens of rows whose ids have one high half, until they are encoded as postings."""

    def __init__(self, room: int) -> None:
        # Memory pages that are never written are never allocated.
        self._counts, self._last = np.zeros(TOKEN_LIMIT, dtype=np.uint32), np.zeros(TOKEN_LIMIT, dtype=np.uint32)
        self._seen = np.empty(TOKEN_LIMIT, dtype=np.uint32)
        self._values = np.empty(FIRST_ROWS, dtype=np.uint32)
        self._state = np.zeros(2, dtype=np.int64)
        self.ends = np.empty(FIRST_ROWS, dtype=np.int64)
        self.found = np.empty(room, dtype=np.uint32)
        self.rows = self.high = 0

    @property
    def tokens(self) -> int:
        return int(self._state[0])

    def add(self, texts: pa.Array, values: UInt32s | None = None) -> int:
        """Add texts while there is room, and return their number; `values` are the low halves of their ids."""
        data, offsets = _characters(texts)
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        self.ends = _grown(self.ends, self.rows + len(texts))
        self._values = _grown(self._values, self.rows + len(texts))
        tables = self._counts, self._last, self.found, self._seen, self.ends, self._state
        read = _kernels().find_tokens(data, offsets, present, 0, self.rows, *fold_tables(), *tables)
        if values is not None:
            self._values[self.rows : self.rows + read] = values[:read]
        self.rows += read
        return read

    def widen(self, tokens: int) -> None:
        """Grow the buffers for a text that is larger than they are."""
        self.found = np.empty(tokens, dtype=np.uint32)

    def postings(self) -> Postings:
        """The postings of all added rows; the collector is empty afterwards."""
        seen, values = np.sort(self._seen[: int(self._state[1])]), self._values[: self.rows]
        ends = np.cumsum(self._counts[seen], dtype=np.int64)
        places = np.zeros(TOKEN_LIMIT, dtype=np.int64)
        places[seen] = ends - self._counts[seen]
        order = np.arange(self.rows) if bool((values[1:] > values[:-1]).all()) else np.argsort(values)
        rows = np.empty(self.tokens, dtype=np.uint32)
        _kernels().place_rows(self.found, self.ends, order, values, places, rows)
        highs = np.full(len(seen), self.high, dtype=np.uint32)
        self._counts[seen] = self._last[seen] = 0
        self._state[:] = self.rows = 0
        return Postings.of_values(seen, highs, rows, ends)


def _characters(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s]:
    wide = texts if pa.types.is_large_string(texts.type) else texts.cast(pa.large_string())
    _, offset_buffer, data_buffer = wide.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return np.frombuffer(data_buffer or b"", dtype=np.uint8), offsets


def _most_tokens(texts: pa.Array) -> int:
    """An upper bound on the number of tokens of the texts."""
    _, offsets = _characters(texts)
    return _kernels().LETTERS_PER_BYTE * int(offsets[-1] - offsets[0]) + len(texts)


def _grown(array: npt.NDArray[N], least: int) -> npt.NDArray[N]:
    if len(array) >= least:
        return array
    larger = np.empty(max(least, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@cache
def _kernels() -> ModuleType:
    """Imported when a column is first read; queries do not need it."""
    from pennon.index.ngram import kernels  # noqa: PLC0415

    return kernels
