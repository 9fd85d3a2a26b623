"""One query against the codes of several partitions, by faiss's scanners of inverted lists.

A scanner compares a point with codes directly in memory, without decoding them to floats, and keeps the best rows
across lists. A row is identified by its key: the number of its list in the scan, and its position in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.index.vector.vectors import Floats, Mask, Positions

# The number of low bits of a key for the position, as in faiss's pairs of list and offset.
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1

# Creates a scanner that reports keys, or with a selector, the given numbers of rows.
MakeScanner = Callable[[Any | None], Any]

# Codes as passed to scanners: their number and a pointer.
CodeList = tuple[int, Any]

# faiss uses vector instructions on bytes only if the width of codes is a multiple of this.
SCANNED_WIDTH = 16

_faiss: Any = faiss
_pointer = faiss.swig_ptr


def scan_nearest(
    make: MakeScanner, points: Floats, lists: Sequence[CodeList], k: int, allowed: Mask | None, *, largest: bool
) -> tuple[Floats, Positions]:
    """The k smallest (or largest) values, best first, and the keys of their rows; -1 if there are fewer.

    There is one point for all lists, or one for each. Only rows of `allowed` count, which has those of all lists one
    after another.
    """
    values = np.full(k, -np.inf if largest else np.inf, dtype=np.float32)
    keys = np.full(k, -1, dtype=np.int64)
    heap = _pointer(values), _pointer(keys), k
    for scanner, codes in _each_list(make, points, lists, allowed):
        scanner.scan_codes(*codes, *heap)
    order = np.argsort(-values if largest else values, kind="stable")
    values, keys = values[order], keys[order]
    return values, keys if allowed is None else keys_of(keys, [count for count, _ in lists])


def code_list(codes: npt.NDArray[Any]) -> CodeList:
    """The list of contiguous codes, which must outlive it."""
    return len(codes), _pointer(codes.view(np.uint8))


def keys_of(numbers: Positions, counts: Sequence[int] | Positions) -> Positions:
    """The keys of rows that are numbered consecutively through lists of these lengths; -1 stays -1."""
    ends = np.cumsum(counts)
    places = np.searchsorted(ends, numbers, side="right")
    starts = np.append(0, ends)[places]
    return np.where(numbers < 0, -1, (places << POSITION_BITS) + numbers - starts)


def byte_scanner(codec: Any, measure: int) -> MakeScanner:
    """Reads codes of one number per dimension."""
    return lambda selector: codec.select_InvertedListScanner(measure, None, selector is None, selector, False)


def table_scanner(words: Floats, *, by_l2: bool) -> MakeScanner:
    """Reads codes of bytes, where byte j means words[j, byte]; words are [bytes, 256, width]."""
    count, _, width = words.shape
    index = _faiss.IndexIVFPQ(faiss.IndexFlatL2(count * width), count * width, 1, count, 8, _metric(by_l2))
    index.by_residual = False
    faiss.copy_array_to_vector(np.ascontiguousarray(words, dtype=np.float32).reshape(-1), index.pq.centroids)
    return lambda selector: index.get_InvertedListScanner(selector is None, selector, None)


def float_scanner(dim: int, *, by_l2: bool) -> MakeScanner:
    """Reads rows of float32."""
    index = _faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, 1, _metric(by_l2))
    return lambda selector: index.get_InvertedListScanner(selector is None, selector, None)


def number_codec(dim: int) -> Any:
    """A codec for bytes as plain numbers: faiss's uniform codec decodes low + (code + 1/2) / 255 * width."""
    codec = faiss.ScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit_uniform)
    faiss.copy_array_to_vector(np.array([-0.5, 255], dtype=np.float32), codec.trained)
    return codec


def scanned_width(dim: int) -> int:
    return -(-dim // SCANNED_WIDTH) * SCANNED_WIDTH


def widened(rows: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Contiguous rows, padded with zeros at the end to `width`."""
    if rows.shape[1] == width:
        return np.ascontiguousarray(rows)
    wide = np.zeros((len(rows), width), dtype=rows.dtype)
    wide[:, : rows.shape[1]] = rows
    return wide


def _each_list(
    make: MakeScanner, points: Floats, lists: Sequence[CodeList], allowed: Mask | None
) -> Iterator[tuple[Any, tuple[int, Any, Any]]]:
    """A scanner set to each list in turn: the number of codes, and pointers to them and to their numbers."""
    points = np.ascontiguousarray(points, dtype=np.float32)
    numbers = None if allowed is None else np.arange(len(allowed))
    selector = None if allowed is None else _faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    scanner, start = make(selector), 0
    try:
        for place, (count, codes) in enumerate(lists):
            if place < len(points):
                scanner.set_query(_pointer(points[place]))
            scanner.set_list(place, 0.0)
            yield scanner, (count, codes, None if numbers is None else _pointer(numbers[start:]))
            start += count
    finally:
        # faiss does not transfer the ownership of scanners.
        _faiss.InvertedListScanner.__swig_destroy__(scanner)


def _metric(by_l2: bool) -> int:
    return faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT
