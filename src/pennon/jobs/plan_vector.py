"""Plan a vector index: rows, partitions, codes, tasks, memory; nothing is read of the vectors yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, ScanSlice, Snapshot
from pennon.index.vector.details import VectorDetails
from pennon.index.vector.flat import FlatQuantizer
from pennon.index.vector.hnsw import HnswParams
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.kinds import SubIndex, VectorKind, vector_kind
from pennon.index.vector.metric import Metric
from pennon.index.vector.pq import ProductQuantizer, check_shape
from pennon.index.vector.rabitq import MAX_BITS, RabitQuantizer
from pennon.index.vector.rabitq_layout import blocked_width
from pennon.index.vector.sq import NUM_BITS, ScalarQuantizer
from pennon.index.vector.vectors import Vectors, to_matrix
from pennon.jobs.describe import human_bytes, plural
from pennon.jobs.slices import check_at_least_one, check_integers, chosen_fragments, cut_slices, whole_waves

MAX_PARTITIONS = 65_536
# Vectors of one map task: long enough that starting it does not matter, short enough that the last wave is short.
TASK_BYTES = 128 << 20
# Vectors held at once by a map task; every temporary of assignment and encoding is at most as large.
BATCH_BYTES = 32 << 20
BATCH_COPIES = 5
# Codes of a reducer: as received, and the partition and the pages in hand.
REDUCE_COPIES = 2
# Graphs take long to build and partitions differ in size: more reducers even out.
GRAPH_WAVES = 4
# Training in one process holds the sample, its distances and a copy.
TRAIN_COPIES = 3
# With more centroids, assigning the sample again and again is work for the cluster.
MOST_LOCAL_PARTITIONS = 4096
# Rows of the sample for each partition that tell how large partitions will be.
WEIGHED_ROWS = 32
# Codewords are trained on so many vectors each.
SAMPLES_PER_CODEWORD = 256


@dataclass(frozen=True)
class VectorOptions:
    """What a user may say of a vector index. None: derived from the table."""

    metric: str = "l2"
    num_partitions: int | None = None
    target_partition_size: int | None = None
    num_sub_vectors: int | None = None
    num_bits: int | None = None
    sample_rate: int = 256
    max_iters: int = 50
    m: int = 20
    ef_construction: int = 150
    max_level: int = 7
    ivf_centroids: Any = None
    pq_codebook: Any = None
    seed: int = 0


# Options that only some kinds know; a kind is told of others as of a mistake.
QUANTIZER_OPTIONS: dict[str, frozenset[str]] = {
    FlatQuantizer.name: frozenset(),
    ProductQuantizer.name: frozenset({"num_sub_vectors", "num_bits", "pq_codebook"}),
    ScalarQuantizer.name: frozenset({"num_bits"}),
    RabitQuantizer.name: frozenset({"num_bits"}),
}
GRAPH_OPTIONS = frozenset({"m", "ef_construction", "max_level"})


@dataclass(frozen=True)
class VectorPlan:
    """What a build will do, known before it does anything."""

    pin: Pin
    column: str
    field_id: int
    value_type: pa.DataType
    name: str
    kind: VectorKind
    metric: Metric
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    num_partitions: int
    partitions_asked_for: bool
    num_sub_vectors: int | None
    num_bits: int | None
    hnsw: HnswParams | None
    sample_rows: int
    train_rows: int  # of the sample, for the centroids
    max_iters: int
    seed: int
    batch_rows: int
    reducers: int
    memory_bytes: int
    storage_version: str
    stable_row_ids: bool
    centroids: Vectors | None = field(default=None, repr=False)
    codebook: Vectors | None = field(default=None, repr=False)

    def for_tasks(self) -> VectorPlan:
        """Without the models a user gave, which tasks read from files."""
        return replace(self, centroids=None, codebook=None)

    @property
    def dim(self) -> int:
        return self.value_type.list_size

    @property
    def element(self) -> np.dtype[Any]:
        return np.dtype(self.value_type.value_type.to_pandas_dtype())

    @property
    def vector_bytes(self) -> int:
        return self.dim * self.element.itemsize

    @property
    def code_bytes(self) -> int:
        """Bytes of a row in `auxiliary.idx`, its id among them."""
        return 8 + _code_bytes(self.kind, self.dim, self.vector_bytes, self.num_sub_vectors, self.num_bits)

    @property
    def trains_on_driver(self) -> bool:
        """Whether k-means runs in one process; else its iterations run on Spark."""
        fits = self.train_rows * self.vector_bytes * TRAIN_COPIES <= self.memory_bytes
        return self.centroids is not None or (fits and self.num_partitions <= MOST_LOCAL_PARTITIONS)

    @property
    def task_memory_bytes(self) -> int:
        """The most a task is expected to hold, beside the models."""
        mapped = self.batch_rows * self.vector_bytes * BATCH_COPIES
        # A graph is built over the points of one partition, with all links of its nodes in hand.
        graph = self.partition_rows * (4 * self.dim + 8 * self.graph_bytes) if self.hnsw else 0
        reduced = self.rows // self.reducers * (self.code_bytes + 4) * REDUCE_COPIES + graph
        return max(mapped, reduced) + 2 * self.model_bytes

    @property
    def model_bytes(self) -> int:
        return self.num_partitions * self.vector_bytes

    @property
    def index_bytes(self) -> int:
        return self.rows * (self.code_bytes + self.graph_bytes) + self.model_bytes

    @property
    def graph_bytes(self) -> int:
        """Of a node: about m links of 8 bytes, of up to 2m on level 0 and few above."""
        return self.hnsw.m * 9 + 4 if self.hnsw else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.pin.location.uri,
            "version": self.pin.version,
            "name": self.name,
            "type": self.kind.name,
            "column": self.column,
            "metric": self.metric.value,
            "dimension": self.dim,
            "rows": self.rows,
            "fragments": len(self.fragments),
            "num_partitions": self.num_partitions,
            "num_sub_vectors": self.num_sub_vectors,
            "num_bits": self.num_bits,
            "sample_rows": self.sample_rows,
            "trained_on": "driver" if self.trains_on_driver else "executors",
            "tasks": len(self.slices),
            "reducers": self.reducers,
            "task_memory_bytes": self.task_memory_bytes,
            "index_bytes": self.index_bytes,
        }

    def __str__(self) -> str:
        codes = f"{self.code_bytes} bytes a row"
        if self.num_sub_vectors:
            codes += f": {self.num_sub_vectors} sub-vectors of {self.num_bits} bits"
        elif self.num_bits:
            codes += f": {plural(self.num_bits, 'bit')} a dimension"
        if self.centroids is not None:
            training = "centroids as given"
        else:
            where = "on the driver" if self.trains_on_driver else "on the executors"
            training = f"k-means {where}, at most {self.max_iters} iterations"
        tasks = plural(len(self.slices), "map task")
        lines = [
            f"{self.kind.name} index {self.name!r} on {self.column} ({self.value_type.value_type}[{self.dim}])",
            f"table     {self.pin.location.uri}, version {self.pin.version}",
            f"rows      {self.rows:,} in {len(self.fragments):,} fragments",
            f"distance  {self.metric}",
            f"clusters  {plural(self.num_partitions, 'partition')} of about {self.partition_rows:,} rows",
            f"codes     {codes}",
            f"training  {training}",
            f"sample    {self.sample_rows:,} rows, {human_bytes(self.sample_rows * self.vector_bytes)}",
            f"work      {tasks}, {self.reducers} to write, about {human_bytes(self.task_memory_bytes)} a task",
            f"files     about {human_bytes(self.index_bytes)}",
        ]
        if self.hnsw:
            lines.insert(6, f"graphs    HNSW, m={self.hnsw.m}, ef_construction={self.hnsw.ef_construction}")
        return "\n".join(lines)

    @property
    def partition_rows(self) -> int:
        return -(-self.rows // self.num_partitions)

    def details(self, quantizer: Any) -> bytes:
        """What the manifest will say of the index."""
        return VectorDetails.of(self.kind, quantizer, self.hnsw, max(1, self.partition_rows)).to_bytes()


def plan_vector(
    snapshot: Snapshot,
    column_path: str,
    index_type: str,
    options: VectorOptions,
    *,
    name: str | None = None,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
) -> VectorPlan:
    column = _vector_column(snapshot, column_path)
    kind, metric, dim = vector_kind(index_type), Metric.named(options.metric), column.type.list_size
    _check(options, rows_per_task)
    fragments = chosen_fragments(snapshot, fragment_ids)
    rows = sum(f.live_rows for f in fragments)
    element = np.dtype(column.type.value_type.to_pandas_dtype())
    centroids = _given_centroids(options.ivf_centroids, options.num_partitions, dim, element)
    num_partitions = len(centroids) if centroids is not None else _num_partitions(options, rows)
    if centroids is None and 0 < rows < num_partitions:
        raise InvalidArgument(f"{num_partitions:,} partitions cannot be trained on {rows:,} rows", "Ask for fewer")
    codebook = _given_codebook(options, dim, element)
    subs, bits = _code_shape(kind, options, dim, codebook)
    vector_bytes = dim * element.itemsize
    train_rows = 0 if centroids is not None else num_partitions * options.sample_rate
    task_rows = rows_per_task or max(1, TASK_BYTES // vector_bytes)
    tasks = whole_waves(-(-rows // task_rows), parallelism) if rows else 1
    code_bytes = 12 + _code_bytes(kind, dim, vector_bytes, subs, bits)
    reducers = _reducers(rows * code_bytes * REDUCE_COPIES, kind, parallelism, memory_bytes)
    weighed = num_partitions * WEIGHED_ROWS if reducers > 1 else 0
    sample_rows = min(rows, max(train_rows, _codeword_rows(kind, bits, codebook), weighed))
    return VectorPlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        value_type=column.type,
        name=name or f"{column_path}_idx",
        kind=kind,
        metric=metric,
        fragments=tuple(f.id for f in fragments),
        rows=rows,
        slices=tuple(cut_slices(fragments, tasks)) if rows else (),
        num_partitions=num_partitions,
        partitions_asked_for=options.num_partitions is not None,
        num_sub_vectors=subs,
        num_bits=bits,
        hnsw=_graph_params(options) if kind.sub_index is SubIndex.HNSW else None,
        sample_rows=sample_rows,
        train_rows=min(train_rows, rows),
        max_iters=options.max_iters,
        seed=options.seed,
        batch_rows=max(1024, min(BATCH_BYTES, memory_bytes // (2 * BATCH_COPIES)) // vector_bytes),
        reducers=min(reducers, num_partitions),
        memory_bytes=memory_bytes,
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        centroids=centroids,
        codebook=codebook,
    )


def _reducers(held_bytes: int, kind: VectorKind, parallelism: int, memory_bytes: int) -> int:
    """One that writes the file itself where the codes are few, else as many as their memory asks for."""
    if kind.sub_index is SubIndex.HNSW:
        return max(whole_waves(-(-held_bytes // memory_bytes), parallelism), parallelism * GRAPH_WAVES)
    if held_bytes <= memory_bytes:
        return 1
    return whole_waves(-(-held_bytes // memory_bytes), parallelism)


def _vector_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not VECTOR.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which a vector index cannot hold",
            "Index a column of fixed-size lists of float16, float32 or float64",
        )
    return column


def _check(options: VectorOptions, rows_per_task: int | None) -> None:
    check_integers(seed=options.seed, num_bits=options.num_bits, max_level=options.max_level)
    check_at_least_one(
        m=options.m,
        ef_construction=options.ef_construction,
        num_partitions=options.num_partitions,
        target_partition_size=options.target_partition_size,
        num_sub_vectors=options.num_sub_vectors,
        sample_rate=options.sample_rate,
        max_iters=options.max_iters,
        rows_per_task=rows_per_task,
    )
    if options.num_partitions is not None and options.target_partition_size is not None:
        raise InvalidArgument("num_partitions and target_partition_size contradict each other", "Give one of the two")
    if (options.num_partitions or 0) > MAX_PARTITIONS:
        raise InvalidArgument(f"num_partitions must be at most {MAX_PARTITIONS:,}, not {options.num_partitions:,}")
    if options.seed < 0:
        raise InvalidArgument(f"seed must not be negative, but is {options.seed}")
    if options.ivf_centroids is not None and options.target_partition_size is not None:
        raise InvalidArgument("ivf_centroids and target_partition_size contradict each other", "Give one of the two")
    if options.pq_codebook is not None and options.ivf_centroids is None:
        raise InvalidArgument("a pq_codebook fits the centroids it was trained with", "Give ivf_centroids too")


def _num_partitions(options: VectorOptions, rows: int) -> int:
    """As many as rows of a partition, so that finding partitions and searching one cost alike."""
    if options.num_partitions is not None:
        return options.num_partitions
    wanted = rows / options.target_partition_size if options.target_partition_size else math.sqrt(rows)
    return max(1, min(round(wanted), MAX_PARTITIONS, rows))


def _graph_params(options: VectorOptions) -> HnswParams:
    return HnswParams(options.max_level, options.m, options.ef_construction)


def _code_shape(
    kind: VectorKind, options: VectorOptions, dim: int, codebook: Vectors | None
) -> tuple[int | None, int | None]:
    """Sub-vectors and bits of the codes, as asked for or by default; None where there is no such thing."""
    bits = options.num_bits
    if kind.quantizer is ProductQuantizer:
        if codebook is not None:
            return codebook.shape[0], codebook.shape[1].bit_length() - 1
        subs = options.num_sub_vectors or _default_sub_vectors(dim, bits or 8)
        check_shape(dim, subs, bits or 8)
        return subs, bits or 8
    if kind.quantizer is RabitQuantizer:
        bits = 5 if bits is None else bits
        if not 1 <= bits <= MAX_BITS:
            raise InvalidArgument(f"RQ codes have 1 to {MAX_BITS} bits, not {bits}")
        if dim % 8:
            raise InvalidArgument(f"RQ needs a dimension divisible by 8, not {dim}", "Choose another index type")
        return None, bits
    if kind.quantizer is ScalarQuantizer:
        if bits not in (None, NUM_BITS):
            raise InvalidArgument(f"SQ codes have {NUM_BITS} bits, not {bits}")
        return None, NUM_BITS
    return None, None


def _default_sub_vectors(dim: int, bits: int) -> int:
    """Sub-vectors of 16 dimensions as stock has them, of fewer where 16 does not divide."""
    for width in (16, 8, 4, 2, 1):
        if dim % width == 0 and (bits == 8 or dim // width % 2 == 0):
            return dim // width
    raise InvalidArgument(f"4-bit PQ cannot cut {dim} dimensions into an even number of sub-vectors", "Use 8 bits")


def _codeword_rows(kind: VectorKind, bits: int | None, codebook: Vectors | None) -> int:
    """Vectors that a quantizer is trained on."""
    if kind.quantizer is ProductQuantizer and codebook is None:
        return SAMPLES_PER_CODEWORD << (bits or 8)
    return SAMPLES_PER_CODEWORD * 256 if kind.quantizer is ScalarQuantizer else 0


def _code_bytes(kind: VectorKind, dim: int, vector_bytes: int, subs: int | None, bits: int | None) -> int:
    if kind.quantizer is ProductQuantizer:
        return (subs or 0) * (bits or 8) // 8
    if kind.quantizer is ScalarQuantizer:
        return dim
    if kind.quantizer is RabitQuantizer:
        extra = (bits or 1) - 1
        return dim // 8 + 12 + (blocked_width(dim, extra) + 8 if extra else 0)
    return vector_bytes


def _given_centroids(
    given: Any, num_partitions: int | None, dim: int, element: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    if given is None:
        return None
    centroids = _as_floats(given, "ivf_centroids", element)
    if centroids.ndim != 2 or centroids.shape[1] != dim or not 0 < len(centroids) <= MAX_PARTITIONS:
        raise InvalidArgument(f"ivf_centroids have the shape {centroids.shape}", f"Give [num_partitions, {dim}] floats")
    if num_partitions not in (None, len(centroids)):
        raise InvalidArgument(f"{len(centroids)} ivf_centroids contradict num_partitions={num_partitions}")
    return centroids


def _given_codebook(options: VectorOptions, dim: int, element: np.dtype[Any]) -> npt.NDArray[Any] | None:
    if options.pq_codebook is None:
        return None
    codebook = _as_floats(options.pq_codebook, "pq_codebook", element)
    subs, bits = options.num_sub_vectors, options.num_bits
    if codebook.ndim == 2 and subs and codebook.size % (subs * dim) == 0:
        # As one row per codeword of each sub-space, the shape of an Arrow array of them.
        codebook = codebook.reshape(subs, -1, dim // subs)
    if codebook.ndim != 3 or codebook.shape[0] * codebook.shape[2] != dim or codebook.shape[1] not in (16, 256):
        raise InvalidArgument(
            f"pq_codebook has the shape {codebook.shape}", "Give [num_sub_vectors, 2^num_bits, width] floats"
        )
    check_shape(dim, codebook.shape[0], codebook.shape[1].bit_length() - 1)
    if subs not in (None, codebook.shape[0]) or (bits is not None and 1 << bits != codebook.shape[1]):
        raise InvalidArgument(f"a pq_codebook of shape {codebook.shape} contradicts num_sub_vectors or num_bits")
    return codebook


def _as_floats(given: Any, label: str, element: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        array = to_matrix(given)[0] if isinstance(given, pa.FixedSizeListArray) else np.asarray(given)
        floats = np.ascontiguousarray(array, dtype=element)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{label} cannot be read as floats: {error}") from error
    if not np.isfinite(floats).all():
        raise InvalidArgument(f"{label} hold values that are not finite")
    return floats
