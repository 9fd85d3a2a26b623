"""Plan a B-tree: rows, tasks, ranges, memory; nothing is written yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pennon.display import Displayed
from pennon.errors import UnsupportedColumn
from pennon.format.fragments import Fragment
from pennon.format.rows import ScanSlice
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.btree.options import BTree
from pennon.index.value_order import has_keys
from pennon.jobs.shared.placement import Effort, Placed
from pennon.jobs.shared.plan_display import build_fields, build_text, line
from pennon.jobs.shared.tasks import ROWS_PER_TASK, chosen_fragments, cut_slices, whole_waves
from pennon.wording import plural

MAX_ROWS_PER_RANGE = 10_000_000
RANGES_PER_CORE = 4
# Enough for ranges within a few percent of each other; more if that is cheap, fewer if there are many ranges.
SAMPLES_PER_RANGE = 256
# A sample this small is read by the driver; a larger one by executors.
DRIVER_SAMPLE = 20_000
# Copies of a row alive at once while a task sorts: as scanned, joined, keys, permutation, result.
SORT_COPIES = 6
# Rows of a range as received, in buckets of keys, and the piece being sorted or merged.
MERGE_COPIES = 3
# What is done with a byte in comparison with a zone map: to sort words, and strings.
WORD_WEIGHT, STRING_WEIGHT = 2, 8
# The largest number of boundaries that strings are compared with one by one; with more, sorting is cheaper.
MOST_COMPARED = 32
# Blocks smaller than this many rows make the exchange slow, so tasks grow with the number of ranges.
ROWS_PER_BLOCK = 16_384


@dataclass(frozen=True)
class BTreePlan(Displayed, Placed):
    """The plan of a build."""

    pin: Pin
    column: str
    field_id: int
    value_type: pa.DataType
    name: str
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    row_bytes: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    run_rows: int
    ranges: int
    batch_size: int
    sample_rows: int
    storage_version: str
    stable_row_ids: bool
    memory_bytes: int

    @property
    def single_task(self) -> bool:
        return len(self.slices) <= 1

    @property
    def sorts_early(self) -> bool:
        """Whether map tasks sort, so that reducers only merge, where no kernels are. Comparing strings is so expensive
        that they are sorted once, by the reducer; to find their range they are compared with every boundary, so there
        must be few."""
        return has_keys(self.value_type) or self.ranges > MOST_COMPARED

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, weight_of(self.value_type) * self.rows * self.row_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        mapped = min(self.rows, self.run_rows) * self.row_bytes * SORT_COPIES
        reduced = self.rows // max(1, self.ranges) * self.row_bytes * copies_of(self.value_type)
        return max(mapped, 0 if self.single_task else reduced)

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def index_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def pages(self) -> int:
        return -(-self.rows // self.batch_size)

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, BTREE.names[0], self.column, ranges=self.ranges, pages=self.pages)

    def __str__(self) -> str:
        tasks = "1 task" if self.single_task else f"{plural(self.tasks, 'map task')}, {self.ranges} to merge"
        layout = f"{plural(self.ranges, 'range')}, about {self.pages:,} pages of {self.batch_size:,} rows"
        heading = f"B-tree {self.name!r} on {self.column} ({self.value_type})"
        return build_text(self, heading, tasks, line("layout", layout))


def plan_btree(
    snapshot: Snapshot,
    column_path: str,
    options: BTree,
    *,
    name: str | None = None,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
) -> BTreePlan:
    column = _indexable_column(snapshot, column_path)
    ranges, rows_per_range, batch_size = options.ranges, options.rows_per_range, options.batch_size
    fragments = chosen_fragments(snapshot, fragment_ids)
    rows = sum(f.live_rows for f in fragments)
    row_bytes = _row_bytes(snapshot, column, fragments)
    memory_rows = memory_bytes // (row_bytes * SORT_COPIES)
    run_rows = max(1, min(memory_rows, rows_per_task or ROWS_PER_TASK))
    most_rows = max(1, min(MAX_ROWS_PER_RANGE, memory_bytes // (row_bytes * copies_of(column.type))))
    if rows_per_range:
        ranges = -(-rows // rows_per_range)
    if ranges is None and rows > run_rows:
        ranges = max(-(-rows // most_rows), min(RANGES_PER_CORE * parallelism, -(-rows // ROWS_PER_TASK)))
        ranges = whole_waves(ranges, parallelism)
    ranges = max(1, min(ranges or 1, -(-rows // batch_size)))
    if rows_per_task is None:
        run_rows = max(run_rows, min(memory_rows, ranges * ROWS_PER_BLOCK))
    # An empty table is one task too, so that its index is written like any other.
    tasks = whole_waves(-(-rows // run_rows), parallelism) if rows > run_rows else 1
    slices = cut_slices(fragments, tasks) if rows else [ScanSlice(())]
    return BTreePlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        value_type=column.type,
        name=name or f"{column_path}_idx",
        fragments=tuple(f.id for f in fragments),
        rows=rows,
        row_bytes=row_bytes,
        slices=tuple(slices),
        run_rows=run_rows,
        ranges=ranges,
        batch_size=batch_size,
        sample_rows=max(min(DRIVER_SAMPLE, 1024 * (ranges + 3)), SAMPLES_PER_RANGE * ranges),
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        memory_bytes=memory_bytes,
    )


def copies_of(value_type: pa.DataType) -> int:
    """Copies of a row of a range in memory at once; strings are sorted in large pieces."""
    return MERGE_COPIES if has_keys(value_type) else SORT_COPIES


def weight_of(value_type: pa.DataType) -> int:
    """What is done with a byte of a row that is sorted or merged."""
    return WORD_WEIGHT if has_keys(value_type) else STRING_WEIGHT


def _indexable_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not column.is_leaf or not BTREE.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which a B-tree does not support",
            "Index a column of numbers, strings, binaries, booleans, dates or times",
        )
    return column


def _row_bytes(snapshot: Snapshot, column: Column, fragments: Sequence[Fragment]) -> int:
    """Bytes of a value and its address; strings are measured on a few rows."""
    try:
        return max(1, column.type.bit_width // 8) + 8
    except ValueError:
        values = snapshot.sample_column(column, [f.id for f in fragments], 1000, seed=0)
        return (values.nbytes // len(values) if len(values) else 8) + 16
