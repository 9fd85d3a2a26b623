"""The kNN join: the rows of a Spark DataFrame with their nearest neighbors in a table, lazily.

If a task can hold the index, it searches for its own rows, block by block, and nothing is exchanged. Otherwise:

    route    turn rows into questions for the groups of partitions they probe, and payloads with all their columns
    answer   load one group of partitions once, and find the nearest rows in it for every question
    finish   gatherers merge the answers for a payload, refine if requested, and add the columns of the neighbors

Spark explodes the neighbors into rows, because it then repeats only those columns of a row that are used later.
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
from pennon.jobs.knn_join.rows import NEIGHBORS
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
    """`how="left"` keeps rows without neighbors; `prefix` is prepended to the names of the table's columns."""
    engine = SparkEngine.attach(frame.sparkSession)
    request = _with_columns(catalog.snapshot, request)
    if how not in WAYS:
        raise InvalidArgument(f"how must be {' or '.join(WAYS)}, not {how!r}")
    _check_frame(frame, query_column)
    added = _added_columns(catalog.snapshot, request, prefix)
    _check_names([*frame.columns, NEIGHBORS, *added.names])
    plan = plan_knn_join(catalog, request, query_column, memory_bytes, lambda: engine.parallelism)
    return unnested(_nested(engine, frame, plan, added), NEIGHBORS, outer=how == "left")


def _nested(engine: SparkEngine, frame: DataFrame, plan: KnnJoinPlan, added: pa.Schema) -> DataFrame:
    try:
        schema = nested_schema(frame, NEIGHBORS, added)
    except ValueError as error:
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error
    if not plan.groups:
        return engine.apply(frame, MapRows(partial(search, plan, added)), schema)
    groups = len(plan.groups)
    questions = engine.deliver(frame, SendRows(partial(route_queries, plan)), groups + plan.gatherers)
    answered = engine.deliver(questions, AnswerBlocks(partial(answer_questions, plan), groups), plan.gatherers)
    return engine.apply(answered, ReceiveRows(partial(finish, plan, added)), schema)


def _with_columns(snapshot: Snapshot, request: SearchRequest) -> SearchRequest:
    """All columns but vectors if none are named; `_distance` is handled separately."""
    check_columns(snapshot, request)
    columns = request.columns
    if columns is None:
        columns = [field.name for field in snapshot.schema if not is_vector_type(stored_type(field.type))]
    wanted = [(ROW_ID, request.with_row_id), (ADDRESS, request.with_row_address)]
    named = dict.fromkeys([*columns, *(name for name, is_wanted in wanted if is_wanted)])
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
    unsupported = next((name for name in frame.columns if "." in name or "`" in name), None)
    if unsupported is not None:  # PySpark would parse it as a path, and possibly find another column
        raise InvalidArgument(f"PySpark cannot pass a column {unsupported!r} with a dot or a backtick", "Rename it")
    if not float_lists(frame, query_column):
        type_ = frame.schema[query_column].dataType.simpleString()
        raise InvalidArgument(
            f"column {query_column!r} of the DataFrame has type {type_}, which is not a type of query vectors",
            "Cast it to array<float> or array<double>",
        )


def _check_names(names: list[str]) -> None:
    """Spark compares names without regard to case."""
    lowered = [name.lower() for name in names]
    twice = next((name for name, low in zip(names, lowered, strict=True) if lowered.count(low) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"the join would have two columns {twice!r}",
            "Use prefix= for the table's columns, select fewer of them in columns=, or rename those of the DataFrame",
        )
