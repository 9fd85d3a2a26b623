"""Search the HNSW graph of one partition, as pylance does: a greedy descent from the entry point through the upper
levels, then on level 0 a search that keeps the ef nearest nodes seen. faiss walks the graph, over vectors or codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import faiss
import numpy as np
import numpy.typing as npt

from pennon.errors import DamagedFile, InvalidArgument
from pennon.index.vector.hnsw.graph import HnswGraph
from pennon.index.vector.vectors import Codes, Floats, Mask, Positions

# faiss's type stubs leave out most of its HNSW.
_faiss: Any = faiss

# faiss compares bytes with floats 16 at a time, and one at a time if the width is not a multiple of 16.
BYTES_AT_ONCE = 16


# The least breadth of a walk by default: 15 nodes in sight find 95 of 100 neighbors in a graph of 12,000 nodes, 50 find
# 99, in about the same time.
LEAST_EF = 50


def default_ef(k: int) -> int:
    """pylance's default is 1.5 k; k counts the candidates of a refined search."""
    return max(k + k // 2, LEAST_EF)


@dataclass(frozen=True, eq=False)
class NodeVectors:
    """The nodes of a partition in a form that faiss can compare with query points (`Quantizer.query_points`)."""

    storage: Any
    by_l2: bool
    padding: float = 0.0  # pads query points to the width of the storage

    @classmethod
    def of_points(cls, points: Floats, *, by_l2: bool) -> Self:
        storage = faiss.IndexFlat(points.shape[1], _metric(by_l2))
        storage.add(np.ascontiguousarray(points))
        return cls(storage, by_l2)

    @classmethod
    def of_bytes(cls, codes: Codes, *, low: float, step: float, by_l2: bool) -> Self:
        """Points low + step * code, kept as bytes: a quarter of the memory."""
        dim = codes.shape[1]
        width = -(-dim // BYTES_AT_ONCE) * BYTES_AT_ONCE
        storage: Any = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit_uniform, _metric(by_l2))
        # faiss decodes a + b * (code + 1/2) / 255.
        faiss.copy_array_to_vector(np.array([low - step / 2, step * 255], dtype=np.float32), storage.sq.trained)
        _adopt(storage, _widened(codes, width))
        return cls(storage, by_l2, low if by_l2 else 0.0)

    @classmethod
    def of_bits(cls, vectors: Codes) -> Self:
        """The bits of bytes, one byte for each, which faiss compares without rounding."""
        width = -(-vectors.shape[1] * 8 // BYTES_AT_ONCE) * BYTES_AT_ONCE
        storage: Any = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit_direct, _metric(True))
        bits = np.unpackbits(np.ascontiguousarray(vectors), axis=1, bitorder="little")
        _adopt(storage, _widened(bits, width))
        return cls(storage, True)

    @classmethod
    def of_codewords(cls, codes: Codes, words: Floats, *, by_l2: bool) -> Self:
        """Points concatenated from words[j, codes[:, j]], kept as codes; words are [bytes, 256, width]."""
        count, _, width = words.shape
        storage: Any = faiss.IndexPQ(count * width, count, 8, _metric(by_l2))
        faiss.copy_array_to_vector(np.ascontiguousarray(words, dtype=np.float32).reshape(-1), storage.pq.centroids)
        _adopt(storage, codes)
        return cls(storage, by_l2)

    @property
    def nbytes(self) -> int:
        return int(self.storage.ntotal * self.storage.sa_code_size())

    def padded(self, points: Floats) -> Floats:
        widened = _widened(points, int(self.storage.d), self.padding)
        return np.ascontiguousarray(widened, dtype=np.float32)


class HnswSearcher:
    """A graph over its nodes' vectors, ready for queries; safe to share between threads that only search."""

    def __init__(self, graph: HnswGraph, vectors: NodeVectors) -> None:
        if len(graph) != vectors.storage.ntotal:
            problem = f"an HNSW graph has {len(graph)} nodes over {vectors.storage.ntotal} vectors"
            raise DamagedFile(problem, "Rebuild the index with create_index(replace=True)")
        self._count = len(graph)
        self._vectors = vectors
        self._index, graph_bytes = _to_faiss(graph, vectors.storage)
        self.nbytes = graph_bytes + vectors.nbytes

    def __len__(self) -> int:
        return self._count

    def search(
        self, points: Floats, k: int, ef: int | None = None, allowed: Mask | None = None
    ) -> tuple[Floats, Positions]:
        """Per query the k smallest distances found, ascending, and their nodes; node -1 if there are fewer.

        Only nodes of `allowed` are returned; the walk still goes through the others. If few are allowed (pylance's
        limit is one in ten), measuring each is faster than walking, and exact.
        """
        ef = default_ef(k) if ef is None else ef
        if k < 1 or ef < k:
            raise InvalidArgument(f"cannot search for k={k} neighbors with ef={ef}", "Use k >= 1 and ef >= k")
        points = self._vectors.padded(points)
        if allowed is None and k <= self._count:
            return self._walk(points, k, ef)
        distances = np.full((len(points), k), np.inf, dtype=np.float32)
        nodes = np.full((len(points), k), -1, dtype=np.int64)
        if allowed is not None:
            self._walk_filtered(points, k, ef, allowed, distances, nodes)
        elif self._count:
            distances[:, : self._count], nodes[:, : self._count] = self._walk(points, self._count, ef)
        return distances, nodes

    def _walk(self, points: Floats, k: int, ef: int) -> tuple[Floats, Positions]:
        distances, nodes = self._index.search(points, k, params=_breadth(min(ef, self._count)))
        if not self._vectors.by_l2:
            np.subtract(1, distances, out=distances)
        distances[nodes < 0] = np.inf
        return distances, nodes

    def _walk_filtered(
        self, points: Floats, k: int, ef: int, allowed: Mask, distances: Floats, nodes: Positions
    ) -> None:
        """pylance continues until it has ef allowed nodes. Here ef grows by the share that is not allowed, and further
        for queries that find too few."""
        total = int(np.count_nonzero(allowed))
        if not total:
            return
        breadth, queries = ef * self._count // total + 1, np.arange(len(points))
        while True:
            breadth = min(breadth, self._count)
            near, visited = self._walk(points[queries], breadth, breadth)
            fit = (visited >= 0) & allowed[visited]
            rank = np.cumsum(fit, axis=1) - 1
            row, column = np.nonzero(fit & (rank < k))
            place = queries[row], rank[row, column]
            distances[place], nodes[place] = near[row, column], visited[row, column]
            queries = queries[fit.sum(axis=1) < min(k, total)]
            if not len(queries) or breadth == self._count:
                return
            breadth *= 2


@lru_cache(maxsize=256)
def _breadth(ef: int) -> Any:
    # With faiss's default, a bounded queue, a search stops earlier than pylance's.
    return _faiss.SearchParametersHNSW(efSearch=ef, bounded_queue=False)


def _metric(by_l2: bool) -> int:
    return faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT


def _adopt(storage: Any, codes: Codes) -> None:
    faiss.copy_array_to_vector(np.ascontiguousarray(codes).reshape(-1), storage.codes)
    storage.ntotal, storage.is_trained = len(codes), True


def _to_faiss(graph: HnswGraph, storage: Any) -> tuple[Any, int]:
    """faiss keeps all lists of a node in one run of `neighbors`, level 0 first, from offsets[node] on; on each level
    every list has the same number of slots, padded with -1."""
    index = _faiss.IndexHNSW(storage)
    index.ntotal, index.is_trained = len(graph), True
    if not graph.levels:
        return index, 0
    tops = graph.node_levels()
    starts = np.concatenate([[0], np.cumsum([level.longest for level in graph.levels])]).astype(np.int32)
    offsets = np.zeros(len(graph) + 1, dtype=np.uint64)
    np.cumsum(starts[tops + 1], out=offsets[1:])
    slots = np.full(int(offsets[-1]), -1, dtype=np.int32)
    for start, level in zip(starts, graph.levels, strict=False):
        # Link number i of a level is i - offsets[owner] slots after the first slot of its owner's list.
        shift = offsets[level.nodes].astype(np.int64) + start - level.offsets[:-1]
        slots[np.repeat(shift, level.counts) + np.arange(len(level.neighbors))] = level.neighbors
    parts: list[tuple[npt.NDArray[Any], Any]] = [
        (starts, index.hnsw.cum_nneighbor_per_level),
        (tops + 1, index.hnsw.levels),
        (offsets, index.hnsw.offsets),
        (slots, index.hnsw.neighbors),
    ]
    for array, vector in parts:
        faiss.copy_array_to_vector(array, vector)
    index.hnsw.entry_point = graph.entry_point
    # Levels above that of the entry point cannot be reached from it.
    index.hnsw.max_level = int(tops[graph.entry_point])
    return index, sum(array.nbytes for array, _ in parts)


def _widened(rows: npt.NDArray[Any], width: int, fill: float = 0) -> npt.NDArray[Any]:
    """Rows with columns added at the end until they are `width` wide."""
    if rows.shape[1] == width:
        return rows
    wide = np.full((rows.shape[0], width), fill, dtype=rows.dtype)
    wide[:, : rows.shape[1]] = rows
    return wide
