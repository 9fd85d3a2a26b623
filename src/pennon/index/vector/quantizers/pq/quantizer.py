"""PQ: a vector is cut into m sub-vectors, and each is stored as the number of its nearest codeword.

For l2 and cosine the residual to the centroid is encoded, for dot the vector itself; the nearest codeword is the
nearest by l2 under every metric. The column `__pq_code` has one byte per sub-vector at 8 bits; at 4 bits byte j holds
sub-vector 2j in its low and 2j+1 in its high half. With `transposed`, as pylance writes it, the bytes of a partition of
n rows are stored column by column, `[bytes][n]`, and cut into n rows again.

`storage_metadata` is `{"codebook_position": global buffer, "nbits", "num_sub_vectors", "dimension",
"codebook_tensor": [], "transposed"}`, every key is required. The codebook's tensor has the shape `[2^nbits, D]`, but
its bytes are `[m][2^nbits][D / m]`. Older writers store it inside the metadata, as the bytes of `codebook_tensor`, and
omit `transposed` if codes are not; the seed has a tensor of shape `[2^nbits, m, D / m]` with its values in that order.
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
from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.files.tensor import to_tensor
from pennon.index.vector.hnsw.search import NodeVectors
from pennon.index.vector.ivf import Ivf, PartitionIds
from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.products import inner_products
from pennon.index.vector.quantizers.base import QUANTIZER_BUFFER, Columns, QuantizerBase, ScorerBase, residuals
from pennon.index.vector.quantizers.parameters import CodeDetails, CodeOptions, CodeShape, Sample
from pennon.index.vector.quantizers.pq.codebook import ByteBook, read_codebook, train_codebooks
from pennon.index.vector.quantizers.pq.inverted_lists import search_lists
from pennon.index.vector.quantizers.pq.shape import check_shape, code_shape
from pennon.index.vector.search.list_scanner import CodeList, MakeScanner, code_list, scan_nearest, table_scanner
from pennon.index.vector.vectors import Codes, Floats, Mask, Positions, Vectors, list_type, row_chunks

COLUMN = "__pq_code"


@dataclass(frozen=True, eq=False)
class ProductQuantizer(QuantizerBase):
    name: ClassVar[str] = "PQ"
    details_field: ClassVar[str] = "pq"
    scanned_queries: ClassVar[int] = 2

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
    def shape(cls, options: CodeOptions, dim: int, element: np.dtype[Any]) -> CodeShape:
        return code_shape(options, dim, element)

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
        """k-means in each sub-space, in at most `max_iters` full passes over the sample."""
        check_shape(ivf.dim, num_sub_vectors, num_bits)
        targets = cls.targets(sample, ivf)
        words = train_codebooks(targets, num_sub_vectors, num_bits, max_iters=max_iters, seed=seed)
        return cls(ivf.metric, np.stack(words).astype(ivf.element))

    @classmethod
    def from_sample(cls, sample: Sample, ivf: Ivf, shape: CodeShape, *, max_iters: int, seed: int) -> Self:
        if shape.codebook is not None:
            return cls(ivf.metric, shape.codebook)
        assert shape.num_sub_vectors is not None
        assert shape.num_bits is not None
        vectors = sample.vectors[: shape.sample_rows]
        sizes = {"num_sub_vectors": shape.num_sub_vectors, "num_bits": shape.num_bits}
        return cls.train(vectors, ivf, **sizes, max_iters=max_iters, seed=seed)

    def details(self) -> CodeDetails:
        return CodeDetails(self.num_bits, self.num_sub_vectors)

    @classmethod
    def write_details(cls, details: CodeDetails, message: pb.VectorIndexDetails) -> None:
        message.pq.num_bits, message.pq.num_sub_vectors = details.num_bits or 0, details.num_sub_vectors or 0

    @classmethod
    def read_details(cls, message: pb.VectorIndexDetails) -> CodeDetails:
        return CodeDetails(message.pq.num_bits, message.pq.num_sub_vectors)

    @staticmethod
    def targets(sample: Vectors, ivf: Ivf) -> Floats:
        """The encoded part of vectors, on which codebooks are trained."""
        return _targets(sample, ivf.metric, ivf.centroids, ivf.assign(sample)[0])

    def fields(self) -> list[pa.Field]:
        return [pa.field(COLUMN, list_type(pa.uint8(), self.code_bytes))]

    def encode(self, vectors: Vectors, centroids: Vectors, partition_ids: PartitionIds) -> Columns:
        codes, work = np.empty((len(vectors), self.code_bytes), dtype=np.uint8), len(vectors) * self.codebook.size
        for rows in row_chunks(len(vectors), self.dim):
            codes[rows] = self._codes(_targets(vectors[rows], self.metric, centroids, partition_ids[rows]), work)
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
        inside = bytes(metadata.get("codebook_tensor") or [])
        tensor = pb.Tensor.FromString(inside or read_buffer(int(metadata.get("codebook_position", QUANTIZER_BUFFER))))
        codebook = read_codebook(tensor, num_sub_vectors)
        if codebook.shape != (num_sub_vectors, 1 << num_bits, dim // num_sub_vectors) or codebook.dtype != ivf.element:
            raise ValueError(f"a codebook of shape {tuple(tensor.shape)} and type {codebook.dtype}")
        return cls(ivf.metric, codebook, bool(metadata.get("transposed", False)))

    def points(self, columns: Columns) -> Floats:
        return self.book.decode(columns[COLUMN])

    @property
    def grid(self) -> None:
        return None

    def node_vectors(self, columns: Columns) -> NodeVectors:
        return NodeVectors.of_codewords(columns[COLUMN], self.book.words, by_l2=self.by_l2)

    def prepare(self, queries: Vectors) -> Vectors:
        return queries

    def query_points(self, queries: Vectors, centroid: Vectors) -> Floats:
        points = queries - centroid if self.metric.by_l2 else queries
        return np.ascontiguousarray(points, dtype=np.float32)

    def scorer(self, columns: Columns, centroid: Vectors) -> PqScorer:
        return PqScorer(self, np.ascontiguousarray(columns[COLUMN]), centroid)

    def scan(
        self, query: Vectors, probed: Sequence[PqScorer], k: int, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        by_l2 = self.metric.by_l2
        points = query - np.stack([scorer.centroid for scorer in probed]) if by_l2 else query
        lists = [scorer.code_list for scorer in probed]
        values, keys = scan_nearest(self._scanner, points, lists, k, allowed, largest=not by_l2)
        return values if by_l2 else 1 - values, keys

    @property
    def lists_searchable(self) -> bool:
        """faiss subtracts centroids in float32, but the format does so in the column's type."""
        return not self.metric.by_l2 or self.codebook.dtype != np.float16

    def search_lists(
        self,
        probed: Sequence[Any],
        queries: Vectors,
        places: Positions,
        k: int,
        allowed: Mask | None,
        threads: int,
    ) -> tuple[Floats, Positions]:
        centroids = np.stack([scorer.centroid for scorer in probed]) if self.metric.by_l2 else None
        lists = [scorer.code_list for scorer in probed]
        values, keys = search_lists(self.book.words, centroids, lists, queries, places, k, allowed, threads)
        values = np.maximum(values, 0) if self.metric.by_l2 else 1 - values
        values[keys < 0] = np.inf
        return values, keys

    @cached_property
    def _scanner(self) -> MakeScanner:
        return table_scanner(self.book.words, by_l2=self.metric.by_l2)

    @cached_property
    def book(self) -> ByteBook:
        return ByteBook.of(self.codebook)

    def _codes(self, targets: Floats, work: int) -> Codes:
        codes = np.empty((len(targets), self.num_sub_vectors), dtype=np.uint8)
        for i, words in enumerate(self._words):
            codes[:, i] = words.nearest(targets, first_item=i * words.dim, work=work).ids
        return codes if self.num_bits == 8 else codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)

    @cached_property
    def _words(self) -> tuple[AllCentroids, ...]:
        """The codewords of each sub-space."""
        return tuple(AllCentroids.of(words, by_l2=True) for words in self.codebook.astype(np.float32))


