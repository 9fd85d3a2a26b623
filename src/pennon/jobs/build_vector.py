"""Build a vector index: sample -> train -> assign, encode, exchange by partition -> write runs, graphs -> assemble."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.files import LanceFile, write_lance_file
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.row_ids import ids_of
from pennon.format.snapshot import ScanSlice, Snapshot
from pennon.format.store import Store
from pennon.index.vector.flat import FlatQuantizer
from pennon.index.vector.hnsw import GRAPH_SCHEMA
from pennon.index.vector.hnsw_build import build_graph
from pennon.index.vector.ivf import Ivf, Layout
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizer import Columns, PointQuantizer, Quantizer, concat_columns, take_columns
from pennon.index.vector.storage import (
    ROW_ID,
    Graphs,
    Partition,
    auxiliary_schema,
    pack_partition,
    write_auxiliary,
    write_index,
)
from pennon.index.vector.vectors import Vectors, to_lists, to_matrix
from pennon.jobs.plan_vector import WEIGHED_ROWS, VectorPlan
from pennon.jobs.scratch import discarding, scratch_directory
from pennon.jobs.train_vector import train
from pennon.jobs.vector_model import ModelFiles, Models, write_models
from pennon.jobs.vector_sample import indexable_vectors

PARTITION = "__partition"
TALLY_SCHEMA = pa.schema([("scanned", pa.int64()), ("indexed", pa.int64()), ("loss", pa.float64())])
# Rows read at once while runs are joined.
COPIED_BYTES = 16 << 20


@dataclass(frozen=True)
class Tally:
    """What the map tasks saw, for the check at the end and the loss of the index."""

    scanned: int = 0
    indexed: int = 0
    loss: float = 0.0


@dataclass(frozen=True)
class Whole:
    """The files of the segment, in a directory of the attempt that wrote them."""

    uuid: str
    files: tuple[IndexFile, ...]

    @property
    def directory(self) -> str:
        return f"_indices/{self.uuid}"


@dataclass(frozen=True)
class Runs:
    """Neighbouring partitions, written by one reducer: to a file of their own, or whole where it has all of them."""

    first: int
    lengths: tuple[int, ...]
    path: str = ""
    graphs: GraphRuns | None = None
    whole: Whole | None = None


@dataclass(frozen=True)
class GraphRuns:
    path: str
    lengths: tuple[int, ...]
    metadata: tuple[str, ...]


def build_vector(engine: Callable[[], Engine], snapshot: Snapshot, plan: VectorPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    with scratch_directory(snapshot.store) as scratch:
        models, sample = train(engine(), snapshot, plan, scratch)
        bounds = partition_bounds(models.ivf, sample, plan.reducers)
        files = write_models(snapshot.store, plan.pin, scratch, models, plan.storage_version)
        tasks = plan.for_tasks()
        written = engine().exchange(
            "build",
            partial(_encode_slice, tasks, files, bounds),
            plan.slices,
            partial(_write_runs, tasks, files, scratch, bounds),
            len(bounds),
        )
        tally = next((said for said in written.values() if isinstance(said, Tally)), Tally())
        runs = [said for _, said in sorted(written.items()) if isinstance(said, Runs)]
        _check(plan, tally, runs)
        ivf = Ivf(models.ivf.metric, models.ivf.centroids, tally.loss)
        if len(runs) == 1 and runs[0].whole is not None:
            whole = runs[0].whole
        else:
            [whole] = engine().map("assemble", partial(_assemble, tasks, files, tally.loss), [runs])
    with discarding(snapshot.store, whole.uuid):
        if not plan.hnsw:
            index = write_index(snapshot.store, whole.directory, plan.kind, ivf, plan.storage_version)
            whole = replace(whole, files=(index, *whole.files))
        return _segment(plan, whole, models.quantizer)


def partition_bounds(ivf: Ivf, sample: Vectors, reducers: int) -> tuple[int, ...]:
    """Where the partitions of each reducer begin, and the end: neighbours, of about as many rows by the sample."""
    ids = ivf.assign(sample[: ivf.num_partitions * WEIGHED_ROWS])[0]
    weights = np.bincount(ids, minlength=ivf.num_partitions) + 1.0
    reached = np.cumsum(weights)
    cuts = np.searchsorted(reached, reached[-1] * np.arange(1, reducers) / reducers) + 1
    return tuple(sorted({0, *cuts.tolist(), ivf.num_partitions}))


def _encode_slice(
    plan: VectorPlan, files: ModelFiles, bounds: tuple[int, ...], part: ScanSlice
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Map task: codes of a slice, cut by reducer; and to the last destination what was seen."""
    snapshot, models = plan.pin.open(), files.load()
    scanned = indexed = 0
    loss = 0.0
    for values, addresses in snapshot.scan_column(snapshot.column(plan.column), part, plan.batch_rows):
        vectors, kept = indexable_vectors(plan, values)
        scanned, indexed = scanned + len(values), indexed + len(vectors)
        kept_addresses = addresses[kept]
        row_ids = ids_of(kept_addresses, snapshot.row_ids) if plan.stable_row_ids else kept_addresses
        partitions, distances = models.ivf.assign(vectors)
        loss += float(distances.sum(dtype=np.float64))
        order = np.argsort(partitions.astype(_narrow(models.ivf)), kind="stable")
        partitions = partitions[order]
        columns = models.quantizer.encode(vectors[order], models.ivf.centroids, partitions)
        batch = _to_batch(partitions, row_ids[order], columns, models.quantizer)
        edges = np.searchsorted(partitions, bounds)
        for number, (start, stop) in enumerate(pairwise(edges.tolist())):
            if stop > start:
                yield number, batch.slice(start, stop - start)
    tally = pa.record_batch([pa.array([scanned]), pa.array([indexed]), pa.array([loss])], schema=TALLY_SCHEMA)
    yield len(bounds) - 1, tally


