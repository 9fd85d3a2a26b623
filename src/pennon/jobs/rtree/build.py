"""Build an R-tree segment: boxes of geometries -> exchange along a curve -> one file in order, with levels above."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.rtree.curve import CurveRanges
from pennon.index.rtree.geometries import Boxes, Leaves, boxes_of
from pennon.jobs.rtree.exchange import Nulls, received_runs, send_leaves, send_nulls, sorted_runs
from pennon.jobs.rtree.files import Layout, Part, Written, describe_segment, join_parts, write_part, write_whole
from pennon.jobs.rtree.plan import BATCH_SHARE, SAMPLE_ROWS, RTreePlan
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory

# Rows read, and boxes found among them.
Counts = tuple[int, int]


def build_rtree(engine: Engine, snapshot: Snapshot, plan: RTreePlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    if plan.single_task:
        [(counts, written)] = engine.map("build", partial(_build_whole, plan), plan.slices, rows=plan.rows)
        return _finish(snapshot, plan, [counts], written)
    ranges = CurveRanges.of(_sample(snapshot, plan), plan.ranges)
    send = partial(_send_slice, plan, ranges)
    with scratch_directory(snapshot.store) as scratch:
        write = partial(_write_range, plan, scratch)
        tasks = list(enumerate(plan.slices))
        exchanged = engine.exchange("build", send, tasks, write, ranges.count, rows=plan.rows)
        parts = [part for _, part in sorted(exchanged.reduced.items())]
        written = join_parts(engine, _layout(plan), parts)
    return _finish(snapshot, plan, exchanged.mapped, written)


def _build_whole(plan: RTreePlan, part: ScanSlice) -> tuple[Counts, Written]:
    """The only task of a small build."""
    read = _Scan(plan, part)
    written = write_whole(_layout(plan), sorted_runs(read.leaves(), plan.run_rows), read.nulls.rows)
    return read.counts, written


def _send_slice(
    plan: RTreePlan, ranges: CurveRanges, numbered: tuple[int, ScanSlice]
) -> Generator[tuple[int, pa.RecordBatch], None, Counts]:
    """Map task: the boxes of a slice, sorted and cut at the ranges."""
    number, part = numbered
    read = _Scan(plan, part)
    yield from send_leaves(read.leaves(), plan.run_rows, ranges)
    for piece in read.nulls.rows().pieces(plan.run_rows):
        yield send_nulls(piece.addresses(), number % ranges.count)
    return read.counts


def _write_range(plan: RTreePlan, scratch: str, _: int, batches: Iterator[pa.RecordBatch]) -> Part:
    """Reduce task: the boxes of a range."""
    nulls = Nulls()
    return write_part(_layout(plan), scratch, received_runs(batches, plan.run_rows, nulls), nulls.rows)


class _Scan:
    """Boxes of a slice with their ids, batch by batch; NULLs and counts are complete after the last."""

    def __init__(self, plan: RTreePlan, part: ScanSlice) -> None:
        self._plan, self._part = plan, part
        self.nulls = Nulls()
        self.counts: Counts = (0, 0)

    def leaves(self) -> Iterator[Leaves]:
        snapshot = self._plan.pin.open()
        column = snapshot.column(self._plan.column)
        for values, addresses in snapshot.scan_column(column, self._part, self._plan.batch_rows):
            ids = ids_of(addresses, snapshot.row_ids) if self._plan.stable_row_ids else addresses
            boxes, found = boxes_of(values)
            self.nulls.add(ids[values.is_null().to_numpy(zero_copy_only=False)])
            self.counts = self.counts[0] + len(values), self.counts[1] + int(found.sum())
            yield Leaves(boxes, ids).take(found)


def _sample(snapshot: Snapshot, plan: RTreePlan) -> Boxes:
    rows = min(SAMPLE_ROWS, max(1, int(plan.memory_bytes * BATCH_SHARE) // plan.row_bytes))
    values = snapshot.sample_column(snapshot.column(plan.column), plan.fragments, rows, seed=plan.pin.version)
    boxes, found = boxes_of(values)
    return boxes[found]


def _layout(plan: RTreePlan) -> Layout:
    return Layout(plan.pin, plan.page_size, plan.storage_version)


def _finish(snapshot: Snapshot, plan: RTreePlan, counts: list[Counts], written: Written) -> IndexSegment:
    """Check the reports of the tasks, and describe the segment."""
    with delete_on_failure(snapshot.store, written.uuid):
        rows, boxes = np.array(counts).sum(axis=0).tolist()
        if rows != plan.rows or boxes != written.items:
            raise BuildFailed(
                f"the tasks read {rows:,} of the {plan.rows:,} rows of {plan.pin.location.uri}, and wrote"
                f" {written.items:,} of {boxes:,} boxes",
                "Nothing was committed; report this",
            )
        return describe_segment(snapshot, written, plan.name, plan.field_id, plan.fragments)
