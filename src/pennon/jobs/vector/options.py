"""Values derived from the options of a vector index and the table: the number of partitions, given centroids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.errors import InvalidArgument
from pennon.index.vector.options import MAX_PARTITIONS, IvfOptions
from pennon.index.vector.vectors import as_items


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
