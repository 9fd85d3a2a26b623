"""Many queries against many partitions of PQ codes.

The part of a distance that does not depend on the query, |word|² + 2 centroid·word, is computed once per list as a
table; a query then adds its own table, -2 query·word, to each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.search.list_scanner import CodeList, keys_of
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors, row_chunks

# The maximum size of the tables of all lists. Without them, each query computes its own for every list.
TABLE_BYTES = 128 << 20
CODES = 256
# The size of the tables of queries in memory at once, in each thread, and the least and the largest number of them: the
# more there are, the more are compared with a list at once.
QUERY_BYTES = 8 << 20
LEAST_QUERIES, MOST_QUERIES = 64, 512
# Vectors of one matrix product. The last digit of a product may depend on how many there are, so this number does not
# depend on the threads.
PRODUCT_ROWS = 8

# faiss's mode for a search that distributes its queries over several threads.
OVER_QUERIES = 3

_faiss: Any = faiss
_pointer = faiss.swig_ptr


def search_lists(
    words: Floats,
    centroids: Vectors | None,
    lists: Sequence[CodeList],
    queries: Vectors,
    places: Positions,
    k: int,
    allowed: Mask | None,
    threads: int,
) -> tuple[Floats, Positions]:
    """Per query the k best rows of the lists at its `places` (-1 for none), in any order, and their keys.

    The smallest l2 if codes encode residuals to the centroids of their lists, else the largest inner products.
    Words are [bytes, 256, width]; only rows of `allowed` count, which has those of all lists one after another.
    """
    counts = [count for count, _ in lists]
    places = _gathered(places)
    if centroids is None:
        points, centres, nearby = queries, None, np.zeros(places.shape, dtype=np.float32)
    else:
        # Relative to their mean, so that a common offset of the data costs the tables no precision.
        middle = centroids.astype(np.float64).mean(axis=0)
        points, centres = queries - middle, (centroids - middle).astype(np.float32)
        nearby = _to_centres(points.astype(np.float32), centres, places)
    if centres is not None and len(lists) * words.shape[0] * CODES * 4 > TABLE_BYTES:
        return _by_faiss(words, centres, lists, points, places, nearby, k, allowed, threads)
    of_lists = np.empty((0, 0), dtype=np.float32)
    if centres is not None:
        of_lists = _products(centres, words) * np.float32(2) + np.square(words).sum(axis=2).reshape(-1)
    sign = np.float32(-1 if centres is None else -2)
    points = np.ascontiguousarray(points, dtype=np.float32)
    values, found = np.full((len(queries), k), np.inf, dtype=np.float32), np.full((len(queries), k), -1)
    codes = np.array([int(address) for _, address in lists], dtype=np.int64)
    starts: npt.NDArray[np.int64] = np.cumsum(counts) - np.array(counts)
    flags = np.empty(0, dtype=np.bool_) if allowed is None else allowed
    # Kernels are compiled when they are imported, and a search for one query needs none.
    from pennon.index.vector.quantizers.pq.group_kernels import scan_groups  # noqa: PLC0415

    def scan(rows: slice) -> None:
        some = _products(points[rows], words)
        some *= sign
        visits = _visits(places[rows], nearby[rows], len(lists))
        scan_groups(some, of_lists, *visits, codes, np.array(counts), starts, flags, values[rows], found[rows])

    at_once = max(LEAST_QUERIES, min(MOST_QUERIES, QUERY_BYTES // (words.shape[0] * CODES * 4)))
    step = max(1, min(at_once, -(-len(points) // threads)))
    step = -(-step // PRODUCT_ROWS) * PRODUCT_ROWS
    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(scan, (slice(at, at + step) for at in range(0, len(points), step))))
    return (-values if centres is None else values), keys_of(found, counts)


def _visits(places: Positions, nearby: Floats, lists: int) -> tuple[Positions, Positions, Floats]:
    """Where the queries of each list start among all, the queries, and how near the list is to each."""
    order = np.argsort(places, axis=None, kind="stable")
    ordered = places.reshape(-1)[order]
    first = int(np.searchsorted(ordered, 0))
    order, ordered = order[first:], ordered[first:]
    return np.searchsorted(ordered, np.arange(lists + 1)), order // places.shape[1], nearby.reshape(-1)[order]


def _products(vectors: Floats, words: Floats) -> Floats:
    """Of the parts of vectors with all words of each part, a row of tables for each vector."""
    count, codes, width = words.shape
    tables = np.empty((len(vectors), count, codes), dtype=np.float32)
    columns = words.transpose(0, 2, 1)
    for start in range(0, len(vectors), PRODUCT_ROWS):
        parts = vectors[start : start + PRODUCT_ROWS].reshape(-1, count, width).transpose(1, 0, 2)
        tables[start : start + PRODUCT_ROWS] = (parts @ columns).transpose(1, 0, 2)
    return tables.reshape(len(vectors), -1)


def _by_faiss(
    words: Floats,
    centres: Floats,
    lists: Sequence[CodeList],
    points: Floats,
    places: Positions,
    nearby: Floats,
    k: int,
    allowed: Mask | None,
    threads: int,
) -> tuple[Floats, Positions]:
    """Without a table for each list, where those of all lists are too large."""
    counts = [count for count, _ in lists]
    numbers = np.arange(sum(counts))
    index = _index(words, centres, len(lists))
    start = 0
    for place, (count, codes) in enumerate(lists):
        index.invlists.add_entries(place, count, _pointer(numbers[start:]), codes)
        start += count
    selector = None if allowed is None else _faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    params = _faiss.SearchParametersIVF(nprobe=places.shape[1], sel=selector)
    values, found = np.empty((len(points), k), dtype=np.float32), np.empty((len(points), k), dtype=np.int64)
    points = np.ascontiguousarray(points, dtype=np.float32)
    arrays = (_pointer(array) for array in (places, nearby, values, found))
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        index.search_preassigned_c(len(points), _pointer(points), k, *arrays, False, params)
    finally:
        faiss.omp_set_num_threads(before)
    return values, keys_of(found, counts)


def _index(words: Floats, centres: Floats, count: int) -> Any:
    width, dim = len(words), words.shape[0] * words.shape[2]
    coarse = faiss.IndexFlatL2(dim)
    index = _faiss.IndexIVFPQ(coarse, dim, count, width, 8, faiss.METRIC_L2)
    faiss.copy_array_to_vector(words.reshape(-1), index.pq.centroids)
    index.is_trained, index.parallel_mode = True, OVER_QUERIES
    index.by_residual, index.use_precomputed_table = True, -1
    coarse.add(centres)
    return index


def _gathered(places: Positions) -> Positions:
    """Move -1 to the end of each row and drop columns with nothing else: faiss accepts at most as many columns as there
    are lists."""
    missing = places < 0
    width = places.shape[1] - int(missing.sum(axis=1).min())
    order = np.argsort(missing, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(places, order, axis=1)


def _to_centres(points: Floats, centres: Floats, places: Positions) -> Floats:
    """Squared distances of each point to the centres at its places."""
    nearby, lengths = np.empty(places.shape, dtype=np.float32), squared_lengths(centres)
    for rows in row_chunks(len(points), len(centres)):
        found = (points[rows] * np.float32(-2)) @ centres.T
        found += lengths
        found += squared_lengths(points[rows])[:, None]
        nearby[rows] = np.take_along_axis(found, np.maximum(places[rows], 0), axis=1)
    return np.maximum(nearby, 0, out=nearby)
