"""The extra bits of multi-bit RaBitQ: finds the scale at which a vector's magnitudes fit the grid best.

With a the magnitudes of a vector of length 1, the grid point at scale t is floor(t a) + 1/2, capped at 2^bits - 1/2.
The best scale has the smallest angle between the two. The largest scale to consider is (2^bits + 9) / max(a), and the
best is rarely below a certain fraction of it. pylance computes the angle at every scale at which some level changes;
but the optimum is flat: a few scales over the whole range and a few more around the best of them come within 0.5% of
its error (1 - cos) at the usual 4 extra bits, in a third of the time or less. Any scale is valid, since the factors
that turn a code into distances follow the code.
"""

from __future__ import annotations

import numpy as np

from pennon.index.vector.vectors import Codes, Floats

# By number of extra bits: the best scale is rarely below this fraction of the largest.
STARTS = np.array([0.0, 0.15, 0.20, 0.52, 0.59, 0.71, 0.75, 0.77, 0.81], dtype=np.float32)
BEYOND = 10
ROUNDING = np.float32(1e-5)

# The number of scales tried over the whole range, and between the best of them and its neighbors.
COARSE, FINE = 9, 3

# Elements at a time: every scale is a pass over them, which should stay in the processor's caches.
STEP_ELEMENTS = 1 << 15


def extra_codes(turned: Floats, bits: int) -> Codes:
    """[n, dim] values below 2^bits; where the rotated residual is negative, their complement."""
    codes = np.empty(turned.shape, dtype=np.uint8)
    step = max(16, STEP_ELEMENTS // turned.shape[1])
    for start in range(0, len(turned), step):
        rows = slice(start, start + step)
        codes[rows] = _grid_points(np.abs(turned[rows]), bits)
    return np.where(np.signbit(turned), codes ^ np.uint8((1 << bits) - 1), codes)


def _grid_points(magnitudes: Floats, bits: int) -> Floats:
    """The angle does not depend on the length, so the scales do not either: they depend on the largest magnitude."""
    top = np.float32((1 << bits) - 1)
    peaks = magnitudes.max(axis=1)
    # A vector of length 0 is its own centroid: any code is valid, its factors are 0.
    largest: Floats = np.divide(top + BEYOND, np.where(peaks > 0, peaks, 1), dtype=np.float32)
    scratch = np.empty_like(magnitudes)
    fractions = np.linspace(STARTS[bits] or 1 / COARSE, 1, COARSE, dtype=np.float32)
    best, angles = np.zeros_like(largest), np.full(len(largest), -1, dtype=np.float32)
    for fraction in fractions:
        _try(largest * fraction, magnitudes, top, best, angles, scratch)
    spacing = (fractions[1] - fractions[0]) / (FINE + 1)
    middle = best.copy()
    for step in (*range(-FINE, 0), *range(1, FINE + 1)):
        _try(middle + largest * (spacing * np.float32(step)), magnitudes, top, best, angles, scratch)
    return _levels_at(best, magnitudes, top, scratch)


def _try(scales: Floats, magnitudes: Floats, top: np.float32, best: Floats, angles: Floats, scratch: Floats) -> None:
    """Keep the scales that beat the best so far."""
    points = _levels_at(scales, magnitudes, top, scratch)
    points += np.float32(0.5)
    found = np.einsum("ij,ij->i", points, magnitudes)
    found /= np.sqrt(np.einsum("ij,ij->i", points, points))
    better = found > angles
    best[better], angles[better] = scales[better], found[better]


def _levels_at(scales: Floats, magnitudes: Floats, top: np.float32, out: Floats) -> Floats:
    np.multiply(magnitudes, scales[:, None], out=out)
    out += ROUNDING
    np.floor(out, out=out)
    return np.minimum(out, top, out=out)
