"""`pennon_explain` and `pennon_indices`: plans of filters, and the inventory of indices."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as st

from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.inventory import Index, list_indices
from pennon.query.scan.explain import explain
from pennon.query.scan.request import ScanRequest
from pennon.spark.sql.function import Call, FunctionSchema, Given, Rows, TableFunction, no_options

PLAN = st.StructType([st.StructField("plan", st.StringType())])
_COUNTS = (
    "num_segments",
    "num_indexed_fragments",
    "num_indexed_rows",
    "num_unindexed_fragments",
    "num_unindexed_rows",
    "size_bytes",
    "compactions_behind",
)
INDICES = st.StructType(
    [
        st.StructField("name", st.StringType()),
        st.StructField("fields", st.ArrayType(st.StringType())),
        st.StructField("index_type", st.StringType()),
        *(st.StructField(name, st.LongType()) for name in _COUNTS),
    ]
)


def lines(text: str) -> Rows:
    """A row for each line."""
    return ((line,) for line in text.splitlines())


def _plan_schema(call: Call) -> FunctionSchema:
    if "filter" not in call.types or "filter" in call.constants:
        explain(Catalog.read(call.snapshot, SHARED_CACHE), ScanRequest(call.constants.get("filter")))
    return call.schema(PLAN)


def _plan(catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
    return lines(str(explain(catalog, ScanRequest(given.get("filter")))))


def _indices_schema(call: Call) -> FunctionSchema:
    return call.schema(INDICES)


def _indices(catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
    fragments = len(catalog.snapshot.manifest.fragments)
    return (_index_row(index, fragments) for index in list_indices(catalog.snapshot))


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


FUNCTIONS = (
    TableFunction("pennon_explain", no_options("pennon_explain"), _plan_schema, _plan),
    TableFunction("pennon_indices", no_options("pennon_indices"), _indices_schema, _indices),
)
