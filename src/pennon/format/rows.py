"""Reads rows of one version of a table: by scan, sample or address, and the deleted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.deferred import deferred
from pennon.errors import DamagedFile, DamagedTable, StoreUnavailable
from pennon.format.addresses import (
    OFFSET_BITS,
    Addresses,
    serialize_allowlist,
    split_by_fragment,
)
from pennon.format.arrow_schema import arrow_schema
from pennon.format.base_paths import base_location, why_refused
from pennon.format.column_file import open_columns
from pennon.format.deletions import read_deleted_offsets
from pennon.format.failures import answering, first_line
from pennon.format.fragment_reuse_file import check_external
from pennon.format.fragments import Fragment
from pennon.format.lance_file import LanceFile
from pennon.format.manifest import Manifest
from pennon.format.number_rows import MOST_ROWS, NumberRows
from pennon.format.opening import open_dataset
from pennon.format.requests import request_all
from pennon.format.row_ids import AddressOfId, RowIds, check_sequence, ids_of, read_row_ids
from pennon.format.row_set import RowSet, bitmap_of, offsets_of
from pennon.format.schema import Column, stored_values
from pennon.format.store import Location, Store, open_store, translate_read_errors

if TYPE_CHECKING:
    import lance
    from lance.dataset import ColumnOrdering
else:
    ColumnOrdering = deferred("lance.dataset", "ColumnOrdering")

SCAN_BATCH = 1 << 17
WIDE_READAHEAD = 2
# Batches in which a sample is read that is not to exceed some bytes.
SAMPLED_PARTS = 8
# A row fetched by its address costs about twenty times as much as a row of a scan.
TAKEN_SHARE = 0.05
# Data files kept open for short reads.
OPEN_COLUMN_FILES = 32
ADDRESS = "_rowaddr"
ROW_ID = "_rowid"

# Fragment id -> offsets in it, None for every row.
ScannedRows = Mapping[int, BitMap | None]


@dataclass(frozen=True)
class ScanSlice:
    """Live rows [offset, offset + limit) of some fragments; all of them without a limit."""

    fragments: tuple[int, ...]
    offset: int = 0
    limit: int | None = None


class RowReader:
    """The rows of a table at one version. `Snapshot` adds the schema and the versions to it."""

    def __init__(self, location: Location, manifest: Manifest, dataset: lance.LanceDataset | None = None) -> None:
        self.location, self.manifest = location, manifest
        self.store: Store = open_store(location)
        if dataset is not None:
            self.dataset = dataset
        self._deleted: dict[int, npt.NDArray[np.uint32]] = {}
        self._row_ids: dict[int, RowIds] = {}
        self._fragments: dict[int, lance.LanceFragment] = {}
        self._column_files: dict[tuple[int, tuple[str, ...]], LanceFile | None] = {}

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """pylance's handle on this version. It is made of the manifest that was read, and not of a file of the same
        name that may have taken its place."""
        return open_dataset(self.location, self.manifest.version, self.manifest.outline.SerializeToString())

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        with translate_read_errors(f"the schema of {self.uri}"):
            found = arrow_schema(self.manifest.outline)
            return self.dataset.schema if found is None else found

    @property
    def uri(self) -> str:
        """The address without its secrets, as messages may show it."""
        return self.location.shown

    def scan_column(
        self, column: Column, part: ScanSlice, batch_rows: int = SCAN_BATCH, batch_bytes: int | None = None
    ) -> Iterator[tuple[pa.Array, Addresses]]:
        """Live values of one column and their addresses, in batches of some rows, and of about some bytes or one row.
        If batches have few rows, because the rows are wide, few batches are read ahead."""
        chosen = [self._fragment(f) for f in part.fragments]
        if not chosen:
            return
        scanner = self._rows.scanner(
            columns=[column.path],
            fragments=chosen,
            with_row_address=True,
            batch_size=batch_rows,
            batch_size_bytes=batch_bytes,
            batch_readahead=None if batch_rows >= SCAN_BATCH else WIDE_READAHEAD,
            offset=part.offset or None,
            limit=part.limit,
            use_scalar_index=False,
        )
        with self.reading_rows():
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield stored_values(batch.column(0)), batch.column(ADDRESS).to_numpy()

    def read_slice(self, part: ScanSlice, columns: list[str]) -> pa.Table:
        """Stored top-level columns of the live rows of a slice."""
        if (direct := self._read_directly(part, columns)) is not None:
            return direct
        chosen = [self._fragment(f) for f in part.fragments]
        with self.reading_rows():
            return self._rows.scanner(
                columns=columns, fragments=chosen, offset=part.offset or None, limit=part.limit, use_scalar_index=False
            ).to_table()

    def sample_slice(
        self, column: Column, part: ScanSlice, rows: int, seed: int, batch_rows: int = SCAN_BATCH
    ) -> Iterator[pa.Array]:
        """`rows` values of a slice's live rows, drawn evenly and without repetition, piece by piece."""
        total = self.slice_rows(part)
        picks = drawn_rows(total, rows, seed)
        if len(picks) < TAKEN_SHARE * total:
            yield from self._take_positions(column, part, picks)
            return
        start = 0
        for values, _ in self.scan_column(column, part, batch_rows):
            low, high = np.searchsorted(picks, [start, start + len(values)])
            yield values.take(pa.array(picks[low:high] - start)) if high - low < len(values) else values
            start += len(values)

    def sample_column(
        self, column: Column, fragments: Iterable[int], rows: int, seed: int, most_bytes: int | None = None
    ) -> pa.Array:
        """About `rows` values of live rows, drawn evenly; with `most_bytes`, the first of them up to about that."""
        chosen = [self.manifest.fragments[f] for f in fragments]
        total = sum(f.physical_rows for f in chosen)
        if total == 0:
            return pa.array([], column.type)
        if total <= rows:
            part, width = ScanSlice(tuple(f.id for f in chosen)), most_bytes and most_bytes // SAMPLED_PARTS
            scanned = (values for values, _ in self.scan_column(column, part, batch_bytes=width))
            return _concatenated(scanned, column, most_bytes)
        picks = np.unique(np.random.default_rng(seed).integers(0, total, rows))
        starts = np.cumsum([0] + [f.physical_rows for f in chosen])
        wanted: dict[int, BitMap | None] = {}
        for fragment, start, end in zip(chosen, starts, starts[1:], strict=False):
            low, high = np.searchsorted(picks, [start, end])
            if high > low:
                wanted[fragment.id] = bitmap_of((picks[low:high] - start).astype(np.uint32))
        with self.reading_rows():
            width = most_bytes and most_bytes // SAMPLED_PARTS
            scanner = self.scanner(wanted, columns=[column.path], batch_size_bytes=width)
            sampled = (stored_values(batch.column(0)) for batch in scanner.to_batches())
            return _concatenated(sampled, column, most_bytes)

    def slice_rows(self, part: ScanSlice) -> int:
        return (
            part.limit if part.limit is not None else sum(self.manifest.fragments[f].live_rows for f in part.fragments)
        )

    def take(self, addresses: Addresses, columns: list[str] | None) -> pa.Table:
        """A few rows at (ascending) live addresses, without the cost of setting up a scan. Top-level columns only:
        a nested one would be wrapped in its structs."""
        if self._numbers is not None and (found := self._numbers.take(addresses, columns)) is not None:
            return found
        with self.reading_rows():
            return self._take(addresses, columns)

    def take_numbers(self, rows: RowSet, columns: list[str] | None, limit: int | None = None) -> pa.Table | None:
        """The first of any number of live rows, of top-level columns; None unless all columns hold numbers that can be
        read without a scan."""
        if self._numbers is None or not self._numbers.reads(columns):
            return None
        wanted = rows if limit is None else rows.first(limit)
        # Addresses are listed only of as many rows as are read so.
        return self._numbers.take(wanted.addresses(), columns) if len(wanted) <= MOST_ROWS else None

    def take_in_order(self, addresses: Addresses, columns: list[str]) -> pa.Table:
        """A few rows at live addresses in any order, possibly repeated, in the given order."""
        if self._numbers is not None and self._numbers.reads(columns):
            ascending, places = np.unique(addresses, return_inverse=True)
            if (found := self._numbers.take(ascending, columns)) is not None:
                return found.take(pa.array(places))
        if not self.manifest.has_stable_row_ids:
            with self.reading_rows():
                return self._rows._take_rows(addresses.tolist(), columns=columns)  # pyright: ignore[reportPrivateUsage]
        ascending, places = np.unique(addresses, return_inverse=True)
        return self.take(ascending, columns).take(pa.array(places))

    def project(self, fragment: int, expressions: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """SQL expressions over the live rows of a fragment, in their order."""
        chosen = [self._fragment(fragment)]
        with answering(f"rows of {self.uri}"):
            yield from self._rows.scanner(columns=dict(expressions), fragments=chosen).to_batches()

    def first_row(self, expressions: Mapping[str, str]) -> pa.Table:
        """Expressions over one row, if there is any. Raises ValueError or OSError if they are invalid for this
        table."""
        with answering(f"rows of {self.uri}"):
            return self._rows.scanner(columns=dict(expressions), limit=1).to_table()

    def count_in_fragment(self, fragment: int, filter: str) -> int:
        scanner = self._rows.scanner(
            columns=[], filter=filter, fragments=[self._fragment(fragment)], with_row_id=True, use_scalar_index=False
        )
        with answering(f"rows of {self.uri}"):
            return sum(batch.num_rows for batch in scanner.to_batches())

    def scanner(
        self, rows: ScannedRows, order_by: Iterable[tuple[str, bool, bool]] = (), **options: Any
    ) -> lance.LanceScanner:
        """A scan of the given fragments and offsets (None: every row), sorted by columns, ascending or not, NULLs first
        or not."""
        if options.get("filter") is not None:
            self._check_fragment_reuse()
        allowlist = None
        if any(offsets is not None for offsets in rows.values()):
            allowlist = serialize_allowlist(self._scan_domain(rows))
        fragments = None
        if len(rows) != len(self.manifest.fragments):
            fragments = [self._fragment(f) for f in sorted(rows)]
        else:
            self._check_deletions(rows)
        ordering: list[ColumnOrdering | str] = [ColumnOrdering(*each) for each in order_by]
        return self._rows.scanner(
            fragments=fragments,
            row_addr_allowlist=allowlist,
            use_scalar_index=False,
            order_by=ordering or None,
            **options,
        )

    def reading_rows(self) -> AbstractContextManager[None]:
        """Translate errors while rows are fetched: damage of the table's files becomes `DamagedTable`, and a store that
        does not answer `StoreUnavailable`."""
        return translate_read_errors(f"rows of {self.uri}")

    def deleted_addresses(self, fragments: BitMap) -> Addresses:
        """Ascending addresses of the deleted rows of some live fragments."""
        marked = [f for f in fragments if self.manifest.fragments[f].deletion_file is not None]
        self.read_deletions(marked)
        parts = [self.deleted_offsets(f) | (np.uint64(f) << OFFSET_BITS) for f in marked]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)

    def read_deletions(self, fragments: Iterable[int]) -> None:
        """Read the deletion vectors of some fragments at once, for `deleted_offsets`."""
        described = self.manifest.fragments
        unread = [f for f in fragments if f not in self._deleted and described[f].deletion_file is not None]
        request_all(self.store, self.deleted_offsets, unread)

    def deleted_offsets(self, fragment: int) -> npt.NDArray[np.uint32]:
        if fragment not in self._deleted:
            described = self.manifest.fragments[fragment]
            base = described.deletion_file.base_id if described.deletion_file else None
            self._deleted[fragment] = read_deleted_offsets(self.store_of(base), described)
        return self._deleted[fragment]

    def row_ids(self, fragment: int) -> RowIds:
        if fragment not in self._row_ids:
            self._row_ids[fragment] = read_row_ids(self.dataset, self.manifest.fragments[fragment])
        return self._row_ids[fragment]

    @cached_property
    def address_of_id(self) -> AddressOfId:
        return AddressOfId(self.manifest.fragments.values(), self.row_ids, self.deleted_offsets)

    def store_of(self, base_id: int | None) -> Store:
        """The files of this table, or of the one that a branch or a shallow clone shares a file with."""
        if base_id is None:
            return self.store
        base, remedy = self.manifest.base_paths.get(base_id), "Restore the manifest, or an older version"
        refused = why_refused(self.location, base_id, base)
        if base is None or refused is not None:
            raise DamagedTable(f"a file of {self.uri} is not read: {refused}", remedy)
        try:
            return open_store(base_location(self.location, base))
        except StoreUnavailable:
            raise
        except (ValueError, OSError, RuntimeError) as error:
            problem = f"base path {base_id} of {self.uri} cannot be opened: {first_line(error)}"
            raise DamagedTable(problem, remedy) from error

    @cached_property
    def _numbers(self) -> NumberRows | None:
        """None if files may be elsewhere."""
        if self.manifest.base_paths:
            return None
        return NumberRows(self.store, self.manifest, self.schema)

    def _read_directly(self, part: ScanSlice, columns: list[str]) -> pa.Table | None:
        """A slice of few local fragments without deleted rows, if one data file of each holds all of the columns.
        Files of an object store are left to pylance, which has their metadata in its cache."""
        if part.limit is None or not self.store.is_local or self.manifest.base_paths:
            return None
        reads: list[Callable[[], pa.Table]] = []
        start, left = part.offset, part.limit
        try:
            for fragment in map(self.manifest.fragments.__getitem__, part.fragments):
                count = min(left, fragment.physical_rows - start)
                file = None if fragment.deletion_file else self._column_file(fragment, columns)
                if file is None:
                    return None
                reads.append(file.begin_read(start, count))
                start, left = 0, left - count
            tables = [read() for read in reads]
        except DamagedFile:
            return None  # pylance's scan reports what is wrong with it
        declared = self.schema
        schema = pa.schema([declared.field(name) for name in columns], declared.metadata)
        table = pa.concat_tables(tables)
        return pa.Table.from_arrays([table[name] for name in columns], schema=schema)

    def _column_file(self, fragment: Fragment, columns: list[str]) -> LanceFile | None:
        """The open data file with some columns of a fragment, if there is one."""
        files, key = self._column_files, (fragment.id, tuple(columns))
        if key not in files:
            ids = {proto.name: proto.id for proto in self.manifest.fields if proto.parent_id < 0}
            opened = open_columns(self.store, fragment, {name: ids[name] for name in columns}, self.schema)
            if len(files) >= OPEN_COLUMN_FILES:
                files.pop(next(iter(files)), None)
            files[key] = opened
            return opened
        return files[key]

    def _take_positions(self, column: Column, part: ScanSlice, picks: npt.NDArray[np.int64]) -> Iterator[pa.Array]:
        start = -part.offset
        for fragment in part.fragments:
            end = start + self.manifest.fragments[fragment].live_rows
            low, high = np.searchsorted(picks, [start, end])
            if high > low:
                with self.reading_rows():
                    taken = self._fragment(fragment).take((picks[low:high] - start).tolist(), columns=[column.path])
                yield stored_values(_unwrapped(taken.column(0).combine_chunks()))
            start = end

    def _take(self, addresses: Addresses, columns: list[str] | None) -> pa.Table:
        rows = split_by_fragment(addresses)
        if len(rows) == 1:
            # In a single fragment, pylance counts only live rows and fetches them twice as fast.
            [(fragment, offsets)] = rows.items()
            if self.manifest.fragments[fragment].deletion_file is not None:
                offsets = offsets - self.deleted_offsets(fragment).searchsorted(offsets).astype(np.uint32)
            return self._fragment(fragment).take(offsets.tolist(), columns=columns)
        ids = ids_of(addresses, self.row_ids) if self.manifest.has_stable_row_ids else addresses
        return self._rows._take_rows(ids.tolist(), columns=columns)  # pyright: ignore[reportPrivateUsage]

    @cached_property
    def _rows(self) -> lance.LanceDataset:
        """The dataset for reading rows. pylance may then read the row ids of all fragments and allocate memory for all
        ids they span, so they are checked first."""
        if self.manifest.has_stable_row_ids:
            for fragment in self.manifest.fragments.values():
                try:
                    check_sequence(fragment.inline_row_ids or b"", fragment.physical_rows)
                except ValueError as error:
                    raise DamagedTable(f"fragment {fragment.id} of {self.uri} has invalid row ids: {error}") from error
        return self.dataset

    def _fragment(self, fragment: int) -> lance.LanceFragment:
        if fragment not in self._fragments:
            found = self._rows.get_fragment(fragment)
            self._check_deletions([fragment])
            if found is None:
                raise DamagedTable(f"{self.uri} has no fragment {fragment}, which its manifest lists")
            self._fragments[fragment] = found
        return self._fragments[fragment]

    def _check_fragment_reuse(self) -> None:
        """Check the Fragment Reuse Index: pylance reads it before it filters, and allocates the size recorded for its
        file."""
        if self.store.is_local:
            try:
                segment = self.manifest.reuse_segment
                if segment is not None:
                    check_external(self.store_of(segment.base_id), segment)
            except DamagedFile as error:
                raise DamagedTable(error.problem, "Restore the file, or an older version of the table") from error

    def _check_deletions(self, fragments: Iterable[int]) -> None:
        """Check deletion files before pylance reads them: it allocates the size that a damaged file records, and if
        that fails, it aborts the process. Not on an object store, where each file would cost a request."""
        for fragment in fragments:
            deletion = self.manifest.fragments[fragment].deletion_file
            if deletion is not None and self.store_of(deletion.base_id).is_local:
                self.deleted_offsets(fragment)

    def _scan_domain(self, rows: ScannedRows) -> ScannedRows:
        """The rows as pylance's allowlist expects them, by row id: addresses on ordinary tables, stable ids on the
        others."""
        if not self.manifest.has_stable_row_ids:
            return rows
        ids = [self.row_ids(f) if o is None else self.row_ids(f)[offsets_of(o)] for f, o in rows.items()]
        return RowSet.of_addresses(np.unique(np.concatenate(ids))).by_fragment


def drawn_rows(total: int, rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Ascending positions of `rows` of `total` rows, drawn evenly and without repetition."""
    return np.sort(np.random.default_rng(seed).choice(total, min(rows, total), replace=False, shuffle=False))


def _unwrapped(array: pa.Array) -> pa.Array:
    """The leaf of a nested column, which pylance returns inside its structs when rows are fetched by address."""
    while pa.types.is_struct(array.type):
        [array] = array.flatten()
    return array


def _concatenated(batches: Iterable[pa.Array], column: Column, most_bytes: int | None) -> pa.Array:
    """All of them, or the first that exceed a number of bytes."""
    found: list[pa.Array] = []
    for values in batches:
        found.append(values)
        if most_bytes is not None and sum(some.nbytes for some in found) > most_bytes:
            break
    return pa.concat_arrays(found) if found else pa.array([], column.type)
