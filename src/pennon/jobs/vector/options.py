"""What a user says of a vector index, checked and filled up with what follows from the table."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.errors import InvalidArgument
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import QUANTIZERS, SubIndex, VectorKind
from pennon.index.vector.vectors import as_floats
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


GRAPH_OPTIONS = frozenset({"m", "ef_construction", "max_level"})
CODE_OPTIONS = frozenset[str]().union(*(quantizer.options for quantizer in QUANTIZERS.values()))


def options_of(kind: VectorKind) -> set[str]:
    """The options that mean something for a kind."""
    known = {field.name for field in fields(VectorOptions)} - CODE_OPTIONS
    if kind.sub_index is not SubIndex.HNSW:
        known -= GRAPH_OPTIONS
    return known | kind.quantizer.options


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


def given_centroids(
    given: Any, num_partitions: int | None, dim: int, element: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    if given is None:
        return None
    centroids = as_floats(given, "ivf_centroids", element)
    if centroids.ndim != 2 or centroids.shape[1] != dim or not 0 < len(centroids) <= MAX_PARTITIONS:
        raise InvalidArgument(f"ivf_centroids have the shape {centroids.shape}", f"Give [num_partitions, {dim}] floats")
    if num_partitions not in (None, len(centroids)):
        raise InvalidArgument(f"{len(centroids)} ivf_centroids contradict num_partitions={num_partitions}")
    return centroids
