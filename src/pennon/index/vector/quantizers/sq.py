"""SQ: every item becomes one byte, its position between two bounds shared by the whole index.

code = trunc((x - low) * 255 / (high - low)) in float64, clamped to 0..255, of the vector itself, not its residual; all
codes are 0 when the bounds are equal. The column `__sq_code` has one byte per dimension. For l2 and cosine the query is
quantized too and integers are compared; for dot it is not.

`storage_metadata` is `{"dim", "num_bits": 8, "bounds": {"start": low, "end": high}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.hnsw.exact import Grid
from pennon.index.vector.hnsw.search import NodeVectors
from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric
from pennon.index.vector.products import inner_products
from pennon.index.vector.quantizers.base import Columns, QuantizerBase, ScorerBase, item_differences
from pennon.index.vector.quantizers.parameters import TRAINING_ROWS, CodeDetails, CodeOptions, CodeShape, Sample
from pennon.index.vector.search.list_scanner import (
    CodeList,
    MakeScanner,
    byte_scanner,
    code_list,
    number_codec,
    scan_nearest,
    scanned_width,
    widened,
)
from pennon.index.vector.vectors import Codes, Floats, Mask, Positions, Vectors, list_type, row_chunks

COLUMN = "__sq_code"
NUM_BITS = 8

# Codes of l2 queries are relative to the middle of a byte: sums of products stay integers that float32 holds exactly.
MIDDLE = np.float32(128)

# From this many on, items are encoded by a kernel.
COMPILED_ITEMS = 1 << 20


@dataclass(frozen=True)
class ScalarQuantizer(QuantizerBase):
    name: ClassVar[str] = "SQ"
    details_field: ClassVar[str] = "sq"
    scanned_queries: ClassVar[int] = 4

    metric: Metric
    dim: int
    low: float
    high: float

    @classmethod
    def shape(cls, options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
        if options.num_bits not in (None, NUM_BITS):
            raise InvalidArgument(f"SQ codes have {NUM_BITS} bits, not {options.num_bits}")
        return CodeShape(dim, num_bits=NUM_BITS, sample_rows=TRAINING_ROWS)

    @classmethod
    def train(cls, sample: Vectors, ivf: Ivf) -> Self:
        """Use the bounds of the sample. Tasks that each read a part of the table must share them: use the widest."""
        if not sample.size:
            return cls(ivf.metric, ivf.dim, 0.0, 0.0)
        return cls(ivf.metric, ivf.dim, float(sample.min()), float(sample.max()))

    @classmethod
    def from_sample(cls, sample: Sample, ivf: Ivf, shape: CodeShape, *, max_iters: int, seed: int) -> Self:
        return cls(ivf.metric, ivf.dim, sample.low, sample.high)

    def details(self) -> CodeDetails:
        return CodeDetails(NUM_BITS)

    @classmethod
    def write_details(cls, details: CodeDetails, message: pb.VectorIndexDetails) -> None:
        message.sq.num_bits = details.num_bits or 0

    @classmethod
    def read_details(cls, message: pb.VectorIndexDetails) -> CodeDetails:
        return CodeDetails(message.sq.num_bits)

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

    def differs(self, stored: Columns, fresh: Columns) -> Mask:
        """Rounding changes an item by at most one step, so every item is compared."""
        return np.asarray((item_differences(stored, fresh) > 1).any(axis=1))

    def points(self, columns: Columns) -> Floats:
        points = columns[COLUMN].astype(np.float32)
        points *= np.float32(self.step)
        points += np.float32(self.low)
        return points

    @property
    def grid(self) -> Grid:
        return Grid(self.low, self.step)

    def node_vectors(self, columns: Columns) -> NodeVectors:
        return NodeVectors.of_bytes(columns[COLUMN], low=self.low, step=self.step, by_l2=self.by_l2)

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
        lengths = np.empty(len(codes), dtype=np.float32) if self.metric.by_l2 else None
        if lengths is not None:
            for rows in row_chunks(*codes.shape):
                centred = codes[rows].astype(np.float32) - MIDDLE
                np.einsum("ij,ij->i", centred, centred, out=lengths[rows])
        return SqScorer(self, widened(codes, scanned_width(self.dim)), lengths)

    def scan(
        self, query: Floats, probed: Sequence[SqScorer], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        by_l2 = self.metric.by_l2
        points = widened(query + MIDDLE if by_l2 else query, scanned_width(self.dim))
        lists = [scorer.code_list for scorer in probed]
        values, keys = scan_nearest(self._scanner, points, lists, k, allowed, largest=not by_l2)
        values = values * np.float32(self.step**2) if by_l2 else self.from_products(query, values[None])[0]
        values[keys < 0] = np.inf
        return values, keys

    def from_products(self, queries: Floats, products: Floats) -> Floats:
        """dot: 1 - q·(low + step * code)."""
        products *= np.float32(-self.step)
        products += 1 - np.float32(self.low) * queries.sum(axis=1)[:, None]
        return products

    @cached_property
    def _scanner(self) -> MakeScanner:
        width = scanned_width(self.dim)
        if not self.metric.by_l2:
            return byte_scanner(number_codec(width), faiss.METRIC_INNER_PRODUCT)
        # Queries are encoded too, and faiss compares bytes with bytes.
        return byte_scanner(faiss.ScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit_direct), faiss.METRIC_L2)

    def _codes(self, vectors: Vectors) -> Codes:
        codes = np.zeros(vectors.shape, dtype=np.uint8)
        if self.low == self.high:
            return codes
        if vectors.size >= COMPILED_ITEMS:
            # Kernels are compiled when they are imported, and few queries need none.
            from pennon.index.vector.quantizers.sq_kernels import encode  # noqa: PLC0415

            # float16 is no type of kernels.
            wide = vectors.astype(np.result_type(vectors, np.float32), order="C", copy=False)
            encode(wide, self.low, self.high - self.low, codes)
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
class SqScorer(ScorerBase):
    """Few queries: faiss reads the bytes. Many: bytes are converted to floats, a chunk at a time, for matrix
    products."""

    quantizer: ScalarQuantizer
    codes: Codes  # padded with zeros to the width that faiss reads fast
    lengths: Floats | None = None  # squared lengths of the codes relative to the middle; l2 and cosine

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    @cached_property
    def code_list(self) -> CodeList:
        return code_list(self.codes)

    def distances(self, queries: Floats) -> Floats:
        found = np.empty((len(queries), len(self)), dtype=np.float32)
        dim, points = self.quantizer.dim, queries if self.lengths is None else queries * np.float32(-2)
        for rows in row_chunks(len(self), dim):
            inner_products(points, self.codes[rows, :dim].astype(np.float32), found[:, rows])
        if self.lengths is None:
            return self.quantizer.from_products(queries, found)
        # (q - x)^2 = q^2 + x^2 - 2 q (code - middle), all relative to the middle.
        found += self.lengths
        found += (np.einsum("ij,ij->i", queries, queries) + 2 * MIDDLE * queries.sum(axis=1))[:, None]
        found *= np.float32(self.quantizer.step**2)
        return found

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> SqScorer:
        lengths = None if self.lengths is None else self.lengths[positions]
        return SqScorer(self.quantizer, self.codes.take(positions, axis=0), lengths)

    def joined(self, others: Sequence[SqScorer]) -> SqScorer:
        parts = [self, *others]
        lengths = None if self.lengths is None else np.concatenate([p.lengths for p in parts if p.lengths is not None])
        return SqScorer(self.quantizer, np.concatenate([part.codes for part in parts]), lengths)
