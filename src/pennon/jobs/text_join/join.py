"""The text join: the rows of a Spark DataFrame with the rows of a table that match their queries best, lazily.

Each task searches for the rows of its own partition of the DataFrame, in blocks; nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.engine import SparkEngine
from pennon.engine.frames import Batches, MapRows, has_strings, unnested
from pennon.errors import InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.jobs.shared.frame_join import Returned, added_columns, blocks, check_frame, check_names, schema_with
from pennon.query.catalog import Catalog
from pennon.query.scan.execute import parse
from pennon.query.text.join_search import TextJoinSearch, counts_of
from pennon.query.text.request import SCORE, TextColumnsLike, TextRequest, read_question

if TYPE_CHECKING:
    from pennon.engine import DataFrame

MATCHES = "_matches"
# Fractions of a task's memory: for the cache of the index, in addition to which the lists of a block may take as much
# again, and for what a block of queries has found.
CACHE_SHARE, BLOCK_SHARE = 3, 8
# Address and score of a row found, while they are gathered and sorted.
FOUND_BYTES = 64
MOST_BLOCK_ROWS = 1 << 12


@dataclass(frozen=True)
class TextJoinPlan:
    """The plan of a join. Small: tasks open the index from the table's files. `words` are options of plain words."""

    pin: Pin
    request: TextRequest
    column: str | tuple[str, ...] | None
    words: tuple[tuple[str, Any], ...]
    query_column: str
    block_rows: int
    memory_bytes: int

    def open(self) -> TextJoinSearch:
        """The searches of this join, shared by its tasks in one worker process."""
        return _open(self)


def text_join(
    catalog: Catalog,
    frame: DataFrame,
    request: TextRequest,
    column: TextColumnsLike,
    query_column: str,
    words: Mapping[str, Any],
    *,
    how: str = "inner",
    prefix: str = "",
    memory_bytes: int,
) -> DataFrame:
    """`how="left"` keeps rows without matches; `prefix` is prepended to the names of the table's columns."""
    engine = SparkEngine.attach(frame.sparkSession)
    request = with_columns(catalog.snapshot, request)
    check_frame(frame, query_column, how)
    if not has_strings(frame, query_column):
        type_ = frame.schema[query_column].dataType.simpleString()
        raise InvalidArgument(
            f"column {query_column!r} of the DataFrame has type {type_}, and queries are strings", "Cast it to string"
        )
    added = added_columns(catalog.snapshot, pa.field(SCORE, pa.float32()), request.columns or (), prefix)
    check_names([*frame.columns, MATCHES, *added.names])
    plan = plan_text_join(catalog, request, column, query_column, words, memory_bytes)
    nested = engine.apply(frame, MapRows(partial(search, plan, added)), schema_with(frame, MATCHES, added))
    return unnested(nested, MATCHES, outer=how == "left")


def plan_text_join(
    catalog: Catalog,
    request: TextRequest,
    column: TextColumnsLike,
    query_column: str,
    words: Mapping[str, Any],
    memory_bytes: int,
) -> TextJoinPlan:
    """Check the arguments of the tasks with an empty query."""
    snapshot = catalog.snapshot
    read_question(snapshot, request, column, [""], words)
    if request.filter is not None:
        parse(snapshot, request.filter)
    assert request.k is not None
    found = request.k * FOUND_BYTES + 1024
    return TextJoinPlan(
        snapshot.pin(),
        request,
        column if column is None or isinstance(column, str) else tuple(column),
        tuple(words.items()),
        query_column,
        int(min(MOST_BLOCK_ROWS, max(1, memory_bytes // BLOCK_SHARE // found))),
        memory_bytes,
    )


def search(plan: TextJoinPlan, added: pa.Schema, batches: Batches) -> Batches:
    """Task: rows of the frame, with the rows that match them best."""
    opened = plan.open()
    returned = Returned(MATCHES, added)
    for rows in blocks(batches, plan.block_rows):
        found = opened.best(rows.column(plan.query_column))
        yield from returned.batches(rows, counts_of(found), lambda start, stop: opened.rows(found[start:stop]))  # noqa: B023


def with_columns(snapshot: Snapshot, request: TextRequest) -> TextRequest:
    """Names all columns if none are named; `_score` is handled separately."""
    columns = snapshot.schema.names if request.columns is None else request.columns
    wanted = [(ROW_ID, request.with_row_id), (ADDRESS, request.with_row_address)]
    named = dict.fromkeys([*columns, *(name for name, is_wanted in wanted if is_wanted)])
    named.pop(SCORE, None)
    return replace(request, columns=tuple(named), with_row_id=False, with_row_address=False)


@lru_cache(maxsize=1)
def _open(plan: TextJoinPlan) -> TextJoinSearch:
    """Keeps only one: a worker that runs another join frees the memory of the previous one."""
    catalog = Catalog.read(plan.pin.open(), ByteCache(plan.memory_bytes // CACHE_SHARE))
    return TextJoinSearch(catalog, plan.request, plan.column, dict(plan.words))
