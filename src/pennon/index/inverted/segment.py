"""An opened segment: its partitions, and of those what queries have needed so far, in the shared cache."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.errors import DamagedFile, InvalidArgument
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.store import Store
from pennon.index.arrays import Flags, Float32s
from pennon.index.cache import ByteCache
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.inverted.description import describe_partitions
from pennon.index.inverted.dictionary.dictionary import Dictionary
from pennon.index.inverted.docs import Docs, in_fragments
from pennon.index.inverted.files import PartitionFiles, SegmentMetadata, read_metadata
from pennon.index.inverted.merge import Source
from pennon.index.inverted.postings.decode_kernels import read_impacts
from pennon.index.inverted.postings.encode_kernels import BLOCK
from pennon.index.inverted.postings.lists import REMEDY, EncodedLists
from pennon.index.inverted.scoring import Statistics

# Posting lists that are loaded together to warm the cache.
WARMED = 1 << 10


class InvertedSegment:
    """A segment of an inverted index. The object is cheap; documents, dictionaries and lists live in the cache."""

    def __init__(
        self, store: Store, segment: IndexSegment, cache: ByteCache, reuse: FragmentReuse | None = None
    ) -> None:
        key = (store.location.uri, segment.uuid)
        sizes = segment.file_sizes
        self.metadata: SegmentMetadata = cache.get_or_load(
            (*key, "metadata"), lambda: (read_metadata(store, segment.directory, sizes), 4096)
        )
        self.partitions = [
            Partition(PartitionFiles(store, segment.directory, number, sizes), key, cache, self.metadata, reuse)
            for number in self.metadata.partitions
        ]

    @property
    def capacity(self) -> None:
        """Unknown: rows without a word have no document."""
        return None

    def describe(self) -> Description:
        """For the report; reads documents, dictionaries and the lengths of posting lists."""
        return describe_partitions(self.metadata.params, [partition.files for partition in self.partitions])

    @property
    def statistics(self) -> Statistics:
        """Of all its documents, dead ones included: they count until the segment is rewritten."""
        return Statistics.summed(partition.statistics for partition in self.partitions)

    def stored_ids(self) -> Iterator[Addresses]:
        """Row ids of documents as the files have them, but for those that are masked for good: no map is needed for
        them any more."""
        for partition in self.partitions:
            row_ids = partition.files.read_docs().row_ids
            yield row_ids[~in_fragments(row_ids, self.metadata.deleted_fragments)]

    def warm(self) -> Iterator[None]:
        for partition in self.partitions:
            yield from partition.warm()

    def sources(self) -> list[Source]:
        """Its partitions as they are merged: with the row ids of today, without documents known to be dead."""
        return [Source(part.files, part.docs.docs, part.docs.alive) for part in self.partitions]


@dataclass(frozen=True, eq=False)
class LiveDocs:
    """The documents of a partition by the row ids of today; `alive` marks those that still have one, None: all."""

    docs: Docs
    alive: Flags | None
    statistics: Statistics

    @property
    def nbytes(self) -> int:
        return self.docs.nbytes + (0 if self.alive is None else self.alive.nbytes)


@dataclass(frozen=True, eq=False)
class PreparedList:
    """A row of what search kernels take: sizes, and addresses of the arrays, which live as long as this does."""

    average: np.float32
    row: tuple[int, ...]
    arrays: tuple[npt.NDArray[Any], ...]


@dataclass(eq=False)
class TermList:
    """The posting list of a term, encoded, as kernels take it."""

    encoded: EncodedLists
    num_docs: int
    with_positions: bool
    _prepared: PreparedList | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Documents that have the term."""
        return int(self.encoded.sizes[0])

    @property
    def nbytes(self) -> int:
        encoded = self.encoded
        streams = 0 if encoded.stream_data is None else encoded.stream_data.nbytes
        return encoded.block_data.nbytes + encoded.impact_data.nbytes + streams + 48 * len(encoded.block_ends) + 1024

    def prepare(self, average: np.float32) -> PreparedList:
        """What kernels take for it, where documents have an average length."""
        known = self._prepared
        if known is None or known.average != average:
            known = self._prepared = self._prepare(average)
        return known

    def _prepare(self, average: np.float32) -> PreparedList:
        encoded, blocks = self.encoded, -(-self.size // BLOCK)
        if not 0 < self.size <= self.num_docs:
            raise encoded.damaged()
        lasts, bounds = np.empty(blocks, dtype=np.int64), np.empty(blocks, dtype=np.float32)
        if not read_impacts(encoded.impact_data, encoded.impact_ends, self.num_docs, average, lasts, bounds):
            raise encoded.damaged()
        arrays: list[npt.NDArray[Any]] = [encoded.block_data, encoded.block_ends, lasts, bounds]
        row = [self.size, blocks, len(encoded.block_data), *(array.ctypes.data for array in arrays), 0, 0, 0]
        if encoded.stream_data is not None and encoded.stream_ends is not None and encoded.stream_blocks is not None:
            starts = np.append(encoded.stream_blocks.astype(np.int64) + encoded.stream_ends[0], encoded.stream_ends[1])
            row[7:] = len(encoded.stream_data), encoded.stream_data.ctypes.data, starts.ctypes.data
            arrays += [encoded.stream_data, starts]
        return PreparedList(average, tuple(row), tuple(arrays))


class Partition:
    """A partition of an opened segment."""

    def __init__(
        self,
        files: PartitionFiles,
        segment: tuple[Hashable, ...],
        cache: ByteCache,
        metadata: SegmentMetadata,
        reuse: FragmentReuse | None,
    ) -> None:
        self.files, self._cache, self._metadata, self._reuse = files, cache, metadata, reuse
        self._key = (*segment, files.partition)

    @property
    def statistics(self) -> Statistics:
        return self.docs.statistics

    @property
    def num_docs(self) -> int:
        """Documents, dead ones included."""
        return self.statistics.num_docs

    @property
    def docs(self) -> LiveDocs:
        """Its documents."""
        return self._cache.get_or_load((*self._key, "docs", self._reuse and self._reuse.uuid), self._load_docs)

    @property
    def dictionary(self) -> Dictionary:
        """Its terms."""
        return self._cache.get_or_load((*self._key, "dictionary"), self._load_dictionary)

    def norms(self, statistics: Statistics) -> Float32s:
        """Of its documents, for the average length of all."""
        key = (*self._key, "norms", float(statistics.average))

        def load() -> tuple[Float32s, int]:
            norms = statistics.norms(self.docs.docs.lengths)
            return norms, norms.nbytes

        return self._cache.get_or_load(key, load)

    def term(self, number: int, with_positions: bool = False) -> TermList:
        """The posting list of a term, by its number in the dictionary."""
        if with_positions and not self._metadata.params.with_position:
            raise InvalidArgument(
                f"{self.files.where} has no positions, which a phrase needs", "Build the index with with_position=True"
            )
        key = (*self._key, number)
        found: TermList | None = self._cache.get(key)
        if found is None or (with_positions and not found.with_positions):
            encoded = self.files.read_lists(number, 1, with_positions)
            found = TermList(encoded, len(self.docs.docs), with_positions)
            self._cache.put(key, found, found.nbytes)
        return found

    def find_terms(self, terms: Sequence[str], with_positions: bool = False) -> dict[str, TermList]:
        """The posting lists of those of the terms that it has."""
        numbers = {term: self.dictionary.find(term) for term in terms}
        return {term: self.term(number, with_positions) for term, number in numbers.items() if number is not None}

    def warm(self) -> Iterator[None]:
        """Load documents, terms and posting lists, with positions where there are some."""
        docs, positions = self.docs, self._metadata.params.with_position
        for start in range(0, self.dictionary.count, WARMED):
            count = min(WARMED, self.dictionary.count - start)
            if all((*self._key, start + place) in self._cache for place in range(count)):
                continue
            for number, encoded in enumerate(self.files.read_each(start, count, positions), start):
                found = TermList(encoded, len(docs.docs), positions)
                self._cache.put((*self._key, number), found, found.nbytes)
            yield

    def damaged(self) -> DamagedFile:
        """The error for a posting list that does not hold what it should."""
        return DamagedFile(f"a posting list in {self.files.where} is damaged", REMEDY)

    def _load_docs(self) -> tuple[LiveDocs, int]:
        docs, alive = self.files.read_docs(), None
        statistics = docs.statistics
        if self._metadata.deleted_fragments:
            alive = ~in_fragments(docs.row_ids, self._metadata.deleted_fragments)
        if self._reuse is not None:
            row_ids, known = self._reuse.remap(docs.row_ids)
            docs = Docs(row_ids, docs.lengths)
            alive = known if alive is None else alive & known
        if alive is not None and alive.all():
            alive = None
        found = LiveDocs(docs, alive, statistics)
        return found, found.nbytes

    def _load_dictionary(self) -> tuple[Dictionary, int]:
        dictionary, _ = self.files.read_dictionary()
        return dictionary, dictionary.nbytes + 1024
