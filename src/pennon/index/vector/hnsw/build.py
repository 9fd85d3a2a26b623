"""Build the HNSW graph of one partition.

The graph is built on the vectors that a search compares: decoded codes, from `Quantizer.points`. Levels are drawn,
neighbors found (exactly in a small partition, by faiss in a large one), equal vectors linked to each other, and
unreachable nodes linked. Equal input and seed give the same graph.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from pennon.index.vector.hnsw.exact import EXACT_NODES, Grid, exact_levels
from pennon.index.vector.hnsw.graph import HnswGraph, HnswParams, Level
from pennon.index.vector.hnsw.links import link_distances, with_all_reached, with_copies
from pennon.index.vector.vectors import Floats, Positions, row_chunks

DEFAULT_PARAMS = HnswParams()


def build_graph(
    points: Floats,
    *,
    by_l2: bool,
    params: HnswParams = DEFAULT_PARAMS,
    seed: int = 0,
    grid: Grid | None = None,
    exact_nodes: int = EXACT_NODES,
) -> HnswGraph:
    """A graph over points in partition order, with the distances l2 or 1 - x·y. Points of a grid are faster.

    For FLAT under cosine, whose distance is 1 - cos, take `by_l2=False`: the order is that of l2 on unit vectors.
    """
    if not len(points):
        return HnswGraph(params, 0, ())
    points = np.ascontiguousarray(points, dtype=np.float32)
    originals = _first_of_equals(points)
    distinct = np.flatnonzero(originals == np.arange(len(points)))
    tops = _draw_levels(len(distinct), params, seed)
    if len(distinct) <= exact_nodes:
        levels = exact_levels(points[distinct], tops, by_l2, params, grid)
    else:
        levels = _grown_levels(points[distinct], tops, by_l2, params)
    bottom, *upper = (_renamed(level, distinct) for level in levels)
    if len(distinct) < len(points):
        bottom = with_copies(bottom, originals, points, by_l2, params.m)
    entry_point = int(distinct[tops.argmax()])
    bottom = with_all_reached(bottom, entry_point, points, by_l2)
    return HnswGraph(params, entry_point, (bottom, *upper))


def _draw_levels(count: int, params: HnswParams, seed: int) -> npt.NDArray[np.int32]:
    """floor(-ln U / ln m): each level holds about one in m nodes of the level below."""
    uniform = 1 - np.random.default_rng(seed).random(count)
    return np.minimum(-np.log(uniform) / np.log(params.m), params.max_level - 1).astype(np.int32)


def _grown_levels(points: Floats, tops: npt.NDArray[np.int32], by_l2: bool, params: HnswParams) -> list[Level]:
    """Levels built by faiss, node by node."""
    metric = faiss.METRIC_L2 if by_l2 else faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexHNSWFlat(points.shape[1], params.m, metric)
    graph = index.hnsw
    graph.efConstruction = params.ef_construction
    # Full lists instead of only the selected neighbors, and longer than pylance's 2m, to reach pylance's recall: faiss
    # links a new node to as many nodes as a list holds, which are then less diverse than pylance's m.
    index.keep_max_size_level0 = True
    graph.set_nb_neighbors(0, params.m * 5 // 2)
    starts = faiss.vector_to_array(graph.cum_nneighbor_per_level)
    # faiss has no level with a probability below 1e-9.
    tops = np.minimum(tops, len(starts) - 2)
    faiss.copy_array_to_vector(tops + 1, graph.levels)
    with _one_thread():
        index.add(points)
    offsets = faiss.vector_to_array(graph.offsets).astype(np.int64)
    slots = faiss.vector_to_array(graph.neighbors)
    levels: list[Level] = []
    for number in range(int(tops.max()) + 1):
        nodes = np.flatnonzero(tops >= number)
        own = offsets[nodes] + starts[number]
        owners, others = _filled(slots, own, int(starts[number + 1] - starts[number]))
        levels.append(Level.of_lists(nodes, owners, others, link_distances(points, nodes[owners], others, by_l2)))
    return levels


def _filled(slots: npt.NDArray[np.int32], starts: Positions, width: int) -> tuple[Positions, Positions]:
    """The lists that begin at `starts` of `slots`, without their padding of -1."""
    owners: list[Positions] = []
    others: list[npt.NDArray[np.int32]] = []
    for rows in row_chunks(len(starts), width):
        lists = slots[starts[rows][:, None] + np.arange(width)]
        owners.append(np.nonzero(lists >= 0)[0] + rows.start)
        others.append(lists[lists >= 0])
    return np.concatenate(owners), np.concatenate(others).astype(np.int64)


def _first_of_equals(points: Floats) -> Positions:
    """For every row the first row with the same bytes, usually itself."""
    rows = points.view(np.dtype((np.void, points.itemsize * points.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first[inverse]


def _renamed(level: Level, names: Positions) -> Level:
    return Level(
        names[level.nodes].astype(np.uint32), level.offsets, names[level.neighbors].astype(np.uint32), level.distances
    )


@contextmanager
def _one_thread() -> Generator[None]:
    """Several threads would insert in a random order."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
