"""Base tokenizers over Arrow text columns: every token as the number of a distinct one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import UnsupportedColumn
from pennon.index.arrays import Bytes, Flags, Int32s, Int64s
from pennon.index.inverted.analysis import kernels
from pennon.index.inverted.analysis.column_types import TEXTS, supports_text
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tables import alphanumeric, not_whitespace
from pennon.index.inverted.analysis.token_table import TokenTable, enlarged


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents as runs of elements, the elements as ranges of bytes; what is NULL is in neither."""

    data: Bytes
    starts: Int64s
    stops: Int64s
    documents: Int64s  # elements before each document, and all of them

    def __len__(self) -> int:
        return len(self.documents) - 1

    def slice(self, first: int, last: int) -> Texts:
        """Documents [first, last)."""
        a, b = self.documents[first], self.documents[last]
        return Texts(self.data, self.starts[a:b], self.stops[a:b], self.documents[first : last + 1] - a)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of consecutive documents, by number, and the tokens before each document."""

    numbers: Int32s
    documents: Int64s


def texts_of(column: pa.Array) -> Texts:
    """The documents of a column: a text each, or a list of texts."""
    if not supports_text(column.type):
        raise UnsupportedColumn(
            f"a column of type {column.type} does not hold text", "Index a column of strings or of lists of strings"
        )
    if column.type in TEXTS:
        data, starts, stops, valid = _elements(column)
        documents = np.arange(len(column) + 1) if valid is None else np.concatenate([[0], np.cumsum(valid)])
        return Texts(data, starts, stops, documents.astype(np.int64, copy=False))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    data, starts, stops, valid = _elements(column.flatten())
    if valid is not None:
        bounds = np.concatenate([[0], np.cumsum(valid)])[bounds]
    return Texts(data, starts, stops, bounds.astype(np.int64, copy=False))


def _elements(column: pa.Array) -> tuple[Bytes, Int64s, Int64s, Flags | None]:
    """Bytes, where the valid elements start and stop, and which are valid where not all are."""
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    large = pa.types.is_large_string(column.type)
    content = column.buffers()[2]
    data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.empty(0, dtype=np.uint8)
    if not len(column):
        empty = np.empty(0, dtype=np.int64)
        return data, empty, empty, None
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if large else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64, copy=False)
    starts, stops = offsets[:-1], offsets[1:]
    if not column.null_count:
        return data, starts, stops, None
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return data, starts[valid], stops[valid], valid


class Tokenizer:
    """Numbers the tokens of one document after another; the same token always has the same number."""

    def __init__(self, params: TextParams) -> None:
        self._encode = _kernel(params)
        # Tokens that a kernel finds at one place of a text, or none of them.
        self._at_once = params.max_ngram_length - params.min_ngram_length + 1
        self._state = np.zeros(4, dtype=np.int64)
        self._table = TokenTable()

    @property
    def uniques(self) -> int:
        """Distinct tokens so far."""
        return int(self._state[kernels.UNIQUES])

    @property
    def nbytes(self) -> int:
        """Bytes that the table of distinct tokens takes."""
        return self._table.nbytes

    @property
    def text_bytes(self) -> int:
        """Bytes of the distinct tokens."""
        return self._table.text_bytes(self.uniques)

    def encode_column(self, column: pa.Array) -> Tokens:
        """The tokens of the rows of a column."""
        return self.encode(texts_of(column))

    def encode(self, texts: Texts) -> Tokens:
        """The tokens of some documents."""
        size = int((texts.stops - texts.starts).sum())
        found = np.empty(size // 5 + len(texts) + 16, dtype=np.int32)
        ends = np.zeros(len(texts.starts) + 1, dtype=np.int64)
        self._state[1:] = 0, 0, -1
        given = texts.data, texts.starts, texts.stops
        while not self._encode(*given, *self._table.arrays, self._state, found, ends[1:]):
            found = self._make_room(texts, found)
        numbers = found[: self._state[kernels.FOUND]]
        if len(found) > len(numbers) + len(numbers) // 8:
            numbers = numbers.copy()  # frees the room that was not needed
        return Tokens(numbers, ends[texts.documents])

    def strings(self, first: int = 0) -> pa.Array:
        """Distinct tokens from a number on, as large binary values."""
        return self._table.strings(self.uniques, first)

    def terms(self, filters: Filters, first: int = 0) -> pa.Array:
        """What becomes of the distinct tokens from a number on: a large string each, NULL where it is left out."""
        return filters.apply(self.strings(first))

    def _make_room(self, texts: Texts, found: Int32s) -> Int32s:
        """Twice the room of each buffer that is full."""
        unique, count, element = self._state[:3].tolist()
        if not self._table.is_full(unique) and count + self._at_once > len(found):
            return enlarged(found, 2 * len(found) + self._at_once)
        self._table.make_room(unique, int(texts.stops[element] - texts.starts[element]))
        return found


def _kernel(params: TextParams) -> Callable[..., bool]:
    """The kernel of a base tokenizer, with its arguments after texts and table."""
    if params.base_tokenizer == "raw":
        return kernels.encode_whole
    if params.base_tokenizer == "ngram":
        lengths = params.min_ngram_length, params.max_ngram_length, params.prefix_only
        return lambda data, starts, stops, *table: kernels.encode_ngrams(data, starts, stops, *lengths, *table)
    in_words = alphanumeric() if params.base_tokenizer == "simple" else not_whitespace()
    return lambda data, starts, stops, *table: kernels.encode_words(data, starts, stops, in_words, *table)
