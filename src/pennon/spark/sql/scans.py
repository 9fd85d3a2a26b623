"""`pennon_scan` and `pennon_lookup`: the rows of a filter, and the rows that have one of some values in a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from pennon.errors import InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import filter_text
from pennon.query.scan.execute import parse, scan
from pennon.query.scan.request import ScanRequest
from pennon.spark.sql.columns import row_schema, rows_of
from pennon.spark.sql.function import Call, FunctionSchema, Given, Rows, TableFunction, no_options

IDS = ("with_row_id", "with_row_address")


def _scan_schema(call: Call) -> FunctionSchema:
    limit = call.constants.get("limit")
    if "limit" in call.constants and (isinstance(limit, bool) or not isinstance(limit, int | None)):
        raise InvalidArgument(f"limit must be a whole number, not {limit!r}")
    if call.constants.get("filter") is not None:
        parse(call.snapshot, filter_text(call.constants["filter"], call.snapshot.schema))
    return row_schema(call)


def _scan(catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
    return rows_of(result, scan(catalog, _request(result, given.get("filter"), given.get("limit"))))


def _lookup_schema(call: Call) -> FunctionSchema:
    column = _column(call.snapshot, call.constants["column"])
    if "value" in call.constants:
        _values(column, call.constants["value"])
    elif isinstance(call.types["value"], st.MapType | st.StructType):
        raise InvalidArgument(f"value must be a value or an array of values, not {call.types['value'].simpleString()}")
    return row_schema(call)


def _lookup(catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
    column = _column(catalog.snapshot, given["column"])
    values = _values(column, given["value"])
    if not len(values):
        return iter(())
    wanted = pc.field(*_parts(column)).isin(values)
    return rows_of(result, scan(catalog, _request(result, filter_text(wanted, catalog.snapshot.schema))))


def _request(result: FunctionSchema, filter: str | None, limit: int | None = None) -> ScanRequest:
    return ScanRequest(
        filter,
        tuple(name for name in result.columns if name not in (ROW_ID, ADDRESS)),
        limit,
        with_row_id=ROW_ID in result.columns,
        with_row_address=ADDRESS in result.columns,
    )


def _column(snapshot: Snapshot, name: Any) -> Column:
    if not isinstance(name, str):
        raise InvalidArgument(f"column must be the name of a column, not {name!r}")
    return snapshot.column(name)


def _parts(column: Column) -> Sequence[str]:
    return [column.path.strip("`")] if "`" in column.path else column.path.split(".")


def _values(column: Column, given: Any) -> pa.Array:
    """The values to look for, in the type of the column; no row equals NULL."""
    listed = given if isinstance(given, list | tuple) else [given]
    known = [value for value in listed if value is not None]
    try:
        return pa.array(known).cast(column.type) if known else pa.array([], column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise InvalidArgument(
            f"column {column.path!r} has type {column.type}, and a value does not fit it: {reason}", "Cast the value"
        ) from error


FUNCTIONS = (
    TableFunction("pennon_scan", no_options("pennon_scan", "limit", *IDS), _scan_schema, _scan),
    TableFunction("pennon_lookup", no_options("pennon_lookup", *IDS), _lookup_schema, _lookup),
)
