"""The interface of quantizers, and their common parts.

A quantizer is a small immutable model, trained once and shared by all tasks of a build. Vectors passed to it are
prepared by the metric (`Metric.prepare`) and indexable. Codes have three forms: the plain columns of `encode`, row by
row, which tasks exchange, filter and merge; the stored columns of `pack`, whose bytes are rearranged over a whole
partition; and a `Scorer`, a partition prepared for queries.

Callers use this interface and do not check which of the four quantizers it is: `index/vector/kinds.py` is the only
other module that names their classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.hnsw.exact import Grid
from pennon.index.vector.hnsw.search import NodeVectors
from pennon.index.vector.ivf import Ivf, Model, PartitionIds
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.parameters import CodeDetails, CodeOptions, CodeShape, Sample
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors

Columns = Mapping[str, npt.NDArray[Any]]

# Global buffer 1 of both index files is the IVF message; buffers of the quantizer come next.
QUANTIZER_BUFFER = 2

# Up to this many queries are compared with vectors one by one.
FEW_QUERIES = 4

# The share of a row's items in which codes may differ, since two writers may round differently.
DIFFERING_SHARE = 0.25


class Scans(Protocol):
    # Up to this many queries of a partition are scanned one by one. For more, a matrix product pays off, for which
    # codes are converted to floats.
    scanned_queries: ClassVar[int]

    def scan(
        self, query: Vectors, probed: Sequence[Any], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        """For one query (a matrix of one row) the k nearest rows of some scorers, ascending, and their keys: number of
        the scorer << POSITION_BITS | position; infinity at key -1 if there are fewer. Only rows of `allowed` count, the
        concatenated masks of all scorers."""
        ...


class Scorer(Protocol):
    """One partition, for comparison with queries prepared by `Quantizer.prepare`."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def radius(self) -> float:
        """The largest distance of a row to the centroid, not squared; infinite if the codes have no bound on it."""
        ...

    def distances(self, queries: Floats) -> Floats:
        """All distances, one row per query, on the scale of the index."""
        ...

    def nearest(self, queries: Floats, k: int) -> tuple[Floats, Positions]:
        """Per query the k smallest distances, ascending, and their positions; position -1 if there are fewer."""
        ...

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> Self:
        """The same partition reduced to some of its rows, in the given order."""
        ...

    def joined(self, others: Sequence[Self]) -> Self:
        """The rows of this partition, and after them those of the same one of other segments with the same model."""
        ...

    def measure(self, queries: Vectors, which: Positions, positions: Positions) -> Floats | None:
        """Distances of single rows, number i to query which[i]; None if `distances` is as exact."""
        ...


