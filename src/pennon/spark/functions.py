"""Table functions of SQL: searches, the inventory of indices, and plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from inspect import Parameter, Signature
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
from pennon.secrets import is_secret
from pennon.spark import searches
from pennon.spark.errors import without_traceback
from pennon.spark.searches import Search
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
# How names of computed columns end that are whole numbers.
RANK = "_rank"
# Options of every search that its request has no place for here.
ELSEWHERE = ("version", "storage_options", "with_row_id", "with_row_address")
# The arguments of each search that have no default; `k` comes after them, then options by name.
SEARCHES = {
    "pennon_search": ("uri", "column", "query"),
    "pennon_search_text": ("uri", "column", "query"),
    "pennon_search_hybrid": ("uri", "vector_column", "vector", "text_column", "text"),
}
# Their modules below `searches`.
MODULES = {"pennon_search": "vector", "pennon_search_text": "text", "pennon_search_hybrid": "hybrid"}


@dataclass
class SearchSchema(AnalyzeResult):
    """The schema of a search; all rows are searched in the same version."""

    pin: Pin | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()


def table_functions(storage: Storage) -> dict[str, tuple[type, str | None]]:
    """Name in SQL -> class, and its schema if that is fixed. The storage options are part of the classes, because
    arguments are visible in plans. Local classes are pickled by value, so they only call functions of this module."""

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
        **{name: (_search_function(storage, name), None) for name in SEARCHES},
        "pennon_indices": (PennonIndices, INDICES),
        "pennon_explain": (PennonExplain, PLAN),
    }


def _search_function(storage: Storage, name: str) -> type:
    """Spark reads the names of arguments from signatures."""

    class PennonSearch:
        def __init__(self, result: SearchSchema) -> None:
            self._result = result

        @staticmethod
        def analyze(*given: AnalyzeArgument, **named: AnalyzeArgument) -> SearchSchema:
            with without_traceback():
                return _analyzed(storage, name, {**dict(zip(_arguments(name), given, strict=False)), **named})

        def eval(self, *given: Any, **named: Any) -> Rows:
            with without_traceback():
                yield from _found(self._result, name, {**dict(zip(_arguments(name), given, strict=False)), **named})

    own = [Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD) for argument in SEARCHES[name]]
    own.append(Parameter("k", Parameter.POSITIONAL_OR_KEYWORD, default=10))
    own.append(Parameter("options", Parameter.VAR_KEYWORD))
    PennonSearch.analyze.__signature__ = Signature(own)  # pyright: ignore[reportFunctionMemberAccess]
    of_eval = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *own])
    PennonSearch.eval.__signature__ = of_eval  # pyright: ignore[reportFunctionMemberAccess]
    return PennonSearch


def _arguments(name: str) -> tuple[str, ...]:
    return (*SEARCHES[name], "k")


def _analyzed(storage: Storage, name: str, given: Mapping[str, AnalyzeArgument]) -> SearchSchema:
    search = _search(name)
    vector = given.get(search.vector or "")
    if vector is not None and not isinstance(vector.dataType, st.ArrayType):
        raise InvalidArgument(
            f"query must be an array of numbers, not {vector.dataType.simpleString()}", "Write array(0.1, 0.2, ...)"
        )
    search.check_options(given.keys() - {*_arguments(name), *ELSEWHERE})
    return _search_schema(storage, name, given, search.computed)


def _found(result: SearchSchema, name: str, given: Mapping[str, Any]) -> Rows:
    assert result.pin is not None
    search = _search(name)
    arguments = {argument: given.get(argument) for argument in SEARCHES[name]}
    if search.vector is not None:
        arguments[search.vector] = _vector(arguments[search.vector])
    # Columns of ids are named like others here; an option that is NULL is not given.
    left_out = {*_arguments(name), *ELSEWHERE}
    options = {option: value for option, value in given.items() if option not in left_out and value is not None}
    options["columns"] = list(result.columns)
    yield from _rows(result, search.run(_catalog(result.pin), arguments, given.get("k", 10), options))


def _search(name: str) -> Search:
    return import_module(f"{searches.__name__}.{MODULES[name]}").SEARCH


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
        fields = fields.add(name, st.IntegerType() if name.endswith(RANK) else st.FloatType())
    return SearchSchema(fields, pin=snapshot.pin(), columns=(*names, *computed))


def _vector(query: Any) -> list[float | None] | None:
    """SQL's array(0.1, 0.2) holds decimals."""
    return None if query is None else [None if item is None else float(item) for item in query]


def _rows(result: SearchSchema, found: pa.Table) -> Rows:
    wire = arrow_schema(result.schema)
    for batch in found.to_batches():
        columns = [values.to_pylist(maps_as_pydicts="strict") for values in cast_batch(batch, wire).columns]
        yield from zip(*columns, strict=True)


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
