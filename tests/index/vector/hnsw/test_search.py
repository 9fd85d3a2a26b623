"""Searching a graph: exact when ef is as large as the partition, whatever the nodes are kept as."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.errors import DamagedFile, InvalidArgument
from pennon.index.vector.hnsw.build import build_graph
from pennon.index.vector.hnsw.graph import HnswGraph, HnswParams
from pennon.index.vector.hnsw.search import HnswSearcher, NodeVectors, default_ef
from tests.support.graphs import clusters

COUNT, DIM = 1200, 20
CODES = np.random.default_rng(1).integers(0, 256, (COUNT, DIM)).astype(np.uint8)
LOW, STEP = -1.5, 0.02
BYTE_POINTS = (LOW + STEP * CODES).astype(np.float32)
WORDS = np.random.default_rng(2).standard_normal((4, 256, DIM // 4)).astype(np.float32)
WORD_POINTS = np.concatenate([WORDS[j, CODES[:, j]] for j in range(4)], axis=1)
POINTS = clusters(COUNT, DIM)


def kept(form: str, by_l2: bool) -> tuple[np.ndarray, NodeVectors]:
    if form == "bytes":
        return BYTE_POINTS, NodeVectors.of_bytes(CODES, low=LOW, step=STEP, by_l2=by_l2)
    if form == "codewords":
        return WORD_POINTS, NodeVectors.of_codewords(CODES[:, :4], WORDS, by_l2=by_l2)
    return POINTS, NodeVectors.of_points(POINTS, by_l2=by_l2)


def true_distances(queries: np.ndarray, points: np.ndarray, by_l2: bool) -> np.ndarray:
    left, right = queries.astype(np.float64), points.astype(np.float64)
    products = left @ right.T
    if not by_l2:
        return 1 - products
    return (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * products


def queries_near(points: np.ndarray, count: int = 30) -> np.ndarray:
    rng = np.random.default_rng(3)
    return (points[rng.integers(0, len(points), count)] + 0.2 * rng.standard_normal((count, DIM))).astype(np.float32)


@pytest.mark.parametrize("by_l2", [True, False], ids=["l2", "dot"])
@pytest.mark.parametrize("form", ["floats", "bytes", "codewords"])
def test_a_wide_search_is_exact(form: str, by_l2: bool) -> None:
    points, vectors = kept(form, by_l2)
    queries = queries_near(points)
    distances, nodes = HnswSearcher(build_graph(points, by_l2=by_l2), vectors).search(queries, 10, COUNT)
    true = true_distances(queries, points, by_l2)
    np.testing.assert_allclose(distances, np.sort(true, axis=1)[:, :10], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(distances, np.take_along_axis(true, nodes, axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_l2", [True, False], ids=["l2", "dot"])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.01])
def test_a_filtered_search_finds_the_allowed(share: float, by_l2: bool) -> None:
    allowed = np.random.default_rng(4).random(COUNT) < share
    searcher = HnswSearcher(build_graph(POINTS, by_l2=by_l2), NodeVectors.of_points(POINTS, by_l2=by_l2))
    queries = queries_near(POINTS)
    distances, nodes = searcher.search(queries, 10, allowed=allowed)
    assert (np.diff(distances, axis=1) >= 0).all()
    assert allowed[nodes].all()
    assert len(np.unique(nodes[0])) == 10
    expected = np.sort(true_distances(queries, POINTS, by_l2)[:, allowed], axis=1)[:, :10]
    assert np.mean(distances <= expected[:, -1:] + 1e-4) > 0.97


def test_a_filter_far_from_the_query() -> None:
    """The allowed nodes are the ones a search meets last."""
    queries = POINTS[:5]
    true = true_distances(queries, POINTS, by_l2=True)
    allowed = np.zeros(COUNT, dtype=np.bool_)
    allowed[np.argsort(true[0])[-20:]] = True
    searcher = HnswSearcher(build_graph(POINTS, by_l2=True), NodeVectors.of_points(POINTS, by_l2=True))
    _, nodes = searcher.search(queries, 10, allowed=allowed)
    assert allowed[nodes].all()
    assert np.array_equal(np.sort(nodes[0]), np.sort(np.argsort(np.where(allowed, true[0], np.inf))[:10]))


def test_fewer_allowed_than_asked_for() -> None:
    allowed = np.zeros(COUNT, dtype=np.bool_)
    searcher = HnswSearcher(build_graph(POINTS, by_l2=False), NodeVectors.of_points(POINTS, by_l2=False))
    assert (searcher.search(POINTS[:2], 5, allowed=allowed)[1] == -1).all()
    allowed[[3, 700]] = True
    distances, nodes = searcher.search(POINTS[:2], 5, allowed=allowed)
    assert np.array_equal(np.sort(nodes, axis=1), [[-1, -1, -1, 3, 700]] * 2)
    assert np.isinf(distances[:, 2:]).all()


@pytest.mark.parametrize("by_l2", [True, False], ids=["l2", "dot"])
@pytest.mark.parametrize("count", [1, 2, 3, 25])
def test_a_partition_smaller_than_k(count: int, by_l2: bool) -> None:
    points = POINTS[:count]
    searcher = HnswSearcher(build_graph(points, by_l2=by_l2), NodeVectors.of_points(points, by_l2=by_l2))
    distances, nodes = searcher.search(POINTS[:4], 30)
    assert distances.shape == nodes.shape == (4, 30)
    assert all(np.array_equal(np.sort(row[:count]), np.arange(count)) for row in nodes)
    assert (nodes[:, count:] == -1).all()
    assert np.isinf(distances[:, count:]).all()


def test_a_partition_without_rows() -> None:
    empty = NodeVectors.of_points(POINTS[:0], by_l2=True)
    _, nodes = HnswSearcher(HnswGraph(HnswParams(), 0, ()), empty).search(POINTS[:3], 4)
    assert (nodes == -1).all()


def test_a_graph_of_other_vectors_is_damage() -> None:
    with pytest.raises(DamagedFile, match="1200 nodes over 1199"):
        HnswSearcher(build_graph(POINTS, by_l2=True), NodeVectors.of_points(POINTS[1:], by_l2=True))


def test_no_queries() -> None:
    searcher = HnswSearcher(build_graph(POINTS, by_l2=True), NodeVectors.of_points(POINTS, by_l2=True))
    assert searcher.search(POINTS[:0], 4)[0].shape == (0, 4)


def test_ef_is_50_or_half_as_much_again_as_k_and_never_less_than_k() -> None:
    searcher = HnswSearcher(build_graph(POINTS, by_l2=True), NodeVectors.of_points(POINTS, by_l2=True))
    assert [default_ef(k) for k in (1, 10, 33, 40)] == [50, 50, 50, 60]
    for k, ef in ((10, 9), (0, 5)):
        with pytest.raises(InvalidArgument):
            searcher.search(POINTS[:1], k, ef)


def test_bytes_take_a_quarter_of_the_memory() -> None:
    points = np.zeros((COUNT, 64), dtype=np.float32)
    codes = np.zeros((COUNT, 64), dtype=np.uint8)
    assert NodeVectors.of_points(points, by_l2=True).nbytes == COUNT * 64 * 4
    assert NodeVectors.of_bytes(codes, low=0.0, step=1.0, by_l2=True).nbytes == COUNT * 64