def _write_runs(
    plan: VectorPlan,
    files: ModelFiles,
    scratch: str,
    bounds: tuple[int, ...],
    number: int,
    batches: Iterator[pa.RecordBatch],
) -> Runs | Tally:
    """Reduce task: the partitions of one reducer in order, with their graphs, in files of this attempt alone."""
    if number == len(bounds) - 1:
        return _total(batches)
    store, models = plan.pin.open().store, files.load()
    first, end = bounds[number], bounds[number + 1]
    partitions = _Received(batches, first, end)
    lengths = partitions.lengths
    packed = (pack_partition(models.quantizer, partition) for partition in partitions if len(partition))
    if plan.hnsw is None and len(lengths) == models.ivf.num_partitions:
        return Runs(first, lengths, whole=_write_whole(plan, models, Layout.of(lengths), packed))
    attempt = f"{number:05d}-{secrets.token_hex(4)}"
    schema, name = auxiliary_schema(models.quantizer), f"codes-{attempt}.lance"
    write_lance_file(store, scratch, name, schema, packed, plan.storage_version)
    graphs = None
    if plan.hnsw is not None:
        graphs = _write_graphs(plan, models, store, scratch, f"graphs-{attempt}.lance", first, partitions)
    return Runs(first, lengths, f"{scratch}/{name}", graphs)


def _total(batches: Iterator[pa.RecordBatch]) -> Tally:
    rows = pa.Table.from_batches(batches, TALLY_SCHEMA)
    scanned, indexed, loss = (column.to_numpy() for column in rows.columns)
    # Sorted first: a sum of floats must not depend on which task came in first.
    return Tally(int(scanned.sum()), int(indexed.sum()), float(np.sort(loss).sum()))


class _Received:
    """What came in for neighbouring partitions. Batches are in the order of partitions, so that a partition is a slice
    of each, and only one partition at a time is put together."""

    def __init__(self, batches: Iterator[pa.RecordBatch], first: int, end: int) -> None:
        self._pieces = [_from_batch(batch) for batch in batches]
        self._slices: list[list[tuple[int, int, int]]] = [[] for _ in range(first, end)]
        for number, (partitions, _, _) in enumerate(self._pieces):
            starts = np.flatnonzero(np.diff(partitions, prepend=partitions[:1] + 1))
            for start, stop in pairwise([*starts.tolist(), len(partitions)]):
                self._slices[int(partitions[start]) - first].append((number, start, stop))
        self.lengths = tuple(sum(stop - start for _, start, stop in slices) for slices in self._slices)

    def __iter__(self) -> Iterator[Partition]:
        """Partitions in order, their row ids ascending."""
        empty = self._pieces[0][2]
        for slices in self._slices:
            if not slices:
                yield Partition(np.empty(0, dtype=np.uint64), {name: column[:0] for name, column in empty.items()})
                continue
            row_ids = np.concatenate([self._pieces[piece][1][start:stop] for piece, start, stop in slices])
            columns = concat_columns(
                [
                    {name: column[start:stop] for name, column in self._pieces[piece][2].items()}
                    for piece, start, stop in slices
                ]
            )
            order = np.argsort(row_ids)
            yield Partition(row_ids[order], take_columns(columns, order))


def _write_graphs(
    plan: VectorPlan, models: Models, store: Store, scratch: str, name: str, first: int, partitions: Iterable[Partition]
) -> GraphRuns:
    quantizer: Any = models.quantizer
    lengths: list[int] = []
    metadata: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number, partition in enumerate(partitions, first):
            batch, said = _graph(plan, quantizer, number, partition)
            lengths.append(batch.num_rows)
            metadata.append(said)
            if batch.num_rows:
                yield batch

    write_lance_file(store, scratch, name, GRAPH_SCHEMA, batches(), plan.storage_version)
    return GraphRuns(f"{scratch}/{name}", tuple(lengths), tuple(metadata))


