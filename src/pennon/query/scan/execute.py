"""Reads the rows of an answer: those found by indices and those found by a scan, in table order."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.errors import InvalidArgument, PennonError
from pennon.format.failures import plain_line
from pennon.format.rows import ADDRESS, ScannedRows
from pennon.format.snapshot import Snapshot
from pennon.format.store import translate_panics, translate_read_errors
from pennon.query.catalog import Catalog
from pennon.query.filter.mistakes import invalid_filter
from pennon.query.filter.opaque_text import as_written
from pennon.query.filter.predicate import Node
from pennon.query.filter.reading import read_filter
from pennon.query.scan.checked_range import checked_range
from pennon.query.scan.checked_rows import checked_rows
from pennon.query.scan.planner import Answer, Planner
from pennon.query.scan.request import ScanRequest, check_request

# Up to this many rows of this many fragments are fetched by address; for more, a scan limited to them is faster.
TAKE_LIMIT, TAKE_FRAGMENTS = 256, 7


def parse(snapshot: Snapshot, sql: str) -> Node:
    return read_filter(sql, snapshot.column_types).node


def prepared(snapshot: Snapshot, request: ScanRequest) -> ScanRequest:
    """The request with its filter in a form that Lance accepts. Raises the errors of the filter."""
    check_request(snapshot, request)
    if request.filter is None:
        return request
    return replace(request, filter=read_filter(request.filter, snapshot.column_types).sql)


def scan(catalog: Catalog, request: ScanRequest) -> pa.Table:
    snapshot = catalog.snapshot
    request = prepared(snapshot, request)
    if request.filter is None or request.include_deleted_rows or request.is_ordered:
        rows, options = _whole(catalog, request)
        with filter_errors(request.filter, request.expressions):
            table = snapshot.scanner(rows, **options).to_table()
        return table.drop_columns(_only_sorted_by(request))
    answer = _answer(catalog, request)
    if (taken := _taken(snapshot, answer, request)) is not None:
        return taken
    if not answer.scanned and not len(answer.indexed.rows):
        return _empty(catalog, request)
    node = parse(snapshot, request.filter)
    checked = checked_range(snapshot, node, answer, request)
    if checked is None:
        checked = checked_rows(snapshot, node, answer, request)
    if checked is not None:
        return checked
    return _merged(snapshot, answer, request)


def count(catalog: Catalog, sql: str | None) -> int:
    snapshot = catalog.snapshot
    if sql is None:
        return sum(fragment.live_rows for fragment in snapshot.manifest.fragments.values())
    sql = read_filter(sql, snapshot.column_types).sql
    answer = Planner(catalog, parse(snapshot, sql), need_rows=False).answer()
    indexed = answer.indexed
    total = len(indexed.rows) if indexed.exact else 0
    with filter_errors(sql):
        if not indexed.exact and len(indexed.rows):
            total += _count(snapshot, indexed.rows.by_fragment, sql)
        if answer.scanned:
            total += _count(snapshot, dict.fromkeys(answer.scanned), sql)
    return total


def scan_batches(catalog: Catalog, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The same rows as `scan`, lazily: first those found by indices, then those of scanned fragments. With `order_by`
    or `offset`, the order is that of `scan`."""
    snapshot = catalog.snapshot
    request = prepared(snapshot, request)
    if request.filter is None or request.include_deleted_rows or request.is_ordered:
        rows, options = _whole(catalog, request)
        with filter_errors(request.filter, request.expressions):
            for batch in snapshot.scanner(rows, **options).to_batches():
                yield batch.drop_columns(_only_sorted_by(request))
        return
    left = request.limit
    for rows, exact in _parts(_answer(catalog, request)):
        options = request.options(checked=exact)
        with filter_errors(request.filter, request.expressions):
            scanner = snapshot.scanner(rows, limit=left, with_row_address=request.with_row_address, **options)
            for batch in scanner.to_batches():
                yield batch
                left = None if left is None else left - batch.num_rows
        if left == 0:
            return


def _whole(catalog: Catalog, request: ScanRequest) -> tuple[ScannedRows, dict[str, Any]]:
    """Rows and options of one scan that sorts and counts the whole answer, with or without indices."""
    chosen = catalog.snapshot.manifest.fragments if request.fragments is None else request.fragments
    rows: dict[int, BitMap | None] = dict.fromkeys(chosen)
    exact = request.filter is None
    if not exact and not request.include_deleted_rows:
        parts = _parts(_answer(catalog, request))
        rows = {fragment: offsets for part, _ in parts for fragment, offsets in part.items()}
        exact = all(part_exact for _, part_exact in parts)
    return rows, request.options(checked=exact) | {
        "limit": request.limit,
        "offset": request.offset or None,
        "order_by": [astuple(ordering) for ordering in request.order_by],
        # pylance cannot fetch wide columns of deleted rows after the filter.
        **({"include_deleted_rows": True, "late_materialization": False} if request.include_deleted_rows else {}),
        "with_row_address": request.with_row_address or bool(request.order_by),
    }


