"""Plan a segment of zones: rows, tasks, memory; nothing is written yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pennon.display import Displayed
from pennon.errors import UnsupportedColumn
from pennon.format.fragments import Fragment
from pennon.format.rows import SCAN_BATCH, ScanSlice
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.zones.files import BATCH_BYTES
from pennon.index.zones.kind import ZonesKind
from pennon.index.zones.layouts import ZoneLayout
from pennon.jobs.shared.arguments import check_at_least_one
from pennon.jobs.shared.placement import Effort, Placed, in_process
from pennon.jobs.shared.plan_display import build_fields, build_text, line
from pennon.jobs.shared.tasks import ROWS_PER_TASK, chosen_fragments, cut_slices, whole_waves
from pennon.wording import plural

# Batches of the column in memory at once while a task reads: those read ahead, and the one being summarized.
BATCHES = 8
ADDRESS_BYTES = 8
# Copies of the zones being written: those of the task, and those of pylance's writer.
WRITTEN = 4
LEAST_BATCH = 1024
MEASURED_ROWS = 1000


@dataclass(frozen=True)
class Target:
    """The segment to write, and how its column is read. Sent with every task."""

    kind: ZonesKind = field(repr=False)
    layout: ZoneLayout
    pin: Pin
    name: str
    column: str
    field_id: int
    value_type: pa.DataType
    value_bytes: int
    batch_rows: int
    storage_version: str

    def zones_of(self, rows: int) -> int:
        return -(-rows // self.layout.rows_per_zone)

    def file_bytes(self, rows: int) -> int:
        return self.zones_of(rows) * self.layout.zone_bytes(self.value_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task: batches of values and addresses, and the zones that are being written."""
        zone = self.layout.zone_bytes(self.value_bytes)
        written = max(zone, min(BATCH_BYTES, ROWS_PER_TASK // self.layout.rows_per_zone * zone))
        return BATCHES * self.batch_rows * (self.value_bytes + ADDRESS_BYTES) + WRITTEN * written


@dataclass(frozen=True)
class ZonesPlan(Displayed, Placed):
    """The plan of a build."""

    target: Target
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    slices: tuple[ScanSlice, ...] = field(repr=False)

    @property
    def pin(self) -> Pin:
        return self.target.pin

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def field_id(self) -> int:
        return self.target.field_id

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def zones(self) -> int:
        return self.target.zones_of(self.rows)

    @property
    def index_bytes(self) -> int:
        return self.target.file_bytes(self.rows)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, self.rows * self.target.value_bytes * self.target.layout.work)

    @property
    def task_memory_bytes(self) -> int:
        return self.target.task_memory_bytes

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, self.target.kind.names[0], self.target.column, zones=self.zones)

    def __str__(self) -> str:
        target = self.target
        heading = f"{target.kind.names[0]} {self.name!r} on {target.column} ({target.value_type})"
        layout = f"about {plural(self.zones, 'zone')} of {target.layout.rows_per_zone:,} rows"
        return build_text(self, heading, plural(self.tasks, "task"), line("layout", layout))


def plan_zones(
    snapshot: Snapshot,
    column_path: str,
    kind: ZonesKind,
    layout: ZoneLayout,
    *,
    name: str | None = None,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
) -> ZonesPlan:
    check_at_least_one(rows_per_task=rows_per_task)
    column = _indexable_column(snapshot, column_path, kind)
    fragments = chosen_fragments(snapshot, fragment_ids)
    target = plan_target(snapshot, column, kind, layout, fragments, name or f"{column_path}_idx", memory_bytes)
    slices = zone_slices(fragments, layout.rows_per_zone, parallelism, rows_per_task)
    plan = ZonesPlan(target, tuple(f.id for f in fragments), sum(f.live_rows for f in fragments), slices)
    if rows_per_task is None and in_process(plan):
        # One task writes the file itself; parts would have to be joined. The scan has threads of its own.
        return replace(plan, slices=(ScanSlice(plan.fragments),))
    return plan


def plan_target(
    snapshot: Snapshot,
    column: Column,
    kind: ZonesKind,
    layout: ZoneLayout,
    fragments: Sequence[Fragment],
    name: str,
    memory_bytes: int,
) -> Target:
    """`fragments` are those whose values are measured."""
    value_bytes = _value_bytes(snapshot, column, fragments)
    return Target(
        kind=kind,
        layout=layout,
        pin=snapshot.pin(),
        name=name,
        column=column.path,
        field_id=column.field_id,
        value_type=column.type,
        value_bytes=value_bytes,
        batch_rows=max(LEAST_BATCH, min(SCAN_BATCH, memory_bytes // (BATCHES * (value_bytes + ADDRESS_BYTES)))),
        storage_version=snapshot.storage_version,
    )


def zone_slices(
    fragments: Sequence[Fragment], rows_per_zone: int, parallelism: int, rows_per_task: int | None = None
) -> tuple[ScanSlice, ...]:
    """Parts of about equal work that do not split zones: large fragments are split at the end of a zone."""
    rows, at_most = sum(f.live_rows for f in fragments), rows_per_task or ROWS_PER_TASK
    if rows <= at_most:
        return (ScanSlice(tuple(f.id for f in fragments)),)
    slices: list[ScanSlice] = []
    live = {f.id: f.live_rows for f in fragments}
    for part in cut_slices(fragments, whole_waves(-(-rows // at_most), parallelism)):
        if part.limit is None:
            slices.append(part)
            continue
        [fragment] = part.fragments
        start, stop = part.offset // rows_per_zone * rows_per_zone, part.offset + part.limit
        stop = stop if stop == live[fragment] else stop // rows_per_zone * rows_per_zone
        if stop > start:
            slices.append(ScanSlice((fragment,), start, stop - start))
    return tuple(slices)


def _indexable_column(snapshot: Snapshot, path: str, kind: ZonesKind) -> Column:
    column = snapshot.column(path)
    if not column.is_leaf or not kind.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which {kind.names[0]} indices do not support",
            f"Supported types: {kind.types}",
        )
    return column


def _value_bytes(snapshot: Snapshot, column: Column, fragments: Sequence[Fragment]) -> int:
    """Bytes of a value; text and binary are measured on a few rows."""
    try:
        return max(1, column.type.bit_width // 8)
    except ValueError:
        values = snapshot.sample_column(column, [f.id for f in fragments], MEASURED_ROWS, seed=0)
        return max(8, values.nbytes // max(1, len(values)))
