"""Reading the rows of an answer: those that indices named and those a scan finds, in table order."""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, PennonError
from pennon.format.addresses import split_by_fragment
from pennon.format.snapshot import ADDRESS, ROW_ID, Snapshot
from pennon.format.store import panics, reading
from pennon.query.catalog import Catalog
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import Node
from pennon.query.scan.planner import Answer, Planner

# Up to this many rows are fetched one by one; beyond it a scan limited to them is quicker.
TAKE_LIMIT = 256
METADATA_COLUMNS = (ROW_ID, ADDRESS)


@dataclass(frozen=True)
class ScanRequest:
    """What to read. `columns=None` is every column."""

    filter: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    batch_size: int | None = None

    def options(self, checked: bool) -> dict[str, Any]:
        """The scanner's options; a filter that the index answered exactly need not be checked again."""
        return {
            "columns": None if self.columns is None else list(self.columns),
            "filter": None if checked else self.filter,
            "with_row_id": self.with_row_id,
            "batch_size": self.batch_size,
        }


def check_request(snapshot: Snapshot, request: ScanRequest) -> None:
    for column in request.columns or ():
        if snapshot.columns.find(column) is None and column not in METADATA_COLUMNS:
            known = [c.path for c in snapshot.columns]
            near = difflib.get_close_matches(column, known, n=3) or known[:10]
            raise ColumnNotFound(
                f"table {snapshot.uri} has no column {column!r}", f"Did you mean one of: {', '.join(near)}?"
            )
    for label, value, least in (("limit", request.limit, 0), ("batch_size", request.batch_size, 1)):
        if value is not None and value < least:
            raise InvalidArgument(f"{label} must be at least {least}, not {value}")


def parse(snapshot: Snapshot, sql: str) -> Node:
    return parse_filter(sql, snapshot.column_types)


def scan(catalog: Catalog, request: ScanRequest) -> pa.Table:
    snapshot = catalog.snapshot
    check_request(snapshot, request)
    if request.filter is None:
        rows = dict.fromkeys(snapshot.manifest.fragments)
        with filter_errors(request.filter):
            options = request.options(checked=True)
            return snapshot.scanner(
                rows, limit=request.limit, with_row_address=request.with_row_address, **options
            ).to_table()
    answer = Planner(catalog, parse(snapshot, request.filter)).answer()
    if _few(answer, request):
        columns = None if request.columns is None else list(request.columns)
        taken = snapshot.take(answer.indexed.addresses, columns)
        return taken.slice(0, request.limit) if request.limit is not None else taken
    return _merged(snapshot, answer, request)


def count(catalog: Catalog, sql: str | None) -> int:
    snapshot = catalog.snapshot
    if sql is None:
        return sum(fragment.live_rows for fragment in snapshot.manifest.fragments.values())
    answer = Planner(catalog, parse(snapshot, sql), need_rows=False).answer()
    indexed = answer.indexed
    total = len(indexed.addresses) if indexed.exact else 0
    with filter_errors(sql):
        if not indexed.exact and len(indexed.addresses):
            total += _count(snapshot, split_by_fragment(indexed.addresses), sql)
        if answer.scanned:
            total += _count(snapshot, dict.fromkeys(answer.scanned), sql)
    return total


def scan_batches(catalog: Catalog, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The same rows as `scan`, lazily: first those that indices named, then those of scanned fragments."""
    snapshot = catalog.snapshot
    check_request(snapshot, request)
    if request.filter is None:
        parts = [(dict.fromkeys(snapshot.manifest.fragments), True)]
    else:
        answer = Planner(catalog, parse(snapshot, request.filter)).answer()
        parts = [(rows, exact) for rows, exact in _parts(answer) if rows]
    left = request.limit
    for rows, exact in parts:
        options = request.options(checked=exact)
        scanner = snapshot.scanner(rows, limit=left, with_row_address=request.with_row_address, **options)
        with filter_errors(request.filter):
            for batch in scanner.to_batches():
                yield batch
                left = None if left is None else left - batch.num_rows
        if left == 0:
            return


def _parts(answer: Answer) -> list[tuple[dict[int, Any], bool]]:
    indexed = answer.indexed
    return [(split_by_fragment(indexed.addresses), indexed.exact), (dict.fromkeys(answer.scanned), False)]


def is_plain(columns: tuple[str, ...]) -> bool:
    """Whether these are stored, top-level columns; fetched by row, others come in another shape or not at all."""
    return bool(columns) and not any("." in column or column in METADATA_COLUMNS for column in columns)


def _few(answer: Answer, request: ScanRequest) -> bool:
    return (
        answer.indexed.exact
        and not answer.scanned
        and 0 < len(answer.indexed.addresses) <= TAKE_LIMIT
        and not request.with_row_id
        and not request.with_row_address
        and (request.columns is None or is_plain(request.columns))
    )


def _merged(snapshot: Snapshot, answer: Answer, request: ScanRequest) -> pa.Table:
    """Rows of both parts. Table order is address order, so parts that interleave are sorted by address."""
    parts = [(rows, exact) for rows, exact in _parts(answer) if rows]
    interleaved = len(parts) == 2 and not max(parts[0][0]) < min(parts[1][0])
    with_address = request.with_row_address or interleaved
    tables: list[pa.Table] = []
    with filter_errors(request.filter):
        for rows, exact in parts:
            options = request.options(checked=exact)
            tables.append(
                snapshot.scanner(rows, limit=request.limit, with_row_address=with_address, **options).to_table()
            )
        if not tables:
            # No row can match; an empty scan still knows the schema of the answer, and checks the filter.
            options = request.options(checked=False)
            return snapshot.scanner({}, limit=0, with_row_address=request.with_row_address, **options).to_table()
    table = pa.concat_tables(tables)
    if interleaved:
        table = table.take(pc.sort_indices(table, [(ADDRESS, "ascending")]))
        if not request.with_row_address:
            table = table.drop_columns([ADDRESS])
    return table.slice(0, request.limit) if request.limit is not None else table


def _count(snapshot: Snapshot, rows: dict[int, Any], sql: str) -> int:
    scanner = snapshot.scanner(rows, columns=[], with_row_id=True, filter=sql)
    return sum(batch.num_rows for batch in scanner.to_batches())


@contextmanager
def filter_errors(sql: str | None) -> Generator[None]:
    """pylance finds some faults of a filter only when it runs. What else it says is about the table's files."""
    try:
        with panics("the rows of the table"):
            yield
    except PennonError:
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        text = str(error)
        if sql is None or is_damage(error) or not any(word in text for word in _FILTER_WORDS):
            with reading("the rows of the table"):
                raise
        line = text.splitlines()[0].partition(", /")[0]
        remedy = "See the filter syntax in docs/scan.md"
        if "could not convert to literal of type 'Timestamp" in line or "of type 'Date" in line:
            remedy = "Write instants as timestamp '2026-01-31 12:00:00' and days as date '2026-01-31'"
        raise InvalidFilter(f"the filter {sql!r} cannot be evaluated: {line}", remedy) from error


def is_damage(error: Exception) -> bool:
    """Whether an error of pylance's is about the files of a table, not about the expressions over it."""
    return any(word in str(error) for word in _DAMAGE_WORDS)


_DAMAGE_WORDS = ("corrupt", "Not found", "Parser error", "Io error", "IOError", "(IO)", "(Index)", "FRI ")
_FILTER_WORDS = (
    "ilter",
    "sql",
    "SQL",
    "parse",
    "Schema error",
    "schema",
    "type",
    "cast",
    "Cast",
    "DataFusion",
    "rithmetic",
)
