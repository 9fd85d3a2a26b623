"""The nearest of many centroids is found without comparing all of them. The oracle compares all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pennon.index.vector import ivf as ivf_module
from pennon.index.vector.assignment import many_centroids, neighborhood
from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.assignment.balanced_groups import balanced_groups
from pennon.index.vector.assignment.many_centroids import ManyCentroids
from pennon.index.vector.assignment.neighborhood import Neighborhood
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kmeans import nearest as nearest_module
from pennon.index.vector.kmeans import separation
from pennon.index.vector.kmeans.hierarchical import train_many
from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats

ROWS, DIM, CENTROIDS = 40_000, 24, 600


def clustered(rows: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(300, DIM))
    return (centers[rng.integers(0, 300, rows)] + 0.4 * rng.normal(size=(rows, DIM))).astype(np.float32)


@pytest.fixture(autouse=True)
def _few_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_module, "WALKED_CENTROIDS", CENTROIDS)


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
    many = ManyCentroids.of(centroids, by_l2=True)
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
    monkeypatch.setattr(nearest_module, "MANY_CENTROIDS", CENTROIDS)
    trained = train_kmeans(vectors, CENTROIDS, spherical=spherical)
    assert trained.loss <= 1.01 * full.loss


def test_points_of_a_centroid_that_is_taken_away_find_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 clusters that lie apart: groups of points cut some of them, and centroids have to move far."""
    rng = np.random.default_rng(3)
    centers = 4 * rng.normal(size=(600, DIM))
    points = (centers[rng.integers(0, 600, 30_000)] + 0.1 * rng.normal(size=(30_000, DIM))).astype(np.float32)
    before = train_many(points, CENTROIDS).loss
    monkeypatch.setattr(separation, "MANY_CENTROIDS", CENTROIDS - 1)
    assert train_many(points, CENTROIDS).loss <= 1.05 * before


@pytest.mark.parametrize("by_l2", [True, False])
def test_comparing_with_all_groups_is_exact(by_l2: bool, vectors: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK", "REACH"):
        monkeypatch.setattr(many_centroids, name, np.float32(1e6))
    monkeypatch.setattr(many_centroids, "MOST_GROUPS", CENTROIDS)
    monkeypatch.setattr(many_centroids, "WALKS", 1)
    centroids = vectors[:CENTROIDS].copy()
    centroids[[0, 50]] = np.nan
    points = np.concatenate([vectors[CENTROIDS:4000], np.ones((4000 - CENTROIDS, 1), dtype=np.float32)], axis=1)
    compared = ManyCentroids.of(centroids, by_l2=by_l2)
    monkeypatch.setattr(Neighborhood, "walk", lambda *_: None)
    ids, scores = compared.nearest(points)
    exact = AllCentroids.of(centroids, by_l2=by_l2).nearest(points)
    np.testing.assert_array_equal(ids, exact.ids)
    np.testing.assert_allclose(scores, exact.scores, rtol=1e-5, atol=1e-4)


def test_groups_are_of_about_equal_size_and_hold_every_centroid_once(vectors: Floats) -> None:
    tight = np.concatenate([vectors[:500], vectors[:1] + 1e-3 * vectors[1000:1400]]).astype(np.float32)
    for centroids, size in ((tight, 6), (tight, 2000), (np.ones((100, 4), dtype=np.float32), 9)):
        groups = balanced_groups(centroids, size)
        assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(centroids)))
        assert max(map(len, groups)) <= max(1.25 * len(centroids) / len(groups) + 1, size)
        assert all(map(np.array_equal, groups, balanced_groups(centroids, size)))


@pytest.mark.parametrize("by_l2", [True, False])
def test_neighbors_found_in_groups_are_mostly_the_nearest(
    vectors: Floats, by_l2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = np.linalg.norm(vectors[:4000], axis=1, keepdims=True)
    centroids = vectors[:4000] if by_l2 else (vectors[:4000] / lengths).astype(np.float32)
    groups = balanced_groups(centroids, 16)
    exact = Neighborhood.of(centroids, by_l2=by_l2, groups=groups)
    monkeypatch.setattr(neighborhood, "COMPARED_CENTROIDS", 1000)
    found = Neighborhood.of(centroids, by_l2=by_l2, groups=groups)
    assert found.neighbors.shape == exact.neighbors.shape
    same = [np.isin(mine, its).mean() for mine, its in zip(found.neighbors, exact.neighbors, strict=True)]
    assert np.mean(same) > 0.8


def test_equal_models_of_a_process_share_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(ManyCentroids):
        @classmethod
        def of(cls, centroids: np.ndarray, *, by_l2: bool) -> ManyCentroids:
            made.append(len(centroids))
            return ManyCentroids.of(centroids, by_l2=by_l2)

    monkeypatch.setattr(ivf_module, "MANY_CENTROIDS", 0)
    monkeypatch.setattr(ivf_module, "ManyCentroids", Counted)
    rng = np.random.default_rng(8)
    centroids, vectors = rng.standard_normal((2, 500, 8), dtype=np.float32)
    models = [Ivf(metric, centroids.copy()) for metric in (Metric.L2, Metric.L2, Metric.DOT)]
    with ThreadPoolExecutor(3) as threads:
        first, second, other = threads.map(lambda ivf: ivf.assign(vectors)[0], models)
    assert made == [500, 500]
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    del models, first, second, other
    assert len(Ivf(Metric.L2, centroids).assign(vectors)[0]) == 500
    assert len(made) == 3
