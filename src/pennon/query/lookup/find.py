"""Finds the rows of a table whose key columns equal given keys, as a scan would.

Fragments that an index covers are answered through it, and the others are scanned. A job that looks up many blocks of
keys requests the covered fragments only (`Coverage`), reads the keys of the others once (`Lookup.scan_keys`), and holds
them (`HeldKeys`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS, ScannedRows
from pennon.format.schema import Column
from pennon.index.arrays import Int64s
from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import PointSpans, order_of
from pennon.index.kind import Precision
from pennon.query.catalog import Catalog, UnusableSegment, UsableSegment, attributing_errors
from pennon.query.filter.predicate import ALWAYS_FALSE, And, Node
from pennon.query.filter.reading import read_filter
from pennon.query.lookup.keys import KeyColumn
from pennon.query.lookup.matching import KeyTable
from pennon.query.lookup.points import Pairs, find_pairs
from pennon.query.scan.execute import filter_errors
from pennon.query.scan.planner import Answer, Planner

# Rows that an answer lists at once, and rows and bytes that are matched at once.
PIECE_ROWS = 1 << 20
MATCHED_ROWS, MATCHED_BYTES = 1 << 17, 64 << 20


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows that equal keys: the position of the key, the address of the row, and its columns. By key, then by address,
    within what was fetched together."""

    keys: Int64s
    addresses: Addresses
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Coverage:
    """The live fragments in which an index finds single values exactly, those in which one narrows them down, and all
    others; and the names of the indices by column."""

    exact: BitMap
    narrowed: BitMap
    uncovered: BitMap
    indices: tuple[tuple[str, str], ...]


