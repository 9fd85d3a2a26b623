"""SQ: every item becomes one byte, its place between two bounds shared by the whole index.

code = trunc((x - low) * 255 / (high - low)) in float64, clamped to 0..255, of the vector itself, not its residual; all
codes are 0 when the bounds are equal. The column `__sq_code` has one byte per dimension. For l2 and cosine the query is
quantized too and integers are compared; for dot it is not.

`storage_metadata` is `{"dim", "num_bits": 8, "bounds": {"start": low, "end": high}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric
from pennon.index.vector.model import Model
from pennon.index.vector.quantizer import FEW_QUERIES, Columns
from pennon.index.vector.topk import smallest
from pennon.index.vector.vectors import Codes, Floats, Positions, Vectors, list_type, row_chunks

COLUMN = "__sq_code"
NUM_BITS = 8

# Codes of l2 queries are seen from the middle of a byte: sums of products stay integers that float32 holds exactly.
MIDDLE = np.float32(128)

# faiss reads codes with vector instructions only when their width is a multiple of this.
SCANNED_WIDTH = 16


@dataclass(frozen=True)
class ScalarQuantizer(Model):
    name: ClassVar[str] = "SQ"

    metric: Metric
    dim: int
    low: float
    high: float

    @classmethod
    def train(cls, sample: Vectors, ivf: Ivf) -> Self:
        """Bounds of the sample. Tasks that each see a part of the table must share them: take the widest."""
        if not sample.size:
            return cls(ivf.metric, ivf.dim, 0.0, 0.0)
        return cls(ivf.metric, ivf.dim, float(sample.min()), float(sample.max()))

    @property
    def step(self) -> float:
        return (self.high - self.low) / 255

    def fields(self) -> list[pa.Field]:
        return [pa.field(COLUMN, list_type(pa.uint8(), self.dim))]

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns:
        return {COLUMN: self._codes(vectors)}

    def pack(self, columns: Columns) -> Columns:
        return columns

    def unpack(self, columns: Columns) -> Columns:
        return columns

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        return {"dim": self.dim, "num_bits": NUM_BITS, "bounds": {"start": self.low, "end": self.high}}, []

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        low, high = float(metadata["bounds"]["start"]), float(metadata["bounds"]["end"])
        if int(metadata["num_bits"]) != NUM_BITS or not (low <= high and np.isfinite(high - low)):
            raise ValueError(f"codes of {metadata['num_bits']} bits between {low} and {high}")
        return cls(ivf.metric, int(metadata["dim"]), low, high)

    def points(self, columns: Columns) -> Floats:
        points = columns[COLUMN].astype(np.float32)
        points *= np.float32(self.step)
        points += np.float32(self.low)
        return points

    def prepare(self, queries: Vectors) -> Floats:
        if not self.metric.by_l2:
            return np.ascontiguousarray(queries, dtype=np.float32)
        return self._codes(queries).astype(np.float32) - MIDDLE

    def query_points(self, queries: Floats, centroid: Vectors) -> Floats:
        if not self.metric.by_l2:
            return queries
        return (queries + MIDDLE) * np.float32(self.step) + np.float32(self.low)

    def scorer(self, columns: Columns, centroid: Vectors) -> SqScorer:
        codes = columns[COLUMN]
        if not self.metric.by_l2:
            return SqScorer(self, codes)
        lengths = np.empty(len(codes), dtype=np.float32)
        for rows in row_chunks(*codes.shape):
            centred = codes[rows].astype(np.float32) - MIDDLE
            np.einsum("ij,ij->i", centred, centred, out=lengths[rows])
        return SqScorer(self, codes, lengths)

    def _codes(self, vectors: Vectors) -> Codes:
        codes = np.zeros(vectors.shape, dtype=np.uint8)
        if self.low == self.high:
            return codes
        for rows in row_chunks(*vectors.shape):
            scaled = vectors[rows].astype(np.float64)
            scaled -= self.low
            scaled *= 255
            scaled /= self.high - self.low
            np.clip(scaled, 0, 255, out=scaled)
            codes[rows] = scaled.astype(np.uint8)
        return codes


@dataclass(frozen=True, eq=False)
class SqScorer:
    """Few queries: faiss reads the bytes. Many: bytes become floats, a chunk at a time, for matrix products."""

    quantizer: ScalarQuantizer
    codes: Codes
    lengths: Floats | None = None  # squared lengths of the codes seen from the middle; l2 and cosine

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    def distances(self, queries: Floats) -> Floats:
        found = np.empty((len(queries), len(self)), dtype=np.float32)
        for rows in row_chunks(*self.codes.shape):
            np.matmul(queries, self.codes[rows].astype(np.float32).T, out=found[:, rows])
        if self.lengths is None:
            return self._from_products(queries, found)
        # (q - x)^2 = q^2 + x^2 - 2 q (code - middle), all seen from the middle.
        found -= MIDDLE * queries.sum(axis=1)[:, None]
        found *= -2
        found += self.lengths
        found += np.einsum("ij,ij->i", queries, queries)[:, None]
        found *= np.float32(self.quantizer.step**2)
        return found

    def nearest(self, queries: Floats, k: int) -> tuple[Floats, Positions]:
        if len(queries) > FEW_QUERIES or k >= len(self) or self.codes.shape[1] % SCANNED_WIDTH:
            return smallest(self.distances(queries), k)
        values, positions = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        for i, query in enumerate(queries):
            values[i], positions[i] = self._scan(query, k)
        if self.lengths is None:
            return self._from_products(queries, values), positions
        values *= np.float32(self.quantizer.step**2)
        return values, positions

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> SqScorer:
        lengths = None if self.lengths is None else self.lengths[positions]
        return SqScorer(self.quantizer, self.codes[positions], lengths)

    def _from_products(self, queries: Floats, products: Floats) -> Floats:
        """dot: 1 - q·(low + step * code)."""
        products *= np.float32(-self.quantizer.step)
        products += 1 - np.float32(self.quantizer.low) * queries.sum(axis=1)[:, None]
        return products

    def _scan(self, query: Floats, k: int) -> tuple[Floats, Positions]:
        """The k best by faiss: smallest squared l2 between codes, or largest inner products with them."""
        if self.lengths is not None:
            query, worst = query + MIDDLE, np.inf
            scanner = _scanner(faiss.METRIC_L2, self.codes.shape[1])
        else:
            query, worst = np.ascontiguousarray(query), -np.inf
            scanner = _scanner(faiss.METRIC_INNER_PRODUCT, self.codes.shape[1])
        ids, codes = np.arange(len(self)), np.ascontiguousarray(self.codes)
        best, found = np.full(k, worst, dtype=np.float32), np.full(k, -1, dtype=np.int64)
        scanner.set_query(faiss.swig_ptr(query))
        scanner.set_list(0, 0.0)
        scanner.scan_codes(len(codes), *(faiss.swig_ptr(array) for array in (codes, ids, best, found)), k)
        order = np.argsort(best if worst > 0 else -best, kind="stable")
        return best[order], found[order]


def _scanner(measure: int, dim: int) -> Any:
    """A reader of codes as the numbers they are. For l2, where queries are codes too, faiss compares bytes; for inner
    products its uniform codec, low + (code + 1/2) / 255 * width, is made to give the code itself."""
    codec: Any
    if measure == faiss.METRIC_L2:
        codec = faiss.ScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit_direct)
    else:
        codec = faiss.ScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit_uniform)
        faiss.copy_array_to_vector(np.array([-0.5, 255], dtype=np.float32), codec.trained)
    return codec.select_InvertedListScanner(measure, None, False, None, False)
