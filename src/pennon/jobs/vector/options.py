"""What a user says of a vector index, checked and filled up with what follows from the table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import VectorKind
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer, check_shape
from pennon.index.vector.quantizers.rabitq.quantizer import MAX_BITS, RabitQuantizer
from pennon.index.vector.quantizers.sq import NUM_BITS, ScalarQuantizer
from pennon.index.vector.vectors import Vectors, to_matrix
from pennon.jobs.shared.tasks import check_at_least_one, check_integers

MAX_PARTITIONS = 65_536


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


def check_options(options: VectorOptions, rows_per_task: int | None) -> None:
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


def partitions_for(options: VectorOptions, rows: int) -> int:
    """As many as rows of a partition, so that finding partitions and searching one cost alike."""
    if options.num_partitions is not None:
        return options.num_partitions
    wanted = rows / options.target_partition_size if options.target_partition_size else math.sqrt(rows)
    return max(1, min(round(wanted), MAX_PARTITIONS, rows))


def graph_params(options: VectorOptions) -> HnswParams:
    return HnswParams(options.max_level, options.m, options.ef_construction)


def code_shape(
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


def given_centroids(
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


def given_codebook(options: VectorOptions, dim: int, element: np.dtype[Any]) -> npt.NDArray[Any] | None:
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