class Lookup:
    """Lookups by key columns in one version of a table.

    Args:
        catalog: the indices of the version.
        on: the key columns, by path.
        columns: the columns to return for each row found; `_rowid` and `_rowaddr` are possible.
        filter: SQL that rows must satisfy as well.
        float_bits: compare floats by their bits, as pylance's `merge_insert` does; else NaN equals NaN and -0.0 equals
            0.0, as in Spark's joins.

    Raises:
        ColumnNotFound: the table lacks a column.
        UnsupportedColumn: a key column has a type without keys.
        InvalidFilter: the filter does not parse, or has no meaning over this table.
    """

    def __init__(
        self,
        catalog: Catalog,
        on: Sequence[str],
        columns: Sequence[str] = (),
        filter: str | None = None,
        *,
        float_bits: bool = False,
    ) -> None:
        snapshot = catalog.snapshot
        self._catalog, self._columns = catalog, list(dict.fromkeys(columns))
        self.keys = tuple(KeyColumn(snapshot.column(path), float_bits) for path in on)
        self._filter = None if filter is None else read_filter(filter, snapshot.column_types).sql

    @property
    def coverage(self) -> Coverage:
        """Judged by the manifest, and by the segments that were opened so far; damage shows only when one is opened."""
        live = BitMap(self._catalog.snapshot.manifest.live)
        covered = {precision: BitMap() for precision in Precision}
        names: dict[tuple[str, str], None] = {}
        for key in self.keys:
            for name, usable, precision in self._segments(key):
                names[key.column.path, name] = None
                covered[precision] |= usable.coverage & live
        exact = covered[Precision.EXACT]
        narrowed = covered[Precision.SUPERSET] - exact
        return Coverage(exact, narrowed, live - exact - narrowed, tuple(names))

    def open_indices(self) -> Coverage:
        """The coverage, after all segments of the key columns are opened and damaged ones are left out."""
        for key in self.keys:
            for _, usable, _ in [*self._segments(key)]:
                try:
                    with attributing_errors(usable):
                        self._catalog.open(usable)
                except UnusableSegment as unusable:
                    self._catalog.exclude(unusable)
        return self.coverage

    def exact_segments(self, number: int) -> list[UsableSegment]:
        """The segments that find single values of a key column exactly."""
        found = self._segments(self.keys[number])
        return [usable for _, usable, precision in found if precision is Precision.EXACT]

    def read_keys(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Keys, a column for each of the key columns, in the types of the table."""
        return [column.read(array) for column, array in zip(self.keys, keys, strict=True)]

    def find(
        self, keys: Sequence[pa.Array], fragments: BitMap | None = None, piece_rows: int = PIECE_ROWS
    ) -> Iterator[Matches]:
        """The live rows of some fragments (default: all) that equal keys, a bounded number at once. Keys are
        in the types of `read_keys` and may repeat; with NULL in any column a key equals nothing."""
        wanted = BitMap(self._catalog.snapshot.manifest.live) if fragments is None else fragments
        pairs = self._pairs(keys, wanted)
        if pairs is not None:
            yield from self._paired(keys, pairs, piece_rows)
            wanted = wanted - pairs.fragments
        if not wanted:
            return
        answer = self._answer(keys).within(wanted)
        table: KeyTable | None = None
        for rows in self._parts(answer, piece_rows):
            table = table or KeyTable(self._comparable(keys))
            for found in _gathered(self._fetched(rows, self._paths, self._filter)):
                for equal, at in table.pairs(self._comparable(self._keys_of(found))):
                    yield self._matches(equal, found, at)

    def find_all(self, keys: Sequence[pa.Array], fragments: BitMap | None = None) -> Matches:
        """The same at once, by key and then by address."""
        parts = [*self.find(keys, fragments)]
        nothing = self.rows(np.empty(0, dtype=np.uint64))
        equal = np.concatenate([np.empty(0, dtype=np.int64), *(part.keys for part in parts)])
        addresses = np.concatenate([np.empty(0, dtype=np.uint64), *(part.addresses for part in parts)])
        order = np.lexsort((addresses, equal))
        rows = pa.concat_tables([nothing, *(part.rows for part in parts)]).take(pa.array(order))
        return Matches(equal[order], addresses[order], rows)

    def scan_keys(self, rows: ScannedRows) -> Iterator[tuple[list[pa.Array], Addresses]]:
        """Key columns and addresses of live rows that satisfy the filter, batch by batch; rows with NULL in a key are
        left out."""
        for found in _gathered(self._fetched(rows, self._key_paths, self._filter)):
            keys = [key.canonical(values) for key, values in zip(self.keys, self._keys_of(found), strict=True)]
            valid = np.logical_and.reduce([key.is_valid().to_numpy(zero_copy_only=False) for key in keys])
            addresses = found.column(ADDRESS).to_numpy()
            if not valid.all():
                chosen = pa.array(np.flatnonzero(valid))
                keys, addresses = [key.take(chosen) for key in keys], addresses[valid]
            if len(addresses):
                yield keys, addresses

    def held(self, scanned: Sequence[tuple[Sequence[pa.Array], Addresses]]) -> HeldKeys:
        """What `scan_keys` returned, to find keys in."""
        return HeldKeys(self, scanned)

    def rows(self, addresses: Addresses) -> pa.Table:
        """The columns of live rows, by address in any order, possibly repeated."""
        if not self._columns:
            return pa.table({}) if not len(addresses) else _no_columns(len(addresses))
        ascending = sorted_unique(addresses)
        parts = [*self._fetched(RowSet.of_addresses(ascending).by_fragment, self._columns, None)]
        if not len(ascending):
            return self._empty
        found = pa.Table.from_batches(parts)
        at = found.column(ADDRESS).to_numpy()
        order = np.argsort(at, kind="stable")
        return self._selected(found).take(pa.array(order[np.searchsorted(at[order], addresses)]))

    def _segments(self, key: KeyColumn) -> Iterator[tuple[str, UsableSegment, Precision]]:
        condition = _any_point(key.column)
        for index in self._catalog.indices.get(key.column.path, ()):
            for usable in index.segments:
                precision = index.kind.answers(usable.segment, condition)
                if precision is not None:
                    yield index.name, usable, precision

    @cached_property
    def _empty(self) -> pa.Table:
        scanner = self._catalog.snapshot.scanner({}, columns=self._columns, with_row_address=True, limit=0)
        return self._selected(scanner.to_table())

    @property
    def _key_paths(self) -> list[str]:
        return [key.column.path for key in self.keys]

    @property
    def _paths(self) -> list[str]:
        return list(dict.fromkeys([*self._key_paths, *self._columns]))

    def _keys_of(self, found: pa.Table) -> list[pa.Array]:
        return [found.column(path).combine_chunks() for path in self._key_paths]

    def _comparable(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        return [key.comparable(column) for key, column in zip(self.keys, columns, strict=True)]

    def _answer(self, keys: Sequence[pa.Array]) -> Answer:
        conditions = [key.condition(values) for key, values in zip(self.keys, keys, strict=True)]
        node: Node = And(tuple(conditions)) if len(conditions) > 1 else conditions[0]
        if not all(condition.spans for condition in conditions):
            node = ALWAYS_FALSE
        return Planner(self._catalog, node, by_key=True).answer()

    def _pairs(self, keys: Sequence[pa.Array], fragments: BitMap) -> Pairs | None:
        """Rows that an index pairs with keys; None if rows have to be read to be matched."""
        if len(self.keys) != 1:
            return None
        values = self.keys[0].condition(keys[0]).values
        if values is None or not len(values):
            return None
        return find_pairs(self._catalog, self.keys[0], values, fragments)

    def _paired(self, keys: Sequence[pa.Array], pairs: Pairs, piece_rows: int) -> Iterator[Matches]:
        table = KeyTable(self._comparable(keys))
        for found in self._rows_of(pairs.addresses, piece_rows):
            of_rows = self._comparable([pairs.values_of(found.column(ADDRESS).to_numpy())])
            for equal, at in table.pairs(of_rows):
                yield self._matches(equal, found, at)

    def _rows_of(self, addresses: Addresses, piece_rows: int) -> Iterator[pa.Table]:
        """Columns of rows, by ascending address, if they satisfy the filter; nothing is read if only addresses are
        needed."""
        for start in range(0, len(addresses), piece_rows):
            piece = addresses[start : start + piece_rows]
            if self._filter is None and set(self._columns) <= {ADDRESS}:
                yield pa.table({ADDRESS: piece})
            else:
                rows = RowSet.of_addresses(piece).by_fragment
                yield from _gathered(self._fetched(rows, self._columns, self._filter))

    @staticmethod
    def _parts(answer: Answer, piece_rows: int) -> Iterator[ScannedRows]:
        for piece in answer.indexed.rows.pieces(piece_rows):
            yield piece.by_fragment
        if answer.scanned:
            yield dict.fromkeys(answer.scanned)

    def _fetched(self, rows: ScannedRows, columns: list[str], filter: str | None) -> Iterator[pa.RecordBatch]:
        with filter_errors(filter):
            stored = [name for name in columns if name != ADDRESS]
            scanner = self._catalog.snapshot.scanner(rows, columns=stored, with_row_address=True, filter=filter)
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch

    def _matches(self, equal: Int64s, found: pa.Table, at: Int64s) -> Matches:
        addresses = found.column(ADDRESS).to_numpy()[at]
        if not self._columns:
            return Matches(equal, addresses, _no_columns(len(equal)))
        return Matches(equal, addresses, self._selected(found).take(pa.array(at)))

    def _selected(self, found: pa.Table) -> pa.Table:
        return found.select(self._columns)


class HeldKeys:
    """Keys and addresses of rows that no index covers, held in memory to find keys in them."""

    def __init__(self, lookup: Lookup, scanned: Sequence[tuple[Sequence[pa.Array], Addresses]]) -> None:
        self._lookup = lookup
        self._addresses = np.concatenate([np.empty(0, dtype=np.uint64), *(addresses for _, addresses in scanned)])
        columns = zip(*(keys for keys, _ in scanned), strict=True)
        whole = (pa.concat_arrays(list(column)) for column in columns)
        self._keys = [key.comparable(column) for key, column in zip(lookup.keys, whole, strict=False)]

    def __len__(self) -> int:
        return len(self._addresses)

    def find(self, keys: Sequence[pa.Array]) -> Iterator[Matches]:
        """As `Lookup.find`, in the rows that are held."""
        if not len(self):
            return
        table = KeyTable([key.comparable(values) for key, values in zip(self._lookup.keys, keys, strict=True)])
        for equal, at in table.pairs(self._keys):
            addresses = self._addresses[at]
            yield Matches(equal, addresses, self._lookup.rows(addresses))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in tables that are large enough to be matched together."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if (
            sum(some.num_rows for some in waiting) >= MATCHED_ROWS
            or sum(some.nbytes for some in waiting) >= MATCHED_BYTES
        ):
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _no_columns(rows: int) -> pa.Table:
    """A table without columns has no number of rows."""
    return pa.table({"_": pa.nulls(rows)}).select([])


def _any_point(column: Column) -> ColumnRanges:
    """Some single value of a column, to ask which indices find such."""
    order = order_of(column.type)
    key: int | bytes = 0
    if order.family in ("string", "binary"):
        width = column.type.byte_width if pa.types.is_fixed_size_binary(column.type) else 0
        key = bytes(width)
    return ColumnRanges(column.path, column.type, PointSpans(pa.array(order.scalars([key]), column.type)))
