"""k-means on Spark, for training sets or numbers of centroids too large for one process.

The driver finds initial centroids from a part of the sample. Then, pass by pass, every task assigns its part of
the sample and sends the sums of each centroid's points to the reducer of that centroid; the driver moves the centroids.
A task also writes the nearest centroids of its points, from which the next pass walks on.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.store import Store
from pennon.index.vector.kmeans.hierarchical import hierarchical_start
from pennon.index.vector.kmeans.partials import Assigning, Partials, updated
from pennon.index.vector.kmeans.passes import STRIDE, TOLERANCE
from pennon.index.vector.vectors import Vectors, list_type, to_lists, to_matrix
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.sample import SampleFile, read_sample

# Vectors of the sample that the driver uses, for each initial centroid.
START_ROWS = 16
# Sums are float64: two copies of those of one reducer.
SUM_COPIES = 3
NEAREST_SCHEMA = pa.schema([pa.field("centroid", pa.uint32())])


@dataclass(frozen=True)
class SamplePart:
    """The part of a task, and the file of the nearest centroids in the pass before, point by point."""

    number: int
    files: tuple[SampleFile, ...]
    nearest: str | None = None


def train_on_spark(
    engine: Engine, store: Store, plan: VectorPlan, files: Sequence[SampleFile], scratch: str
) -> Vectors:
    """Centroids in float32, under hamming of bits. Equal plans and samples give equal centroids, independent of the
    order in which tasks finish."""
    spherical = not plan.metric.by_l2
    most = plan.memory_bytes // (plan.point_bytes * SUM_COPIES)
    start_rows = max(plan.num_partitions, min(plan.num_partitions * START_ROWS, most))
    start = plan.metric.points(read_sample(store, plan, files, start_rows))
    centroids = hierarchical_start(start, plan.num_partitions, spherical=spherical, seed=plan.seed).astype(np.float32)
    reducers = max(engine.parallelism, plan.num_partitions * plan.point_dim * 8 * SUM_COPIES // plan.memory_bytes)
    bounds = tuple(np.linspace(0, plan.num_partitions, reducers + 1).astype(int).tolist())
    tasks = [SamplePart(number, group) for number, group in enumerate(_groups(files, engine.parallelism))]
    loss = np.inf
    for number in range(plan.max_iters):
        path = _write_centroids(store, scratch, f"centroids-{number:03d}.lance", centroids, plan.storage_version)
        found, written = _pass(engine, plan, tasks, path, bounds, spherical, f"train, pass {number + 1}")
        tasks = [replace(task, nearest=nearest) for task, nearest in zip(tasks, written, strict=True)]
        ends = loss - found.loss <= TOLERANCE * found.loss or number == plan.max_iters - 1
        stride, refill = (1.0, np.inf) if ends else (STRIDE, 0.0)
        centroids = updated(
            centroids, found, spherical=spherical, stride=stride, refill=refill, seed=plan.seed + number
        )
        loss = found.loss
        if ends:
            break
    return centroids


def _pass(
    engine: Engine,
    plan: VectorPlan,
    tasks: Sequence[SamplePart],
    path: str,
    bounds: tuple[int, ...],
    spherical: bool,
    stage: str,
) -> tuple[Partials, list[str]]:
    """The sums of all tasks, and the file of the nearest centroids that each has written."""
    send = partial(_assign_part, plan.for_tasks(), path, bounds, spherical)
    rows = sum(file.rows for task in tasks for file in task.files)
    add_up = partial(_add_up, bounds, plan.point_dim)
    exchanged = engine.exchange(stage, send, tasks, add_up, len(bounds) - 1, rows=rows)
    parts = exchanged.reduced
    empty = [_no_points(end - start, plan.point_dim) for start, end in pairwise(bounds)]
    ranges = [parts.get(number, nothing) for number, nothing in enumerate(empty)]
    sums = Partials(
        np.concatenate([part.sums for part in ranges]),
        np.concatenate([part.counts for part in ranges]),
        np.concatenate([part.losses for part in ranges]),
    )
    return sums, exchanged.mapped


def _assign_part(
    plan: VectorPlan, path: str, bounds: tuple[int, ...], spherical: bool, task: SamplePart
) -> Generator[tuple[int, pa.RecordBatch], None, str]:
    """Map task: the partials of a part of the sample, cut by reducer. Returns the file of the nearest centroids, unique
    to this attempt."""
    store = plan.pin.open().store
    centroids = _vectors(LanceFile(store, path).read())
    found = _no_points(*centroids.shape)
    before = None if task.nearest is None else LanceFile(store, task.nearest)
    assigning = Assigning.of(centroids, spherical=spherical, walks=before is not None)
    nearest: list[npt.NDArray[np.uint32]] = []
    seen = 0
    for file in task.files:
        for batch in LanceFile(store, file.path).batches(0, file.rows):
            points = plan.metric.points(to_matrix(batch.column(0))[0])
            start = None if before is None else before.read(seen, len(points)).column(0).to_numpy().astype(np.int64)
            some, ids = assigning.partials(points, start)
            found += some
            nearest.append(ids.astype(np.uint32))
            seen += len(points)
    for reducer, (first, end) in enumerate(pairwise(bounds)):
        filled = np.flatnonzero(found.counts[first:end]) + first
        if len(filled):
            yield reducer, _to_batch(task.number, filled, found)
    directory, name = path.rpartition("/")[0], f"nearest-{task.number:05d}-{secrets.token_hex(4)}.lance"
    batches = [pa.record_batch([pa.array(ids)], schema=NEAREST_SCHEMA) for ids in nearest]
    write_lance_file(store, directory, name, NEAREST_SCHEMA, batches, plan.storage_version)
    return f"{directory}/{name}"


def _add_up(bounds: tuple[int, ...], dim: int, reducer: int, batches: Iterator[pa.RecordBatch]) -> Partials:
    """Reduce task: adds floats, therefore in the order of the tasks."""
    start, end = bounds[reducer], bounds[reducer + 1]
    rows = pa.Table.from_batches(batches).combine_chunks()
    columns = {name: rows.column(name).to_numpy() for name in ("task", "centroid", "count", "loss")}
    order = np.lexsort((columns["task"], columns["centroid"]))
    own = columns["centroid"][order] - start
    found = _no_points(end - start, dim)
    np.add.at(found.sums, own, _vectors(rows.select(["sums"]))[order])
    np.add.at(found.counts, own, columns["count"][order])
    np.add.at(found.losses, own, columns["loss"][order])
    return found


def _to_batch(number: int, filled: npt.NDArray[np.int64], found: Partials) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "task": pa.array(np.full(len(filled), number)),
            "centroid": pa.array(filled),
            "count": pa.array(found.counts[filled]),
            "loss": pa.array(found.losses[filled]),
            "sums": to_lists(found.sums[filled]),
        }
    )


def _groups(files: Sequence[SampleFile], count: int) -> list[tuple[SampleFile, ...]]:
    return [group for i in range(count) if (group := tuple(files[i::count]))]


def _no_points(centroids: int, dim: int) -> Partials:
    return Partials(np.zeros((centroids, dim)), np.zeros(centroids, dtype=np.int64), np.zeros(centroids))


def _write_centroids(store: Store, scratch: str, name: str, centroids: Vectors, storage_version: str) -> str:
    schema = pa.schema([pa.field("centroid", list_type(pa.from_numpy_dtype(centroids.dtype), centroids.shape[1]))])
    batch = pa.record_batch([to_lists(centroids)], schema=schema)
    write_lance_file(store, scratch, name, schema, [batch], storage_version)
    return f"{scratch}/{name}"


def _vectors(rows: pa.Table) -> npt.NDArray[Any]:
    return to_matrix(rows.column(0).combine_chunks())[0]
