"""Table functions of SQL: searches, the inventory of indices, and plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from pennon.errors import InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.inventory import Index, list_indices
from pennon.query.scan.explain import explain
from pennon.query.scan.request import ScanRequest
from pennon.query.search.request import SearchRequest, check_option_names
from pennon.query.search.result_table import DISTANCE
from pennon.query.search.run import search
from pennon.secrets import is_secret
from pennon.spark.errors import without_traceback
from pennon.spark.source import chosen_columns
from pennon.spark.types import arrow_schema, cast_batch, spark_schema

Storage = Mapping[str, str]
Rows = Iterator[tuple[Any, ...]]

# Arguments that determine the table and the columns, and must be known before the query runs.
CONSTANTS = ("uri", "column", "columns", "with_row_id", "with_row_address", "version", "storage_options")
INDICES = (
    "name string, fields array<string>, index_type string, num_segments bigint, num_indexed_fragments bigint, "
    "num_indexed_rows bigint, num_unindexed_fragments bigint, num_unindexed_rows bigint, size_bytes bigint, "
    "moves_behind bigint"
)
PLAN = "plan string"


@dataclass
class SearchSchema(AnalyzeResult):
    """The schema of a call of `pennon_search`; all rows are searched in the same version."""

    pin: Pin | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()


def table_functions(storage: Storage) -> dict[str, tuple[type, str | None]]:
    """Name in SQL -> class, and its schema if that is fixed. The storage options are part of the classes, because
    arguments are visible in plans. Local classes are pickled by value, so they only call functions of this module."""

    class PennonSearch:
        def __init__(self, result: SearchSchema) -> None:
            self._result = result

        @staticmethod
        def analyze(
            uri: AnalyzeArgument,
            column: AnalyzeArgument,
            query: AnalyzeArgument,
            k: AnalyzeArgument | None = None,
            **options: AnalyzeArgument,
        ) -> SearchSchema:
            with without_traceback():
                return _search_schema(storage, query, {"uri": uri, "column": column, **options})

        def eval(self, uri: str, column: str, query: Any, k: int = 10, **options: Any) -> Rows:
            with without_traceback():
                yield from _search(self._result, column, query, k, options)

    class PennonIndices:
        def eval(self, uri: str, version: int | None = None, storage_options: Storage | None = None) -> Rows:
            with without_traceback():
                yield from _index_rows(_open(uri, version, _joined(storage, storage_options)))

    class PennonExplain:
        def eval(
            self,
            uri: str,
            filter: str | None = None,
            version: int | None = None,
            storage_options: Storage | None = None,
        ) -> Rows:
            with without_traceback():
                yield from _plan_rows(_open(uri, version, _joined(storage, storage_options)), filter)

    return {
        "pennon_search": (PennonSearch, None),
        "pennon_indices": (PennonIndices, INDICES),
        "pennon_explain": (PennonExplain, PLAN),
    }


def _search_schema(storage: Storage, query: AnalyzeArgument, given: Mapping[str, AnalyzeArgument]) -> SearchSchema:
    for name in CONSTANTS:
        if name in given and not given[name].isConstantExpression:
            raise InvalidArgument(f"the argument {name} of pennon_search must be a constant")
    if not isinstance(query.dataType, st.ArrayType):
        raise InvalidArgument(
            f"query must be an array of numbers, not {query.dataType.simpleString()}", "Write array(0.1, 0.2, ...)"
        )
    known: dict[str, Any] = {name: argument.value for name, argument in given.items()}
    snapshot = _open(known["uri"], known.get("version"), _joined(storage, known.get("storage_options")))
    snapshot.column(known["column"])
    check_option_names(given.keys() - {"uri", "column", "version", "storage_options"})
    schema: pa.Schema = snapshot.schema
    names = [name for name in known.get("columns") or schema.names if name != DISTANCE]
    names += [name for name, key in ((ROW_ID, "with_row_id"), (ADDRESS, "with_row_address")) if known.get(key)]
    names = list(dict.fromkeys(names))
    fields = spark_schema(chosen_columns(schema, names, snapshot.uri)).add(DISTANCE, st.FloatType())
    return SearchSchema(fields, pin=snapshot.pin(), columns=tuple(names))


def _search(result: SearchSchema, column: str, query: Any, k: int, options: Mapping[str, Any]) -> Rows:
    assert result.pin is not None
    request = _request(column, k, {**options, "columns": [*result.columns, DISTANCE]})
    # SQL's array(0.1, 0.2) holds decimals.
    vector = None if query is None else [None if item is None else float(item) for item in query]
    wire = arrow_schema(result.schema)
    for batch in search(_catalog(result.pin), request, vector).to_batches():
        columns = [values.to_pylist(maps_as_pydicts="strict") for values in cast_batch(batch, wire).columns]
        yield from zip(*columns, strict=True)


def _request(column: str, k: int, options: Mapping[str, Any]) -> SearchRequest:
    """Here id columns are named like others; an option that is NULL counts as not given."""
    elsewhere = ("version", "storage_options", "with_row_id", "with_row_address")
    return SearchRequest.of(column, k, {n: v for n, v in options.items() if n not in elsewhere and v is not None})


def _joined(storage: Storage, given: Storage | None) -> Storage:
    """The options of a session and of a call. Arguments of a call are visible in Spark's plans, so secrets are refused
    there."""
    for key, value in (given or {}).items():
        if is_secret(key, value):
            raise InvalidArgument(
                f"{key!r} is a secret, and arguments of functions are visible in Spark's plans",
                "Pass it to pennon.spark.register(spark, storage_options={...})",
            )
    return {**storage, **(given or {})}


def _open(uri: str | None, version: int | None, storage: Storage) -> Snapshot:
    if uri is None:
        raise InvalidArgument("the address of the table is missing", "Pass it as the first argument")
    return Snapshot.open(Location.of(uri, storage), version)


@lru_cache(maxsize=4)
def _catalog(pin: Pin) -> Catalog:
    """Cached in the worker process: a column of queries searches many times."""
    return Catalog.read(pin.open(), SHARED_CACHE)


def _plan_rows(snapshot: Snapshot, filter: str | None) -> Rows:
    plan = explain(Catalog.read(snapshot, SHARED_CACHE), ScanRequest(filter))
    yield from ((line,) for line in str(plan).splitlines())


def _index_rows(snapshot: Snapshot) -> Rows:
    for index in list_indices(snapshot):
        yield _index_row(index, len(snapshot.manifest.fragments))


def _index_row(index: Index, fragments: int) -> tuple[Any, ...]:
    unindexed = len(index.uncovered_fragments)
    return (
        index.name,
        list(index.columns),
        index.type,
        len(index.segments),
        fragments - unindexed,
        index.rows_covered,
        unindexed,
        index.rows_total - index.rows_covered,
        index.size_bytes,
        index.moves_behind,
    )
