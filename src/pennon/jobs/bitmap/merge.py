"""Merge segments of bitmap indices: the maps of every value of all of them, under the current ids of their rows.

Maps of different fragments are copied into one unchanged if no id changes. A small merge is one task; a large one
is cut into ranges of values, whose parts a last task writes into one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.files import FILE, BitmapFile
from pennon.index.bitmap.joining import concat_maps, join_maps, remap_maps
from pennon.index.bitmap.keyed import merge_keyed
from pennon.index.bitmap.kind import BitmapKind
from pennon.index.bitmap.row_map import EMPTY_MAP, Remap
from pennon.index.bitmap.stored import StoredSource
from pennon.jobs.bitmap.parts import Part, WrittenSegment, finish, read_part, write_part, write_segment
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort, Placed
from pennon.jobs.shared.plan_display import merge_fields, merge_text
from pennon.jobs.shared.remap import MergeSource, RemapPlan
from pennon.wording import plural

# Bytes of the files that one task merges.
TASK_BYTES = 64 << 20
# Memory of a task: keys of all sources, and the maps in work as stored, as ids and joined.
WORKING_BYTES = 192 << 20


@dataclass(frozen=True)
class BitmapMerge(Placed):
    """The plan of a merge."""

    remap_plan: RemapPlan
    kind: BitmapKind
    field_id: int
    key_type: pa.DataType
    name: str
    rows: int
    index_bytes: int
    tasks: int
    may_copy: bool
    is_estimate: bool = False

    @property
    def where(self) -> str:
        return f"index {self.name!r} of {self.remap_plan.pin.location.shown}"

    @property
    def work(self) -> Effort:
        return Effort(self.remap_plan.pin.location, MERGE_WEIGHT * self.index_bytes)

    @property
    def task_memory_bytes(self) -> int:
        return self.index_bytes // 2 + min(WORKING_BYTES, 3 * self.index_bytes)

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.remap_plan.sources))

    def __str__(self) -> str:
        return merge_text(self, plural(self.tasks, "task"))


def plan_bitmap_merge(
    snapshot: Snapshot,
    kind: BitmapKind,
    column: Column,
    remap_plan: RemapPlan,
    *,
    name: str,
    parallelism: int,
    may_copy: bool,
    delta_rows: int | None = None,
    delta_bytes: int = 0,
) -> BitmapMerge:
    """Plan by the sizes of the files alone."""
    stored = sum(source.segment.file_sizes.get(FILE) or 0 for source in remap_plan.sources)
    return BitmapMerge(
        remap_plan=remap_plan,
        kind=kind,
        field_id=column.field_id,
        key_type=kind.key_type(column.type),
        name=name,
        rows=snapshot.manifest.rows_in(remap_plan.coverage) + (delta_rows or 0),
        index_bytes=stored + delta_bytes,
        tasks=max(1, min(parallelism, stored // TASK_BYTES)),
        may_copy=may_copy and remap_plan.stores_addresses,
        is_estimate=delta_rows is not None,
    )


def merge_bitmap(engine: Engine, snapshot: Snapshot, plan: BitmapMerge) -> IndexSegment:
    """Write the file of the merged segment; the caller commits it in place of its sources."""
    if plan.tasks == 1:
        [written] = engine.map("merge", partial(_merge_whole, plan), [0], rows=plan.rows)
    else:
        with scratch_directory(snapshot.store) as scratch:
            parts = engine.map("merge", partial(_merge_part, plan, scratch), range(plan.tasks), rows=plan.rows)
            [written] = engine.map("write", partial(_join, plan, scratch), [tuple(parts)])
    with delete_on_failure(snapshot.store, written.uuid):
        return finish(snapshot, plan.kind, plan.name, plan.field_id, plan.remap_plan.coverage, written)


def _merge_whole(plan: BitmapMerge, _: int) -> WrittenSegment:
    """The only task of a small merge."""
    sources = [_source(plan, source) for source in plan.remap_plan.sources]
    snapshot = plan.remap_plan.pin.open()
    return write_segment(snapshot, plan.kind, plan.key_type, merge_keyed(sources, plan.where), _list_nulls(plan))


def _merge_part(plan: BitmapMerge, scratch: str, number: int) -> Part:
    """One range of values; every task finds the same ranges in the keys of the sources."""
    sources = [_source(plan, source) for source in plan.remap_plan.sources]
    keyed = merge_keyed(sources, plan.where, number, plan.tasks)
    return write_part(plan.remap_plan.pin.open(), scratch, number, plan.key_type, keyed)


def _join(plan: BitmapMerge, scratch: str, parts: tuple[Part, ...]) -> WrittenSegment:
    """The last task: one file of all ranges."""
    snapshot = plan.remap_plan.pin.open()
    ordered = (keyed for part in parts for keyed in read_part(snapshot, scratch, part, plan.key_type))
    return write_segment(snapshot, plan.kind, plan.key_type, ordered, _list_nulls(plan))


def _source(plan: BitmapMerge, source: MergeSource) -> StoredSource:
    return StoredSource(_file(plan, source), _remap(plan, source))


def _file(plan: BitmapMerge, source: MergeSource) -> BitmapFile:
    return BitmapFile.of_segment(plan.remap_plan.pin.open().store, source.segment, plan.key_type)


def _remap(plan: BitmapMerge, source: MergeSource) -> Remap | None:
    return None if plan.may_copy else plan.remap_plan.remapper(source).remap


def _list_nulls(plan: BitmapMerge) -> bytes | None:
    """The rows of all sources whose list is NULL."""
    if not plan.kind.over_lists:
        return None
    found = []
    for source in plan.remap_plan.sources:
        maps, remap = plan.kind.list_nulls(_file(plan, source)), _remap(plan, source)
        found.append(maps if remap is None else remap_maps(maps, np.array([0, 1]), remap, plan.where))
    return join_maps(concat_maps(found), np.array([0, len(found)]), plan.where).to_bytes() if found else EMPTY_MAP
