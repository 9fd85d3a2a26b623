"""The sample that models are trained on: drawn by executors, kept in files of the job."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.vector.vectors import Positions, Vectors, list_type, to_lists, to_matrix, to_rows
from pennon.jobs.shared.tasks import cut_slices
from pennon.jobs.vector.plan import VectorPlan

# The size of a sampling task, and the minimum number of tasks. They do not depend on the number of cores, so neither
# does the sample.
SAMPLE_TASK_BYTES = 64 << 20
SAMPLE_TASKS = 8
# A part of a file is taken from the whole file if that is at most this many times as large, else read in runs.
READ_SHARE = 4
MOST_READS = 256


@dataclass(frozen=True)
class SampleFile:
    """A part of the sample: prepared, indexable vectors in a file of the job, and the range of their items."""

    path: str
    rows: int
    low: float
    high: float


@dataclass(frozen=True)
class SampleTask:
    number: int
    part: ScanSlice
    rows: int  # to draw
    seed: int


class Drawn(Protocol):
    """A sample of prepared, indexable vectors."""

    @property
    def rows(self) -> int: ...

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of all items; 0 and 0 without any."""
        ...

    def read(self, rows: int) -> Vectors:
        """At most `rows` vectors, spread over the sample."""
        ...


@dataclass(frozen=True)
class DrawnSample:
    """The sample in files of the job."""

    store: Store
    plan: VectorPlan
    files: Sequence[SampleFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bounds(self) -> tuple[float, float]:
        known = [file for file in self.files if file.rows]
        return min((file.low for file in known), default=0.0), max((file.high for file in known), default=0.0)

    def read(self, rows: int) -> Vectors:
        return read_sample(self.store, self.plan, self.files, rows)


def draw_sample(engine: Engine, snapshot: Snapshot, plan: VectorPlan, scratch: str) -> DrawnSample:
    """Every task draws its share of the sample and writes it below `scratch`."""
    tasks = sample_tasks(snapshot, plan)
    write = partial(_write_sample, plan.for_tasks(), scratch)
    return DrawnSample(snapshot.store, plan, engine.map("sample", write, tasks, rows=plan.sample_rows))


def sample_tasks(snapshot: Snapshot, plan: VectorPlan) -> list[SampleTask]:
    if not plan.sample_rows:
        return []
    fragments = [snapshot.manifest.fragments[f] for f in plan.fragments]
    count = max(SAMPLE_TASKS, plan.sample_rows * plan.vector_bytes // SAMPLE_TASK_BYTES)
    tasks: list[SampleTask] = []
    for number, part in enumerate(cut_slices(fragments, count)):
        rows = -(-plan.sample_rows * snapshot.slice_rows(part) // plan.rows)
        tasks.append(SampleTask(number, part, rows, plan.seed * 1_000_003 + number))
    return tasks


def _write_sample(plan: VectorPlan, scratch: str, task: SampleTask) -> SampleFile:
    snapshot = plan.pin.open()
    name = f"sample-{task.number:05d}-{secrets.token_hex(4)}.lance"
    written, low, high = 0, math.inf, -math.inf

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal written, low, high
        column = snapshot.column(plan.column)
        for values in snapshot.sample_slice(column, task.part, task.rows, task.seed, plan.batch_rows):
            vectors = indexable_vectors(plan, values)[0]
            if not len(vectors):
                continue
            written += len(vectors)
            low, high = min(low, float(vectors.min())), max(high, float(vectors.max()))
            yield pa.record_batch([to_lists(vectors)], schema=_sample_schema(plan))

    write_lance_file(snapshot.store, scratch, name, _sample_schema(plan), batches(), plan.storage_version)
    return SampleFile(f"{scratch}/{name}", written, low, high)


def indexable_vectors(plan: VectorPlan, values: pa.Array) -> tuple[Vectors, Positions]:
    """The vectors of a column that an index contains, prepared by the metric, and the positions of their rows."""
    vectors, rows = to_rows(values)
    kept = plan.metric.indexable(vectors)
    if not kept.all():
        vectors, rows = vectors[kept], rows[kept]
    return plan.metric.prepare(vectors), rows


def read_sample(store: Store, plan: VectorPlan, files: Sequence[SampleFile], rows: int) -> Vectors:
    """At most `rows` vectors of the sample: a share of each file, spread over the file, which is in table order."""
    total = sum(file.rows for file in files)
    parts = [np.empty((0, plan.dim), dtype=plan.element)]
    for file in files:
        wanted = file.rows if rows >= total else file.rows * rows // total
        if wanted:
            parts += _read_spread(LanceFile(store, file.path), wanted)
    return np.concatenate(parts)


def _read_spread(file: LanceFile, rows: int) -> Iterator[Vectors]:
    if rows * READ_SHARE >= file.num_rows:
        vectors = _vectors(file.read())
        for places in spread(file.num_rows, rows):
            yield vectors if rows == len(vectors) else vectors[places]
        return
    for places in spread(file.num_rows, rows):
        yield _vectors(file.read(int(places[0]), len(places)))


def spread(total: int, rows: int) -> Iterator[Positions]:
    """The positions of `rows` of `total` rows: evenly spread, or if they are few in short runs."""
    if rows * READ_SHARE >= total:
        yield np.linspace(0, total - 1, rows).astype(np.int64)
        return
    edges = np.linspace(0, rows, min(rows, MOST_READS) + 1).astype(np.int64)
    starts = np.linspace(0, total, len(edges)).astype(np.int64)
    for start, count in zip(starts.tolist(), np.diff(edges).tolist(), strict=False):
        yield np.arange(start, start + count)


def _vectors(rows: pa.Table) -> Vectors:
    return to_matrix(rows.column(0).combine_chunks())[0]


def _sample_schema(plan: VectorPlan) -> pa.Schema:
    return pa.schema([pa.field("vector", list_type(plan.vectors.item, plan.dim))])
