"""The tasks of a lookup join, and the messages between them.

    payload   rows of the DataFrame with keys of one part of a range
    held      keys and addresses of rows that no index covers; their place is before all payloads

Messages arrive sorted by place, and places are the parts of a task's range in order, so that pages of an index are read
once, and a task holds one block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine.frames import Batches, Delivered, Message
from pennon.format.addresses import Addresses
from pennon.jobs.lookup_join.plan import LookupJoinPlan, open_lookup
from pennon.jobs.lookup_join.ranges import cut
from pennon.jobs.shared.frame_join import blocks
from pennon.query.lookup.find import HeldKeys, Lookup
from pennon.query.lookup.keys import KeyColumn, converted
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, read_part

HELD_PLACE = -1
HELD = "held address"
CHUNK_ROWS = 1 << 16
# Rows returned at once, and approximately their bytes.
RETURNED_ROWS, RETURNED_BYTES = 1 << 15, 8 << 20

_Mask = npt.NDArray[np.bool_]


def send_rows(plan: LookupJoinPlan, partition: int, batches: Batches) -> Iterator[Message]:
    """Task: rows of the DataFrame to the tasks that look up their keys. Rows without a key go anywhere, if they are
    returned at all."""
    lookup = open_lookup(plan)
    for rows in blocks(batches, CHUNK_ROWS):
        keys = _keys(plan, lookup, rows)
        valid = _complete(keys)
        chosen = np.flatnonzero(valid)
        for destination, place, some in _routed(plan, keys[plan.by].take(pa.array(chosen))):
            yield destination, place, rows.take(pa.array(chosen[some]))
        if plan.request.how in ("left", "anti") and not valid.all():
            yield partition % plan.tasks, 0, rows.filter(pa.array(~valid))


def send_keys(plan: LookupJoinPlan, part: Part) -> Iterator[Message]:
    """Task: keys and addresses of rows that no index covers, to the tasks that look up their keys."""
    lookup = open_lookup(plan)
    for keys, addresses in lookup.scan_keys(dict.fromkeys(part.fragments)):
        for destination, _, some in _routed(plan, keys[plan.by]):
            chosen = pa.array(some)
            columns = {HELD: pa.array(addresses[some])}
            columns |= {f"key {number}": key.take(chosen) for number, key in enumerate(keys)}
            yield destination, HELD_PLACE, pa.record_batch(columns)


def find_rows(plan: LookupJoinPlan, added: pa.Schema, delivered: Iterator[Delivered]) -> Batches:
    """Task: rows of the DataFrame with the rows of the table that have their keys."""
    lookup = open_lookup(plan)
    held: list[tuple[list[pa.Array], Addresses]] = []
    first: pa.RecordBatch | None = None
    for place, batch in delivered:
        if place != HELD_PLACE:
            first = batch
            break
        held.append((batch.columns[1:], batch.column(0).to_numpy()))
    if first is not None:
        uncovered = lookup.held(held)
        held.clear()
        payloads = chain([first], (batch for _, batch in delivered))
        for rows in blocks(payloads, plan.block_rows):
            yield from _joined(plan, lookup, uncovered, added, rows)


def read_rows(
    plan: LookupJoinPlan, keys: Sequence[tuple[KeyColumn, pa.Field]], added: pa.Schema, part: Part
) -> Batches:
    """Task: rows of the table for Spark's own join: keys as the DataFrame has them, and the columns to add. A value
    that the DataFrame's type lacks is NULL, which equals nothing."""
    paths = [key.column.path for key, _ in keys]
    columns = tuple(dict.fromkeys([*paths, *plan.request.columns]))
    schema = pa.schema([*(field for _, field in keys), *added])
    for batch in read_part(plan.pin, part, ScanRequest(plan.request.filter, columns)):
        if batch.num_rows:
            found = [converted(key.canonical(batch.column(key.column.path)), field.type) for key, field in keys]
            others = _cast([batch.column(name) for name in plan.request.columns], added)
            yield pa.record_batch([*found, *others], schema=schema)


def _joined(
    plan: LookupJoinPlan, lookup: Lookup, held: HeldKeys, added: pa.Schema, rows: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    keys, how = _keys(plan, lookup, rows), plan.request.how
    matched = np.zeros(rows.num_rows, dtype=np.bool_)
    schema = pa.schema([*rows.schema, *added])
    for found in chain(lookup.find(keys, plan.covered), held.find(keys)):
        matched[found.keys] = True
        if how in ("inner", "left"):
            for start in range(0, len(found), RETURNED_ROWS):
                some = slice(start, start + RETURNED_ROWS)
                own = rows.take(pa.array(found.keys[some]))
                columns = [column.combine_chunks() for column in found.rows.slice(start, RETURNED_ROWS).columns]
                yield from _sized(pa.record_batch([*own.columns, *_cast(columns, added)], schema=schema))
    if how == "left" and not matched.all():
        own = rows.filter(pa.array(~matched))
        nulls = [pa.nulls(own.num_rows, field.type) for field in added]
        yield from _sized(pa.record_batch([*own.columns, *nulls], schema=schema))
    if how in ("semi", "anti"):
        yield from _sized(rows.filter(pa.array(matched if how == "semi" else ~matched)))


def _keys(plan: LookupJoinPlan, lookup: Lookup, rows: pa.RecordBatch) -> list[pa.Array]:
    read = lookup.read_keys([rows.column(own) for own, _ in plan.request.on])
    return [key.canonical(values) for key, values in zip(lookup.keys, read, strict=True)]


def _complete(keys: Sequence[pa.Array]) -> _Mask:
    return np.logical_and.reduce([key.is_valid().to_numpy(zero_copy_only=False) for key in keys])


def _routed(plan: LookupJoinPlan, keys: pa.Array) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
    """Task and part of its range of some keys, and their positions."""
    assert plan.cuts is not None
    parts = len(plan.cuts) + 1
    for number, some in cut(keys, plan.cuts):
        yield number * plan.tasks // parts, number, some


def _cast(columns: Sequence[pa.Array], added: pa.Schema) -> list[pa.Array]:
    """Columns of the table in Spark's types; its times have microseconds."""
    return [
        column if column.type == field.type else column.cast(field.type, safe="[ns" not in str(column.type))
        for column, field in zip(columns, added, strict=True)
    ]


def _sized(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut into pieces of about equal size."""
    rows = max(1, batch.num_rows * RETURNED_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
