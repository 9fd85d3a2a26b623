"""Near-duplicates: the pairs of rows of a table whose vectors are within a distance, lazily.

route     read the vectors of the table once; send sketches of them to the groups of cells that compare them
compare   find pairs whose sketches are within reach, and measure those on the vectors of the table
merge     for groups: forests of rows that pairs connect, several to a few to one
return    add the columns of the rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pennon.engine.frames import AnswerBlocks, Batches, Delivered, ReceiveRows, SendRows, frame_schema
from pennon.engine.spark_engine import SparkEngine
from pennon.errors import UnsupportedColumn
from pennon.format.addresses import Addresses
from pennon.format.rows import ROW_ID
from pennon.format.snapshot import Snapshot
from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan
from pennon.jobs.near_duplicates.tasks import deal_groups, find_forest, find_pairs, merge_forests, route
from pennon.jobs.shared.frame_join import check_names, table_columns
from pennon.query.search.result_table import DISTANCE, rows_table

if TYPE_CHECKING:
    from pennon.engine import DataFrame

# After the names of columns of the first row of a pair, and of the second.
SUFFIXES = ("_a", "_b")
GROUP, GROUP_ROWS = "_group", "_group_rows"
# Rows returned at once.
RETURNED_ROWS = 1 << 14


def near_duplicates(
    engine: SparkEngine, snapshot: Snapshot, plan: NearDuplicatesPlan, columns: Sequence[str], *, groups: bool
) -> DataFrame:
    """The pairs, or the rows that have a near-duplicate with their groups."""
    own = table_columns(snapshot, columns, "")
    sides = [pa.field(f"{field.name}{suffix}", field.type) for suffix in SUFFIXES for field in own]
    if groups:
        schema = pa.schema([*own, pa.field(GROUP, pa.int64()), pa.field(GROUP_ROWS, pa.int64())])
    else:
        schema = pa.schema([*sides, pa.field(DISTANCE, pa.float32())])
    check_names(schema.names)
    try:
        returned = frame_schema(schema)
    except ValueError as error:
        raise UnsupportedColumn(f"Spark has no type for column {error}", "Name the columns to return") from error
    parts = engine.numbers(max(1, len(plan.parts)))
    sent = engine.deliver(parts, SendRows(partial(route, plan)), plan.tasks)
    finish = _Finish(plan, tuple(columns), schema)
    if not groups:
        return engine.apply(sent, ReceiveRows(finish.pairs), returned)
    forests = engine.deliver(sent, AnswerBlocks(partial(find_forest, plan), plan.tasks), plan.mergers)
    merged = engine.deliver(forests, AnswerBlocks(partial(merge_forests, plan), plan.mergers), 1)
    dealt = engine.deliver(merged, AnswerBlocks(partial(deal_groups, plan), 1), plan.finishers)
    return engine.apply(dealt, ReceiveRows(finish.groups), returned)


@dataclass(frozen=True, eq=False)
class _Finish:
    """Addresses to the rows of the result."""

    plan: NearDuplicatesPlan
    columns: tuple[str, ...]
    schema: pa.Schema

    def pairs(self, delivered: Iterator[Delivered]) -> Batches:
        for found in find_pairs(self.plan, delivered):
            for start in range(0, len(found.first), RETURNED_ROWS):
                some = slice(start, start + RETURNED_ROWS)
                both = self._fetch(np.concatenate([found.first[some], found.second[some]]), self.columns)
                half = len(both) // 2
                yield self._batch(
                    [*both[:half].columns, *both[half:].columns, pa.chunked_array([found.distances[some]])]
                )

    def groups(self, delivered: Iterator[Delivered]) -> Batches:
        for _, batch in delivered:
            for start in range(0, batch.num_rows, RETURNED_ROWS):
                some = batch.slice(start, RETURNED_ROWS)
                rows = self._fetch(some.column("row").to_numpy(), self.columns)
                firsts = self._fetch(some.column("first").to_numpy(), (ROW_ID,))
                yield self._batch([*rows.columns, *firsts.columns, pa.chunked_array([some.column("size")])])

    def _fetch(self, addresses: Addresses, columns: tuple[str, ...]) -> pa.Table:
        return rows_table(self.plan.pin.open(), _Returned(columns), addresses, {})

    def _batch(self, columns: Sequence[pa.ChunkedArray]) -> pa.RecordBatch:
        cast = [column.cast(field.type).combine_chunks() for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(cast, schema=self.schema)


@dataclass(frozen=True)
class _Returned:
    """What `rows_table` is asked for."""

    columns: tuple[str, ...]
    with_row_id: bool = False
    with_row_address: bool = False