def _graph(
    plan: VectorPlan, quantizer: PointQuantizer, number: int, partition: Partition
) -> tuple[pa.RecordBatch, str]:
    assert plan.hnsw is not None
    # FLAT measures cosine by 1 - x·y, the other quantizers by l2.
    by_l2 = plan.metric is Metric.L2 or (plan.metric is Metric.COSINE and not isinstance(quantizer, FlatQuantizer))
    points = quantizer.points(partition.columns)
    return build_graph(points, by_l2=by_l2, params=plan.hnsw, seed=plan.seed + number).to_columns()


def _assemble(plan: VectorPlan, files: ModelFiles, loss: float, runs: Sequence[Runs]) -> Whole:
    """The only task of the last step: runs joined batch by batch to the files of the segment."""
    store, models = plan.pin.open().store, files.load()
    ivf = Ivf(models.ivf.metric, models.ivf.centroids, loss)
    layout = Layout.of(_joined(ivf, [(run.first, run.lengths) for run in runs], 0))
    whole = _write_whole(plan, models, layout, _copied(store, [run.path for run in runs], plan.code_bytes))
    if plan.hnsw is None:
        return whole
    made = [(run.first, run.graphs) for run in runs if run.graphs]
    graphs = Graphs(
        GRAPH_SCHEMA,
        _copied(store, [graph.path for _, graph in made], plan.hnsw.m * 16),
        Layout.of(_joined(ivf, [(first, graph.lengths) for first, graph in made], 0)),
        tuple(_joined(ivf, [(first, graph.metadata) for first, graph in made], "")),
    )
    with discarding(store, whole.uuid):
        index = write_index(store, whole.directory, plan.kind, ivf, plan.storage_version, graphs)
    return replace(whole, files=(index, *whole.files))


def _write_whole(plan: VectorPlan, models: Models, layout: Layout, batches: Iterable[pa.RecordBatch]) -> Whole:
    uuid = str(uuid4())
    store = plan.pin.open().store
    with discarding(store, uuid):
        file = write_auxiliary(store, f"_indices/{uuid}", models.quantizer, layout, batches, plan.storage_version)
    return Whole(uuid, (file,))


def _joined(ivf: Ivf, parts: Sequence[tuple[int, Sequence[Any]]], missing: Any) -> list[Any]:
    """What reducers say of their partitions, for all partitions."""
    joined = [missing] * ivf.num_partitions
    for first, said in parts:
        joined[first : first + len(said)] = said
    return joined


def _copied(store: Store, paths: Sequence[str], row_bytes: int) -> Iterator[pa.RecordBatch]:
    for path in paths:
        file = LanceFile(store, path)
        yield from file.batches(0, file.num_rows, max(1024, COPIED_BYTES // row_bytes))


def _check(plan: VectorPlan, tally: Tally, runs: Sequence[Runs]) -> None:
    written = sum(sum(run.lengths) for run in runs)
    if tally.scanned != plan.rows or tally.indexed != written:
        raise BuildFailed(
            f"the tasks read {tally.scanned:,} of the {plan.rows:,} rows of {plan.pin.location.uri} and wrote"
            f" {written:,} of {tally.indexed:,} vectors",
            "Nothing was committed; report this",
        )


def _segment(plan: VectorPlan, whole: Whole, quantizer: Quantizer) -> IndexSegment:
    return IndexSegment(
        uuid=whole.uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(plan.fragments)),
        type_url=VECTOR.type_url,
        details=plan.details(quantizer),
        index_version=plan.kind.index_version,
        files=whole.files,
        created_at=datetime.now(UTC),
    )


def _to_batch(
    partitions: npt.NDArray[np.uint32], row_ids: npt.NDArray[np.uint64], columns: Columns, quantizer: Quantizer
) -> pa.RecordBatch:
    arrays = {PARTITION: pa.array(partitions), ROW_ID: pa.array(row_ids)}
    for field in quantizer.fields():
        column = columns[field.name]
        arrays[field.name] = to_lists(column) if column.ndim == 2 else pa.array(column)
    return pa.RecordBatch.from_pydict(arrays)


def _from_batch(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], Columns]:
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = to_matrix(column)[0] if pa.types.is_fixed_size_list(column.type) else column.to_numpy()
    return columns.pop(PARTITION), columns.pop(ROW_ID), columns


def _narrow(ivf: Ivf) -> type[np.unsignedinteger[Any]]:
    """Numbers of 16 bits are sorted by radix."""
    return np.uint16 if ivf.num_partitions <= 1 << 16 else np.uint32
