"""Several partitions become one: documents one after another, posting lists joined term by term and encoded again.

Scores and impacts depend on all documents of a partition, so that every list is written again; the outcome equals a
build from the documents themselves. Only one batch of lists is decoded at a time. Lists of partitions that are in term
order, as Pennon writes them, are read as they are needed; pylance numbers terms by first appearance, and such a file is
held in memory, encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument
from pennon.format.index_metadata import IndexFile
from pennon.format.store import Store
from pennon.index.arrays import Flags, Int64s, UInt32s
from pennon.index.inverted.build import cut_terms
from pennon.index.inverted.dictionary.dictionary import Terms
from pennon.index.inverted.docs import MOST_DOCS, Docs
from pennon.index.inverted.files import PartitionFiles, write_partition
from pennon.index.inverted.kernels import DEAD, count_live, place_lists
from pennon.index.inverted.postings.lists import EncodedLists, PostingLists, encode


@dataclass(frozen=True, eq=False)
class Source:
    """A partition to be merged. `docs` have the row ids of today; those that `alive` does not mark are dropped."""

    files: PartitionFiles
    docs: Docs
    alive: Flags | None = None

    def live_docs(self) -> Docs:
        """Documents that stay."""
        if self.alive is None:
            return self.docs
        return Docs(self.docs.row_ids[self.alive], self.docs.lengths[self.alive])

    def new_docs(self, first: int) -> UInt32s:
        """The new number of each document, counted from `first`; `DEAD` where it is dropped."""
        if self.alive is None:
            return np.arange(first, first + len(self.docs), dtype=np.uint32)
        numbers = np.full(len(self.docs), DEAD, dtype=np.uint32)
        numbers[self.alive] = np.arange(first, first + int(self.alive.sum()), dtype=np.uint32)
        return numbers


def merge_partitions(
    sources: Sequence[Source], store: Store, directory: str, partition: int, with_positions: bool
) -> list[IndexFile]:
    """Write the partition that the sources become; no files where no document is left."""
    docs = Docs.concatenated([source.live_docs() for source in sources])
    if len(docs) >= MOST_DOCS:
        raise InvalidArgument(f"{len(docs)} documents are too many for one partition", "Merge fewer partitions")
    if not len(docs):
        return []
    merge = _Merge.of(sources, with_positions)
    batches = (encode(lists, docs.lengths, docs.statistics) for lists in merge.lists())
    return write_partition(store, directory, partition, batches, merge.surviving, docs, with_positions)


class _Lists:
    """The posting lists of a source, in term order."""

    def __init__(self, source: Source, with_positions: bool) -> None:
        self._files, self._limit, self._with_positions = source.files, len(source.docs), with_positions
        dictionary, total = source.files.read_dictionary()
        self.terms, self._rows = dictionary.list_all(total)
        sizes = source.files.read_sizes()
        self.in_order = bool((self._rows == np.arange(len(self._rows))).all())
        self.sizes: Int64s = sizes if self.in_order else sizes[self._rows]

    def decode(self, first: int, last: int) -> PostingLists:
        """Of the terms [first, last)."""
        if self.in_order:
            encoded = self._files.read_lists(first, last - first, self._with_positions)
        else:
            table, where = self._whole
            encoded = EncodedLists.of(table.take(pa.array(self._rows[first:last])), where)
        return encoded.decode(self._limit)

    @cached_property
    def _whole(self) -> tuple[pa.Table, str]:
        return self._files.read_table(self._with_positions)


@dataclass(frozen=True, eq=False)
class _Merge:
    """The terms of all sources in order, and of each source the places of its own among them."""

    lists_of: list[_Lists]
    new_docs: list[UInt32s]
    terms: Terms
    places: list[Int64s]
    with_positions: bool
    kept: Flags  # terms that have postings of documents that stay; set while lists are merged

    @classmethod
    def of(cls, sources: Sequence[Source], with_positions: bool) -> _Merge:
        lists_of = [_Lists(source, with_positions) for source in sources]
        firsts = np.concatenate([[0], np.cumsum([len(source.live_docs()) for source in sources])])
        new_docs = [source.new_docs(int(first)) for source, first in zip(sources, firsts[:-1], strict=True)]
        named = pa.chunked_array([lists.terms.strings() for lists in lists_of], pa.large_binary())
        encoded = named.combine_chunks().dictionary_encode()
        strings = encoded.dictionary
        order = pc.sort_indices(strings).to_numpy()
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        ends = np.cumsum([len(lists.terms) for lists in lists_of])
        places = np.split(ranks[encoded.indices.to_numpy()], ends[:-1])
        terms = Terms.of(strings.take(pa.array(order)))
        return cls(lists_of, new_docs, terms, places, with_positions, np.zeros(len(terms), dtype=np.bool_))

    def lists(self) -> Iterator[PostingLists]:
        """Joined lists, a batch of terms at a time."""
        sizes = np.zeros(len(self.terms), dtype=np.int64)
        for lists, places in zip(self.lists_of, self.places, strict=True):
            sizes[places] += lists.sizes
        for first, last in cut_terms(sizes):
            joined = self._join(first, last)
            if len(joined.ends) > 1:
                yield joined

    def surviving(self) -> Terms:
        """The terms of the lists that were joined."""
        if self.kept.all():
            return self.terms
        return Terms.of(self.terms.strings().filter(pa.array(self.kept)))

    def _join(self, first: int, last: int) -> PostingLists:
        postings, occurrences = np.zeros(last - first, dtype=np.int64), np.zeros(last - first, dtype=np.int64)
        parts: list[tuple[Int64s, PostingLists, UInt32s]] = []
        for lists, places, new_docs in zip(self.lists_of, self.places, self.new_docs, strict=True):
            start, stop = np.searchsorted(places, [first, last]).tolist()
            if start < stop:
                targets, found = places[start:stop] - first, lists.decode(start, stop)
                count_live(targets, found.ends, found.docs, found.freqs, new_docs, postings, occurrences)
                parts.append((targets, found, new_docs))
        ends, position_ends = _ends(postings), _ends(occurrences)
        docs, freqs = np.empty(ends[-1], dtype=np.uint32), np.empty(ends[-1], dtype=np.uint32)
        positions = np.empty(position_ends[-1] if self.with_positions else 0, dtype=np.uint32)
        cursors = ends[:-1].copy(), position_ends[:-1].copy()
        for targets, found, new_docs in parts:
            taken = found.positions if found.positions is not None else positions[:0]
            given = targets, found.ends, found.docs, found.freqs, taken, new_docs
            place_lists(*given, *cursors, docs, freqs, positions)
        self.kept[first:last] = postings > 0
        return PostingLists(_ends(postings[postings > 0]), docs, freqs, positions if self.with_positions else None)


def _ends(sizes: Int64s) -> Int64s:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
