"""The page lookup of a B-tree: one row per page, in value order, small enough to be held in memory.

`page_lookup.lance` has the columns min, max (the column's type), null_count and page_idx (uint32), and in its schema
metadata the number of rows of a page (`batch_size`) and, for a range-partitioned tree, the page files:
`page_num_per_range_partition` = `[[partition id, pages], ...]` in value order, none with 0 pages.

Pennon adds two things that other readers ignore: a fifth column `digest` (uint64) with the digest of each page's rows,
0 if unknown, and under `pennon:digest` that of the lookup itself: `<segment> <digest of its rows> <CRC-32 of its
metadata about pages> <CRC-32 of these three>`, numbers in hex.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import BuildFailed, DamagedFile
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.store import Store
from pennon.index.arrays import numbers_of
from pennon.index.bounds import Bounds, Positions
from pennon.index.checksums import Digester, Digests, digests_of
from pennon.index.value_order import Side, SortedValues, fixed_keys, is_sorted

LOOKUP_FILE = "page_lookup.lance"
PLAIN_PAGE_FILE = "page_data.lance"
DEFAULT_BATCH_SIZE = 4096

BATCH_SIZE_KEY = "batch_size"
RANGED_KEY = "range_partitioned"
RANGES_KEY = "page_num_per_range_partition"
DIGEST_KEY = "pennon:digest"
DIGEST_COLUMN = "digest"


def page_file_name(partition_id: int) -> str:
    return f"part_{partition_id}_page_data.lance"


@dataclass(frozen=True)
class PageStats:
    """The statistics of a page file that its writer reports to the driver: small for any number of rows."""

    file: IndexFile
    partition_id: int
    rows: int
    nulls: int
    mins: pa.Array
    maxs: pa.Array
    null_counts: npt.NDArray[np.uint32]
    digests: Digests | None = None

    @property
    def pages(self) -> int:
        return len(self.null_counts)


@dataclass(frozen=True)
class PageFile:
    """A file with the pages [first_page, first_page + pages) of the tree."""

    name: str
    first_page: int
    pages: int


class PageLookup:
    """Finds the pages that may contain a value. Pages with only NULLs come first, then at most one page with both NULLs
    and values."""

    def __init__(
        self,
        mins: pa.Array,
        maxs: pa.Array,
        null_counts: npt.NDArray[np.uint32],
        batch_size: int,
        files: Sequence[PageFile],
        where: str,
        digests: Digests | None = None,
    ) -> None:
        self.mins, self.maxs, self.null_counts = mins, maxs, null_counts
        self.digests = np.zeros(len(null_counts), dtype=np.uint64) if digests is None else digests
        self.batch_size = batch_size
        self.files = tuple(files)
        self.where = where
        self._check()

    @property
    def pages(self) -> int:
        return len(self.null_counts)

    @cached_property
    def _values(self) -> tuple[int, SortedValues, SortedValues]:
        """First page with a value, and the bounds from there on; a page that starts with NULLs has no lower bound."""
        first = self.maxs.null_count
        mins, maxs = self.mins.slice(first), self.maxs.slice(first)
        if mins.null_count:
            # The page where NULLs end: its first value is unknown, so any bound not above its values is valid.
            mins = pa.concat_arrays([maxs.slice(0, 1), mins.slice(1)])
        return first, SortedValues(mins), SortedValues(maxs)

    @cached_property
    def _outermost(self) -> tuple[int, int] | None:
        """The keys of the smallest and of the largest value; None if one of them is unknown, or values have no keys."""
        first, mins, maxs = self._values
        if not len(mins) or not self.mins[first].is_valid or mins.keys is None or maxs.keys is None:
            return None
        return int(mins.keys[0]), int(maxs.keys[-1])

    def is_outside(self, bounds: Bounds) -> bool:
        """Whether all intervals end before the first value, or start after the last one. An index of many segments is
        asked this of each, so it is cheap; False may be wrong."""
        own, (low, high) = self._outermost, bounds.outermost
        return own is not None and ((high is not None and high < own[0]) or (low is not None and low > own[1]))

    def pages_with_values(self, bounds: Bounds) -> tuple[Positions, Positions]:
        """For each interval the run of pages [start, stop) that may contain its values."""
        first, mins, maxs = self._values
        starts, stops = bounds.starts(maxs), bounds.stops(mins)
        if len(mins) and not self.mins[first].is_valid:
            # The substitute bound of the NULL/value page is too high; only its largest value is known.
            stops[(starts == 0) & (stops == 0)] = 1
        return first + starts, first + np.maximum(starts, stops)

    def first_page_at(self, value: pa.Scalar, side: Side) -> int:
        """The first page with a value >= this one; with side 'right', with a value > this one."""
        first, _, maxs = self._values
        return first + maxs.position(value, side)

    def has_rows(self, start: int, stop: int, arrays: Sequence[pa.Array]) -> bool:
        """Whether these values and ids match the digests of pages [start, stop); unknown digests match anything."""
        recorded = self.digests[start:stop]
        if not recorded.any():
            return True
        digester = Digester.of_pages(self.batch_size)
        digester.add(arrays)
        found = digester.finish()
        return len(found) == len(recorded) and bool(((found == recorded) | (recorded == 0)).all())

    def pages_with_nulls(self) -> tuple[int, int]:
        return 0, int(np.count_nonzero(self.null_counts))

    def file_of(self, page: int) -> PageFile:
        at = int(np.searchsorted(self._first_pages, page, "right")) - 1
        return self.files[at]

    @cached_property
    def _first_pages(self) -> npt.NDArray[np.int64]:
        return np.array([f.first_page for f in self.files], dtype=np.int64)

    @property
    def memory_bytes(self) -> int:
        numbers = self.null_counts.nbytes + self.digests.nbytes
        return 2 * (self.mins.nbytes + self.maxs.nbytes) + numbers + 200 * len(self.files)

    def _check(self) -> None:
        """Check the invariants of a lookup; with a broken one, a reader would return wrong results without an error."""
        pages, all_null, mixed = len(self.mins), self.maxs.null_count, self.mins.null_count - self.maxs.null_count
        problem = None
        if not len(self.maxs) == len(self.null_counts) == pages:
            problem = "columns of different length"
        elif mixed not in (0, 1) or self.maxs.slice(0, all_null).null_count != all_null:
            problem = "pages of NULLs that do not come first"
        elif self.mins.slice(0, all_null + mixed).null_count != all_null + mixed:
            problem = "NULLs after values"
        elif not self._nulls_lead(all_null, mixed):
            problem = "null counts that contradict the pages' bounds"
        elif not _ascending(self.mins.slice(all_null + mixed), self.maxs.slice(all_null), mixed):
            problem = "pages that are not in value order"
        elif sum(f.pages for f in self.files) != pages or any(f.pages == 0 for f in self.files):
            problem = f"page files that do not add up to its {pages} pages"
        if problem:
            raise DamagedFile(f"{self.where} has {problem}", "Rebuild the index with create_index(replace=True)")

    def _nulls_lead(self, all_null: int, mixed: int) -> bool:
        """Whether NULLs fill the leading pages; the page where they end may be recognizable only by its count."""
        with_nulls = int(np.count_nonzero(self.null_counts))
        return bool(self.null_counts[:with_nulls].all()) and all_null + mixed <= with_nulls <= all_null + 1


def _ascending(mins: pa.Array, maxs: pa.Array, mixed: int) -> bool:
    """min <= max on each page, and max <= next min: the sequence min, max, min, max ... never falls."""
    if len(maxs) == 0:
        return True
    paired = maxs.slice(mixed)
    if len(mins) != len(paired):
        return False
    n = len(mins)
    lows, highs, before = fixed_keys(mins), fixed_keys(paired), fixed_keys(maxs.slice(0, mixed))
    if lows is not None and highs is not None and before is not None:
        return bool((lows <= highs).all() and (highs[:-1] <= lows[1:]).all() and (before <= lows[:mixed]).all())
    woven = pa.concat_arrays([mins, paired]).take(pa.array(np.arange(2 * n).reshape(2, n).T.reshape(-1)))
    return is_sorted(pa.concat_arrays([maxs.slice(0, mixed), woven]))


def read_lookup(file: LanceFile, value_type: pa.DataType) -> PageLookup:
    where = file.where
    types = file.schema.types
    if len(types) < 4 or types[0] != value_type or types[1] != value_type:
        raise DamagedFile(f"{where} does not hold values of the column's type {value_type}", "Rebuild the index")
    if types[2] != pa.uint32() or types[3] != pa.uint32():
        raise DamagedFile(f"{where} does not have the columns of a page lookup", "Rebuild the index")
    table = file.read()
    mins, maxs, null_counts, page_idx = (_flat(table.column(i)) for i in range(4))
    if null_counts.null_count or page_idx.null_count:
        raise DamagedFile(f"{where} has NULLs in its numbers", "Rebuild the index")
    if not np.array_equal(numbers_of(page_idx), np.arange(len(page_idx))):
        raise DamagedFile(f"{where} does not number its pages in order", "Rebuild the index")
    try:
        batch_size = int(file.metadata.get(BATCH_SIZE_KEY, DEFAULT_BATCH_SIZE))
        ranges = _ranges(file.metadata, len(page_idx))
    except (ArithmeticError, LookupError, RecursionError, ValueError, TypeError) as error:
        raise DamagedFile(f"{where} has unreadable metadata: {error}", "Rebuild the index") from error
    if batch_size < 1:
        raise DamagedFile(f"{where} records pages of {batch_size} rows", "Rebuild the index")
    digests = _read_digests(table, file)
    return PageLookup(mins, maxs, numbers_of(null_counts), batch_size, ranges, where, digests)


def _read_digests(table: pa.Table, file: LanceFile) -> Digests | None:
    """None for a lookup that Pennon did not write."""
    if len(file.schema) < 5 or file.schema.field(4) != pa.field(DIGEST_COLUMN, pa.uint64(), nullable=False):
        return None
    recorded, segment = file.metadata.get(DIGEST_KEY, ""), file.where.split("/")[-2]
    columns = [_flat(table.column(i)) for i in range(5)]
    if recorded != _own_digest(segment, columns, file.metadata):
        raise DamagedFile(f"{file.where} is not as it was written", "Rebuild the index")
    return numbers_of(columns[4])


def _own_digest(segment: str, columns: Sequence[pa.Array], metadata: Mapping[str, str]) -> str:
    """The digest of all rows of the lookup and of its metadata about pages."""
    [rows] = digests_of(columns, [len(columns[0])]) if len(columns[0]) else [0]
    described = "|".join(metadata.get(key, "") for key in (BATCH_SIZE_KEY, RANGED_KEY, RANGES_KEY))
    text = f"{segment} {int(rows):016x} {zlib.crc32(described.encode()):08x}"
    return f"{text} {zlib.crc32(text.encode()):08x}"


def _ranges(metadata: dict[str, str], pages: int) -> list[PageFile]:
    if metadata.get(RANGED_KEY) != "true":
        return [PageFile(PLAIN_PAGE_FILE, 0, pages)] if pages else []
    files: list[PageFile] = []
    first = 0
    for partition, count in json.loads(metadata[RANGES_KEY]):
        files.append(PageFile(page_file_name(int(partition)), first, int(count)))
        first += int(count)
    return files


def write_lookup(
    store: Store,
    directory: str,
    value_type: pa.DataType,
    parts: Sequence[PageStats],
    batch_size: int,
    storage_version: str,
) -> IndexFile:
    """Join the statistics of all ranges, in value order, into the lookup of the tree."""
    parts = [part for part in parts if part.pages]
    mins = pa.concat_arrays([p.mins for p in parts]) if parts else pa.array([], value_type)
    maxs = pa.concat_arrays([p.maxs for p in parts]) if parts else pa.array([], value_type)
    null_counts = np.concatenate([p.null_counts for p in parts]) if parts else np.empty(0, dtype=np.uint32)
    files: list[PageFile] = []
    for part in parts:
        first = files[-1].first_page + files[-1].pages if files else 0
        files.append(PageFile(part.file.path, first, part.pages))
    try:
        PageLookup(mins, maxs, null_counts, batch_size, files, directory)
    except DamagedFile as error:
        raise BuildFailed(f"the ranges of the new index do not fit together: {error.problem}") from error
    schema = pa.schema(
        [
            pa.field("min", value_type),
            pa.field("max", value_type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
            pa.field(DIGEST_COLUMN, pa.uint64(), nullable=False),
        ]
    )
    page_idx = pa.array(np.arange(len(null_counts), dtype=np.uint32))
    unknown = [np.zeros(part.pages, dtype=np.uint64) for part in parts]
    known = [zeros if part.digests is None else part.digests for part, zeros in zip(parts, unknown, strict=True)]
    digests = np.concatenate([np.empty(0, dtype=np.uint64), *known])
    arrays = [mins, maxs, pa.array(null_counts, pa.uint32()), page_idx, pa.array(digests)]
    batch = pa.record_batch(arrays, schema=schema)
    metadata = {BATCH_SIZE_KEY: str(batch_size), RANGED_KEY: "false"}
    if [part.file.path for part in parts] != [PLAIN_PAGE_FILE]:
        metadata[RANGED_KEY] = "true"
        metadata[RANGES_KEY] = json.dumps([[p.partition_id, p.pages] for p in parts])
    metadata[DIGEST_KEY] = _own_digest(directory.rpartition("/")[2], batch.columns, metadata)
    batches = [batch] if batch.num_rows else []
    return write_lance_file(store, directory, LOOKUP_FILE, schema, batches, storage_version, metadata)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
