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
from pennon.query.hybrid.run import COMPUTED as HYBRID_COLUMNS
from pennon.query.hybrid.run import TEXT_RANK, VECTOR_RANK, HybridRequest, search_hybrid
from pennon.query.hybrid.run import check_option_names as check_hybrid_options
from pennon.query.inventory import Index, list_indices
from pennon.query.scan.explain import explain
from pennon.query.scan.request import ScanRequest
from pennon.query.search.request import SearchRequest, check_option_names
from pennon.query.search.result_table import DISTANCE
from pennon.query.search.run import search
from pennon.query.text.request import SCORE, TextRequest
from pennon.query.text.request import check_option_names as check_text_options
from pennon.query.text.run import search_text
from pennon.secrets import is_secret
from pennon.spark.errors import without_traceback
from pennon.spark.source import chosen_columns
from pennon.spark.types import arrow_schema, cast_batch, spark_schema

Storage = Mapping[str, str]
Rows = Iterator[tuple[Any, ...]]

# Arguments that determine the table and the columns, and must be known before the query runs.
CONSTANTS = (
    "uri",
    "column",
    "vector_column",
    "text_column",
    "columns",
    "with_row_id",
    "with_row_address",
    "version",
    "storage_options",
)
INDICES = (
    "name string, fields array<string>, index_type string, num_segments bigint, num_indexed_fragments bigint, "
    "num_indexed_rows bigint, num_unindexed_fragments bigint, num_unindexed_rows bigint, size_bytes bigint, "
    "compactions_behind bigint"
)
PLAN = "plan string"
# Options of every search that its request has no place for here.
ELSEWHERE = ("version", "storage_options", "with_row_id", "with_row_address")
RANKS = (VECTOR_RANK, TEXT_RANK)


@dataclass
class SearchSchema(AnalyzeResult):
    """The schema of a search; all rows are searched in the same version."""

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
                _check_vector(query)
                check_option_names(options.keys() - set(ELSEWHERE))
                given = {"uri": uri, "column": column, **options}
                return _search_schema(storage, "pennon_search", given, (DISTANCE,))

        def eval(self, uri: str, column: str, query: Any, k: int = 10, **options: Any) -> Rows:
            with without_traceback():
                yield from _search(self._result, column, query, k, options)

    class PennonSearchText:
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
                check_text_options(options.keys() - set(ELSEWHERE))
                given = {"uri": uri, "column": column, **options}
                return _search_schema(storage, "pennon_search_text", given, (SCORE,))

        def eval(self, uri: str, column: str, query: Any, k: int = 10, **options: Any) -> Rows:
            with without_traceback():
                yield from _search_text(self._result, column, query, k, options)

    class PennonSearchHybrid:
        def __init__(self, result: SearchSchema) -> None:
            self._result = result

        @staticmethod
        def analyze(
            uri: AnalyzeArgument,
            vector_column: AnalyzeArgument,
            vector: AnalyzeArgument,
            text_column: AnalyzeArgument,
            text: AnalyzeArgument,
            k: AnalyzeArgument | None = None,
            **options: AnalyzeArgument,
        ) -> SearchSchema:
            with without_traceback():
                _check_vector(vector)
                check_hybrid_options(options.keys() - set(ELSEWHERE))
                given = {"uri": uri, "vector_column": vector_column, "text_column": text_column, **options}
                return _search_schema(storage, "pennon_search_hybrid", given, HYBRID_COLUMNS)

        def eval(
            self, uri: str, vector_column: str, vector: Any, text_column: str, text: Any, k: int = 10, **options: Any
        ) -> Rows:
            with without_traceback():
                yield from _search_hybrid(self._result, (vector_column, vector), (text_column, text), k, options)

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
        "pennon_search_text": (PennonSearchText, None),
        "pennon_search_hybrid": (PennonSearchHybrid, None),
        "pennon_indices": (PennonIndices, INDICES),
        "pennon_explain": (PennonExplain, PLAN),
    }


def _check_vector(query: AnalyzeArgument) -> None:
    if not isinstance(query.dataType, st.ArrayType):
        raise InvalidArgument(
            f"query must be an array of numbers, not {query.dataType.simpleString()}", "Write array(0.1, 0.2, ...)"
        )


def _search_schema(
    storage: Storage, function: str, given: Mapping[str, AnalyzeArgument], computed: tuple[str, ...]
) -> SearchSchema:
    for name in CONSTANTS:
        if name in given and not given[name].isConstantExpression:
            raise InvalidArgument(f"the argument {name} of {function} must be a constant")
    known: dict[str, Any] = {name: argument.value for name, argument in given.items()}
    snapshot = _open(known["uri"], known.get("version"), _joined(storage, known.get("storage_options")))
    for name in ("column", "vector_column", "text_column"):
        if known.get(name) is not None:
            snapshot.column(known[name])
    schema: pa.Schema = snapshot.schema
    names = [name for name in known.get("columns") or schema.names if name not in computed]
    names += [name for name, key in ((ROW_ID, "with_row_id"), (ADDRESS, "with_row_address")) if known.get(key)]
    names = list(dict.fromkeys(names))
    fields = spark_schema(chosen_columns(schema, names, snapshot.uri))
    for name in computed:
        fields = fields.add(name, st.IntegerType() if name in RANKS else st.FloatType())
    return SearchSchema(fields, pin=snapshot.pin(), columns=(*names, *computed))


def _search(result: SearchSchema, column: str, query: Any, k: int, options: Mapping[str, Any]) -> Rows:
    assert result.pin is not None
    request = SearchRequest.of(column, k, _given(result, options))
    yield from _rows(result, search(_catalog(result.pin), request, _vector(query)))


def _search_text(result: SearchSchema, column: str, query: Any, k: int, options: Mapping[str, Any]) -> Rows:
    assert result.pin is not None
    given = _given(result, options)
    request = TextRequest.of(k, given)
    yield from _rows(result, search_text(_catalog(result.pin), request, column, query, given))


def _search_hybrid(
    result: SearchSchema, vector: tuple[str, Any], text: tuple[str, Any], k: int, options: Mapping[str, Any]
) -> Rows:
    assert result.pin is not None
    request = HybridRequest.of(vector[0], text[0], k, _given(result, options))
    found = search_hybrid(_catalog(result.pin), request, _vector(vector[1]), text[1], many=False)
    yield from _rows(result, found)


def _vector(query: Any) -> list[float | None] | None:
    """SQL's array(0.1, 0.2) holds decimals."""
    return None if query is None else [None if item is None else float(item) for item in query]


def _rows(result: SearchSchema, found: pa.Table) -> Rows:
    wire = arrow_schema(result.schema)
    for batch in found.to_batches():
        columns = [values.to_pylist(maps_as_pydicts="strict") for values in cast_batch(batch, wire).columns]
        yield from zip(*columns, strict=True)


def _given(result: SearchSchema, options: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of ids are named like others here; an option that is NULL is not given."""
    chosen = {name: value for name, value in options.items() if name not in ELSEWHERE and value is not None}
    return {**chosen, "columns": list(result.columns)}


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
        index.compactions_behind,
    )
