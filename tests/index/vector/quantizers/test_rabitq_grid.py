"""The scale of the extra bits: nearly as good as the best of all scales."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector.quantizers.rabitq.grid import GridPoints, grid_points
from pennon.index.vector.vectors import Floats


def coded(vectors: Floats, bits: int) -> GridPoints:
    centres = np.random.default_rng(9).standard_normal((2, vectors.shape[1])).astype(np.float32)
    return grid_points(vectors, ~np.signbit(vectors), np.arange(len(vectors)) % 2, centres, bits)


def errors(magnitudes: Floats, levels: Floats) -> Floats:
    """1 - cos of the angle between vectors and their grid points."""
    points = levels + 0.5
    cosines = (points * magnitudes).sum(axis=1) / np.linalg.norm(points, axis=1)
    return 1 - cosines / np.linalg.norm(magnitudes.astype(np.float64), axis=1)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("heavy", [False, True])
def test_codes_are_as_good_as_a_search_of_every_scale(bits: int, heavy: bool) -> None:
    rng = np.random.default_rng(bits)
    drawn = rng.standard_t(3, (300, 64)) if heavy else rng.standard_normal((300, 64))
    vectors = drawn.astype(np.float32)
    top = (1 << bits) - 1
    codes = coded(vectors, bits).extra
    assert codes.max() <= top
    levels = np.where(vectors < 0, codes ^ top, codes)
    magnitudes = np.abs(vectors)
    best = np.full(300, np.inf)
    for fraction in np.linspace(0.02, 1, 800):
        scales = fraction * (top + 10) / magnitudes.max(axis=1, keepdims=True)
        best = np.minimum(best, errors(magnitudes, np.minimum(np.floor(magnitudes * scales), top)))
    assert errors(magnitudes, levels).mean() <= 1.02 * best.mean()


def test_vectors_of_length_zero_have_some_code() -> None:
    codes = coded(np.zeros((3, 16), dtype=np.float32), 4).extra
    assert codes.shape == (3, 16)


@pytest.mark.parametrize("bits", [0, 4])
def test_sums_are_those_of_the_codes(bits: int) -> None:
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((50, 24)).astype(np.float32)
    vectors[7, :3] = (0.0, -0.0, 0.0)
    centres = rng.standard_normal((4, 24)).astype(np.float32)
    which, positive = rng.integers(0, 4, 50), ~np.signbit(vectors)
    found = grid_points(vectors, positive, which, centres, bits)
    signs, own = positive - 0.5, centres[which].astype(np.float64)
    expected = {
        "signs_self": signs * vectors,
        "signs_centre": signs * own,
        "residual_centre": vectors * own,
    }
    if bits:
        grid = positive * 16 + found.extra - 15.5
        assert np.array_equal(np.sign(grid), np.sign(signs))
        expected |= {"self_": grid * vectors, "centre": grid * own}
    for name, products in expected.items():
        np.testing.assert_allclose(getattr(found, name), products.sum(axis=1), rtol=1e-4, atol=1e-4)