def _only_sorted_by(request: ScanRequest) -> list[str]:
    """Columns to drop: pylance sorts by a column that it does not return only if it returns addresses."""
    names = request.columns or [name for name, _ in request.expressions or ()]
    return [ADDRESS] if request.order_by and not request.with_row_address and ADDRESS not in names else []


def _answer(catalog: Catalog, request: ScanRequest) -> Answer:
    """The answer to the filter, in the fragments of the request."""
    assert request.filter is not None
    planner = Planner(catalog, parse(catalog.snapshot, request.filter))
    answer = planner.answer()
    if request.fragments is not None:
        answer = answer.within(BitMap(request.fragments))
    if request.fast_search and (covered := planner.covered()) is not None:
        answer = answer.within(covered)
    return answer


def _parts(answer: Answer) -> list[tuple[ScannedRows, bool]]:
    """Rows to read, and whether they satisfy the filter exactly."""
    indexed = answer.indexed
    parts = [(indexed.rows.by_fragment, indexed.exact), (dict.fromkeys(answer.scanned), False)]
    return [(rows, exact) for rows, exact in parts if rows]


def _taken(snapshot: Snapshot, answer: Answer, request: ScanRequest) -> pa.Table | None:
    """Rows that are fetched by address: few, or of columns of numbers; None if they are to be scanned."""
    rows = answer.indexed.rows
    if not answer.indexed.exact or answer.scanned or not request.is_plain or not rows.by_fragment:
        return None
    columns = None if request.columns is None else list(request.columns)
    found = snapshot.take_numbers(rows, columns, request.limit)
    if found is not None or len(rows.by_fragment) > TAKE_FRAGMENTS or not 0 < len(rows) <= TAKE_LIMIT:
        return found
    taken = snapshot.take(rows.addresses(), columns)
    return taken.slice(0, request.limit) if request.limit is not None else taken


def _empty(catalog: Catalog, request: ScanRequest) -> pa.Table:
    """No row can match. An empty scan still knows the schema of the answer and checks the filter, unless the filter was
    understood in all its parts: then the schema depends on the columns alone, and is known from the first scan on."""
    assert request.filter is not None
    understood = parse(catalog.snapshot, request.filter).exact
    known = catalog.memory if understood else dict[Hashable, Any]()
    key = "empty", replace(request, filter=None, limit=None)
    if key not in known:
        options = request.options(checked=False)
        with filter_errors(request.filter, request.expressions):
            scanner = catalog.snapshot.scanner({}, limit=0, with_row_address=request.with_row_address, **options)
            known[key] = scanner.to_table()
    return known[key]


def _merged(snapshot: Snapshot, answer: Answer, request: ScanRequest) -> pa.Table:
    """Rows of both parts. Table order is address order, so parts that interleave are sorted by address."""
    parts = _parts(answer)
    interleaved = len(parts) == 2 and not max(parts[0][0]) < min(parts[1][0])
    with_address = request.with_row_address or interleaved
    tables: list[pa.Table] = []
    with filter_errors(request.filter, request.expressions):
        for rows, exact in parts:
            options = request.options(checked=exact)
            tables.append(
                snapshot.scanner(rows, limit=request.limit, with_row_address=with_address, **options).to_table()
            )
    table = pa.concat_tables(tables)
    if interleaved:
        table = table.take(pc.sort_indices(table, [(ADDRESS, "ascending")]))
        if not request.with_row_address:
            table = table.drop_columns([ADDRESS])
    return table.slice(0, request.limit) if request.limit is not None else table


def _count(snapshot: Snapshot, rows: ScannedRows, sql: str) -> int:
    scanner = snapshot.scanner(rows, columns=[], with_row_id=True, filter=sql)
    return sum(batch.num_rows for batch in scanner.to_batches())


@contextmanager
def filter_errors(sql: str | None, expressions: tuple[tuple[str, str], ...] | None = None) -> Generator[None]:
    """Translate errors that pylance finds in a filter, or in the expressions of columns, only when it runs. Its other
    errors are about the table's files."""
    try:
        with translate_panics("the rows of the table"):
            yield
    except (PennonError, NotImplementedError):
        raise
    except RuntimeError:  # a task of pylance that panicked
        with translate_read_errors("the rows of the table"):
            raise
    except (ValueError, OSError, pa.ArrowException) as error:
        text = str(error).replace(sql or "\0", as_written(sql or ""))
        mistaken = USER_MISTAKE in text or (not is_damage(error) and any(word in text for word in _FILTER_WORDS))
        if (sql is None and expressions is None) or not mistaken:
            with translate_read_errors("the rows of the table"):
                raise
        line = plain_line(text.splitlines()[0].partition(", /")[0])
        if expressions is not None:
            where = f"the columns {dict(expressions)!r}" + (f" or the filter {sql!r}" if sql is not None else "")
            raise InvalidArgument(
                f"{where} cannot be evaluated: {line}", 'Write {"name": "SQL expression over columns"}'
            ) from error
        raise invalid_filter(as_written(sql or ""), line, text) from error


def is_damage(error: Exception) -> bool:
    """Whether an error of pylance is about the files of a table, not about the expressions over it."""
    return any(word in str(error) for word in _DAMAGE_WORDS)


# The prefix of pylance's errors about arguments.
USER_MISTAKE = "Invalid user input"
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
