"""The k smallest of many numbers."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from pennon.index.vector.vectors import Floats, Positions


def smallest(distances: Floats, k: int) -> tuple[Floats, Positions]:
    """The k smallest of each row, ascending, and their positions; infinity at position -1 where there are fewer.

    A heap per row, which beats a partial sort when k is small. NaN is never among the smallest.
    """
    rows, columns = distances.shape
    values, positions = np.empty((rows, k), dtype=np.float32), np.empty((rows, k), dtype=np.int64)
    distances = np.ascontiguousarray(distances)
    heap = heap_over(values, positions)
    heap.heapify()
    heap.addn(columns, faiss.swig_ptr(distances))
    heap.reorder()
    values[positions < 0] = np.inf
    return values, positions


def heap_over(values: Floats, positions: Positions, *, largest: bool = False) -> Any:
    """faiss's heaps, one per row, that keep the smallest (or the largest) values seen."""
    heap: Any = faiss.float_minheap_array_t() if largest else faiss.float_maxheap_array_t()
    heap.nh, heap.k = values.shape
    heap.val, heap.ids = faiss.swig_ptr(values), faiss.swig_ptr(positions)
    return heap
