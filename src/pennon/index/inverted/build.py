"""From documents to a partition, in memory that the caller bounds: it gets the bytes in use after each batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexFile
from pennon.format.store import Store
from pennon.index.arrays import Int32s, Int64s
from pennon.index.inverted.analysis.documents import position_rule, tokenizer_of
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tokenizers import Tokens
from pennon.index.inverted.dictionary.dictionary import Terms
from pennon.index.inverted.docs import MOST_DOCS, Docs
from pennon.index.inverted.files import write_partition
from pennon.index.inverted.kernels import count_postings, place_tokens
from pennon.index.inverted.postings.lists import PostingLists, encode

# Postings of a batch of the invert file; a longer list is a batch of its own.
BATCH_POSTINGS = 1 << 20
# What is held until the partition is written: a number for each token, the row id and the end of each document.
_TOKEN, _ROW = 4, 16
# What distinct tokens take while they are filtered, as Python strings and in columns of text, for each and for a byte.
_FILTERED, _FILTERED_BYTE = 400, 6
# What is added while it is written: document and frequency of a posting, its position; length and row id of each
# document, three times; counts, ends and cursors of each term; and the batches that are encoded and being written.
_POSTING, _POSITION, _DOC, _TERM, _BATCHES = 8, 4, 36, 72, 28 << 20


class PartitionBuilder:
    """Collects documents in the order of their row ids, then writes them as one partition."""

    def __init__(self, params: TextParams) -> None:
        self._params = params
        self._tokenizer = tokenizer_of(params)
        self._tokens: list[Tokens] = []
        self._row_ids: list[Addresses] = []
        self._count = self._rows = 0

    @property
    def used_bytes(self) -> int:
        """What `write` will have taken at its peak, for the documents so far."""
        tokenizer, tokens, rows = self._tokenizer, self._count, self._rows
        posting = _POSTING + (_POSITION if self._params.with_position else 0)
        filtered = tokenizer.uniques * _FILTERED + tokenizer.text_bytes * _FILTERED_BYTE
        batches = min(_BATCHES, tokens * 8)
        written = tokens * posting + rows * _DOC + tokenizer.uniques * _TERM + tokenizer.text_bytes * 2 + batches
        return tokens * _TOKEN + rows * _ROW + max(tokenizer.nbytes + filtered, written)

    def add(self, column: pa.Array, row_ids: Addresses) -> None:
        """Add documents: a text column and the row id of each row."""
        if len(column) != len(row_ids):
            raise InvalidArgument(f"{len(column)} documents have {len(row_ids)} row ids")
        tokens = self._tokenizer.encode_column(column)
        self._count += len(tokens.numbers)
        self._rows += len(row_ids)
        if self._rows >= MOST_DOCS:
            raise InvalidArgument(f"a partition holds fewer than {MOST_DOCS} documents", "Write several")
        self._tokens.append(tokens)
        self._row_ids.append(row_ids)

    def write(self, store: Store, directory: str, partition: int) -> list[IndexFile]:
        """The files of the partition; none where no document has a term."""
        terms, numbers = self._terms()
        self._tokenizer = tokenizer_of(self._params)  # frees the table of distinct tokens
        docs, postings, occurrences = self._count_postings(len(terms), numbers)
        if not len(docs):
            return []
        batches = (
            encode(lists, docs.lengths, docs.statistics) for lists in self._lists(numbers, postings, occurrences)
        )
        return write_partition(store, directory, partition, batches, lambda: terms, docs, self._params.with_position)

    def _terms(self) -> tuple[Terms, Int32s]:
        """Distinct terms in byte order, and of each token the place of its term, -1 where it has none."""
        filtered = self._tokenizer.terms(Filters(self._params)).dictionary_encode()
        strings = filtered.dictionary
        order = pc.sort_indices(strings).to_numpy()
        ranks = np.empty(len(order) + 1, dtype=np.int32)
        ranks[order] = np.arange(len(order))
        ranks[-1] = -1
        numbers = pc.fill_null(filtered.indices, len(order)).to_numpy()
        return Terms.of(strings.take(pa.array(order))), ranks[numbers]

    def _count_postings(self, terms: int, numbers: Int32s) -> tuple[Docs, Int64s, Int64s]:
        postings, occurrences = np.zeros(terms, dtype=np.int64), np.zeros(terms, dtype=np.int64)
        latest, doc, kept = np.full(terms, -1, dtype=np.int32), 0, []
        for tokens, row_ids in zip(self._tokens, self._row_ids, strict=True):
            lengths = np.empty(len(row_ids), dtype=np.uint32)
            given = tokens.numbers, tokens.documents, numbers
            doc = count_postings(*given, doc, latest, postings, occurrences, lengths)
            kept.append(Docs(row_ids[lengths > 0], lengths[lengths > 0]))
        return Docs.concatenated(kept), postings, occurrences

    def _lists(self, numbers: Int32s, postings: Int64s, occurrences: Int64s) -> Iterator[PostingLists]:
        """All postings are put in place at once, and are then cut into batches."""
        ends = np.concatenate([[0], np.cumsum(postings)]).astype(np.int64)
        position_ends = np.concatenate([[0], np.cumsum(occurrences)]).astype(np.int64)
        with_positions, rule = self._params.with_position, position_rule(self._params)
        docs, freqs = np.empty(ends[-1], dtype=np.uint32), np.empty(ends[-1], dtype=np.uint32)
        positions = np.empty(position_ends[-1] if with_positions else 0, dtype=np.uint32)
        latest, doc = np.full(len(postings), -1, dtype=np.int32), 0
        cursors = ends[:-1].copy(), position_ends[:-1].copy()
        for tokens in self._tokens:
            given = tokens.numbers, tokens.documents, numbers
            doc = place_tokens(*given, doc, rule, latest, *cursors, docs, freqs, positions)
        self._tokens.clear()
        for first, last in cut_terms(postings):
            start, stop = ends[first], ends[last]
            part = positions[position_ends[first] : position_ends[last]] if with_positions else None
            yield PostingLists(ends[first : last + 1] - start, docs[start:stop], freqs[start:stop], part)


def cut_terms(postings: Int64s) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of terms for the batches of an invert file."""
    ends = np.cumsum(postings)
    first = 0
    while first < len(postings):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BATCH_POSTINGS, "right")))
        yield first, last
        first = last
