"""What every quantizer can do, and the little they share.

A quantizer is a small immutable model, trained once and shared by all tasks of a build. Vectors given to it are
prepared by the metric (`Metric.prepare`) and indexable. Codes travel in three forms: the plain columns of `encode`,
row by row, which tasks exchange, filter and merge; the stored columns of `pack`, whose bytes are rearranged over a
whole partition; and a `Scorer`, a partition made ready for queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors

Columns = Mapping[str, npt.NDArray[Any]]

# Global buffer 1 of both index files is the IVF message; what a quantizer keeps there comes next.
QUANTIZER_BUFFER = 2

# Up to so many queries are compared with vectors one by one.
FEW_QUERIES = 4


class Scans(Protocol):
    # Up to so many queries of a partition are scanned one by one. More of them are worth a matrix product, for which
    # codes must become floats.
    scanned_queries: ClassVar[int]

    def scan(
        self, query: Vectors, probed: Sequence[Any], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        """For one query (a matrix of one row) the k nearest rows of some scorers, ascending, and their keys, which are
        place of the scorer << POSITION_BITS | position; infinity at key -1 where there are fewer. Only rows of
        `allowed` count, which has those of all scorers one after another."""
        ...


class Scorer(Protocol):
    """One partition, ready to be compared with queries that went through `Quantizer.prepare`."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def distances(self, queries: Floats) -> Floats:
        """All distances, one row per query, on the scale of the index."""
        ...

    def nearest(self, queries: Floats, k: int) -> tuple[Floats, Positions]:
        """Per query the k smallest distances, ascending, and their positions; position -1 where there are fewer."""
        ...

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> Self:
        """The same partition reduced to some of its rows, in the order given."""
        ...

    def measure(self, queries: Vectors, which: Positions, positions: Positions) -> Floats | None:
        """Distances of single rows, number i to query which[i]; None where `distances` gives nothing less exact."""
        ...


class ScorerBase:
    """What scorers have in common. Each has `quantizer: Scans`, which knows its kind."""

    quantizer: Any

    def distances(self, queries: Vectors) -> Floats:
        raise NotImplementedError

    def nearest(self, queries: Vectors, k: int) -> tuple[Floats, Positions]:
        if not 0 < len(queries) <= self.quantizer.scanned_queries:
            return smallest(self.distances(queries), k)
        found = [self.quantizer.scan(queries[row : row + 1], [self], k) for row in range(len(queries))]
        return np.stack([values for values, _ in found]), np.stack([positions for _, positions in found])

    def measure(self, queries: Vectors, which: Positions, positions: Positions) -> Floats | None:
        return None


class Quantizer(Scans, Protocol):
    name: ClassVar[str]

    @property
    def metric(self) -> Metric: ...

    @property
    def dim(self) -> int: ...

    def fields(self) -> list[pa.Field]:
        """The storage columns after the row id, as stock writes them."""
        ...

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns: ...

    def pack(self, columns: Columns) -> Columns:
        """The columns of one whole partition as they are stored."""
        ...

    def unpack(self, columns: Columns) -> Columns: ...

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        """What `storage_metadata` says, and the global buffers it points to, from QUANTIZER_BUFFER on.

        Two quantizers with equal metadata and buffers write codes that may share a segment.
        """
        ...

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        """KeyError, TypeError or ValueError when the metadata makes no sense."""
        ...

    def prepare(self, queries: Vectors) -> Vectors:
        """Per query one row of what its comparison with any partition needs; rows may be picked freely."""
        ...

    def scorer(self, columns: Columns, centroid: Vectors) -> Scorer:
        """A partition, from its plain columns and its centroid."""
        ...


class PointQuantizer(Quantizer, Protocol):
    """A quantizer whose codes stand for points, so that a graph can be drawn over them: all but RQ."""

    def points(self, columns: Columns) -> Floats:
        """Points whose l2, for dot 1 - the inner product, to a query's point is the distance of the index."""
        ...

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        """The points of queries that went through `prepare`, as seen in one partition."""
        ...


def residuals(vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Floats:
    """Each vector less its centroid, subtracted in the column's type as stock does."""
    return (vectors - centroids[partition_ids]).astype(np.float32, copy=False)


def take_columns(columns: Columns, positions: npt.NDArray[np.integer[Any]]) -> Columns:
    return {name: column[positions] for name, column in columns.items()}


def concat_columns(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
