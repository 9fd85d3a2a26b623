"""The kNN join: the rows of a Spark DataFrame with their nearest neighbors in a table, lazily.

If a task can hold the index, it searches for its own rows, block by block, and nothing is exchanged. Otherwise:

    route    turn rows into questions for the groups of partitions they probe, and payloads with all their columns
    answer   load one group of partitions once, and find the nearest rows in it for every question
    finish   gatherers merge the answers for a payload, refine if requested, and add the columns of the neighbors
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pennon.engine import SparkEngine
from pennon.engine.frames import AnswerBlocks, MapRows, ReceiveRows, SendRows, list_items, unnested
from pennon.errors import InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.schema import stored_type
from pennon.format.snapshot import Snapshot
from pennon.index.vector.vectors import VectorType, is_vector_type
from pennon.jobs.knn_join.plan import KnnJoinPlan, plan_knn_join
from pennon.jobs.knn_join.tasks import NEIGHBORS, answer_questions, finish, route_queries, search
from pennon.jobs.shared.frame_join import added_columns, check_frame, check_names, schema_with
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest
from pennon.query.search.result_table import DISTANCE, check_columns

if TYPE_CHECKING:
    from pennon.engine import DataFrame

# The items of query vectors in a DataFrame. Spark has no unsigned bytes.
FLOATS = ("float", "double")
BYTES = ("int", "smallint", "bigint")


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
    check_frame(frame, query_column, how)
    _check_vectors(catalog.snapshot, request.column, frame, query_column)
    added = added_columns(catalog.snapshot, pa.field(DISTANCE, pa.float32()), request.columns or (), prefix)
    check_names([*frame.columns, NEIGHBORS, *added.names])
    plan = plan_knn_join(catalog, request, query_column, memory_bytes, lambda: engine.parallelism)
    return unnested(_nested(engine, frame, plan, added), NEIGHBORS, outer=how == "left")


def _nested(engine: SparkEngine, frame: DataFrame, plan: KnnJoinPlan, added: pa.Schema) -> DataFrame:
    schema = schema_with(frame, NEIGHBORS, added)
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


def _check_vectors(snapshot: Snapshot, column: str, frame: DataFrame, query_column: str) -> None:
    held = VectorType.find(snapshot.column(column).type)
    items = BYTES if held is not None and held.element == np.uint8 else FLOATS
    if held is not None and held.several:
        items = tuple(f"array<{item}>" for item in FLOATS)
    if list_items(frame, query_column) not in items:
        type_ = frame.schema[query_column].dataType.simpleString()
        raise InvalidArgument(
            f"column {query_column!r} of the DataFrame has type {type_}, which is not a type of query vectors",
            "Cast it to " + " or ".join(f"array<{item}>" for item in items[:2]),
        )
