"""The nearest of all centroids, by numpy and by our kernel. The oracle computes all distances in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pennon.index.vector.assignment import all_centroids
from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.assignment.lowest_kernels import BLOCK_ITEMS, COLUMNS, ROWS
from pennon.index.vector.vectors import Floats

# Multiplications from which on the kernel does the work: none, and more than any test has.
WAYS = {"kernel": 0, "numpy": 1 << 60}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(all_centroids, "MUCH_WORK", WAYS[request.param])
    return request.param


def drawn(rows: int, dim: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, dim), dtype=np.float32)


def scores_of(vectors: Floats, centroids: Floats, by_l2: bool) -> Any:
    wide, columns = vectors.astype(np.float64), centroids.astype(np.float64)
    products = wide @ columns.T
    return (columns**2).sum(axis=1) - 2 * products if by_l2 else -products


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("by_l2", [True, False])
@pytest.mark.parametrize(
    ("rows", "centroids", "dim"),
    [
        (1, 1, 1),
        (ROWS - 1, COLUMNS - 1, 3),
        (ROWS + 1, COLUMNS + 1, 128),
        (1000, 2 * COLUMNS, 17),
        (700, 300, 768),
        (BLOCK_ITEMS // 4 + 5, 9, 4),
        (3, 5, BLOCK_ITEMS + 1),
        (0, 4, 8),
    ],
)
def test_every_vector_gets_the_nearest(rows: int, centroids: int, dim: int, by_l2: bool) -> None:
    vectors, columns = drawn(rows, dim), drawn(centroids, dim, seed=1)
    found = AllCentroids.of(columns, by_l2=by_l2).nearest(vectors)
    scores = scores_of(vectors, columns, by_l2)
    lowest = scores.min(axis=1)
    tolerance = 1e-5 * dim**0.5 * (1 + np.abs(scores).max(initial=0))
    np.testing.assert_allclose(found.scores, lowest, atol=tolerance)
    np.testing.assert_allclose(scores[np.arange(rows), found.ids], lowest, atol=tolerance)
    np.testing.assert_allclose(found.lengths, (vectors.astype(np.float64) ** 2).sum(axis=1), rtol=1e-4)


@pytest.mark.usefixtures("way")
def test_vectors_may_be_a_part_of_wider_ones_and_relative_to_a_middle() -> None:
    wide, centroids, middle = drawn(500, 30), drawn(70, 9, seed=1), drawn(1, 9, seed=2)[0].astype(np.float64)
    several = AllCentroids.of(centroids, by_l2=True)
    found = several.nearest(wide, middle, first_item=4)
    alone = several.nearest(np.ascontiguousarray(wide[:, 4:13]) - middle.astype(np.float32))
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("way")
def test_of_equal_centroids_the_first_is_the_nearest_and_one_that_is_not_finite_never() -> None:
    centroids = drawn(3, 6, seed=1).repeat(COLUMNS, axis=0)
    centroids[0], centroids[COLUMNS, 2] = np.nan, np.inf
    found = AllCentroids.of(centroids, by_l2=True).nearest(drawn(2000, 6))
    assert set(found.ids.tolist()) == {1, COLUMNS + 1, 2 * COLUMNS}


@pytest.mark.usefixtures("way")
def test_without_a_centroid_that_is_finite_scores_are_infinite() -> None:
    found = AllCentroids.of(np.full((3, 4), np.nan, dtype=np.float32), by_l2=True).nearest(drawn(5, 4))
    assert np.isinf(found.scores).all()
    assert not found.ids.any()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("threads", [2, 3, 64])
def test_any_number_of_threads_finds_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_centroids, "SHARED_WORK", 0)
    several, vectors = AllCentroids.of(drawn(90, 12, seed=1), by_l2=True), drawn(5003, 12)
    for one, other in zip(several.nearest(vectors), several.nearest(vectors, threads=threads), strict=True):
        np.testing.assert_array_equal(one, other)


def test_both_ways_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    several, vectors, found = AllCentroids.of(drawn(400, 64, seed=1), by_l2=True), drawn(20_000, 64), []
    for least in WAYS.values():
        monkeypatch.setattr(all_centroids, "MUCH_WORK", least)
        found.append(several.nearest(vectors))
    assert (found[0].ids == found[1].ids).mean() > 0.9999
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-3)
    np.testing.assert_allclose(found[0].lengths, found[1].lengths, rtol=1e-5)


def test_the_work_of_all_parts_decides_which_way_is_taken() -> None:
    several, vectors = AllCentroids.of(drawn(300, 32, seed=1), by_l2=True), drawn(4000, 32)
    whole = several.nearest(vectors, work=all_centroids.MUCH_WORK)
    parts = [several.nearest(part, work=all_centroids.MUCH_WORK) for part in np.split(vectors, 10)]
    np.testing.assert_array_equal(whole.scores, np.concatenate([part.scores for part in parts]))
