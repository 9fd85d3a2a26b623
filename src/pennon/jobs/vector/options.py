"""Values derived from the options of a vector index and the table: column, metric, number of partitions, centroids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.fragments import Fragment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.kinds import VectorKind
from pennon.index.vector.metric import Metric
from pennon.index.vector.options import MAX_PARTITIONS, IvfOptions
from pennon.index.vector.vectors import VECTOR_TYPES, VectorType, as_items, to_rows

# Rows whose vectors are counted, where a row has several.
COUNTED_ROWS = 256


def vector_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not VECTOR.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which a vector index does not support",
            f"Index a column of {VECTOR_TYPES}",
        )
    return column


def metric_for(snapshot: Snapshot, column: Column, kind: VectorKind, given: Metric | None) -> Metric:
    held = VectorType.of(column.type)
    element = held.element
    metric = given or (Metric.COSINE if held.several else Metric.default(element))
    where = f"column {column.path!r} of {snapshot.uri} holds {held.item} vectors"
    if not metric.measures(element):
        raise UnsupportedColumn(
            f"{where}, which the metric {metric} does not measure",
            "uint8 vectors have the metric hamming; float16, float32 and float64 vectors l2, cosine and dot",
        )
    if held.several and metric is not Metric.COSINE:
        raise UnsupportedColumn(
            f"{where}, several a row, for which neither Pennon nor pylance builds an index by {metric}", "Use cosine"
        )
    if metric is Metric.HAMMING and not kind.quantizer.stores_vectors:
        raise UnsupportedColumn(
            f"{where}, for which neither Pennon nor pylance has codes of {kind.name}", "Use IVF_FLAT or IVF_HNSW_FLAT"
        )
    return metric


def vectors_per_row(snapshot: Snapshot, column: Column, fragments: Sequence[Fragment]) -> int:
    few: pa.Array = snapshot.sample_column(column, [f.id for f in fragments], COUNTED_ROWS, seed=0)
    return max(1, -(-len(to_rows(few)[1]) // max(1, len(few))))


def partitions_for(options: IvfOptions, rows: int) -> int:
    """By default as many as the rows of a partition, so that finding partitions and searching one cost the same."""
    if options.num_partitions is not None:
        return options.num_partitions
    wanted = rows / options.target_partition_size if options.target_partition_size else math.sqrt(rows)
    return max(1, min(round(wanted), MAX_PARTITIONS, rows))


def given_centroids(
    given: Any, num_partitions: int | None, dim: int, element: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    if given is None:
        return None
    centroids = as_items(given, "ivf_centroids", element)
    if centroids.ndim != 2 or centroids.shape[1] != dim or not 0 < len(centroids) <= MAX_PARTITIONS:
        raise InvalidArgument(f"ivf_centroids have the shape {centroids.shape}", f"Pass [num_partitions, {dim}] floats")
    if num_partitions not in (None, len(centroids)):
        raise InvalidArgument(f"{len(centroids)} ivf_centroids contradict num_partitions={num_partitions}")
    return centroids
