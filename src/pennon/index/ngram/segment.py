"""Search one n-gram segment: the rows that have every trigram of the requested texts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from pennon.format.addresses import Addresses, read_address_bitmap, sorted_unique
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate
from pennon.index.ngram.description import describe_tokens
from pennon.index.ngram.files import POSTINGS_FILE, PostingsFile
from pennon.index.ngram.lookups import tokens_to_look_up

# Ids decoded from bitmaps at once.
LISTED = 1 << 20
# Posting lists that are loaded together to warm the cache.
WARMED = 1 << 10


class NGramSegment:
    """An opened segment. Tokens and posting lists are in the shared cache."""

    capacity = None  # rows without a trigram have no entry

    def __init__(
        self, store: Store, segment: IndexSegment, cache: ByteCache, reuse: FragmentReuse | None = None
    ) -> None:
        self._store, self._segment, self._cache, self._reuse = store, segment, cache, reuse
        self._key = (store.location.uri, segment.uuid)
        self.tokens: npt.NDArray[np.uint32] = cache.get_or_load((*self._key, "tokens"), self._load_tokens)

    def search(self, condition: Condition) -> RowSet:
        found = BitMap64()
        for lists in self._alternatives(condition):
            found |= reduce(BitMap64.__and__, sorted(lists, key=len))
        stored = np.frombuffer(found.to_array(), dtype=np.uint64)
        if self._reuse is None:
            return RowSet.of_addresses(stored)
        addresses, alive = self._reuse.remap(stored)
        return RowSet.of_addresses(sorted_unique(addresses[alive]))

    def estimate(self, condition: Condition) -> Estimate:
        """The length of the shortest posting list. Lengths are not recorded elsewhere, so the lists are read, and
        `search` gets them from the cache."""
        found = self._alternatives(condition)
        return Estimate(sum(map(len, found)), sum(min(map(len, lists)) for lists in found))

    def stored_ids(self) -> Iterator[Addresses]:
        for lists in self._file.lists():
            ids = BitMap64.union(*(read_address_bitmap(content, self._file.where) for content in lists))
            for start in range(0, len(ids), LISTED):
                yield np.frombuffer(ids[start : start + LISTED].to_array(), dtype=np.uint64)

    def describe(self) -> Description:
        return describe_tokens(self.tokens, self._file, self._segment.file_sizes.get(POSTINGS_FILE))

    def warm(self) -> Iterator[None]:
        for start in range(0, len(self.tokens), WARMED):
            rows = range(start, min(start + WARMED, len(self.tokens)))
            for _ in self._load_lists([row for row in rows if (*self._key, row) not in self._cache]):
                pass
            yield

    def _alternatives(self, condition: Condition) -> list[list[BitMap64]]:
        """The posting lists of every way to satisfy a condition, without those that no row can."""
        wanted = tokens_to_look_up(condition)
        if wanted is None:
            raise TypeError(f"an n-gram index does not answer {condition}")
        return [lists for tokens in wanted if (lists := self._lists(tokens))]

    def _lists(self, wanted: npt.NDArray[np.uint32]) -> list[BitMap64]:
        """Posting lists of some tokens; none where a token has no rows."""
        places = np.searchsorted(self.tokens, wanted)
        if len(wanted) and (places[-1] == len(self.tokens) or (self.tokens[places] != wanted).any()):
            return []
        rows: list[int] = places.tolist()
        found = self._cache.get_all([(*self._key, row) for row in rows])
        missing = [row for row, known in zip(rows, found, strict=True) if known is None]
        loaded = dict(zip(missing, self._load_lists(missing), strict=True))
        return [loaded[row] if known is None else known for row, known in zip(rows, found, strict=True)]

    def _load_lists(self, rows: list[int]) -> Iterator[BitMap64]:
        if rows:
            for row, content in zip(rows, self._file.read_lists(rows), strict=True):
                bitmap = read_address_bitmap(content, self._file.where)
                self._cache.put((*self._key, row), bitmap, len(content) + 256)
                yield bitmap

    def _load_tokens(self) -> tuple[npt.NDArray[np.uint32], int]:
        tokens = self._file.read_tokens()
        return tokens, tokens.nbytes

    @cached_property
    def _file(self) -> PostingsFile:
        return PostingsFile(self._store, self._segment)
