"""Merge R-tree segments: the leaves of all of them with current ids -> sorted along a new curve -> levels above.

The leaves of one segment keep their order, so that remapping it is streaming it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import pyarrow as pa

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.index_metadata import IndexSegment
from pennon.format.segment_contents import CONTENTS_FILE
from pennon.format.snapshot import Snapshot
from pennon.index.rtree.curve import CurveRanges
from pennon.index.rtree.files import TreeFile
from pennon.index.rtree.geometries import Boxes, Leaves
from pennon.jobs.rtree.exchange import Nulls, received_runs, send_leaves, send_nulls, sorted_runs
from pennon.jobs.rtree.files import Layout, Part, Written, describe_segment, join_parts, write_part, write_whole
from pennon.jobs.rtree.plan import RTreeMerge, Stretch
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory

# NULLs that are remapped at once.
MOST_NULLS = 1 << 20


def merge_rtree(engine: Engine, snapshot: Snapshot, plan: RTreeMerge) -> IndexSegment:
    """Write the files of the merged segment; the caller commits it in place of its sources."""
    if plan.single_task:
        [(kept, written)] = engine.map("merge", _merge_all, [plan], rows=plan.rows)
    else:
        ranges = CurveRanges.of(_pages(snapshot, plan), plan.ranges)
        with scratch_directory(snapshot.store) as scratch:
            send, write = partial(_send_stretch, plan, ranges), partial(_write_range, plan, scratch)
            exchanged = engine.exchange("merge", send, plan.stretches, write, ranges.count, rows=plan.rows)
            parts = [part for _, part in sorted(exchanged.reduced.items())]
            kept, written = sum(exchanged.mapped), join_parts(engine, _layout(plan), parts)
    with delete_on_failure(snapshot.store, written.uuid):
        if kept != written.items:
            raise BuildFailed(
                f"the tasks wrote {written.items:,} of the {kept:,} boxes of the segments of index {plan.name!r} of"
                f" {snapshot.uri}",
                "Nothing was committed; report this",
            )
        # What a segment of pylance has from before a change in place is in the new one, too.
        recorded = all(CONTENTS_FILE in source.segment.file_sizes for source in plan.remap_plan.sources)
        coverage = plan.remap_plan.coverage
        return describe_segment(snapshot, written, plan.name, plan.field_id, coverage, recorded=recorded)


def _merge_all(plan: RTreeMerge) -> tuple[int, Written]:
    """Task: all boxes."""
    read = _Kept(plan)
    leaves = (some for stretch in plan.stretches for some in read.leaves(stretch))
    if len(plan.remap_plan.sources) > 1:
        leaves = sorted_runs(leaves, plan.run_rows)
    written = write_whole(_layout(plan), leaves, read.nulls.rows)
    return read.count, written


def _send_stretch(
    plan: RTreeMerge, ranges: CurveRanges, stretch: Stretch
) -> Generator[tuple[int, pa.RecordBatch], None, int]:
    """Map task: the boxes of some pages, sorted and cut at the ranges."""
    read = _Kept(plan)
    yield from send_leaves(read.leaves(stretch), plan.run_rows, ranges)
    for piece in read.nulls.rows().pieces(plan.run_rows):
        yield send_nulls(piece.addresses(), stretch.source % ranges.count)
    return read.count


def _write_range(plan: RTreeMerge, scratch: str, _: int, batches: Iterator[pa.RecordBatch]) -> Part:
    """Reduce task: the boxes of a range."""
    nulls = Nulls()
    return write_part(_layout(plan), scratch, received_runs(batches, plan.run_rows, nulls), nulls.rows)


class _Kept:
    """Boxes of the sources that the new segment keeps, under their new ids; NULLs and count are complete after the
    last."""

    def __init__(self, plan: RTreeMerge) -> None:
        self._plan = plan
        self.nulls = Nulls()
        self.count = 0

    def leaves(self, stretch: Stretch) -> Iterator[Leaves]:
        remap_plan = self._plan.remap_plan
        source = remap_plan.sources[stretch.source]
        remapper, file = remap_plan.remapper(source), TreeFile(remap_plan.pin.open().store, source.segment)
        for _, leaves in file.leaves(stretch.start, stretch.stop):
            ids, kept = remapper.remap(leaves.ids)
            self.count += int(kept.sum())
            yield Leaves(leaves.boxes, ids).take(kept)
        if stretch.start == 0:
            for piece in file.read_nulls().pieces(MOST_NULLS):
                ids, kept = remapper.remap(piece.addresses())
                self.nulls.add(ids[kept])


def _pages(snapshot: Snapshot, plan: RTreeMerge) -> Boxes:
    """The boxes around the pages of all sources: a sample of their boxes."""
    files = [TreeFile(snapshot.store, source.segment) for source in plan.remap_plan.sources]
    # A tree of one page has no level above the leaves.
    levels = [(file, min(1, len(file.levels) - 1)) for file in files if file.levels]
    found = [file.read_pages(level, 0, file.levels[level].pages) for file, level in levels]
    return Leaves.joined(found).boxes


def _layout(plan: RTreeMerge) -> Layout:
    return Layout(plan.remap_plan.pin, plan.page_size, plan.storage_version)
