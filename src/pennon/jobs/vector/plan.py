"""Plan a vector index: rows, partitions, codes, tasks, memory; no vectors are read yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pennon.display import Displayed
from pennon.errors import InvalidArgument
from pennon.format.fragments import Fragment
from pennon.format.index_metadata import IndexSegment
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import SubIndex, VectorKind, vector_kind
from pennon.index.vector.metric import Metric
from pennon.index.vector.options import MOST_SEGMENTS, SEGMENT_BYTES, IvfOptions
from pennon.index.vector.quantizers.base import Quantizer
from pennon.index.vector.quantizers.parameters import CodeShape
from pennon.index.vector.vectors import Vectors, VectorType
from pennon.jobs.shared.placement import Effort, Placed, place_of
from pennon.jobs.shared.tasks import chosen_fragments, cut_neighbors, cut_slices, whole_waves
from pennon.jobs.vector.models import ModelFiles
from pennon.jobs.vector.options import given_centroids, metric_for, partitions_for, vector_column, vectors_per_row
from pennon.wording import human_bytes, in_lines, plural

# Bytes of vectors of one map task: large enough that its start is negligible, small enough that the last wave is short.
TASK_BYTES = 64 << 20
# Vectors held at once by a map task; every temporary of assignment and encoding is at most as large. The C library
# returns arrays of 32 MiB and more to the system, and page-faults each of them in again.
BATCH_BYTES = 24 << 20
BATCH_COPIES = 5
# Copies of the codes in a reducer: as received, being read and written, and the current partition.
REDUCE_COPIES = 4
# Graphs take long to build and partitions differ in size: more reducers balance the load.
GRAPH_WAVES = 4
# Copies of the points of a partition while its graph is built: as given, relative to their middle, and in products.
GRAPH_COPIES = 7
# Training in one process holds the sample, its distances and a copy.
TRAIN_COPIES = 3
# With more centroids, the passes over the sample run on the cluster.
MOST_LOCAL_PARTITIONS = 1 << 14
# What is done with a byte of a vector. Plain vectors and codes without a codebook take several seconds of a core for as
# much as runs in this process; but most of that is training, which this process does anyway.
CODE_WEIGHT, CODEBOOK_WEIGHT, GRAPH_WEIGHT = 1, 2, 4
# Rows of the sample per partition, to estimate the sizes of partitions.
WEIGHED_ROWS = 32


@dataclass(frozen=True)
class VectorPlan(Displayed, Placed):
    """The plan of a build."""

    pin: Pin
    column: str
    field_id: int
    vectors: VectorType
    name: str
    kind: VectorKind
    metric: Metric
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    num_partitions: int
    partitions_requested: bool
    shape: CodeShape
    hnsw: HnswParams | None
    sample_rows: int
    train_rows: int  # of the sample, for the centroids
    max_iters: int
    seed: int
    batch_rows: int
    reducers: int  # of each segment
    memory_bytes: int
    storage_version: str
    stable_row_ids: bool
    centroids: Vectors | None = field(default=None, repr=False)
    vectors_per_row: int = 1  # of a column of several, by a few of its rows
    models: ModelFiles | None = None  # of an existing index, used unchanged
    like: IndexSegment | None = field(default=None, repr=False)  # the segment with these models, version and details
    because: str | None = field(default=None, repr=False)  # why this kind, where it follows from a recall or a budget
    split: tuple[tuple[int, ...], ...] = field(default=(), repr=False)  # fragments by segment, if there are several

    def for_tasks(self) -> VectorPlan:
        """A copy without fields that tasks read from files or do not need."""
        return replace(self, centroids=None, shape=self.shape.without_models(), like=None, because=None)

    @property
    def tasks(self) -> int:
        return max(1, len(self.slices))

    @property
    def segments(self) -> tuple[tuple[int, ...], ...]:
        """The fragments of each segment."""
        return self.split or (self.fragments,)

    def segment_of(self, part: ScanSlice) -> int:
        """The number of the segment that a slice belongs to."""
        return next(number for number, own in enumerate(self.segments) if part.fragments[0] in own)

    @property
    def writers(self) -> int:
        """Reduce tasks of all segments."""
        return self.reducers * len(self.segments)

    @property
    def dim(self) -> int:
        return self.vectors.dim

    @property
    def element(self) -> np.dtype[Any]:
        return self.vectors.element

    @property
    def vector_bytes(self) -> int:
        return self.vectors.nbytes

    @property
    def point_dim(self) -> int:
        """Dimensions of the points that k-means is over: vectors, or bits."""
        return self.dim * 8 if self.metric is Metric.HAMMING else self.dim

    @property
    def point_bytes(self) -> int:
        return self.point_dim * 4 if self.metric is Metric.HAMMING else self.vector_bytes

    @property
    def code_bytes(self) -> int:
        """Bytes of a row in `auxiliary.idx`, including its id."""
        return 8 + self.shape.row_bytes

    @property
    def trains_on_driver(self) -> bool:
        """Whether k-means runs in one process; else its iterations run on Spark."""
        fits = self.train_rows * self.point_bytes * TRAIN_COPIES <= self.memory_bytes
        return self.centroids is not None or (fits and self.num_partitions <= MOST_LOCAL_PARTITIONS)

    @property
    def fetches_vectors(self) -> bool:
        """Whether the single reducer of an index of plain vectors scans them itself instead of receiving them."""
        plain = self.kind.sub_index is SubIndex.FLAT and self.kind.quantizer.stores_vectors
        # Several vectors of a row have one address, which does not identify them.
        plain = plain and not self.vectors.several
        return plain and self.writers == 1 and not self.stable_row_ids and bool(self.slices)

    @property
    def work(self) -> Effort:
        weight = GRAPH_WEIGHT if self.hnsw else CODEBOOK_WEIGHT if self.shape.trains_on_vectors else CODE_WEIGHT
        return Effort(self.pin.location, weight * self.entries * self.vector_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task, including two copies of the centroids."""
        mapped = self.batch_rows * self.vector_bytes * BATCH_COPIES if self.slices else 0
        # A graph is built over the points of one partition, with the candidates and links of its nodes in memory.
        graph = self.partition_rows * self._node_bytes
        reduced = self.entries // self.writers * (self.code_bytes + 4) * REDUCE_COPIES + graph
        return max(mapped, reduced) + 2 * self.model_bytes

    @property
    def _node_bytes(self) -> int:
        if self.hnsw is None:
            return 0
        return 4 * self.point_dim * GRAPH_COPIES + 16 * self.hnsw.ef_construction + 4 * self.graph_bytes

    @property
    def entries(self) -> int:
        """The number of vectors, about."""
        return self.rows * self.vectors_per_row

    @property
    def model_bytes(self) -> int:
        return self.num_partitions * self.vector_bytes

    @property
    def index_bytes(self) -> int:
        return self.entries * (self.code_bytes + self.graph_bytes) + self.model_bytes

    @property
    def graph_bytes(self) -> int:
        """Bytes of a node: about 1.7 m links of 6 bytes, of up to 2m on level 0 and few above."""
        return self.hnsw.m * 10 + 4 if self.hnsw else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.pin.location.shown,
            "version": self.pin.version,
            "name": self.name,
            "type": self.kind.name,
            "column": self.column,
            "metric": self.metric.value,
            "dimension": self.dim,
            "rows": self.rows,
            "fragments": len(self.fragments),
            "num_partitions": self.num_partitions,
            "num_sub_vectors": self.shape.num_sub_vectors,
            "num_bits": self.shape.num_bits,
            "sample_rows": self.sample_rows,
            "trained_on": "driver" if self.trains_on_driver else "executors",
            "tasks": len(self.slices),
            "reducers": self.writers,
            "segments": len(self.segments),
            "task_memory_bytes": self.task_memory_bytes,
            "index_bytes": self.index_bytes,
            **({} if self.because is None else {"because": self.because}),
        }

    def __str__(self) -> str:
        codes, bits = f"{self.code_bytes} bytes a row", self.shape.num_bits
        if self.shape.num_sub_vectors:
            codes += f": {self.shape.num_sub_vectors} sub-vectors of {bits} bits"
        elif bits:
            codes += f": {plural(bits, 'bit')} a dimension"
        if self.models is not None:
            training = "none, the models of the index are used"
        elif self.centroids is not None:
            training = "centroids as given"
        else:
            where = "on the driver" if self.trains_on_driver else "on the executors"
            training = f"k-means {where}, at most {self.max_iters} iterations"
        tasks = f"{plural(len(self.slices), 'map task')}, {self.writers} to write"
        lines = [
            f"{self.kind.name} index {self.name!r} on {self.column} ({self.vectors})",
            f"table     {self.pin.location.shown}, version {self.pin.version}",
            f"rows      {self.rows:,} in {plural(len(self.fragments), 'fragment')}{self._several}",
            f"distance  {self.metric}",
            f"clusters  {plural(self.num_partitions, 'partition')} of about {self.partition_rows:,} rows",
            f"codes     {codes}",
            f"training  {training}",
            f"sample    {self.sample_rows:,} rows, {human_bytes(self.sample_rows * self.vector_bytes)}",
            f"work      {tasks}, about {human_bytes(self.task_memory_bytes)} a task{place_of(self)}",
            f"files     about {human_bytes(self.index_bytes)}{self._in_segments}",
        ]
        if self.hnsw:
            lines.insert(6, f"graphs    HNSW, m={self.hnsw.m}, ef_construction={self.hnsw.ef_construction}")
        return in_lines([*lines, *((self.because or "").splitlines())])

    @property
    def _in_segments(self) -> str:
        return f", in {len(self.split)} segments" if self.split else ""

    @property
    def _several(self) -> str:
        return f", about {plural(self.vectors_per_row, 'vector')} each" if self.vectors.several else ""

    @property
    def partition_rows(self) -> int:
        return -(-self.entries // self.num_partitions)

    @property
    def index_version(self) -> int:
        """An older layout keeps its version while its models are used."""
        return self.kind.index_version if self.like is None else self.like.index_version

    def details(self, quantizer: Quantizer) -> bytes:
        """The details of the index for the manifest."""
        if self.like is not None and self.like.details:
            return self.like.details
        return VectorDetails.of(self.kind, quantizer, self.hnsw, max(1, self.partition_rows)).to_bytes()


def plan_vector(
    snapshot: Snapshot,
    column_path: str,
    options: IvfOptions,
    *,
    name: str | None = None,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
) -> VectorPlan:
    column = vector_column(snapshot, column_path)
    vectors = VectorType.of(column.type)
    kind, dim, element = vector_kind(options.index_type), vectors.dim, vectors.element
    fragments = chosen_fragments(snapshot, fragment_ids)
    rows = sum(f.live_rows for f in fragments)
    centroids = given_centroids(options.ivf_centroids, options.num_partitions, dim, element)
    per_row = vectors_per_row(snapshot, column, fragments) if vectors.several else 1
    entries = rows * per_row
    num_partitions = len(centroids) if centroids is not None else partitions_for(options, entries)
    if centroids is None and not vectors.several and 0 < rows < num_partitions:
        raise InvalidArgument(f"{num_partitions:,} partitions cannot be trained on {rows:,} rows", "Use fewer")
    metric = metric_for(snapshot, column, kind, options.measure)
    shape = kind.quantizer.shape(options.codes, dim, element)
    vector_bytes = vectors.nbytes
    train_rows = 0 if centroids is not None else num_partitions * options.sample_rate
    task_rows = rows_per_task or max(1, TASK_BYTES // (vector_bytes * per_row))
    tasks = whole_waves(-(-rows // task_rows), parallelism) if rows else 1
    reducers = reducers_for(entries * (12 + shape.row_bytes) * REDUCE_COPIES, kind, parallelism, memory_bytes)
    weighed = num_partitions * WEIGHED_ROWS if reducers > 1 else 0
    sample_rows = min(rows, -(-max(train_rows, shape.sample_rows, weighed) // per_row))
    plan = VectorPlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        vectors=vectors,
        name=name or f"{column_path}_idx",
        kind=kind,
        metric=metric,
        fragments=tuple(f.id for f in fragments),
        rows=rows,
        slices=tuple(cut_slices(fragments, tasks)) if rows else (),
        num_partitions=num_partitions,
        partitions_requested=options.num_partitions is not None,
        shape=shape,
        hnsw=options.graph,
        sample_rows=sample_rows,
        train_rows=min(train_rows, entries),
        max_iters=options.max_iters,
        seed=options.seed,
        batch_rows=max(1024, min(BATCH_BYTES, memory_bytes // (2 * BATCH_COPIES)) // vector_bytes) // per_row or 1,
        reducers=min(reducers, num_partitions),
        memory_bytes=memory_bytes,
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        centroids=centroids,
        vectors_per_row=per_row,
    )
    return _in_segments(plan, fragments, tasks, options.num_segments)


def _in_segments(plan: VectorPlan, fragments: Sequence[Fragment], tasks: int, requested: int | None) -> VectorPlan:
    """The plan with as many segments as were requested, or as many as its files need."""
    filled = sum(fragment.live_rows > 0 for fragment in fragments)
    if requested is not None and requested > max(1, filled):
        raise InvalidArgument(
            f"{requested:,} segments cannot be made of {plural(filled, 'fragment')} with rows", "Use fewer"
        )
    count = requested or max(1, min(-(-plan.index_bytes // SEGMENT_BYTES), MOST_SEGMENTS, filled))
    if count == 1:
        return plan
    groups = cut_neighbors(fragments, count)
    shares = [sum(fragment.live_rows for fragment in group) / plan.rows for group in groups]
    return replace(
        plan,
        split=tuple(tuple(fragment.id for fragment in group) for group in groups),
        slices=tuple(
            part
            for group, share in zip(groups, shares, strict=True)
            for part in cut_slices(group, max(1, round(tasks * share)))
        ),
        reducers=-(-plan.reducers // count),
    )


def reducers_for(held_bytes: int, kind: VectorKind, parallelism: int, memory_bytes: int) -> int:
    """One that writes the file itself if the codes are small, else as many as the memory requires."""
    if kind.sub_index is SubIndex.HNSW:
        return max(whole_waves(-(-held_bytes // memory_bytes), parallelism), parallelism * GRAPH_WAVES)
    if held_bytes <= memory_bytes:
        return 1
    return whole_waves(-(-held_bytes // memory_bytes), parallelism)
