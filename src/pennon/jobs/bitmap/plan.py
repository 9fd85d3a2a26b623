"""Plan a bitmap index: rows, tasks, ranges of values, memory; nothing is written yet."""

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
from pennon.index.bitmap.kind import BitmapKind
from pennon.index.value_order import exchange_type
from pennon.jobs.kinds import BuildRequest
from pennon.jobs.shared.placement import Effort, Placed
from pennon.jobs.shared.plan_display import build_fields, build_text
from pennon.jobs.shared.tasks import ROWS_PER_TASK, chosen_fragments, cut_slices, whole_waves
from pennon.wording import plural

SAMPLE_ROWS = 4096
# Copies of a row in memory at once while a task groups: as scanned, joined, codes, ids in order, maps.
GROUP_COPIES = 6
# Copies of keys and maps in memory at once while the parts of a range are merged.
MERGE_COPIES = 3
# Bytes of a range of values. The maps of one range are merged by one task.
RANGE_BYTES = 128 << 20
# Bytes of a map of a single row, and of a row in a map of many.
MAP_BYTES, ID_BYTES = 30, 2


@dataclass(frozen=True)
class BitmapPlan(Displayed, Placed):
    """The plan of a build."""

    pin: Pin
    kind: BitmapKind
    column: str
    field_id: int
    key_type: pa.DataType
    name: str
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    row_bytes: int
    index_bytes: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    run_rows: int
    ranges: int
    storage_version: str
    memory_bytes: int

    @property
    def where(self) -> str:
        return f"index {self.name!r} of {self.pin.location.shown}"

    @property
    def single_task(self) -> bool:
        return len(self.slices) <= 1

    @property
    def single_range(self) -> bool:
        """Whether one task gets all there is to be written. NULL lists go to another one than labels."""
        return self.ranges == 1 and not self.kind.over_lists and self.rows > 0

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, 8 * self.rows * self.row_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        grouped = min(self.rows, self.run_rows) * self.row_bytes * GROUP_COPIES
        return max(grouped, self.index_bytes // self.ranges * MERGE_COPIES)

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, self.kind.names[0], self.column, ranges=self.ranges)

    def __str__(self) -> str:
        tasks = "1 task"
        if not self.single_task:
            tasks = f"{plural(self.tasks, 'map task')}, {plural(self.ranges, 'range')} of values to merge"
        return build_text(self, f"{self.kind.names[0]} index {self.name!r} on {self.column} ({self.key_type})", tasks)


def plan_bitmap(snapshot: Snapshot, kind: BitmapKind, column_path: str, request: BuildRequest) -> BitmapPlan:
    """Raises UnsupportedColumn if the index does not support columns of this type."""
    column = _indexable_column(snapshot, kind, column_path)
    fragments = chosen_fragments(snapshot, request.fragment_ids)
    rows = sum(f.live_rows for f in fragments)
    row_bytes, key_rows = _measured(snapshot, kind, column, fragments)
    run_rows = max(1, min(request.memory_bytes // (row_bytes * GROUP_COPIES), request.rows_per_task or ROWS_PER_TASK))
    tasks = whole_waves(-(-rows // run_rows), request.parallelism) if rows > run_rows else 1
    index_bytes = int(rows * (row_bytes + MAP_BYTES) / key_rows) + rows * ID_BYTES
    most_bytes = min(RANGE_BYTES, request.memory_bytes // MERGE_COPIES)
    return BitmapPlan(
        pin=snapshot.pin(),
        kind=kind,
        column=column.path,
        field_id=column.field_id,
        key_type=kind.key_type(column.type),
        name=request.name or f"{column_path}_idx",
        fragments=tuple(f.id for f in fragments),
        rows=rows,
        row_bytes=row_bytes,
        index_bytes=index_bytes,
        slices=tuple(cut_slices(fragments, tasks)) if rows else (ScanSlice(()),),
        run_rows=run_rows,
        ranges=max(1, -(-index_bytes // most_bytes)) if tasks > 1 else 1,
        storage_version=snapshot.storage_version,
        memory_bytes=request.memory_bytes,
    )


def _indexable_column(snapshot: Snapshot, kind: BitmapKind, path: str) -> Column:
    column = snapshot.column(path)
    if not column.is_leaf or not kind.supports(column.type):
        problem = (
            f"column {path!r} of {snapshot.uri} has type {column.type}, which {kind.names[0]} indices do not support"
        )
        raise UnsupportedColumn(problem, f"Index a column of {kind.column_words}")
    return column


def _measured(snapshot: Snapshot, kind: BitmapKind, column: Column, fragments: Sequence[Fragment]) -> tuple[int, float]:
    """Bytes of the values of a row and their ids, and the approximate number of rows per value, from a few rows."""
    sample = snapshot.sample_column(column, [f.id for f in fragments], SAMPLE_ROWS, seed=0)
    values = kind.elements(sample)
    if not len(values):
        return 16, 1.0
    expanded = values.cast(exchange_type(values.type))
    row_bytes = -(-expanded.nbytes // len(sample)) + 16 * -(-len(values) // len(sample))
    if pa.types.is_floating(expanded.type) or pa.types.is_decimal(expanded.type):
        expanded = expanded.view(pa.binary(expanded.type.bit_width // 8))
    # If values repeat in a sample, each of them is in many rows of the table.
    distinct = len(expanded.unique()) / len(expanded)
    return row_bytes, 1.0 if distinct > 0.9 else len(sample) / max(1.0, len(expanded.unique()))
