"""Rows of several vectors, compared with queries of several vectors.

The distance of a query and a row is the sum, over the vectors of the query, of the distance to the nearest vector of
the row: MaxSim, as Lance defines it. Vectors of a row, and of a query, are neighbors in a matrix; `starts` are the
positions of the first ones.
"""

from __future__ import annotations

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Positions, Vectors

# Distances computed at once: 16 MiB.
DISTANCES_AT_ONCE = 1 << 22


def starts_of(rows: Addresses | Positions) -> Positions:
    """The first vector of each row, by the rows of all vectors."""
    return np.flatnonzero(np.append(True, rows[1:] != rows[:-1])) if len(rows) else np.empty(0, dtype=np.int64)


def row_distances(
    metric: Metric, queries: Vectors, query_starts: Positions, vectors: Vectors, row_starts: Positions
) -> Floats:
    """The distances of every query (rows) and every row of vectors (columns); each has at least one vector."""
    found = np.empty((len(query_starts), len(row_starts)), dtype=np.float32)
    ends = np.append(row_starts[1:], len(vectors))
    most = max(1, DISTANCES_AT_ONCE // max(1, len(queries)))
    first = 0
    while first < len(row_starts):
        start = row_starts[first]
        stop = max(first + 1, int(np.searchsorted(ends, start + most, side="right")))
        distances = metric.distances(queries, vectors[start : ends[stop - 1]])
        nearest = np.minimum.reduceat(distances, row_starts[first:stop] - start, axis=1)
        found[:, first:stop] = np.add.reduceat(nearest, query_starts, axis=0)
        first = stop
    return found


def gathered(starts: Positions, end: int, chosen: Positions) -> tuple[Positions, Positions]:
    """The positions of the vectors of some rows, and where each row starts among them."""
    counts = (np.append(starts[1:], end) - starts)[chosen]
    new = np.cumsum(counts) - counts
    return np.repeat(starts[chosen] - new, counts) + np.arange(counts.sum()), new
