"""Boxes on their way from tasks that read them to tasks that write them: sorted along a curve, cut at its ranges.

A batch has a row a box: its place on the curve, its bounds and its id. Rows without a geometry have NaN as bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.row_set import RowSet
from pennon.index.rtree.curve import Curve, CurveRanges, order_of
from pennon.index.rtree.geometries import BOUNDS, Leaves

SCHEMA = pa.schema([("key", pa.uint32()), *((name, pa.float64()) for name in BOUNDS), ("id", pa.uint64())])


class Nulls:
    """Ids of rows without a geometry, collected while others pass by."""

    def __init__(self) -> None:
        self._rows = RowSet.none()

    def add(self, ids: Addresses) -> None:
        if len(ids):
            self._rows = self._rows | RowSet.of_addresses(np.sort(ids))

    def join(self, rows: RowSet) -> None:
        self._rows = self._rows | rows

    def rows(self) -> RowSet:
        return self._rows


def sorted_runs(leaves: Iterable[Leaves], run_rows: int, curve: Curve | None = None) -> Iterator[Leaves]:
    """The same boxes, sorted along a curve, by default one made for them. Beyond `run_rows` they are sorted in several
    runs, one after another: any order is valid, and memory is not."""
    for some in _grouped(leaves, run_rows):
        curve = curve or Curve.of(some.boxes)
        yield some.take(order_of(curve.keys(some.boxes)))


def send_leaves(leaves: Iterable[Leaves], run_rows: int, ranges: CurveRanges) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Boxes as batches by the number of their range."""
    for some in _grouped(leaves, run_rows):
        keys = ranges.curve.keys(some.boxes)
        order = order_of(keys)
        keys, ordered = keys[order], some.take(order)
        for number, start, stop in ranges.edges(keys):
            yield number, _batch(keys[start:stop], ordered.take(slice(start, stop)))


def send_nulls(ids: Addresses, number: int) -> tuple[int, pa.RecordBatch]:
    """Rows without a geometry, to any range."""
    nothing = np.full((len(ids), 4), np.nan)
    return number, _batch(np.zeros(len(ids), dtype=np.uint32), Leaves(nothing, ids))


def received_runs(batches: Iterable[pa.RecordBatch], run_rows: int, nulls: Nulls) -> Iterator[Leaves]:
    """The boxes of received batches in the order of the curve; beyond `run_rows` in several runs."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if np.isnan(batch.column(1)[0].as_py()):
            nulls.add(batch.column(5).to_numpy())
            continue
        if held and rows + batch.num_rows > run_rows:
            yield _in_order(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield _in_order(held)


def _grouped(leaves: Iterable[Leaves], run_rows: int) -> Iterator[Leaves]:
    """Boxes joined to groups of `run_rows`, or few more."""
    held: list[Leaves] = []
    rows = 0
    for some in leaves:
        if len(some):
            held.append(some)
            rows += len(some)
        if rows >= run_rows:
            yield Leaves.joined(held)
            held, rows = [], 0
    if held:
        yield Leaves.joined(held)


def _batch(keys: np.ndarray, leaves: Leaves) -> pa.RecordBatch:
    bounds = [pa.array(np.ascontiguousarray(leaves.boxes[:, at])) for at in range(4)]
    return pa.record_batch([pa.array(keys), *bounds, pa.array(leaves.ids)], schema=SCHEMA)


def _in_order(batches: list[pa.RecordBatch]) -> Leaves:
    keys, *bounds, ids = (np.concatenate([batch.column(at).to_numpy() for batch in batches]) for at in range(6))
    order = order_of(keys)
    return Leaves(np.stack([bound[order] for bound in bounds], axis=1), ids[order])
