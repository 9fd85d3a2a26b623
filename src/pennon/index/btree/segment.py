"""Reading one B-tree segment: the lookup first, then only the pages a predicate needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.requests import request_ahead, request_all
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.arrays import Int64s, numbers_of
from pennon.index.bounds import Bounds, Positions
from pennon.index.btree.description import describe_lookup
from pennon.index.btree.lookup import LOOKUP_FILE, PageFile, PageLookup, read_lookup
from pennon.index.btree.points import PointSearch, Window
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate
from pennon.index.value_order import SortedValues, is_sorted, same_value

# Pages fetched by one read when a predicate needs many neighbors: 1 Mi rows at the default page size.
READ_PAGES = 256

# Pages of an object store that are read before they are needed, if they are neighbors: about `AHEAD` times as many are
# held.
AHEAD_PAGES = 8

REMEDY = "Rebuild the index"
NOTHING, NO_ROWS = Estimate(0, 0), RowSet.none()
NO_PAGES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Page:
    """A loaded page: NULLs, then values. Ids are as stored."""

    null_ids: Addresses
    values: SortedValues
    ids: Addresses

    @property
    def nbytes(self) -> int:
        return self.null_ids.nbytes + self.ids.nbytes + self.values.nbytes + 512

    def ids_within(self, bounds: Bounds, first: int, last: int) -> list[Addresses]:
        """Ids of the values in the intervals [first, last)."""
        starts, stops = bounds.starts(self.values, first, last), bounds.stops(self.values, first, last)
        return [self.ids[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True) if b > a]


@dataclass(frozen=True)
class _Query:
    """A condition, and for each of its intervals the run of pages [start, stop) that may contain its values."""

    condition: ColumnRanges
    bounds: Bounds
    starts: Positions
    stops: Positions
    is_outside: bool = False

    @cached_property
    def is_nowhere(self) -> bool:
        """Whether no page may contain any of it."""
        return not self.condition.nulls and (self.is_outside or bool((self.stops <= self.starts).all()))

    def runs(self) -> Iterator[tuple[int, int]]:
        """The pages of all intervals as disjoint ascending runs."""
        start = stop = 0
        for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            if a > stop:
                if stop > start:
                    yield start, stop
                start = a
            stop = max(stop, b)
        if stop > start:
            yield start, stop


class BTreeSegment:
    """An opened segment. Pages and lookup live in the shared cache; the object itself is cheap."""

    def __init__(
        self,
        store: Store,
        segment: IndexSegment,
        value_type: pa.DataType,
        cache: ByteCache,
        reuse: FragmentReuse | None = None,
    ) -> None:
        self._store, self._segment, self._type = store, segment, value_type
        self._cache, self._reuse = cache, reuse
        self._files: dict[str, LanceFile] = {}
        self._opening: dict[str, Lock] = {}
        self._last: _Query | None = None
        self._key = (store.location.uri, segment.uuid)
        self.lookup: PageLookup = cache.get_or_load((*self._key, "lookup"), self._load_lookup)

    def search(self, condition: Condition) -> RowSet:
        query = self._query(condition)
        if query.is_nowhere:
            return NO_ROWS
        found: list[Addresses] = []
        if query.condition.nulls:
            for _, page in self._pages(*self.lookup.pages_with_nulls()):
                found.append(page.null_ids)
        for pages in request_ahead(self._store, self._run, query.runs()):
            for number, page in pages:
                first = int(query.stops.searchsorted(number, "right"))
                last = int(query.starts.searchsorted(number, "right"))
                found += page.ids_within(query.bounds, first, last)
        if not found:
            return RowSet.none()
        ids = sorted_unique(np.concatenate(found))
        # Sorted, they are remapped run by run, not one by one.
        return RowSet.of_addresses(ids if self._reuse is None else self._reuse.remap_ascending(ids))

    def find(self, values: pa.Array) -> Iterator[tuple[Int64s, Addresses]]:
        search, sizes = PointSearch(self.lookup, values), self._segment.file_sizes
        windows = [window for file in self.lookup.files for window in search.windows(file, sizes.get(file.name))]
        # To open a file of an object store takes several requests, one after another.
        request_all(self._store, self._file, dict.fromkeys(window.file.name for window in windows))
        pages = request_ahead(self._store, partial(self._begin, search), windows)
        for window, begun in zip(windows, pages, strict=True):
            for positions, ids in search.finish(window, self._page_file(window.file), begun):
                if self._reuse is not None:
                    ids, alive = self._reuse.remap(ids)
                    positions, ids = positions[alive], ids[alive]
                if len(ids):
                    yield positions, ids

    def estimate(self, condition: Condition) -> Estimate:
        """What a search would read, computed from the lookup alone."""
        query = self._query(condition)
        if query.is_nowhere:
            return NOTHING
        size = self.lookup.batch_size
        pages = sum(stop - start for start, stop in query.runs())
        # About half of the first and of the last page of an interval is outside; points share their page.
        spans = query.stops - query.starts
        rows = min(int(np.maximum(spans - 1, 0).sum()) * size + pages * size // 2, pages * size)
        if query.condition.nulls:
            start, stop = self.lookup.pages_with_nulls()
            pages, rows = pages + stop - start, rows + int(self.lookup.null_counts.sum())
        return Estimate(pages, rows)

    def describe(self) -> Description:
        return describe_lookup(self.lookup)

    def warm(self) -> Iterator[None]:
        for _ in self._pages(0, self.lookup.pages):
            yield

    def spread(self, most: int) -> pa.Array:
        largest = self.lookup.maxs.drop_null()
        step = max(1, -(-len(largest) // most))
        return largest.take(pa.array(np.arange(step // 2, len(largest), step)))

    @property
    def capacity(self) -> int:
        """The number of rows that its pages can hold."""
        return self.lookup.pages * self.lookup.batch_size

    def stored_ids(self) -> Iterator[Addresses]:
        for file in self.lookup.files:
            path = f"{self._segment.directory}/{file.name}"
            ids_only = LanceFile(self._store, path, columns=["ids"])
            for batch in ids_only.batches(0, ids_only.num_rows):
                yield numbers_of(batch.column(0))

    def _query(self, condition: Condition) -> _Query:
        # A query estimates and then searches the same condition.
        last = self._last
        if last is None or last.condition is not condition:
            if not isinstance(condition, ColumnRanges):
                raise TypeError(f"a B-tree answers ranges of values only, not {type(condition).__name__}")
            bounds = Bounds.of(condition)
            outside = self.lookup.is_outside(bounds)
            found = (NO_PAGES, NO_PAGES) if outside else self.lookup.pages_with_values(bounds)
            self._last = last = _Query(condition, bounds, *found, outside)
        return last

    def _run(self, run: tuple[int, int]) -> Iterator[tuple[int, Page]]:
        """Neighboring pages: those of an object store are here when this returns, if they are few."""
        pages = self._pages(*run)
        return pages if self._store.is_local or run[1] - run[0] > AHEAD_PAGES else iter(list(pages))

    def _pages(self, start: int, stop: int) -> Iterator[tuple[int, Page]]:
        page = start
        while page < stop:
            cached = self._cache.get((*self._key, page))
            if cached is not None:
                yield page, cached
                page += 1
                continue
            file = self.lookup.file_of(page)
            until = min(stop, file.first_page + file.pages, page + READ_PAGES)
            ahead = next((p for p in range(page + 1, until) if (*self._key, p) in self._cache), until)
            yield from self._load_pages(file, page, ahead)
            page = ahead

    def _load_pages(self, file: PageFile, start: int, stop: int) -> Iterator[tuple[int, Page]]:
        size, opened = self.lookup.batch_size, self._page_file(file)
        first_row = (start - file.first_page) * size
        last_row = min((stop - file.first_page) * size, opened.num_rows)
        table = opened.read(first_row, last_row - first_row)
        self._check_types(table.schema, opened.where)
        values, stored_ids = _flat(table.column(0)), _flat(table.column(1))
        if stored_ids.null_count:
            raise DamagedFile(f"{opened.where} has rows without ids", REMEDY)
        if not self.lookup.has_rows(start, stop, [values, stored_ids]):
            raise DamagedFile(f"a page of {start} to {stop - 1} in {opened.where} is not as it was written", REMEDY)
        ids = numbers_of(stored_ids)
        for page in range(start, stop):
            rows = slice((page - start) * size, min((page - start + 1) * size, len(ids)))
            present = values.slice(rows.start, rows.stop - rows.start)
            loaded = self._check_page(page, present, ids[rows], opened.where)
            self._cache.put((*self._key, page), loaded, loaded.nbytes)
            yield page, loaded

    def _check_page(self, page: int, values: pa.Array, ids: Addresses, where: str) -> Page:
        """Check a page against the lookup; a mismatch means that its file is damaged."""
        lookup, nulls = self.lookup, values.null_count
        present = values.slice(nulls)
        valid = nulls == lookup.null_counts[page] and present.null_count == 0 and is_sorted(present)
        if valid and len(present):
            low, high = lookup.mins[page], lookup.maxs[page]
            valid = same_value(present[-1], high) and (not low.is_valid or nulls > 0 or same_value(present[0], low))
        if not valid:
            raise DamagedFile(f"page {page} in {where} does not match the lookup", REMEDY)
        return Page(ids[:nulls].copy(), SortedValues(present), ids[nulls:].copy())

    def _load_lookup(self) -> tuple[PageLookup, int]:
        lookup = read_lookup(self._file(LOOKUP_FILE), self._type)
        return lookup, lookup.memory_bytes

    def _page_file(self, file: PageFile) -> LanceFile:
        opened = self._file(file.name)
        expected = -(-opened.num_rows // self.lookup.batch_size)
        if expected != file.pages:
            raise DamagedFile(f"{opened.where} has {expected} pages, its lookup records {file.pages}")
        return opened

    def _file(self, name: str) -> LanceFile:
        if name not in self._files:
            # Threads that read pages of one file open it once; different files are opened at the same time.
            with self._opening.setdefault(name, Lock()):
                if name not in self._files:
                    path, size = f"{self._segment.directory}/{name}", self._segment.file_sizes.get(name)
                    self._files[name] = LanceFile(self._store, path, size)
        return self._files[name]

    def _begin(self, search: PointSearch, window: Window) -> Iterator[pa.RecordBatch]:
        """The pages of a window: those of an object store are here when this returns, if they are few."""
        opened = self._page_file(window.file)
        self._check_types(opened.schema, opened.where)
        if self._store.is_local or window.stop - window.start > AHEAD_PAGES:
            return search.begin(window, opened)
        return iter(search.read(window, opened).to_batches())

    def _check_types(self, schema: pa.Schema, where: str) -> None:
        if schema.types[:2] != [self._type, pa.uint64()]:
            raise DamagedFile(f"{where} does not hold (value, id) rows of type {self._type}", REMEDY)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
