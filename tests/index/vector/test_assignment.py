"""The nearest of many centroids is found without comparing all of them. The oracle compares all."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector import ivf as ivf_module
from pennon.index.vector import kmeans
from pennon.index.vector.assignment import ManyCentroids
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kmeans import group_points, train_kmeans
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats

ROWS, DIM, CENTROIDS = 40_000, 24, 600


def clustered(rows: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(300, DIM))
    return (centers[rng.integers(0, 300, rows)] + 0.4 * rng.normal(size=(rows, DIM))).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> Floats:
    return clustered(ROWS)


@pytest.fixture(params=[Metric.L2, Metric.DOT], ids=str)
def ivf(request: pytest.FixtureRequest, vectors: Floats) -> Ivf:
    """Partitions of other vectors; two of them are empty, and not finite."""
    trained = Ivf.train(clustered(8000, seed=1), request.param, CENTROIDS, max_iters=3)
    trained.centroids[[5, 77]] = np.nan
    return trained


def test_almost_all_vectors_get_the_nearest_centroid(
    ivf: Ivf, vectors: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest, distances = ivf.assign(vectors)
    monkeypatch.setattr(ivf_module, "MANY_CENTROIDS", 0)
    found, near = ivf.assign(vectors)
    same = found == nearest
    assert same.mean() >= 0.999
    np.testing.assert_allclose(near[same], distances[same], rtol=1e-4, atol=1e-4)
    assert near.sum() <= distances.sum() + 1e-3 * np.abs(distances).sum()
    assert not np.isin(found, [5, 77]).any()


def test_the_answer_does_not_depend_on_threads_or_on_where_a_walk_starts(vectors: Floats) -> None:
    centroids = train_kmeans(vectors[:8000], CENTROIDS, max_iters=3).centroids
    many = ManyCentroids.of(centroids, group_points, by_l2=True)
    points = np.concatenate([vectors, np.ones((ROWS, 1), dtype=np.float32)], axis=1)
    ids, scores = many.nearest(points)
    for other in (many.nearest(points, threads=3), many.around.nearest(points, ids)):
        assert np.array_equal(other[0], ids)
        np.testing.assert_allclose(other[1], scores, rtol=1e-5, atol=1e-5)
    again = many.nearest(points, threads=2)
    assert np.array_equal(again[1], scores)
    # From a neighbor of the nearest centroid, the walk almost always comes back to it.
    near = many.around.neighbors[ids, 1].astype(np.int64)
    assert (many.around.nearest(points, near)[0] == ids).mean() > 0.95


@pytest.mark.parametrize("spherical", [False, True])
def test_training_reaches_the_loss_of_full_comparisons(
    vectors: Floats, monkeypatch: pytest.MonkeyPatch, spherical: bool
) -> None:
    full = train_kmeans(vectors, CENTROIDS, spherical=spherical)
    monkeypatch.setattr(kmeans, "MANY_CENTROIDS", CENTROIDS)
    trained = train_kmeans(vectors, CENTROIDS, spherical=spherical)
    assert trained.loss <= 1.01 * full.loss
