"""Clustering: every vector is filed under its nearest centroid, and a query looks where its neighbors are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pennon.errors import InvalidArgument
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.ivf import Ivf, Layout, read_ivf, read_layout, write_ivf
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.vectors import Vectors
from tests.support.vectors import clustered


def nearest(vectors: Vectors, centroids: Vectors, metric: Metric) -> tuple[np.ndarray, np.ndarray]:
    rows, middles = vectors.astype(np.float64), centroids.astype(np.float64)
    squares = ((rows[:, None] - middles) ** 2).sum(axis=2)
    distances = 1 - rows @ middles.T if metric is Metric.DOT else squares
    return distances.argmin(axis=1), distances


@pytest.mark.parametrize("offset", [0, 300])
@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_vectors_are_filed_exactly(metric: Metric, element: Any, offset: int) -> None:
    vectors = metric.prepare((clustered(1500, 24) + offset).astype(element))
    ivf = Ivf(metric, vectors[::100].copy())
    ids, distances = ivf.assign(vectors)
    expected, table = nearest(vectors, ivf.centroids, metric)
    best = table[np.arange(len(ids)), expected]
    # Another centroid may be filed under only if it is as near, as far as float32 can tell.
    excess = table[np.arange(len(ids)), ids] - best
    assert (excess <= 1e-6 * np.abs(table).max()).all()
    np.testing.assert_allclose(distances, best, atol=2e-6 * np.abs(table).max())


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_partitions_are_ranked_by_distance(metric: Metric) -> None:
    vectors = metric.prepare(clustered(500, 16).astype(np.float32))
    ivf = Ivf(metric, vectors[:50].copy())
    queries = vectors[100:120]
    ids, distances = ivf.rank(queries, 7)
    _, table = nearest(queries, ivf.centroids, metric)
    np.testing.assert_allclose(distances, np.sort(table, axis=1)[:, :7], atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(table, ids, axis=1), distances, atol=1e-4)
    assert ivf.rank(queries, 1000)[0].shape == (20, 50)


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_a_centroid_that_is_no_place_is_never_chosen(metric: Metric) -> None:
    vectors = metric.prepare(clustered(200, 16).astype(np.float32))
    centroids = vectors[:4].copy()
    centroids[1] = np.nan
    ivf = Ivf(metric, centroids)
    assert 1 not in ivf.assign(vectors)[0]
    assert (ivf.rank(vectors[:5], 4)[0][:, -1] == 1).all()


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_training_finds_the_clusters(metric: Metric) -> None:
    vectors = metric.prepare(clustered(2000, 16, spread=0.05).astype(np.float32))
    ivf = Ivf.train(vectors, metric, 40, seed=3)
    assert ivf.centroids.dtype == np.float32
    if metric is Metric.DOT:
        np.testing.assert_allclose(np.linalg.norm(ivf.centroids, axis=1), 1, rtol=1e-5)
        return
    scattered = Ivf(metric, vectors[:40].copy())
    assert ivf.assign(vectors)[1].sum() < 0.5 * scattered.assign(vectors)[1].sum()


def test_too_many_partitions_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="10 vectors"):
        Ivf.train(clustered(10, 8).astype(np.float32), Metric.L2, 11)


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
def test_a_message_says_it_all(element: Any) -> None:
    ivf = Ivf(Metric.L2, clustered(3, 8).astype(element), loss=2.5)
    layout = Layout.of([4, 0, 9])
    message = pb.IVF.FromString(write_ivf(layout, ivf))
    read = read_ivf(message, Metric.L2, 3)
    assert (read.loss, read.element) == (2.5, element)
    np.testing.assert_array_equal(read.centroids, ivf.centroids)
    assert read_layout(message).offsets.tolist() == [0, 4, 4]
    assert read_layout(pb.IVF(lengths=[4, 0, 9])).offsets.tolist() == [0, 4, 4]


def test_centroids_of_older_writers_are_read() -> None:
    message = pb.IVF(centroids=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], lengths=[1, 2, 3])
    assert read_ivf(message, Metric.L2, 3).centroids.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        (Layout.of([3, 4]), None),
        (Layout(np.array([0, 9]), np.array([7, 0])), None),
        (Layout.of([3, 4, 0]), "3 partitions"),
        (Layout.of([3, 3]), "add up to 6"),
        (Layout(np.array([0, 2]), np.array([3, 4])), "not consecutive"),
    ],
)
def test_runs_must_fill_their_file(layout: Layout, problem: str | None) -> None:
    found = layout.problem(2, 7)
    assert found is None if problem is None else problem in (found or "")
