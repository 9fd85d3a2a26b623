"""Vectors of bits, eight in a byte, under the hamming metric.

The hamming distance is the squared l2 distance of bits taken as the numbers 0 and 1. So clustering and graphs use the
bits as points, and only the comparison with many vectors counts bits, by faiss.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.index.vector.vectors import Codes, Floats, Positions, Vectors, row_chunks

# faiss counts the bits of whole words.
WORD_BYTES = 8

_faiss: Any = faiss
_pointer = faiss.swig_ptr


def to_bits(vectors: npt.NDArray[Any]) -> Floats:
    """One float32 for every bit, 0 or 1, the lowest bit of a byte first."""
    return np.unpackbits(np.ascontiguousarray(vectors), axis=1, bitorder="little").astype(np.float32)


def as_bits(points: Vectors) -> Codes:
    """The nearest vectors of bits; for the mean of some vectors, what most of them have."""
    return np.packbits(points > 0.5, axis=1, bitorder="little")


def in_words(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Contiguous vectors, padded with zeros to whole words."""
    width = -(-vectors.shape[1] // WORD_BYTES) * WORD_BYTES
    if width == vectors.shape[1]:
        return np.ascontiguousarray(vectors)
    padded = np.zeros((len(vectors), width), dtype=np.uint8)
    padded[:, : vectors.shape[1]] = vectors
    return padded


def hamming_distances(queries: npt.NDArray[Any], vectors: npt.NDArray[Any]) -> Floats:
    """The number of different bits of every query (rows) and every vector (columns)."""
    queries, vectors = in_words(queries), in_words(vectors)
    found = np.empty((len(queries), len(vectors)), dtype=np.int32)
    if found.size:
        sizes = len(queries), len(vectors), vectors.shape[1]
        _faiss.hammings(_pointer(queries), _pointer(vectors), *sizes, _pointer(found))
    return found.astype(np.float32)


def paired_distances(queries: npt.NDArray[Any], vectors: npt.NDArray[Any], which: Positions) -> Floats:
    """The distances of each query to the vectors at its own positions."""
    found = np.empty(which.shape, dtype=np.float32)
    for rows in row_chunks(len(queries), which.shape[1] * vectors.shape[1]):
        differing = vectors[which[rows]] ^ queries[rows][:, None]
        found[rows] = np.bitwise_count(differing).sum(axis=2, dtype=np.int32)
    return found
