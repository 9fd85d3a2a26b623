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
from pennon.jobs.shared.cleanup import delete_attempts_on_failure, delete_on_failure, scratch_directory
from pennon.jobs.vector.held import HeldVectors, hold_vectors
from pennon.jobs.vector.models import ModelFiles, TrainedModels, write_models
from pennon.jobs.vector.partitions import PartitionRun, WrittenSegment, to_batch, write_runs, write_segment_codes
from pennon.jobs.vector.plan import WEIGHED_ROWS, VectorPlan
from pennon.jobs.vector.sample import indexable_vectors
from pennon.jobs.vector.train import train

# Bytes of rows read at once while runs are joined.
COPIED_BYTES = 16 << 20


def build_vector(engine: Engine, snapshot: Snapshot, plan: VectorPlan) -> tuple[IndexSegment, ...]:
    """Write the files of the planned segments; the caller commits them."""
    held, store = hold_vectors(engine, snapshot, plan), snapshot.store
    with scratch_directory(store) as scratch, delete_attempts_on_failure(store, scratch):
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
            (len(bounds) - 1) * len(plan.segments),
            rows=plan.rows,
        )
        _check(plan, written.mapped, list(written.reduced.values()))
        parts = [
            SegmentRuns(
                fragments,
                math.fsum(part.loss for part in written.mapped if part.segment == number),
                [run for at, run in sorted(written.reduced.items()) if at // (len(bounds) - 1) == number],
            )
            for number, fragments in enumerate(plan.segments)
        ]
        return assemble(engine, snapshot, plan, files, scratch, parts)


@dataclass(frozen=True)
class EncodedSlice:
    """The report of a map task, for the final check and the loss of its segment."""

    segment: int
    scanned: int
    indexed: int
    loss: float


@dataclass(frozen=True)
class SegmentRuns:
    """What the tasks have written of a segment, in the order of partitions."""

    fragments: tuple[int, ...]
    loss: float | None
    runs: Sequence[PartitionRun]

    @property
    def whole(self) -> WrittenSegment | None:
        """The segment itself, where a single task has written all of it."""
        return self.runs[0].whole if len(self.runs) == 1 else None

    @property
    def rows(self) -> int:
        return sum(sum(run.lengths) for run in self.runs)


def assemble(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    files: ModelFiles,
    scratch: str,
    parts: Sequence[SegmentRuns],
) -> tuple[IndexSegment, ...]:
    """Assemble segments from the files of the tasks, each in one task."""
    models = files.load()
    to_join = [part for part in parts if part.whole is None]
    joined = iter(
        engine.map(
            "assemble",
            partial(_assemble, plan.for_tasks(), files, scratch),
            to_join,
            rows=sum(part.rows for part in to_join),
        )
        if to_join
        else ()
    )
    segments: list[IndexSegment] = []
    for part in parts:
        whole = part.whole or next(joined)
        if not plan.hnsw:
            ivf = Ivf(models.ivf.metric, models.ivf.centroids, part.loss)
            index = write_index(snapshot.store, whole.directory, plan.kind, ivf, plan.storage_version)
            whole = replace(whole, files=(index, *whole.files))
        contents = write_contents(snapshot.store, whole.uuid, part.fragments, snapshot.manifest.next_row_id)
        whole = replace(whole, files=(*whole.files, contents))
        segments.append(_segment(plan, part.fragments, whole, models.quantizer))
    return tuple(segments)


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
    segment, scanned, indexed = plan.segment_of(part), 0, 0
    first = segment * (len(bounds) - 1)
    loss = 0.0
    rows = plan.batch_rows
    batches = _scanned(snapshot, plan, part) if held is None else held.batches(snapshot, part, rows)
    for count, vectors, row_ids in batches:
        scanned, indexed = scanned + count, indexed + len(vectors)
        loss += yield from send_coded(plan, models, bounds, vectors, row_ids, first)
    return EncodedSlice(segment, scanned, indexed, loss)


def _scanned(snapshot: Snapshot, plan: VectorPlan, part: ScanSlice) -> Iterator[tuple[int, Vectors, Addresses]]:
    """The number of rows of a batch, and its indexable vectors with their ids."""
    for values, addresses in snapshot.scan_column(snapshot.column(plan.column), part, plan.batch_rows):
        vectors, kept = indexable_vectors(plan, values)
        kept_addresses = addresses[kept]
        row_ids = ids_of(kept_addresses, snapshot.row_ids) if plan.stable_row_ids else kept_addresses
        yield len(values), vectors, row_ids


def send_coded(
    plan: VectorPlan,
    models: TrainedModels,
    bounds: tuple[int, ...],
    vectors: Vectors,
    row_ids: Addresses,
    first: int = 0,
) -> Generator[tuple[int, pa.RecordBatch], None, float]:
    """The codes of some vectors, cut by reducer; `first` is that of partition 0. Returns the sum of their distances to
    their centroids."""
    partitions, distances = models.ivf.assign(vectors)
    order = np.argsort(partitions.astype(_narrow(models.ivf)), kind="stable")
    partitions = partitions[order]
    columns: Columns = {}
    if not plan.fetches_vectors:
        columns = models.quantizer.encode(vectors.take(order, axis=0), models.ivf.centroids, partitions)
    batch = to_batch(partitions, row_ids[order], columns)
    edges = np.searchsorted(partitions, bounds)
    for number, (start, stop) in enumerate(pairwise(edges.tolist()), first):
        if stop > start:
            yield number, batch.slice(start, stop - start)
    return float(distances.sum(dtype=np.float64))


def _assemble(plan: VectorPlan, files: ModelFiles, scratch: str, part: SegmentRuns) -> WrittenSegment:
    """The only task of a segment in the last step: join runs batch by batch into its files."""
    store, models, runs = plan.pin.open().store, files.load(), part.runs
    ivf = Ivf(models.ivf.metric, models.ivf.centroids, part.loss)
    layout = Layout.of(_joined(ivf, [(run.first, run.lengths) for run in runs], 0))
    codes = _copied(store, [run.path for run in runs], plan.code_bytes)
    whole = write_segment_codes(plan, models, scratch, layout, codes)
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


def _segment(plan: VectorPlan, fragments: tuple[int, ...], whole: WrittenSegment, quantizer: Quantizer) -> IndexSegment:
    return IndexSegment(
        uuid=whole.uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(fragments)),
        type_url=VECTOR.type_url,
        details=plan.details(quantizer),
        index_version=plan.index_version,
        files=whole.files,
        created_at=datetime.now(UTC),
    )


def _narrow(ivf: Ivf) -> type[np.unsignedinteger[Any]]:
    """numpy sorts 16-bit numbers by radix sort."""
    return np.uint16 if ivf.num_partitions <= 1 << 16 else np.uint32