@dataclass(frozen=True, eq=False)
class PqScorer(ScorerBase):
    """Few queries: faiss sums one table entry per byte. Many: the decoded rows, a chunk at a time, by products."""

    quantizer: ProductQuantizer
    codes: Codes
    centroid: Vectors

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.centroid.nbytes + 4 * len(self)

    @cached_property
    def code_list(self) -> CodeList:
        return code_list(self.codes)

    def distances(self, queries: Vectors) -> Floats:
        points = self.quantizer.query_points(queries, self.centroid)
        by_l2 = self.quantizer.metric.by_l2
        found = np.empty((len(points), len(self)), dtype=np.float32)
        scaled = points * np.float32(-2 if by_l2 else -1)
        for rows in row_chunks(len(self), self.quantizer.dim):
            decoded = self.quantizer.book.decode(self.codes[rows])
            inner_products(scaled, decoded, found[:, rows])
        if not by_l2:
            found += np.float32(1)
            return found
        found += self._lengths
        found += squared_lengths(points)[:, None]
        return np.maximum(found, 0, out=found)

    def take(self, positions: npt.NDArray[np.integer[Any]]) -> PqScorer:
        return PqScorer(self.quantizer, self.codes.take(positions, axis=0), self.centroid)

    def joined(self, others: Sequence[PqScorer]) -> PqScorer:
        return PqScorer(self.quantizer, np.concatenate([self.codes, *(each.codes for each in others)]), self.centroid)

    @cached_property
    def _lengths(self) -> Floats:
        """Squared lengths of the decoded rows."""
        lengths = np.empty(len(self), dtype=np.float32)
        for rows in row_chunks(len(self), self.quantizer.dim):
            lengths[rows] = squared_lengths(self.quantizer.book.decode(self.codes[rows]))
        return lengths


def _targets(vectors: Vectors, metric: Metric, centroids: Vectors, partition_ids: PartitionIds) -> Floats:
    if metric.by_l2:
        return np.ascontiguousarray(residuals(vectors, centroids, partition_ids))
    return np.ascontiguousarray(vectors, dtype=np.float32)
