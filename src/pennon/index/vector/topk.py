"""The k smallest of many numbers."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from pennon.index.vector.vectors import Floats, Positions

_pointer = faiss.swig_ptr


def smallest(distances: Floats, k: int) -> tuple[Floats, Positions]:
    """The k smallest of each row, ascending, and their positions; infinity at position -1 if there are fewer.

    A heap per row, which beats a partial sort when k is small. NaN is never among the smallest.
    """
    rows, columns = distances.shape
    nearest = Nearest(rows, k)
    nearest.heap.addn(columns, _pointer(np.ascontiguousarray(distances)))
    return nearest.ascending()


class Nearest:
    """Per query the k smallest distances so far and their keys, in faiss's heaps."""

    def __init__(self, queries: int, k: int) -> None:
        self._distances = np.full((queries, k), np.inf, dtype=np.float32)
        self._keys = np.full((queries, k), -1, dtype=np.int64)
        self.heap: Any = faiss.float_maxheap_array_t()
        self.heap.nh, self.heap.k = queries, k
        self.heap.val, self.heap.ids = _pointer(self._distances), _pointer(self._keys)

    def offer(self, queries: Positions, distances: Floats, keys: Positions) -> None:
        """Add distances of some queries, a row each. All rows share the keys, one per column."""
        distances = np.ascontiguousarray(distances)
        arrays = _pointer(distances), _pointer(keys)
        self.heap.addn_query_subset_with_ids(len(queries), _pointer(queries), distances.shape[1], *arrays, 0)

    def ascending(self) -> tuple[Floats, Positions]:
        """Distances and keys; infinity at key -1 if there are fewer."""
        # faiss could sort them too, but starts its threads for that even for one query.
        order = np.argsort(self._distances, axis=1, kind="stable")
        rows = np.arange(len(order))[:, None]
        return self._distances[rows, order], self._keys[rows, order]
