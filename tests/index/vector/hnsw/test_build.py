"""A graph that was built is sound: levels, lengths of lists, and a way to every node, whatever the vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.index.vector.hnsw.build import build_graph
from pennon.index.vector.hnsw.graph import HnswGraph, HnswParams
from pennon.index.vector.hnsw.search import HnswSearcher, NodeVectors
from tests.support.graphs import clusters

POINTS = clusters(1500, 24)
BOTH_WAYS = pytest.mark.parametrize("exact_nodes", [4096, 0], ids=["exact", "grown"])
BOTH_METRICS = pytest.mark.parametrize("by_l2", [True, False], ids=["l2", "dot"])


def reachable(graph: HnswGraph) -> np.ndarray:
    level, seen = graph.levels[0], np.zeros(len(graph), dtype=np.bool_)
    seen[graph.entry_point] = True
    new = [graph.entry_point]
    while new:
        lists = [level.neighbors[level.offsets[node] : level.offsets[node + 1]] for node in new]
        new = [int(node) for node in np.unique(np.concatenate(lists)) if not seen[node]]
        seen[new] = True
    return seen


def sound(graph: HnswGraph) -> HnswGraph:
    """Every rule of the layout is one that reading proves."""
    read = HnswGraph.from_columns(*graph.to_columns(), "the test")
    assert graph.node_levels()[graph.entry_point] == len(graph.levels) - 1
    for level in graph.levels:
        owners = np.repeat(level.nodes, level.counts)
        assert (owners != level.neighbors).all()
        pairs = owners.astype(np.int64) << 32 | level.neighbors
        assert len(np.unique(pairs)) == len(pairs)
    assert reachable(graph).all()
    return read


@BOTH_WAYS
@BOTH_METRICS
def test_a_graph_is_sound(by_l2: bool, exact_nodes: int) -> None:
    params = HnswParams()
    graph = sound(build_graph(POINTS, by_l2=by_l2, params=params, exact_nodes=exact_nodes))
    bottom, *upper = graph.levels
    assert bottom.counts.min() >= params.m // 2
    assert bottom.longest <= (2 * params.m if exact_nodes else params.m * 5 // 2) + 3
    assert all(level.longest <= params.m for level in upper)


@BOTH_WAYS
def test_levels_thin_out_by_m(exact_nodes: int) -> None:
    graph = build_graph(clusters(4000, 4), by_l2=True, params=HnswParams(3, 8, 20), exact_nodes=exact_nodes)
    sizes = [len(level.nodes) for level in graph.levels]
    assert len(sizes) == 3
    assert 400 < sizes[1] < 600
    assert 40 < sizes[2] < 90


@BOTH_WAYS
def test_the_seed_decides(exact_nodes: int) -> None:
    first, again, other = (
        build_graph(POINTS, by_l2=True, seed=seed, exact_nodes=exact_nodes).to_columns() for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


@BOTH_WAYS
@BOTH_METRICS
def test_equal_vectors_do_not_trap_a_search(by_l2: bool, exact_nodes: int) -> None:
    """Half of all rows are copies of one vector, and each other vector has two copies."""
    rng = np.random.default_rng(0)
    points = np.concatenate([np.repeat(POINTS[:1], 600, axis=0), np.repeat(POINTS[1:301], 2, axis=0)])
    points = points[rng.permutation(len(points))]
    graph = sound(build_graph(points, by_l2=by_l2, exact_nodes=exact_nodes))
    vectors = NodeVectors.of_points(points, by_l2=by_l2)
    queries = (POINTS[1:101] + 0.1 * rng.standard_normal((100, 24))).astype(np.float32)
    exact, _ = vectors.storage.search(queries, 5)
    distances, nodes = HnswSearcher(graph, vectors).search(queries, 5)
    worst = exact[:, -1:] if by_l2 else 1 - exact[:, -1:]
    assert np.mean(distances <= worst + 1e-4) > 0.97
    assert all(len(set(row)) == 5 for row in nodes.tolist())


@BOTH_METRICS
@pytest.mark.parametrize("size", [200, 300])
def test_clusters_larger_than_the_list_of_candidates_are_left(size: int, by_l2: bool) -> None:
    rng = np.random.default_rng(7)
    centres = np.repeat(rng.standard_normal((12, 32)), size, axis=0)
    points = (centres + 0.02 * rng.standard_normal(centres.shape)).astype(np.float32)
    graph = sound(build_graph(points, by_l2=by_l2))
    vectors = NodeVectors.of_points(points, by_l2=by_l2)
    queries = points[:: size // 10]
    exact, _ = vectors.storage.search(queries, 1)
    distances, _ = HnswSearcher(graph, vectors).search(queries, 1, 15)
    nearest = exact if by_l2 else 1 - exact
    # Another cluster is at a distance of tens; the right one is what counts here.
    assert np.mean(distances <= nearest + 0.5) > 0.97


@BOTH_WAYS
@pytest.mark.parametrize("scale", [1e-20, 1e18])
def test_lengths_at_the_ends_of_float32(scale: float, exact_nodes: int) -> None:
    sound(build_graph((POINTS[:300] * np.float32(scale)), by_l2=True, exact_nodes=exact_nodes))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0, 4096]),
    st.integers(0, 1 << 30),
)
def test_any_small_partition(count: int, dim: int, values: int, by_l2: bool, exact_nodes: int, seed: int) -> None:
    """Few distinct values: many equal vectors, equal distances and vectors of length 0."""
    points = np.random.default_rng(seed).integers(0, values, (count, dim)).astype(np.float32)
    params = HnswParams(4, 4, 6)
    graph = sound(build_graph(points, by_l2=by_l2, params=params, seed=seed, exact_nodes=exact_nodes))
    vectors = NodeVectors.of_points(points, by_l2=by_l2)
    _, nodes = HnswSearcher(graph, vectors).search(points[:3], count)
    assert all(0 <= row[0] < count for row in nodes)


def test_nodes_that_nobody_chose_are_reached() -> None:
    """Long vectors with positive items are everyone's nearest under dot; most others are in nobody's list."""
    rng = np.random.default_rng(11)
    points = np.abs(rng.standard_normal((1500, 16))) * np.exp(rng.standard_normal((1500, 1)))
    graph = sound(build_graph(points.astype(np.float32), by_l2=False))
    assert graph.levels[0].longest <= 2 * graph.params.m + 3
