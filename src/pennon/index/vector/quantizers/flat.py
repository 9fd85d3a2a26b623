"""FLAT: no quantization. The column `flat` holds the prepared vectors in the table's type; those of
bits are compared by `HammingScorer`.

`storage_metadata` is `{"dim": D}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.bits import in_words
from pennon.index.vector.hnsw.exact import Grid
from pennon.index.vector.hnsw.search import NodeVectors
from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric, squared_l2, squared_lengths
from pennon.index.vector.products import inner_products
from pennon.index.vector.quantizers.base import FEW_QUERIES, Columns, QuantizerBase, ScorerBase, item_differences
from pennon.index.vector.quantizers.hamming import HammingScorer, scan_bits
from pennon.index.vector.quantizers.parameters import CodeDetails, CodeOptions, CodeShape, Sample
from pennon.index.vector.search.list_scanner import (
    CodeList,
    MakeScanner,
    code_list,
    float_scanner,
    keys_of,
    scan_nearest,
)
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors, list_type, row_chunks

COLUMN = "flat"

# From this many partitions on, up to this many answers, all are scanned in one call of a kernel: a call of faiss for
# each of them takes as long as to compare a hundred rows.
MANY_LISTS, FEW_PLACES = 32, 1024


@dataclass(frozen=True)
class FlatQuantizer(QuantizerBase):
    name: ClassVar[str] = "FLAT"
    details_field: ClassVar[str] = "flat"
    stores_vectors: ClassVar[bool] = True
    scanned_queries: ClassVar[int] = 1

    metric: Metric
    dim: int
    element: np.dtype[Any]

    @property
    def by_l2(self) -> bool:
        """Cosine is measured by 1 - the inner product."""
        return self.metric in (Metric.L2, Metric.HAMMING)

    @classmethod
    def shape(cls, options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
        return CodeShape(dim * element.itemsize)

    @classmethod
    def train(cls, sample: Vectors, ivf: Ivf) -> Self:
        return cls(ivf.metric, sample.shape[1], ivf.element)

    @classmethod
    def from_sample(cls, sample: Sample, ivf: Ivf, shape: CodeShape, *, max_iters: int, seed: int) -> Self:
        return cls.train(sample.vectors, ivf)

    def details(self) -> CodeDetails:
        return CodeDetails()

    @classmethod
    def write_details(cls, details: CodeDetails, message: pb.VectorIndexDetails) -> None:
        message.flat.SetInParent()

    @classmethod
    def read_details(cls, message: pb.VectorIndexDetails) -> CodeDetails:
        return CodeDetails()

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

    def differs(self, stored: Columns, fresh: Columns) -> Mask:
        """Vectors are not rounded, so every item must be equal; NaN differs too."""
        return np.asarray(~(item_differences(stored, fresh) == 0).all(axis=1))

    def points(self, columns: Columns) -> Floats:
        return self.metric.points(columns[COLUMN]).astype(np.float32, copy=False)

    @property
    def grid(self) -> Grid | None:
        return Grid(0.0, 1.0) if self.metric is Metric.HAMMING else None

    def node_vectors(self, columns: Columns) -> NodeVectors:
        if self.metric is Metric.HAMMING:
            return NodeVectors.of_bits(columns[COLUMN])
        points = self.points(columns)
        if self.metric is Metric.COSINE:
            # The column's type may have rounded the length away from 1.
            points = _of_length_one(points)
        return NodeVectors.of_points(points, by_l2=self.by_l2)

    def prepare(self, queries: Vectors) -> Vectors:
        if self.metric is Metric.HAMMING:
            return in_words(queries)
        queries = queries.astype(np.result_type(self.element, np.float32), copy=False)
        return _of_length_one(queries) if self.metric is Metric.COSINE else queries

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        return self.metric.points(queries[:, : self.dim]).astype(np.float32, copy=False)

    def scorer(self, columns: Columns, centroid: Vectors) -> FlatScorer | HammingScorer:
        vectors = columns[COLUMN]
        if self.metric is Metric.HAMMING:
            return HammingScorer(self, in_words(vectors))
        if self.metric is Metric.COSINE:
            # The column's type may have rounded the length away from 1.
            return FlatScorer(self, _of_length_one(vectors.astype(np.float32, copy=False)))
        if self.metric is Metric.DOT:
            return FlatScorer(self, np.ascontiguousarray(vectors, dtype=np.float32))
        # Relative to the centroid, so that matrix products keep the digits in which the vectors of a partition differ.
        origin = centroid.astype(np.result_type(self.element, np.float32))
        rows = (vectors - origin).astype(np.float32, copy=False)
        return FlatScorer(self, rows, origin, squared_lengths(rows))

    def scan(
        self, query: Vectors, probed: Sequence[Any], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        if self.metric is Metric.HAMMING:
            return scan_bits(query, probed, k, allowed)
        by_l2 = self.by_l2
        origins = [scorer.origin for scorer in probed if scorer.origin is not None]
        points = query - np.stack(origins) if by_l2 else query
        if len(probed) >= MANY_LISTS and k <= FEW_PLACES:
            return _scan_many(points, probed, k, allowed, by_l2=by_l2)
        lists = [scorer.code_list for scorer in probed]
        values, keys = scan_nearest(self._scanner, points, lists, k, allowed, largest=not by_l2)
        return values if by_l2 else 1 - values, keys

    @cached_property
    def _scanner(self) -> MakeScanner:
        return float_scanner(self.dim, by_l2=self.by_l2)


@dataclass(frozen=True, eq=False)
class FlatScorer(ScorerBase):
    """Rows as float32. With lengths: l2 between rows and queries relative to the origin; else 1 - the inner product."""

    quantizer: FlatQuantizer
    rows: Floats
    origin: Vectors | None = None
    lengths: Floats | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    @property
    def radius(self) -> float:
        return float("inf") if self.lengths is None else float(np.sqrt(self.lengths.max(initial=0)))

    @cached_property
    def code_list(self) -> CodeList:
        return code_list(self.rows)

    @cached_property
    def address(self) -> int:
        """Where the rows are, which are contiguous."""
        return self.rows.ctypes.data

    def points(self, queries: Vectors) -> Floats:
        """Queries relative to the origin."""
        shifted = queries if self.origin is None else queries - self.origin
        return shifted.astype(np.float32, copy=False)

    def distances(self, queries: Vectors) -> Floats:
        points = self.points(queries)
        if self.lengths is not None and len(points) <= FEW_QUERIES:
            return squared_l2(points, self.rows)
        found = np.empty((len(points), len(self)), dtype=np.float32)
        inner_products(points * np.float32(-1 if self.lengths is None else -2), self.rows, found)
        if self.lengths is None:
            found += np.float32(1)
            return found
        found += self.lengths
        found += squared_lengths(points)[:, None]
        return np.maximum(found, 0, out=found)

    def nearest(self, queries: Vectors, k: int) -> tuple[Floats, Positions]:
        values, positions = super().nearest(queries, k)
        if len(queries) <= FEW_QUERIES or self.lengths is None:
            return values, positions
        row, column = np.nonzero(positions >= 0)
        values[row, column] = self.measure(queries, row, positions[row, column])
        order = np.argsort(values, axis=1, kind="stable")
        return np.take_along_axis(values, order, axis=1), np.take_along_axis(positions, order, axis=1)

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> FlatScorer:
        lengths = None if self.lengths is None else self.lengths[positions]
        return FlatScorer(self.quantizer, self.rows.take(positions, axis=0), self.origin, lengths)

    def joined(self, others: Sequence[FlatScorer]) -> FlatScorer:
        parts = [self, *others]
        lengths = None if self.lengths is None else np.concatenate([p.lengths for p in parts if p.lengths is not None])
        return FlatScorer(self.quantizer, np.concatenate([part.rows for part in parts]), self.origin, lengths)

    def measure(self, queries: Vectors, which: Positions, positions: Positions) -> Floats | None:
        """Products find the nearest rows; their reported distances are computed by differences: 0 for an equal
        vector."""
        if self.lengths is None:
            return None
        points, found = self.points(queries), np.empty(len(which), dtype=np.float32)
        for pairs in row_chunks(len(which), self.rows.shape[1]):
            differences = self.rows.take(positions[pairs], axis=0)
            differences -= points.take(which[pairs], axis=0)
            np.einsum("id,id->i", differences, differences, out=found[pairs])
        return found


def _scan_many(
    points: Vectors, probed: Sequence[FlatScorer], k: int, allowed: Mask | None, *, by_l2: bool
) -> tuple[Floats, Positions]:
    """As `Scans.scan`."""
    # Kernels are compiled when they are imported.
    from pennon.index.vector.quantizers.flat_kernels import scan_vectors  # noqa: PLC0415

    counts = np.array([len(scorer.rows) for scorer in probed], dtype=np.int64)
    lists = np.array([scorer.address for scorer in probed], dtype=np.int64)
    values, rows = np.full(k, np.inf, dtype=np.float32), np.full(k, -1, dtype=np.int64)
    flags = np.empty(0, dtype=np.bool_) if allowed is None else allowed
    scan_vectors(np.ascontiguousarray(points, dtype=np.float32), lists, counts, flags, by_l2, values, rows)
    order = np.lexsort((rows, values))
    return (values if by_l2 else 1 + values)[order], keys_of(rows[order], counts)


def in_pieces(
    metric: Metric, vectors: Vectors, rows: int
) -> tuple[FlatQuantizer, dict[int, FlatScorer | HammingScorer]]:
    """Vectors outside an index, cut into pieces of `rows` rows, which are searched like partitions."""
    quantizer = FlatQuantizer(metric, vectors.shape[1], vectors.dtype)
    middle = vectors.mean(axis=0, dtype=np.float64).astype(vectors.dtype)
    starts = range(0, len(vectors), rows)
    return quantizer, {n: quantizer.scorer({COLUMN: vectors[s : s + rows]}, middle) for n, s in enumerate(starts)}


def _of_length_one(vectors: Vectors) -> Vectors:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