class ScorerBase:
    """The common parts of scorers. Each has `quantizer: Scans`."""

    quantizer: Any

    @property
    def radius(self) -> float:
        return float("inf")

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
    # The version that pylance 14 records for an index with such codes.
    index_version: ClassVar[int]
    # The name of its message in `VectorIndexDetails`.
    details_field: ClassVar[str]
    # Whether codes are the prepared vectors themselves, which a writer can also read from the table.
    stores_vectors: ClassVar[bool]

    @property
    def metric(self) -> Metric: ...

    @property
    def dim(self) -> int: ...

    @property
    def by_l2(self) -> bool:
        """Whether distances of the index are squared l2, also under cosine; 1 - the inner product otherwise."""
        ...

    @classmethod
    def shape(cls, options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
        """Raises InvalidArgument if vectors of this dimension and type cannot have the requested codes."""
        ...

    @classmethod
    def from_sample(cls, sample: Sample, ivf: Ivf, shape: CodeShape, *, max_iters: int, seed: int) -> Self:
        """Train a quantizer."""
        ...

    def details(self) -> CodeDetails: ...

    @classmethod
    def write_details(cls, details: CodeDetails, message: pb.VectorIndexDetails) -> None: ...

    @classmethod
    def read_details(cls, message: pb.VectorIndexDetails) -> CodeDetails: ...

    def fields(self) -> list[pa.Field]:
        """The storage columns after the row id, as pylance writes them."""
        ...

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns: ...

    def pack(self, columns: Columns) -> Columns:
        """The columns of one whole partition in their stored form."""
        ...

    def unpack(self, columns: Columns) -> Columns: ...

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        """The content of `storage_metadata`, and the global buffers it points to, from QUANTIZER_BUFFER on."""
        ...

    def agrees_with(self, other: Quantizer) -> bool:
        """Whether codes of both may share a segment."""
        ...

    def differs(self, stored: Columns, fresh: Columns) -> Mask:
        """Rows whose stored codes differ from new ones by more than the rounding of another writer."""
        ...

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        """Raises KeyError, TypeError or ValueError if the metadata is invalid."""
        ...

    def prepare(self, queries: Vectors) -> Vectors:
        """Per query one row with the data to compare it with any partition; rows are independent."""
        ...

    def scorer(self, columns: Columns, centroid: Vectors) -> Scorer:
        """A partition, from its plain columns and its centroid."""
        ...

    @property
    def lists_searchable(self) -> bool:
        """Whether `search_lists` is the best way to run many queries."""
        ...

    def search_lists(
        self,
        probed: Sequence[Any],
        queries: Vectors,
        places: Positions,
        k: int,
        allowed: Mask | None,
        threads: int,
    ) -> tuple[Floats, Positions]:
        """As `scan`, for many queries at once: places[i] are the numbers of the scorers for query i, -1 for none.
        Results are unsorted."""
        ...


class PointQuantizer(Quantizer, Protocol):
    """A quantizer whose codes represent points, so that a graph can be built over them: all but RQ."""

    def points(self, columns: Columns) -> Floats:
        """Points whose l2, for dot 1 - the inner product, to a query's point is the distance of the index."""
        ...

    @property
    def grid(self) -> Grid | None:
        """What the items of points are multiples of, if they are."""
        ...

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        """The points of prepared queries, relative to one partition."""
        ...

    def node_vectors(self, columns: Columns) -> NodeVectors:
        """The nodes of a partition's graph, in the most compact form that faiss can compare."""
        ...


class QuantizerBase(Model):
    """Default implementations for quantizers."""

    index_version: ClassVar[int] = 1
    stores_vectors: ClassVar[bool] = False

    name: ClassVar[str]
    metric: Metric

    @property
    def by_l2(self) -> bool:
        return self.metric.by_l2

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        raise NotImplementedError

    def agrees_with(self, other: Quantizer) -> bool:
        return self.name == other.name and self.to_metadata() == other.to_metadata()

    def differs(self, stored: Columns, fresh: Columns) -> Mask:
        return np.asarray((item_differences(stored, fresh) > 0).mean(axis=1) > DIFFERING_SHARE)

    @property
    def lists_searchable(self) -> bool:
        return False

    def search_lists(
        self,
        probed: Sequence[Any],
        queries: Vectors,
        places: Positions,
        k: int,
        allowed: Mask | None,
        threads: int,
    ) -> tuple[Floats, Positions]:
        raise NotImplementedError


def residuals(vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Floats:
    """Each vector minus its centroid, subtracted in the column's type as in pylance."""
    return (vectors - centroids[partition_ids]).astype(np.float32, copy=False)


def item_differences(stored: Columns, fresh: Columns) -> Floats:
    """The differences between the codes of rows, item by item, over all list columns."""
    wide = [name for name, column in fresh.items() if column.ndim == 2]
    return np.concatenate([np.abs(stored[n].astype(np.float32) - fresh[n].astype(np.float32)) for n in wide], axis=1)


def take_columns(columns: Columns, positions: npt.NDArray[np.integer[Any]]) -> Columns:
    return {name: column[positions] for name, column in columns.items()}


def concat_columns(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
