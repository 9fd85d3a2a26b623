"""The reduce side of a vector build: the rows of neighboring partitions are written as runs, with graphs over them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine.spill import buffered
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexFile, segment_directory
from pennon.format.lance_file import write_lance_file
from pennon.format.rows import ScanSlice
from pennon.format.store import Store
from pennon.index.vector.files.storage import ROW_ID, Partition, auxiliary_schema, pack_partition, write_auxiliary
from pennon.index.vector.hnsw.build import build_graph
from pennon.index.vector.hnsw.graph import GRAPH_SCHEMA
from pennon.index.vector.ivf import Layout
from pennon.index.vector.quantizers.base import Columns, concat_columns, take_columns
from pennon.index.vector.vectors import Vectors, to_lists, to_matrix
from pennon.jobs.shared.cleanup import attempt_uuid, delete_on_failure
from pennon.jobs.vector.held import HeldVectors
from pennon.jobs.vector.models import ModelFiles, TrainedModels
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.sample import indexable_vectors

PARTITION = "__partition"

# Bytes of vectors written at once if the reducer scans them itself; the writer is slower with more.
WRITTEN_BYTES = 8 << 20


@dataclass(frozen=True)
class WrittenSegment:
    """The files of the segment, in a directory unique to the attempt that wrote them."""

    uuid: str
    files: tuple[IndexFile, ...]

    @property
    def directory(self) -> str:
        return segment_directory(self.uuid)


@dataclass(frozen=True)
class PartitionRun:
    """Neighboring partitions, written by one reducer: to a separate file, or as the segment if there is only one
    reducer."""

    first: int
    lengths: tuple[int, ...]
    path: str = ""
    graphs: GraphRun | None = None
    whole: WrittenSegment | None = None


@dataclass(frozen=True)
class GraphRun:
    path: str
    lengths: tuple[int, ...]
    metadata: tuple[str, ...]


class Partitions(Protocol):
    """Neighboring partitions, which may be iterated several times."""

    @property
    def lengths(self) -> tuple[int, ...]: ...

    def __iter__(self) -> Iterator[Partition]: ...


# Builds the rows of a partition's graph and its metadata from the partition's number and rows.
GraphBuilder = Callable[[int, Partition], tuple[pa.RecordBatch, str]]


def write_runs(
    plan: VectorPlan,
    files: ModelFiles,
    scratch: str,
    bounds: tuple[int, ...],
    held: HeldVectors | None,
    number: int,
    batches: Iterator[pa.RecordBatch],
) -> PartitionRun:
    """Reduce task: write the partitions of one reducer in order, with their graphs, in files unique to this attempt."""
    models = files.load()
    number %= len(bounds) - 1  # reducers are numbered segment by segment
    first, end = bounds[number], bounds[number + 1]
    partitions = _Received(buffered(batches, plan.memory_bytes // 2), first, end)
    if plan.fetches_vectors:
        fetched = _fetched(plan, models, partitions, held)
        whole = write_segment_codes(plan, models, scratch, Layout.of(partitions.lengths), fetched)
        return PartitionRun(first, partitions.lengths, whole=whole)
    return write_partitions(plan, models, scratch, first, partitions, partial(build_partition_graph, plan, models))


def write_partitions(
    plan: VectorPlan, models: TrainedModels, scratch: str, first: int, partitions: Partitions, build: GraphBuilder
) -> PartitionRun:
    """Write neighboring partitions in order, with their graphs, in files unique to this attempt."""
    store, lengths = plan.pin.open().store, partitions.lengths
    packed = (pack_partition(models.quantizer, partition) for partition in partitions if len(partition))
    if plan.hnsw is None and len(lengths) == models.ivf.num_partitions:
        whole = write_segment_codes(plan, models, scratch, Layout.of(lengths), packed)
        return PartitionRun(first, lengths, whole=whole)
    attempt = f"{first:05d}-{secrets.token_hex(4)}"
    schema, name = auxiliary_schema(models.quantizer), f"codes-{attempt}.lance"
    write_lance_file(store, scratch, name, schema, packed, plan.storage_version)
    graphs = None
    if plan.hnsw is not None:
        graphs = _write_graphs(plan, store, scratch, f"graphs-{attempt}.lance", first, partitions, build)
    return PartitionRun(first, lengths, f"{scratch}/{name}", graphs)


class _Received:
    """The received rows of neighboring partitions. Batches are sorted by partition, so a partition is a slice of each,
    and only one partition at a time is assembled."""

    def __init__(self, batches: Iterator[pa.RecordBatch], first: int, end: int) -> None:
        self._pieces = [_from_batch(batch) for batch in batches]
        self._slices: list[list[tuple[int, int, int]]] = [[] for _ in range(first, end)]
        for number, (partitions, _, _) in enumerate(self._pieces):
            starts = np.flatnonzero(np.diff(partitions, prepend=partitions[:1] + 1))
            for start, stop in pairwise([*starts.tolist(), len(partitions)]):
                self._slices[int(partitions[start]) - first].append((number, start, stop))
        self._lengths = tuple(sum(stop - start for _, start, stop in slices) for slices in self._slices)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._lengths

    def __iter__(self) -> Iterator[Partition]:
        """Partitions in order, their row ids ascending."""
        empty = self._pieces[0][2]
        for slices in self._slices:
            if not slices:
                yield Partition(np.empty(0, dtype=np.uint64), {name: column[:0] for name, column in empty.items()})
                continue
            row_ids = np.concatenate([self._pieces[piece][1][start:stop] for piece, start, stop in slices])
            parts = [
                {name: column[start:stop] for name, column in self._pieces[piece][2].items()}
                for piece, start, stop in slices
            ]
            columns = concat_columns(parts)
            order = np.argsort(row_ids, kind="stable")
            yield Partition(row_ids[order], take_columns(columns, order))


def _fetched(
    plan: VectorPlan, models: TrainedModels, partitions: Partitions, held: HeldVectors | None
) -> Iterator[pa.RecordBatch]:
    """The rows of all partitions if vectors were not sent: a scan reads them in the order of addresses, and they are
    taken from it in the order of partitions."""
    addresses = np.concatenate([partition.row_ids for partition in partitions])
    numbers = np.repeat(np.arange(len(partitions.lengths), dtype=np.uint32), partitions.lengths)
    order = np.argsort(addresses)
    places = np.empty(len(order), dtype=np.int64)
    if held is None:
        vectors, places[order] = _scanned(plan, addresses[order]), np.arange(len(order))
    else:
        _check_rows(plan, addresses[order], held.row_ids[held.indexable])
        vectors, places[order] = held.vectors, np.flatnonzero(held.indexable)
    step = max(1, WRITTEN_BYTES // plan.vector_bytes)

    def pack(start: int) -> pa.RecordBatch:
        some = slice(start, start + step)
        picked = vectors.take(places[some], axis=0)
        columns = models.quantizer.encode(picked, models.ivf.centroids, numbers[some])
        return pack_partition(models.quantizer, Partition(addresses[some], columns))

    # The next rows are gathered while the writer writes.
    with ThreadPoolExecutor(1) as ahead:
        following = [ahead.submit(pack, 0)] if len(addresses) else []
        for start in range(step, len(addresses) + step, step):
            packed = following.pop().result()
            if start < len(addresses):
                following.append(ahead.submit(pack, start))
            yield packed


def _scanned(plan: VectorPlan, ascending: Addresses) -> Vectors:
    """The vectors of the whole table, which are at these addresses."""
    vectors = np.empty((len(ascending), plan.dim), dtype=plan.element)
    snapshot, seen = plan.pin.open(), 0
    for values, scanned in snapshot.scan_column(
        snapshot.column(plan.column), ScanSlice(plan.fragments), plan.batch_rows
    ):
        found, kept = indexable_vectors(plan, values)
        some = slice(seen, seen + len(found))
        _check_rows(plan, ascending[some], scanned[kept])
        vectors[some] = found
        seen += len(found)
    return vectors


def _check_rows(plan: VectorPlan, assigned: Addresses, scanned: Addresses) -> None:
    if not np.array_equal(assigned, scanned):
        raise BuildFailed(f"two scans of {plan.column!r} found different rows", "Nothing was committed; report this")


def _write_graphs(
    plan: VectorPlan, store: Store, scratch: str, name: str, first: int, partitions: Partitions, build: GraphBuilder
) -> GraphRun:
    lengths: list[int] = []
    metadata: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number, partition in enumerate(partitions, first):
            batch, described = build(number, partition)
            lengths.append(batch.num_rows)
            metadata.append(described)
            if batch.num_rows:
                yield batch

    write_lance_file(store, scratch, name, GRAPH_SCHEMA, batches(), plan.storage_version)
    return GraphRun(f"{scratch}/{name}", tuple(lengths), tuple(metadata))


def build_partition_graph(
    plan: VectorPlan, models: TrainedModels, number: int, partition: Partition
) -> tuple[pa.RecordBatch, str]:
    """The graph of a partition in the format of `index.idx`."""
    assert plan.hnsw is not None
    quantizer: Any = models.quantizer
    points = quantizer.points(partition.columns)
    seed = plan.seed + number
    return build_graph(points, by_l2=quantizer.by_l2, params=plan.hnsw, seed=seed, grid=quantizer.grid).to_columns()


def write_segment_codes(
    plan: VectorPlan, models: TrainedModels, scratch: str, layout: Layout, batches: Iterable[pa.RecordBatch]
) -> WrittenSegment:
    uuid = attempt_uuid(scratch)
    store = plan.pin.open().store
    with delete_on_failure(store, uuid):
        file = write_auxiliary(store, segment_directory(uuid), models.quantizer, layout, batches, plan.storage_version)
    return WrittenSegment(uuid, (file,))


def to_batch(partitions: npt.NDArray[np.uint32], row_ids: npt.NDArray[np.uint64], columns: Columns) -> pa.RecordBatch:
    arrays = {PARTITION: pa.array(partitions), ROW_ID: pa.array(row_ids)}
    for name, column in columns.items():
        arrays[name] = to_lists(column) if column.ndim == 2 else pa.array(column)
    return pa.RecordBatch.from_pydict(arrays)


def _from_batch(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], Columns]:
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = to_matrix(column)[0] if pa.types.is_fixed_size_list(column.type) else column.to_numpy()
    return columns.pop(PARTITION), columns.pop(ROW_ID), columns
