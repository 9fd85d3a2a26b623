"""PQ: a vector is cut into m sub-vectors, and of each the number of the nearest codeword is kept.

What is encoded is the residual to the centroid for l2 and cosine, the vector itself for dot; the nearest codeword is
the nearest by l2 under every metric. The column `__pq_code` has one byte per sub-vector at 8 bits; at 4 bits byte j
holds sub-vector 2j in its low and 2j+1 in its high half. With `transposed`, as stock writes it, the bytes of a
partition of n rows lie column by column, `[bytes][n]`, cut into n rows again.

`storage_metadata` is `{"codebook_position": global buffer, "nbits", "num_sub_vectors", "dimension",
"codebook_tensor": [], "transposed"}`, every key needed. The codebook's tensor says shape `[2^nbits, D]`, but its bytes
are `[m][2^nbits][D / m]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import InvalidArgument
from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.model import Model
from pennon.index.vector.quantizer import FEW_QUERIES, QUANTIZER_BUFFER, Columns, residuals
from pennon.index.vector.tensor import read_tensor, to_tensor
from pennon.index.vector.topk import heap_over, smallest
from pennon.index.vector.vectors import Codes, Floats, Positions, Vectors, list_type, row_chunks

COLUMN = "__pq_code"

# Rows compared with all codewords of a sub-space at once: the scores stay in the processor's caches.
ENCODED_ROWS = 256


@dataclass(frozen=True, eq=False)
class ProductQuantizer(Model):
    name: ClassVar[str] = "PQ"

    metric: Metric
    codebook: Vectors  # [m, 2^bits, dim / m], in the column's type
    transposed: bool = True

    @property
    def num_sub_vectors(self) -> int:
        return self.codebook.shape[0]

    @property
    def num_bits(self) -> int:
        return self.codebook.shape[1].bit_length() - 1

    @property
    def dim(self) -> int:
        return self.codebook.shape[0] * self.codebook.shape[2]

    @property
    def code_bytes(self) -> int:
        return self.num_sub_vectors * self.num_bits // 8

    @classmethod
    def train(
        cls,
        sample: Vectors,
        ivf: Ivf,
        *,
        num_sub_vectors: int,
        num_bits: int = 8,
        max_iters: int = 50,
        seed: int = 0,
    ) -> Self:
        """k-means in each sub-space, over the whole sample."""
        check_shape(ivf.dim, num_sub_vectors, num_bits)
        targets = _targets(sample, ivf.metric, ivf.centroids, ivf.assign(sample)[0])
        # A sample smaller than the codebook is repeated: each of its vectors then has a codeword of its own.
        targets = np.resize(targets, (max(len(targets), 1 << num_bits), ivf.dim))
        trained = faiss.ProductQuantizer(ivf.dim, num_sub_vectors, num_bits)
        trained.cp.niter, trained.cp.seed = max_iters, seed
        trained.cp.min_points_per_centroid = 1
        trained.cp.max_points_per_centroid = len(targets)
        trained.train(targets)
        codebook = faiss.vector_to_array(trained.centroids).reshape(num_sub_vectors, 1 << num_bits, -1)
        return cls(ivf.metric, codebook.astype(ivf.element))

    def fields(self) -> list[pa.Field]:
        return [pa.field(COLUMN, list_type(pa.uint8(), self.code_bytes))]

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns:
        codes = np.empty((len(vectors), self.code_bytes), dtype=np.uint8)
        for rows in row_chunks(len(vectors), self.dim):
            codes[rows] = self._codes(_targets(vectors[rows], self.metric, centroids, partition_ids[rows]))
        return {COLUMN: codes}

    def pack(self, columns: Columns) -> Columns:
        codes = columns[COLUMN]
        return {COLUMN: codes.T.copy().reshape(codes.shape)} if self.transposed else columns

    def unpack(self, columns: Columns) -> Columns:
        codes = columns[COLUMN]
        return {COLUMN: codes.reshape(codes.shape[::-1]).T.copy()} if self.transposed else columns

    def to_metadata(self) -> tuple[dict[str, Any], list[bytes]]:
        metadata = {
            "codebook_position": QUANTIZER_BUFFER,
            "nbits": self.num_bits,
            "num_sub_vectors": self.num_sub_vectors,
            "dimension": self.dim,
            "codebook_tensor": [],
            "transposed": self.transposed,
        }
        return metadata, [to_tensor(self.codebook.reshape(1 << self.num_bits, self.dim)).SerializeToString()]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], ivf: Ivf, read_buffer: Callable[[int], bytes]) -> Self:
        num_sub_vectors, num_bits, dim = (int(metadata[key]) for key in ("num_sub_vectors", "nbits", "dimension"))
        check_shape(dim, num_sub_vectors, num_bits)
        codebook = read_tensor(read_buffer(int(metadata["codebook_position"])))
        if codebook.shape != (1 << num_bits, dim) or codebook.dtype != ivf.element:
            raise ValueError(f"a codebook of shape {codebook.shape} and type {codebook.dtype}")
        return cls(ivf.metric, codebook.reshape(num_sub_vectors, 1 << num_bits, -1), bool(metadata["transposed"]))

    def points(self, columns: Columns) -> Floats:
        return self.book.decode(columns[COLUMN])

    def prepare(self, queries: Vectors) -> Vectors:
        return queries

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        points = queries - centroid if self.metric.by_l2 else queries
        return np.ascontiguousarray(points, dtype=np.float32)

    def scorer(self, columns: Columns, centroid: Vectors) -> PqScorer:
        return PqScorer(self, columns[COLUMN], centroid)

    @cached_property
    def book(self) -> ByteBook:
        return ByteBook.of(self.codebook)

    def _codes(self, targets: Floats) -> Codes:
        words, lengths = self._words
        width, size = self.codebook.shape[2], self.codebook.shape[1]
        codes = np.empty((len(targets), self.num_sub_vectors), dtype=np.uint8)
        scores = np.empty((ENCODED_ROWS, size), dtype=np.float32)
        for start in range(0, len(targets), ENCODED_ROWS):
            rows = targets[start : start + ENCODED_ROWS]
            found = scores[: len(rows)]
            for i in range(self.num_sub_vectors):
                # |x - w|² without |x|², which is the same for all codewords.
                np.matmul(rows[:, i * width : (i + 1) * width], words[i], out=found)
                found += lengths[i]
                codes[start : start + len(rows), i] = found.argmin(axis=1)
        return codes if self.num_bits == 8 else codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)

    @cached_property
    def _words(self) -> tuple[Floats, Floats]:
        """Codewords as columns, times -2, and their squared lengths."""
        words = self.codebook.astype(np.float32)
        return np.ascontiguousarray(words.transpose(0, 2, 1) * np.float32(-2)), np.einsum("mkd,mkd->mk", words, words)


@dataclass(frozen=True, eq=False)
class ByteBook:
    """The codebook by byte: [bytes, 256, dim / bytes]. A byte of two 4-bit codes names a pair of codewords, which is
    one of 256 codewords of twice the width, so that from here on 4 bits are 8 bits with half the sub-vectors."""

    words: Floats

    @classmethod
    def of(cls, codebook: Vectors) -> Self:
        words = codebook.astype(np.float32)
        if words.shape[1] == 16:
            low, high = words[0::2, np.arange(256) & 15], words[1::2, np.arange(256) >> 4]
            words = np.concatenate([low, high], axis=2)
        return cls(np.ascontiguousarray(words))

    def decode(self, codes: Codes) -> Floats:
        count, _, width = self.words.shape
        flat = np.add(codes, np.arange(count) * 256, dtype=np.intp)
        return self.words.reshape(-1, width).take(flat.reshape(-1), axis=0).reshape(len(codes), count * width)

    @cached_property
    def faiss(self) -> Any:
        count, size, width = self.words.shape
        quantizer = faiss.ProductQuantizer(count * width, count, size.bit_length() - 1)
        faiss.copy_array_to_vector(self.words.reshape(-1), quantizer.centroids)
        return quantizer


@dataclass(frozen=True, eq=False)
class PqScorer:
    """Few queries: faiss sums one table entry per byte. Many: the decoded rows, a chunk at a time, by products."""

    quantizer: ProductQuantizer
    codes: Codes
    centroid: Vectors

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.centroid.nbytes

    def distances(self, queries: Vectors) -> Floats:
        points = self.quantizer.query_points(queries, self.centroid)
        by_l2 = self.quantizer.metric.by_l2
        found = np.empty((len(points), len(self)), dtype=np.float32)
        scaled = points * np.float32(-2 if by_l2 else -1)
        for rows in row_chunks(len(self), self.quantizer.dim):
            decoded = self.quantizer.book.decode(self.codes[rows])
            np.matmul(scaled, decoded.T, out=found[:, rows])
            found[:, rows] += squared_lengths(decoded) if by_l2 else np.float32(1)
        if by_l2:
            found += squared_lengths(points)[:, None]
            np.maximum(found, 0, out=found)
        return found

    def nearest(self, queries: Vectors, k: int) -> tuple[Floats, Positions]:
        if len(queries) > FEW_QUERIES or k >= len(self):
            return smallest(self.distances(queries), k)
        points = self.quantizer.query_points(queries, self.centroid)
        values, positions = np.empty((len(points), k), dtype=np.float32), np.empty((len(points), k), dtype=np.int64)
        by_l2 = self.quantizer.metric.by_l2
        heap = heap_over(values, positions, largest=not by_l2)
        search = self.quantizer.book.faiss.search if by_l2 else self.quantizer.book.faiss.search_ip
        search(faiss.swig_ptr(points), len(points), faiss.swig_ptr(self.codes), len(self), heap, True)
        return values if by_l2 else 1 - values, positions

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> PqScorer:
        return PqScorer(self.quantizer, self.codes[positions], self.centroid)


def check_shape(dim: int, num_sub_vectors: int, num_bits: int) -> None:
    """InvalidArgument, a ValueError, when no such quantizer can be."""
    if num_bits not in (4, 8):
        raise InvalidArgument(f"PQ codes have 4 or 8 bits, not {num_bits}")
    if num_sub_vectors < 1 or dim % num_sub_vectors:
        raise InvalidArgument(
            f"vectors of {dim} dimensions cannot be cut into {num_sub_vectors} equal sub-vectors",
            "Choose num_sub_vectors so that it divides the dimension",
        )
    if num_bits == 4 and num_sub_vectors % 2:
        raise InvalidArgument(f"4-bit PQ needs an even number of sub-vectors, not {num_sub_vectors}")


def _targets(vectors: Vectors, metric: Metric, centroids: Vectors, partition_ids: PartitionIds) -> Floats:
    if metric.by_l2:
        return np.ascontiguousarray(residuals(vectors, centroids, partition_ids))
    return np.ascontiguousarray(vectors, dtype=np.float32)
