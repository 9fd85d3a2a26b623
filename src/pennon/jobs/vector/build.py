"""Build a vector index: sample -> train -> assign, encode, exchange by partition -> write runs, graphs -> assemble."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.vector.files.storage import Graphs, write_index
from pennon.index.vector.hnsw.graph import GRAPH_SCHEMA
from pennon.index.vector.ivf import Ivf, Layout
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.quantizers.base import Columns, Quantizer
from pennon.index.vector.vectors import Vectors
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory
from pennon.jobs.vector.held import HeldVectors, hold_vectors
from pennon.jobs.vector.models import ModelFiles, TrainedModels, write_models
from pennon.jobs.vector.partitions import PartitionRun, WrittenSegment, to_batch, write_runs, write_segment_codes
from pennon.jobs.vector.plan import WEIGHED_ROWS, VectorPlan
from pennon.jobs.vector.sample import indexable_vectors
from pennon.jobs.vector.train import train

# Bytes of rows read at once while runs are joined.
COPIED_BYTES = 16 << 20


def build_vector(engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    held = hold_vectors(engine, snapshot, plan)
    with scratch_directory(snapshot.store) as scratch:
        if plan.models is None:
            models, sample = train(engine, snapshot, plan, scratch, held)
            bounds = partition_bounds(models.ivf, sample, plan.reducers)
            files = write_models(snapshot.store, plan.pin, scratch, models, plan.storage_version)
        else:
            files, models = plan.models, plan.models.load()
            bounds = cut_by_weight(np.ones(plan.num_partitions), plan.reducers)
        tasks = plan.for_tasks()
        written = engine.exchange(
            "build",
            partial(_encode_slice, tasks, files, bounds, held),
            plan.slices,
            partial(write_runs, tasks, files, scratch, bounds, held),
            len(bounds) - 1,
            rows=plan.rows,
        )
        runs = [run for _, run in sorted(written.reduced.items())]
        _check(plan, written.mapped, runs)
        return assemble(engine, snapshot, plan, files, math.fsum(part.loss for part in written.mapped), runs)


@dataclass(frozen=True)
class EncodedSlice:
    """The report of a map task, for the final check and the loss of the index."""

    scanned: int
    indexed: int
    loss: float


def assemble(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    files: ModelFiles,
    loss: float | None,
    runs: Sequence[PartitionRun],
) -> IndexSegment:
    """Assemble one segment from the files of the tasks."""
    models = files.load()
    if len(runs) == 1 and runs[0].whole is not None:
        whole = runs[0].whole
    else:
        rows = sum(sum(run.lengths) for run in runs)
        [whole] = engine.map("assemble", partial(_assemble, plan.for_tasks(), files, loss), [runs], rows=rows)
    with delete_on_failure(snapshot.store, whole.uuid):
        if not plan.hnsw:
            ivf = Ivf(models.ivf.metric, models.ivf.centroids, loss)
            index = write_index(snapshot.store, whole.directory, plan.kind, ivf, plan.storage_version)
            whole = replace(whole, files=(index, *whole.files))
        contents = write_contents(snapshot.store, whole.uuid, plan.fragments, snapshot.manifest.next_row_id)
        return _segment(plan, replace(whole, files=(*whole.files, contents)), models.quantizer)


def partition_bounds(ivf: Ivf, sample: Vectors, reducers: int) -> tuple[int, ...]:
    """The first partition of each reducer, and the end: neighboring partitions, with about equally many rows by the
    sample."""
    if reducers == 1:
        return 0, ivf.num_partitions
    ids = ivf.assign(sample[: ivf.num_partitions * WEIGHED_ROWS])[0]
    return cut_by_weight(np.bincount(ids, minlength=ivf.num_partitions) + 1.0, reducers)


def cut_by_weight(weights: npt.NDArray[Any], parts: int) -> tuple[int, ...]:
    """The starts of parts of about equal weight, and the end."""
    reached = np.cumsum(weights)
    cuts = np.searchsorted(reached, reached[-1] * np.arange(1, parts) / parts) + 1
    return tuple(sorted({0, *cuts.tolist(), len(weights)}))


def _encode_slice(
    plan: VectorPlan, files: ModelFiles, bounds: tuple[int, ...], held: HeldVectors | None, part: ScanSlice
) -> Generator[tuple[int, pa.RecordBatch], None, EncodedSlice]:
    """Map task: codes of a slice, cut by reducer. Reports the numbers of rows."""
    snapshot, models = plan.pin.open(), files.load()
    scanned = indexed = 0
    loss = 0.0
    rows = plan.batch_rows
    batches = _scanned(snapshot, plan, part) if held is None else held.batches(snapshot, part, rows)
    for count, vectors, row_ids in batches:
        scanned, indexed = scanned + count, indexed + len(vectors)
        loss += yield from send_coded(plan, models, bounds, vectors, row_ids)
    return EncodedSlice(scanned, indexed, loss)


def _scanned(snapshot: Snapshot, plan: VectorPlan, part: ScanSlice) -> Iterator[tuple[int, Vectors, Addresses]]:
    """The number of rows of a batch, and its indexable vectors with their ids."""
    for values, addresses in snapshot.scan_column(snapshot.column(plan.column), part, plan.batch_rows):
        vectors, kept = indexable_vectors(plan, values)
        kept_addresses = addresses[kept]
        row_ids = ids_of(kept_addresses, snapshot.row_ids) if plan.stable_row_ids else kept_addresses
        yield len(values), vectors, row_ids


def send_coded(
    plan: VectorPlan, models: TrainedModels, bounds: tuple[int, ...], vectors: Vectors, row_ids: Addresses
) -> Generator[tuple[int, pa.RecordBatch], None, float]:
    """The codes of some vectors, cut by reducer. Returns the sum of their distances to their centroids."""
    partitions, distances = models.ivf.assign(vectors)
    order = np.argsort(partitions.astype(_narrow(models.ivf)), kind="stable")
    partitions = partitions[order]
    columns: Columns = {}
    if not plan.fetches_vectors:
        columns = models.quantizer.encode(vectors.take(order, axis=0), models.ivf.centroids, partitions)
    batch = to_batch(partitions, row_ids[order], columns)
    edges = np.searchsorted(partitions, bounds)
    for number, (start, stop) in enumerate(pairwise(edges.tolist())):
        if stop > start:
            yield number, batch.slice(start, stop - start)
    return float(distances.sum(dtype=np.float64))


def _assemble(plan: VectorPlan, files: ModelFiles, loss: float | None, runs: Sequence[PartitionRun]) -> WrittenSegment:
    """The only task of the last step: join runs batch by batch into the files of the segment."""
    store, models = plan.pin.open().store, files.load()
    ivf = Ivf(models.ivf.metric, models.ivf.centroids, loss)
    layout = Layout.of(_joined(ivf, [(run.first, run.lengths) for run in runs], 0))
    whole = write_segment_codes(plan, models, layout, _copied(store, [run.path for run in runs], plan.code_bytes))
    if plan.hnsw is None:
        return whole
    written = [(run.first, run.graphs) for run in runs if run.graphs]
    graphs = Graphs(
        GRAPH_SCHEMA,
        _copied(store, [graph.path for _, graph in written], plan.hnsw.m * 16),
        Layout.of(_joined(ivf, [(first, graph.lengths) for first, graph in written], 0)),
        tuple(_joined(ivf, [(first, graph.metadata) for first, graph in written], "")),
    )
    with delete_on_failure(store, whole.uuid):
        index = write_index(store, whole.directory, plan.kind, ivf, plan.storage_version, graphs)
    return replace(whole, files=(index, *whole.files))


def _joined(ivf: Ivf, parts: Sequence[tuple[int, Sequence[Any]]], missing: Any) -> list[Any]:
    """The reports of all reducers, as one list over all partitions."""
    joined = [missing] * ivf.num_partitions
    for first, reported in parts:
        joined[first : first + len(reported)] = reported
    return joined


def _copied(store: Store, paths: Sequence[str], row_bytes: int) -> Iterator[pa.RecordBatch]:
    for path in paths:
        file = LanceFile(store, path)
        yield from file.batches(0, file.num_rows, max(1024, COPIED_BYTES // row_bytes))


def _check(plan: VectorPlan, encoded: Sequence[EncodedSlice], runs: Sequence[PartitionRun]) -> None:
    written = sum(sum(run.lengths) for run in runs)
    scanned, indexed = sum(part.scanned for part in encoded), sum(part.indexed for part in encoded)
    if scanned != plan.rows or indexed != written:
        raise BuildFailed(
            f"the tasks read {scanned:,} of the {plan.rows:,} rows of {plan.pin.location.uri} and wrote"
            f" {written:,} of {indexed:,} vectors",
            "Nothing was committed; report this",
        )


def _segment(plan: VectorPlan, whole: WrittenSegment, quantizer: Quantizer) -> IndexSegment:
    return IndexSegment(
        uuid=whole.uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(plan.fragments)),
        type_url=VECTOR.type_url,
        details=plan.details(quantizer),
        index_version=plan.index_version,
        files=whole.files,
        created_at=datetime.now(UTC),
    )


def _narrow(ivf: Ivf) -> type[np.unsignedinteger[Any]]:
    """numpy sorts 16-bit numbers by radix sort."""
    return np.uint16 if ivf.num_partitions <= 1 << 16 else np.uint32
