"""FLAT: no quantization. The column `flat` holds the prepared vectors in the table's own type.

`storage_metadata` is `{"dim": D}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric, squared_l2, squared_lengths
from pennon.index.vector.model import Model
from pennon.index.vector.quantizer import FEW_QUERIES, Columns
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Floats, Positions, Vectors, list_type

COLUMN = "flat"


@dataclass(frozen=True)
class FlatQuantizer(Model):
    name: ClassVar[str] = "FLAT"

    metric: Metric
    dim: int
    element: np.dtype[Any]

    @classmethod
    def train(cls, sample: Vectors, ivf: Ivf) -> Self:
        return cls(ivf.metric, sample.shape[1], ivf.element)

    def fields(self) -> list[pa.Field]:
        return [pa.field(COLUMN, list_type(pa.from_numpy_dtype(self.element), self.dim), nullable=False)]

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns:
        return {COLUMN: vectors}

    def pack(self, columns: Columns) -> Columns:
        return columns

    def unpack(self, columns: Columns) -> Columns:
        return columns

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        return {"dim": self.dim}, []

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        return cls(ivf.metric, int(metadata["dim"]), ivf.element)

    def points(self, columns: Columns) -> Floats:
        return columns[COLUMN].astype(np.float32, copy=False)

    def prepare(self, queries: Vectors) -> Vectors:
        queries = queries.astype(np.result_type(self.element, np.float32), copy=False)
        return _of_length_one(queries) if self.metric is Metric.COSINE else queries

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        return queries.astype(np.float32, copy=False)

    def scorer(self, columns: Columns, centroid: Vectors) -> FlatScorer:
        vectors = columns[COLUMN]
        if self.metric is Metric.COSINE:
            # The column's type may have rounded the length away from 1.
            return FlatScorer(_of_length_one(vectors.astype(np.float32, copy=False)))
        if self.metric is Metric.DOT:
            return FlatScorer(vectors.astype(np.float32, copy=False))
        # Seen from the centroid, so that matrix products keep the digits in which the vectors of a partition differ.
        origin = centroid.astype(np.result_type(self.element, np.float32))
        rows = (vectors - origin).astype(np.float32, copy=False)
        return FlatScorer(rows, origin, squared_lengths(rows))


@dataclass(frozen=True, eq=False)
class FlatScorer:
    """Rows as float32. With lengths: l2 between rows and queries seen from the origin; else 1 - the inner product."""

    rows: Floats
    origin: Vectors | None = None
    lengths: Floats | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    def distances(self, queries: Vectors) -> Floats:
        if self.lengths is None:
            found = queries.astype(np.float32, copy=False) @ self.rows.T
            return np.subtract(1, found, out=found)
        points = self._seen_from_origin(queries)
        if len(points) <= FEW_QUERIES:
            return squared_l2(points, self.rows)
        found = (points * np.float32(-2)) @ self.rows.T
        found += self.lengths
        found += squared_lengths(points)[:, None]
        return np.maximum(found, 0, out=found)

    def nearest(self, queries: Vectors, k: int) -> tuple[Floats, Positions]:
        values, positions = smallest(self.distances(queries), k)
        if self.lengths is not None and len(queries) > FEW_QUERIES and len(self):
            values, positions = self._measured_again(queries, values, positions)
        return values, positions

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> FlatScorer:
        lengths = None if self.lengths is None else self.lengths[positions]
        return FlatScorer(self.rows[positions], self.origin, lengths)

    def _measured_again(self, queries: Vectors, values: Floats, positions: Positions) -> tuple[Floats, Positions]:
        """Products find the nearest; what is reported of them is measured by differences: 0 for an equal vector."""
        differences = self.rows[positions] - self._seen_from_origin(queries)[:, None]
        exact = np.einsum("qkd,qkd->qk", differences, differences)
        exact[positions < 0] = values[positions < 0]
        order = np.argsort(exact, axis=1, kind="stable")
        return np.take_along_axis(exact, order, axis=1), np.take_along_axis(positions, order, axis=1)

    def _seen_from_origin(self, queries: Vectors) -> Floats:
        shifted = queries if self.origin is None else queries - self.origin
        return shifted.astype(np.float32, copy=False)


def _of_length_one(vectors: Vectors) -> Vectors:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
