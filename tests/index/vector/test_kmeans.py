"""k-means: as good as faiss's in fewer passes, in parts as in one piece, whatever the points are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
import pytest

from pennon.errors import InvalidArgument
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kmeans import nearest as nearest_module
from pennon.index.vector.kmeans import partials as partials_module
from pennon.index.vector.kmeans import points as points_module
from pennon.index.vector.kmeans.hierarchical import hierarchical_start, train_many
from pennon.index.vector.kmeans.nearest import nearest_centroids
from pennon.index.vector.kmeans.partials import Assigning, Partials, partials, summed, updated
from pennon.index.vector.kmeans.passes import STRIDE
from pennon.index.vector.kmeans.training import train_kmeans
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.pq.codebook import train_codebook
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.vectors import Floats, Vectors
from tests.support.vectors import clustered


def blobs(rows: int, dim: int, count: int, spread: float = 0.3) -> Floats:
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((count, dim))
    return (centres[rng.integers(0, count, rows)] + spread * rng.standard_normal((rows, dim))).astype(np.float32)


def gaussian(rows: int, dim: int) -> Floats:
    return np.random.default_rng(2).standard_normal((rows, dim), dtype=np.float32)


def plain_distances(points: Vectors, centroids: Vectors, spherical: bool) -> np.ndarray:
    wide, middles = points.astype(np.float64), centroids.astype(np.float64)
    if spherical:
        return np.linalg.norm(wide, axis=1)[:, None] - wide @ middles.T
    return (wide**2).sum(axis=1)[:, None] - 2 * wide @ middles.T + (middles**2).sum(axis=1)


def loss_of(points: Vectors, centroids: Vectors, spherical: bool = False) -> float:
    middle = 0 if spherical else points.mean(axis=0, dtype=np.float64)
    return float(plain_distances(points - middle, centroids - middle, spherical).min(axis=1).sum())


def faiss_centroids(points: Floats, k: int, spherical: bool = False) -> Floats:
    trained: Any = faiss.Kmeans(
        points.shape[1],
        k,
        niter=50,
        seed=0,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    trained.train(points)
    return trained.centroids


@pytest.mark.parametrize("spherical", [False, True])
@pytest.mark.parametrize(
    ("points", "k"),
    [
        pytest.param(blobs(16384, 32, 500), 64, id="more blobs than centroids"),
        pytest.param(blobs(4096, 16, 50), 128, id="fewer blobs than centroids"),
        pytest.param(gaussian(8192, 32), 32, id="no clusters"),
        pytest.param(gaussian(1000, 24), 100, id="ten points a centroid"),
    ],
)
def test_the_loss_is_that_of_faiss(points: Floats, k: int, spherical: bool) -> None:
    found = train_kmeans(points, k, spherical=spherical)
    loss, theirs = (loss_of(points, c, spherical) for c in (found.centroids, faiss_centroids(points, k, spherical)))
    assert loss <= 1.005 * theirs
    assert loss <= found.loss * (1 + 1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_all_clusters_that_lie_apart_are_found(seed: int) -> None:
    points = blobs(8192, 32, 60, spread=0.05)
    assert train_kmeans(points, 60, seed=seed).loss < 1.1 * 0.05**2 * points.size


@pytest.mark.parametrize("seed", range(4))
def test_all_directions_that_lie_apart_are_found(seed: int) -> None:
    points = blobs(8192, 32, 60, spread=0.05)
    ideal = train_kmeans(points, 60, spherical=True, seed=99).loss
    assert train_kmeans(points * 3, 60, spherical=True, seed=seed).loss < 1.1 * 3 * ideal


@pytest.fixture
def _threads() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    before = faiss.omp_get_max_threads()
    yield
    faiss.omp_set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_equal_seeds_give_equal_bits_with_any_number_of_threads() -> None:
    points = blobs(20_000, 64, 500)
    faiss.omp_set_num_threads(1)
    first, second = train_kmeans(points, 256, seed=5), train_kmeans(points, 256, seed=6)
    faiss.omp_set_num_threads(3)
    again = train_kmeans(points, 256, seed=5)
    np.testing.assert_array_equal(first.centroids, again.centroids)
    assert (first.loss, first.iterations) == (again.loss, again.iterations)
    assert not np.array_equal(first.centroids, second.centroids)


@pytest.mark.parametrize("offset", [0, 300])
@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("spherical", [False, True])
def test_partials_are_sums_over_the_points(element: Any, offset: int, spherical: bool) -> None:
    points = (clustered(3000, 24) + offset).astype(element)
    centroids = points[::100].astype(np.float32)
    if spherical:
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    found = partials(points, centroids, spherical=spherical)
    table = plain_distances(points, centroids, spherical)
    assert found.counts.sum() == len(points)
    np.testing.assert_allclose(
        found.loss, table.min(axis=1).sum(), rtol=1e-4, atol=1e-8 * np.abs(points).sum(dtype=np.float64)
    )
    np.testing.assert_allclose(found.sums.sum(axis=0), points.sum(axis=0, dtype=np.float64), rtol=1e-5)
    scale = np.linalg.norm(points.astype(np.float64), axis=1).max() if spherical else table.max()
    clear = np.diff(np.partition(table, 1, axis=1)[:, :2])[:, 0] > 1e-6 * scale
    ids = table.argmin(axis=1)
    # A point as near to a second centroid, as far as float32 can tell, may count for either.
    assert np.abs(found.counts - np.bincount(ids, minlength=30)).sum() <= 2 * (~clear).sum()
    for i in np.flatnonzero(np.bincount(ids[~clear], minlength=30) == 0):
        if found.counts[i] == (ids == i).sum():
            np.testing.assert_allclose(found.sums[i], points[ids == i].sum(axis=0, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("spherical", [False, True])
def test_partials_of_blocks_add_up(spherical: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    points, centroids = gaussian(5000, 40), gaussian(60, 40)
    whole = partials(points, centroids, spherical=spherical)
    blocks = [partials(block, centroids, spherical=spherical) for block in np.split(points, [0, 100, 3333])]
    monkeypatch.setattr(points_module, "BLOCK_ROWS", 700)
    for other in (sum(blocks[1:], blocks[0]), partials(points, centroids, spherical=spherical)):
        np.testing.assert_array_equal(whole.counts, other.counts)
        np.testing.assert_allclose(whole.sums, other.sums, atol=1e-3)
        np.testing.assert_allclose(whole.losses, other.losses, rtol=1e-5)


@pytest.mark.parametrize("spherical", [False, True])
def test_steps_apart_reach_what_training_reaches(spherical: bool) -> None:
    points = blobs(4000, 16, 200)
    parts = np.array_split(points, 3)
    centroids = updated(points[:20], partials(points, points[:20]), spherical=spherical)
    for step in range(15):
        found = [partials(part, centroids, spherical=spherical) for part in parts]
        centroids = updated(centroids, sum(found[1:], found[0]), spherical=spherical, seed=step)
    trained = train_kmeans(points, 20, spherical=spherical).centroids
    assert loss_of(points, centroids, spherical) < 1.03 * loss_of(points, trained, spherical)


@pytest.mark.parametrize("spherical", [False, True])
def test_centroids_without_points_move_to_where_the_loss_is(spherical: bool) -> None:
    tight, loose = np.full((500, 8), 5.0), np.random.default_rng(3).standard_normal((500, 8)) - 5
    points = np.concatenate([tight, loose]).astype(np.float32)
    lost = np.tile([5.0, -5, 5, -5, 5, -5, 5, -5], (3, 1)) * ([[1], [2], [3]] if not spherical else 1)
    centroids = np.concatenate([points[:1], points[-1:], lost]).astype(np.float32)
    if spherical:
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    before = partials(points, centroids, spherical=spherical)
    assert np.flatnonzero(before.counts).tolist() == [0, 1]
    moved = updated(centroids, before, spherical=spherical, seed=1)
    np.testing.assert_array_equal(moved, updated(centroids, before, spherical=spherical, seed=1))
    np.testing.assert_array_equal(updated(centroids, before, spherical=spherical, refill=np.inf)[2:], centroids[2:])
    after = partials(points, moved, spherical=spherical)
    assert (after.counts > 0).all()
    assert after.counts[0] == 500
    assert after.loss < before.loss


def test_centroids_without_points_stay_where_nothing_can_be_shared() -> None:
    centroids = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = Partials(np.zeros((3, 4)), np.zeros(3, dtype=np.int64), np.zeros(3))
    np.testing.assert_array_equal(updated(centroids, found), centroids)


@pytest.mark.parametrize("spherical", [False, True])
@pytest.mark.parametrize(
    ("points", "k"),
    [
        pytest.param(np.ones((50, 6)), 20, id="one point many times"),
        pytest.param(np.zeros((50, 6)), 20, id="zeros"),
        pytest.param(np.repeat(gaussian(7, 6), 300, axis=0), 40, id="fewer points than centroids"),
        pytest.param(gaussian(40, 6), 40, id="a centroid for each point"),
        pytest.param(gaussian(1, 6), 1, id="one point"),
    ],
)
def test_repeated_and_few_points(points: Vectors, k: int, spherical: bool) -> None:
    for elements in (points.astype(np.float16), points.astype(np.float32), points.astype(np.float64)):
        for find in (train_kmeans, train_many, hierarchical_start):
            found: Any = find(elements, k, spherical=spherical)
            centroids = found if find is hierarchical_start else found.centroids
            assert centroids.shape == (k, 6)
            assert np.isfinite(centroids).all()
            if find is train_kmeans:
                np.testing.assert_allclose(loss_of(elements, centroids, spherical), 0, atol=1e-3)


def test_one_centroid_is_the_mean() -> None:
    points = gaussian(3000, 10) + np.float32(2)
    np.testing.assert_allclose(train_kmeans(points, 1).centroids, points.mean(axis=0)[None], rtol=1e-5)


@pytest.mark.parametrize(("element", "offset"), [(np.float32, 1e4), (np.float64, 1e8), (np.float16, 100)])
def test_a_common_offset_costs_nothing(element: Any, offset: float) -> None:
    points = blobs(8192, 16, 100).astype(np.float64)
    moved = (points + offset).astype(element)
    near = loss_of(points, train_kmeans(points, 50).centroids)
    found = train_kmeans(moved, 50).centroids
    assert found.dtype == (np.float64 if element is np.float64 else np.float32)
    assert loss_of(moved, found) < 1.03 * near


def test_passes_are_bounded() -> None:
    points = blobs(2000, 16, 100)
    assert train_kmeans(points, 64, max_iters=2).iterations == 2
    assert train_kmeans(points, 64, tolerance=0, max_iters=11).iterations == 11
    assert train_kmeans(points, 64).iterations < 20


@pytest.mark.parametrize("spherical", [False, True])
def test_centroids_found_in_groups_are_a_good_start(spherical: bool) -> None:
    points = blobs(8192, 24, 500)
    trained = loss_of(points, train_kmeans(points, 256, spherical=spherical).centroids, spherical)
    start = hierarchical_start(points, 256, spherical=spherical)
    assert start.shape == (256, 24)
    np.testing.assert_array_equal(start, hierarchical_start(points, 256, spherical=spherical))
    assert loss_of(points, start, spherical) < 1.2 * trained
    for _ in range(3):
        start = updated(start, partials(points, start, spherical=spherical), spherical=spherical, stride=STRIDE)
    assert loss_of(points, start, spherical) < 1.1 * trained


@pytest.mark.parametrize("spherical", [False, True])
@pytest.mark.parametrize("points", [blobs(16384, 24, 500), gaussian(16384, 24)], ids=["blobs", "no clusters"])
def test_training_by_groups_reaches_the_loss_of_training_without(
    points: Floats, spherical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_module, "WALKED_CENTROIDS", 512)
    trained = loss_of(points, train_kmeans(points, 512, spherical=spherical).centroids, spherical)
    found = train_many(points, 512, spherical=spherical)
    assert loss_of(points, found.centroids, spherical) <= 1.02 * trained


@pytest.mark.usefixtures("_threads")
def test_training_by_groups_gives_equal_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_module, "WALKED_CENTROIDS", 512)
    points = blobs(20_000, 32, 500)
    faiss.omp_set_num_threads(1)
    first, second = train_many(points, 600, seed=5), train_many(points, 600, seed=6)
    faiss.omp_set_num_threads(3)
    again = train_many(points, 600, seed=5)
    np.testing.assert_array_equal(first.centroids, again.centroids)
    assert (first.loss, first.iterations) == (again.loss, again.iterations)
    assert not np.array_equal(first.centroids, second.centroids)


@pytest.mark.parametrize("train", [train_kmeans, train_many])
def test_too_few_points_are_refused(train: Any) -> None:
    with pytest.raises(InvalidArgument, match="5 vectors"):
        train(gaussian(5, 4), 6)


@pytest.mark.parametrize("num_bits", [4, 8])
@pytest.mark.parametrize("points", [blobs(8192, 32, 300), gaussian(8192, 32)], ids=["blobs", "no clusters"])
def test_codebooks_are_as_good_as_those_of_faiss(points: Floats, num_bits: int) -> None:
    ivf = Ivf.train(points, Metric.L2, 16)
    quantizer = ProductQuantizer.train(points, ivf, num_sub_vectors=4, num_bits=num_bits)
    targets = ProductQuantizer.targets(points, ivf)
    theirs: Any = faiss.ProductQuantizer(32, 4, num_bits)
    theirs.cp.niter, theirs.cp.max_points_per_centroid = 50, len(points)
    theirs.train(targets)
    error = ((theirs.decode(theirs.compute_codes(targets)) - targets) ** 2).sum(dtype=np.float64)
    ids = ivf.assign(points)[0]
    decoded = quantizer.points(quantizer.encode(points, ivf.centroids, ids))
    assert ((decoded - targets) ** 2).sum(dtype=np.float64) <= 1.01 * error


def test_codebooks_can_be_trained_apart() -> None:
    points = blobs(3000, 12, 50).astype(np.float16)
    ivf = Ivf.train(points, Metric.COSINE, 4)
    quantizer = ProductQuantizer.train(points, ivf, num_sub_vectors=2, num_bits=4, max_iters=5, seed=3)
    targets = ProductQuantizer.targets(points, ivf)
    apart = [train_codebook(targets[:, 6 * i : 6 * i + 6], 4, max_iters=5, seed=3 + i) for i in range(2)]
    np.testing.assert_array_equal(quantizer.codebook, np.stack(apart).astype(np.float16))


@pytest.mark.parametrize("spherical", [False, True])
def test_pieces_that_share_groups_add_up(spherical: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (partials_module, nearest_module):
        monkeypatch.setattr(module, "MANY_CENTROIDS", 64)
    points = clustered(3000, 20, seed=8).astype(np.float32)
    assigning = Assigning.of(points[:80], spherical=spherical)
    assert assigning.groups is not None
    whole, ids = assigning.partials(points)
    rows = points_module.prepared(points, assigning.middle, spherical)
    alone = summed(rows, *nearest_centroids(rows, assigning.centroids, spherical), 80)
    assert np.array_equal(alone.counts, whole.counts)
    assert np.array_equal(alone.sums + alone.counts[:, None] * assigning.middle, whole.sums)
    assert np.array_equal(alone.losses, whole.losses)
    pieces = [assigning.partials(piece) for piece in np.split(points, [100, 2000])]
    assert np.array_equal(ids, np.concatenate([piece for _, piece in pieces]))
    assert np.array_equal(whole.counts, np.bincount(ids, minlength=80))
    np.testing.assert_allclose(sum(piece.loss for piece, _ in pieces), whole.loss, rtol=1e-6)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_adds_up_the_same(threads: int) -> None:
    rows = points_module.prepared(gaussian(60_000, 20), np.zeros(20), False)
    ids, distances = nearest_centroids(rows, rows[:5, :20].copy(), False)
    assert rows.size >= partials_module.MUCH_ADDED
    alone, shared = summed(rows, ids, distances, 5), summed(rows, ids, distances, 5, threads)
    np.testing.assert_array_equal(alone.sums, shared.sums)
    expected = [rows[ids == number, :20].sum(axis=0, dtype=np.float64) for number in range(5)]
    np.testing.assert_allclose(shared.sums, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("spherical", [False, True])
def test_passes_walk_from_the_nearest_centroids_of_the_pass_before(
    spherical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_module, "WALKED_CENTROIDS", 512)
    points = blobs(12_000, 24, 300)
    start = hierarchical_start(points, 600, spherical=spherical)
    found, ids = Assigning.of(start, spherical=spherical).partials(points)
    moved = updated(start, found, spherical=spherical)
    walking = Assigning.of(moved, spherical=spherical, walks=True)
    assert walking.around is not None
    walked, near = walking.partials(points, ids)
    compared, nearest = Assigning.of(moved, spherical=spherical).partials(points)
    assert (near == nearest).mean() > 0.99
    assert walked.counts.sum() == len(points)
    assert compared.loss <= walked.loss * (1 + 1e-6) <= 1.005 * compared.loss
