"""Build a bitmap index: group rows by value, exchange by ranges of values -> merge each range -> write one file."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.engine.spill import buffered
from pennon.errors import BuildFailed
from pennon.format.index_metadata import IndexSegment
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.keyed import HeldSource, Keyed, merge_keyed, pivots_of_sample
from pennon.index.bitmap.row_map import EMPTY_MAP, encode_one
from pennon.index.value_order import exchange_type
from pennon.jobs.bitmap.parts import Part, WrittenSegment, finish, read_part, write_part, write_segment
from pennon.jobs.bitmap.plan import MERGE_COPIES, BitmapPlan
from pennon.jobs.bitmap.scan import read_groups
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory

SAMPLE_PER_RANGE = 256
# Destinations of parts: the rows whose list is NULL, then ranges of values.
LIST_NULLS, FIRST_RANGE = 0, 1


def build_bitmap(engine: Engine, snapshot: Snapshot, plan: BitmapPlan) -> IndexSegment:
    """Write the file of one segment; the caller commits it."""
    if plan.single_task:
        [written] = engine.map("build", partial(_build_whole, plan), plan.slices, rows=plan.rows)
    elif plan.single_range:
        group, merge = partial(_group_slice, plan, _pivots(snapshot, plan)), partial(_merge_whole, plan)
        exchanged = engine.exchange("build", group, plan.slices, merge, FIRST_RANGE + 1, rows=plan.rows)
        written = exchanged.reduced[FIRST_RANGE]
    else:
        with scratch_directory(snapshot.store) as scratch:
            pivots = _pivots(snapshot, plan)
            parts = engine.exchange(
                "build",
                partial(_group_slice, plan, pivots),
                plan.slices,
                partial(_merge_range, plan, scratch),
                FIRST_RANGE + len(pivots) + 1,
                rows=plan.rows,
            ).reduced
            [written] = engine.map("write", partial(_join, plan, scratch), [parts])
    with delete_on_failure(snapshot.store, written.uuid):
        if not plan.kind.over_lists and written.bitmaps.ids != plan.rows:
            raise BuildFailed(
                f"the tasks indexed {written.bitmaps.ids:,} of the {plan.rows:,} rows of {plan.pin.location.shown}",
                "Nothing was committed; report this",
            )
        return finish(snapshot, plan.kind, plan.name, plan.field_id, plan.fragments, written)


def _pivots(snapshot: Snapshot, plan: BitmapPlan) -> pa.Array:
    if plan.ranges == 1:
        return pa.array([], exchange_type(plan.key_type))
    column = snapshot.column(plan.column)
    rows = SAMPLE_PER_RANGE * plan.ranges
    sample = snapshot.sample_column(column, plan.fragments, rows, seed=plan.pin.version)
    return pivots_of_sample(plan.kind.elements(sample), plan.ranges)


def _group_slice(plan: BitmapPlan, pivots: pa.Array, part: ScanSlice) -> Generator[tuple[int, pa.RecordBatch]]:
    """Map task: the maps of the values of a slice, cut at the pivots."""
    for keyed, list_nulls in read_groups(plan, part):
        for number, piece in keyed.cut(pivots):
            yield FIRST_RANGE + number, piece.to_batch()
        if len(list_nulls):
            nulls = pa.nulls(len(list_nulls), exchange_type(plan.key_type))
            yield LIST_NULLS, Keyed.of_rows(nulls, list_nulls).to_batch()


def _merge_whole(plan: BitmapPlan, number: int, batches: Iterator[pa.RecordBatch]) -> WrittenSegment:
    """The only reduce task: join the maps of each value, and write the file of the segment."""
    return write_segment(plan.pin.open(), plan.kind, plan.key_type, _merged(plan, batches), None)


def _merge_range(plan: BitmapPlan, scratch: str, number: int, batches: Iterator[pa.RecordBatch]) -> Part:
    """Reduce task: join the maps of each value of a range, and write them under a name unique to this attempt."""
    return write_part(plan.pin.open(), scratch, number, plan.key_type, _merged(plan, batches))


def _merged(plan: BitmapPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[Keyed]:
    kept = buffered(batches, plan.memory_bytes // MERGE_COPIES)
    sources = [HeldSource(Keyed.of_batch(batch)) for batch in kept]
    yield from merge_keyed(sources, plan.where)


def _join(plan: BitmapPlan, scratch: str, parts: dict[int, Part]) -> WrittenSegment:
    """The last task: one file of all ranges."""
    snapshot = plan.pin.open()
    list_nulls: bytes | None = None
    parts = dict(parts)
    if plan.kind.over_lists:
        found = (read_part(snapshot, scratch, part, plan.key_type) for part in [parts.pop(LIST_NULLS, None)] if part)
        list_nulls = next((keyed.maps.to_bytes() for part in found for keyed in part), EMPTY_MAP)
    ordered = (
        keyed for _, part in sorted(parts.items()) for keyed in read_part(snapshot, scratch, part, plan.key_type)
    )
    return write_segment(snapshot, plan.kind, plan.key_type, ordered, list_nulls)


def _build_whole(plan: BitmapPlan, part: ScanSlice) -> WrittenSegment:
    """The only task of a small build."""
    groups = list(read_groups(plan, part))
    sources = [HeldSource(keyed) for keyed, _ in groups]
    nulls = np.concatenate([np.empty(0, dtype=np.uint64), *(list_nulls for _, list_nulls in groups)])
    merged = merge_keyed(sources, plan.where)
    list_nulls = encode_one(nulls) if plan.kind.over_lists else None
    return write_segment(plan.pin.open(), plan.kind, plan.key_type, merged, list_nulls)
