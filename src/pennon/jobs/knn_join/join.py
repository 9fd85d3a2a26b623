"""The kNN join: the rows of a Spark DataFrame with their nearest neighbors in a table, lazily.

Where a task can hold the index, a task searches for its own rows, block by block, and nothing is exchanged. Otherwise:

    route    rows to questions for the groups of partitions that they probe, and to payloads with all their columns
    answer   one group of partitions, loaded once: the nearest rows there, question by question
    finish   gatherers merge the answers to a payload, measure again at need, and add the columns of the neighbors

Spark unfolds the neighbors into rows, because it then repeats only those columns of a row that are used further on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.engine import SparkEngine
from pennon.engine.frames import (
    AnswerBlocks,
    MapRows,
    ReceiveRows,
    SendRows,
    float_lists,
    nested_schema,
    unnested,
)
from pennon.engine.spark_types import spark_form
from pennon.errors import ColumnNotFound, InvalidArgument, UnsupportedColumn
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.schema import stored_type
from pennon.format.snapshot import Snapshot
from pennon.index.vector.vectors import is_vector_type
from pennon.jobs.knn_join.plan import KnnJoinPlan, plan_knn_join
from pennon.jobs.knn_join.rows import NEIGHBOURS
from pennon.jobs.knn_join.tasks import answer_questions, finish, route_queries, search
from pennon.query.catalog import Catalog
from pennon.query.scan.request import METADATA_COLUMNS
from pennon.query.search.request import SearchRequest
from pennon.query.search.result_table import DISTANCE, check_columns

if TYPE_CHECKING:
    from pennon.engine import DataFrame

RANK = "_rank"
WAYS = ("inner", "left")


def knn_join(
    catalog: Catalog,
    frame: DataFrame,
    request: SearchRequest,
    query_column: str,
    *,
    how: str = "inner",
    prefix: str = "",
    memory_bytes: int,
) -> DataFrame:
    """`how="left"` keeps rows without neighbors; `prefix` goes before the names of the table's columns."""
    engine = SparkEngine.attach(frame.sparkSession)
    request = _with_columns(catalog.snapshot, request)
    if how not in WAYS:
        raise InvalidArgument(f"a kNN join is {' or '.join(WAYS)}, not {how!r}")
    _check_frame(frame, query_column)
    added = _added_columns(catalog.snapshot, request, prefix)
    _check_names([*frame.columns, NEIGHBOURS, *added.names])
    plan = plan_knn_join(catalog, request, query_column, memory_bytes, lambda: engine.parallelism)
    return unnested(_nested(engine, frame, plan, added), NEIGHBOURS, outer=how == "left")


def _nested(engine: SparkEngine, frame: DataFrame, plan: KnnJoinPlan, added: pa.Schema) -> DataFrame:
    try:
        schema = nested_schema(frame, NEIGHBOURS, added)
    except ValueError as error:
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error
    if not plan.groups:
        return engine.apply(frame, MapRows(partial(search, plan, added)), schema)
    groups = len(plan.groups)
    asked = engine.deliver(frame, SendRows(partial(route_queries, plan)), groups + plan.gatherers)
    answered = engine.deliver(asked, AnswerBlocks(partial(answer_questions, plan), groups), plan.gatherers)
    return engine.apply(answered, ReceiveRows(partial(finish, plan, added)), schema)


def _with_columns(snapshot: Snapshot, request: SearchRequest) -> SearchRequest:
    """All columns but vectors, where none are named; `_distance` has a place of its own."""
    check_columns(snapshot, request)
    columns = request.columns
    if columns is None:
        columns = [field.name for field in snapshot.schema if not is_vector_type(stored_type(field.type))]
    wanted = [(ROW_ID, request.with_row_id), (ADDRESS, request.with_row_address)]
    named = dict.fromkeys([*columns, *(name for name, asked_for in wanted if asked_for)])
    named.pop(DISTANCE, None)
    return replace(request, columns=tuple(named), with_row_id=False, with_row_address=False)


def _added_columns(snapshot: Snapshot, request: SearchRequest, prefix: str) -> pa.Schema:
    fields = [pa.field(RANK, pa.int32()), pa.field(DISTANCE, pa.float32())]
    for name in request.columns or ():
        type_ = pa.int64() if name in METADATA_COLUMNS else spark_form(snapshot.column(name).declared)
        fields.append(pa.field(prefix + name, type_))
    return pa.schema(fields)


def _check_frame(frame: DataFrame, query_column: str) -> None:
    if query_column not in frame.columns:
        raise ColumnNotFound(
            f"the DataFrame has no column {query_column!r}", f"query_column is one of: {', '.join(frame.columns)}"
        )
    odd = next((name for name in frame.columns if "." in name or "`" in name), None)
    if odd is not None:  # which PySpark would take for a path, and perhaps find another column by it
        raise InvalidArgument(f"PySpark cannot hand over a column {odd!r}, with a dot or a backtick", "Rename it")
    if not float_lists(frame, query_column):
        type_ = frame.schema[query_column].dataType.simpleString()
        raise InvalidArgument(
            f"column {query_column!r} of the DataFrame is of type {type_}, which holds no query vectors",
            "Make it array<float> or array<double>",
        )


def _check_names(names: list[str]) -> None:
    """Spark does not tell upper from lower case."""
    lowered = [name.lower() for name in names]
    twice = next((name for name, low in zip(names, lowered, strict=True) if lowered.count(low) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"the join would have two columns {twice!r}",
            "Give the table's columns a prefix=, name fewer of them in columns=, or rename those of the DataFrame",
        )
