"""Plan n-gram segments: rows, tasks, ranges of tokens, memory; nothing is written yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.display import Displayed
from pennon.errors import UnsupportedColumn
from pennon.format.fragments import Fragment
from pennon.format.rows import ScanSlice
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.ngram.kind import NGRAM
from pennon.jobs.kinds import BuildRequest, MergeRequest, PlanContext
from pennon.jobs.shared.arguments import check_at_least_one
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort, Placed
from pennon.jobs.shared.plan_display import build_fields, build_text, merge_fields, merge_text
from pennon.jobs.shared.remap import RemapPlan
from pennon.jobs.shared.tasks import chosen_fragments, cut_slices, whole_waves
from pennon.wording import human_bytes, plural

# Text of a task: a second or two of work.
TEXT_PER_TASK = 48 << 20
# Bytes of posting lists that one task joins; for more, several tasks join ranges of tokens.
LISTS_PER_TASK = 256 << 20
# The share of a task's memory for tokens or received lists; the rest is for texts being read and lists being written.
COLLECTED_SHARE = 0.5
# Bytes of a row in a long posting list.
BYTES_PER_ENTRY = 2.5
SAMPLE_ROWS = 2000


@dataclass(frozen=True)
class NGramPlan(Displayed, Placed):
    """The plan of a build."""

    pin: Pin
    column: str
    field_id: int
    name: str
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    text_bytes: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    ranges: int
    storage_version: str
    stable_row_ids: bool
    memory_bytes: int

    @property
    def single_task(self) -> bool:
        return len(self.slices) <= 1

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def collected_bytes(self) -> int:
        """The bytes that a task collects before it sends or writes posting lists."""
        return int(self.memory_bytes * COLLECTED_SHARE)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, 24 * self.text_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        return min(self.memory_bytes, 12 * self.text_bytes // self.tasks + (64 << 20))

    @property
    def index_bytes(self) -> int:
        return _list_bytes(self.text_bytes, self.rows)

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, NGRAM.names[0], self.column, ranges=self.ranges)

    def __str__(self) -> str:
        tasks = "1 task" if self.single_task else f"{plural(self.tasks, 'map task')}, {self.ranges} to join"
        text = f", about {human_bytes(self.text_bytes)} of text"
        return build_text(self, f"n-gram index {self.name!r} on {self.column}", tasks, rows=text)


@dataclass(frozen=True)
class NGramMerge(Placed):
    """The plan of a merge."""

    remap_plan: RemapPlan
    field_id: int
    name: str
    rows: int
    index_bytes: int
    ranges: int
    storage_version: str
    memory_bytes: int
    ids_unchanged: bool
    is_estimate: bool

    @property
    def tasks(self) -> int:
        return self.ranges

    @property
    def work(self) -> Effort:
        return Effort(self.remap_plan.pin.location, MERGE_WEIGHT * self.index_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        return min(self.memory_bytes, 4 * self.index_bytes // self.ranges + (64 << 20))

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.remap_plan.sources))

    def __str__(self) -> str:
        return merge_text(self, plural(self.tasks, "task"))


def plan_ngram(snapshot: Snapshot, column_path: str, request: BuildRequest) -> NGramPlan:
    """A segment over some fragments, or all."""
    check_at_least_one(rows_per_task=request.rows_per_task)
    column = _text_column(snapshot, column_path)
    fragments = chosen_fragments(snapshot, request.fragment_ids)
    rows = sum(fragment.live_rows for fragment in fragments)
    text_bytes = int(_bytes_per_row(snapshot, column, fragments) * rows)
    wanted = -(-rows // request.rows_per_task) if request.rows_per_task else -(-text_bytes // TEXT_PER_TASK)
    tasks = whole_waves(wanted, request.parallelism) if wanted > 1 else 1
    return NGramPlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        name=request.name or f"{column_path}_idx",
        fragments=tuple(fragment.id for fragment in fragments),
        rows=rows,
        text_bytes=text_bytes,
        # An empty table is one task too, so that its index is written like any other.
        slices=tuple(cut_slices(fragments, tasks)) if rows else (ScanSlice(()),),
        ranges=_ranges(_list_bytes(text_bytes, rows), request.memory_bytes),
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        memory_bytes=request.memory_bytes,
    )


def plan_ngram_merge(context: PlanContext, request: MergeRequest) -> NGramMerge:
    """One segment with the rows of several."""
    snapshot, like, delta = context.snapshot, request.largest, request.delta
    sources = tuple(request.sources)
    covered = snapshot.manifest.live
    rows = sum(snapshot.manifest.rows_in(covered & source.coverage) for source in sources)
    size = sum(source.segment.size_bytes for source in sources) + (delta.index_bytes if delta else 0)
    addresses = NGRAM.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
    return NGramMerge(
        remap_plan=RemapPlan(snapshot.pin(), addresses, sources, request.address_map),
        field_id=context.column_of(like).field_id,
        name=like.name,
        rows=rows + (delta.rows if delta else 0),
        index_bytes=size,
        ranges=_ranges(size, context.memory_bytes),
        storage_version=snapshot.storage_version,
        memory_bytes=context.memory_bytes,
        ids_unchanged=request.ids_unchanged,
        is_estimate=delta is not None,
    )


def _text_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not column.is_leaf or not NGRAM.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which n-gram indices do not support",
            "Index a column of strings",
        )
    return column


def _bytes_per_row(snapshot: Snapshot, column: Column, fragments: Sequence[Fragment]) -> float:
    sample = snapshot.sample_column(column, [f.id for f in fragments], SAMPLE_ROWS, seed=snapshot.version)
    lengths = pc.binary_length(sample.cast(pa.large_string()).fill_null(""))
    return float(np.mean(lengths.to_numpy())) + 1 if len(sample) else 1.0


def _list_bytes(text_bytes: int, rows: int) -> int:
    """The approximate size of posting lists: one entry for nearly every letter but two."""
    return int(max(text_bytes - 2 * rows, rows) * BYTES_PER_ENTRY)


def _ranges(list_bytes: int, memory_bytes: int) -> int:
    return max(1, -(-list_bytes // min(LISTS_PER_TASK, int(memory_bytes * COLLECTED_SHARE))))
