"""The extra bits of multi-bit RaBitQ: on which scale a vector's magnitudes fit the grid best.

With a the magnitudes of a vector of length 1, the grid point at scale t is floor(t a) + 1/2, capped at 2^bits - 1/2.
The best scale has the smallest angle between the two. The grid point changes only where t a_i reaches a whole number,
so those thresholds are put in order and the angle is followed from one to the next. The largest scale is
(2^bits + 9) / max(a); the search starts at a fraction of it, and the start itself counts.

With many bits the optimum is so flat that rounding decides. All sums are therefore float32 and taken in stock's order:
equal vectors get equal codes, whoever encodes them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pennon.index.vector.vectors import Codes, Floats, sums_in_order

# By number of extra bits. Below these fractions of the largest scale the best one is rarely found.
STARTS = np.array([0.0, 0.15, 0.20, 0.52, 0.59, 0.71, 0.75, 0.77, 0.81], dtype=np.float32)
BEYOND = 10
ROUNDING = np.float32(1e-5)

# Elements at a time: each has several thresholds, and what is known of them should stay in the processor's caches.
STEP_ELEMENTS = 1 << 15

# A threshold as one integer: the bits of the scale, which order like it, then its dimension, then its level.
SCALE_SHIFT, DIMENSION_SHIFT, LEVEL_MASK = 32, 8, 0xFF
DIMENSION_MASK = (1 << SCALE_SHIFT - DIMENSION_SHIFT) - 1
NO_THRESHOLD = np.int64(0x7F7F_FFFF << SCALE_SHIFT)  # the largest float, of no level


def extra_codes(turned: Floats, bits: int) -> Codes:
    """[n, dim] values below 2^bits; where the rotated residual is negative, their complement."""
    codes = np.empty(turned.shape, dtype=np.uint8)
    step = max(16, STEP_ELEMENTS // turned.shape[1])
    for start in range(0, len(turned), step):
        rows = slice(start, start + step)
        codes[rows] = _grid_points(np.abs(turned[rows]), bits)
    return np.where(np.signbit(turned), codes ^ np.uint8((1 << bits) - 1), codes)


def _grid_points(magnitudes: Floats, bits: int) -> Floats:
    lengths = np.sqrt(sums_in_order(magnitudes * magnitudes))
    # A vector of length 0 is its own centroid: any code will do, its factors are 0.
    magnitudes = np.divide(magnitudes, np.where(lengths > 0, lengths, 1)[:, None], dtype=np.float32)
    top = (1 << bits) - 1
    peaks = np.where(lengths > 0, magnitudes.max(axis=1), 1)
    largest = np.divide(top + BEYOND, peaks, dtype=np.float32)
    scales = _best_scales(magnitudes, largest * STARTS[bits], largest, top)
    return _levels_at(scales, magnitudes, top)


def _levels_at(scales: Floats, magnitudes: Floats, top: int) -> Floats:
    return np.minimum(np.floor(scales[:, None] * magnitudes + ROUNDING), np.float32(top))


def _best_scales(magnitudes: Floats, first: Floats, largest: Floats, top: int) -> Floats:
    below = _levels_at(first, magnitudes, top)
    thresholds, counts = _thresholds(magnitudes, below, largest, top)
    if not thresholds.shape[1]:
        return first
    products = sums_in_order((below + np.float32(0.5)) * magnitudes)
    squares = sums_in_order(below * below + below) + np.float32(magnitudes.shape[1] / 4)
    start = products / np.sqrt(squares)
    # Passing a threshold of level l adds a to the inner product and 2l to the squared length of the grid point.
    passed = np.take_along_axis(magnitudes, thresholds >> DIMENSION_SHIFT & DIMENSION_MASK, axis=1)
    passed[:, 0] += products
    grown = (thresholds & LEVEL_MASK).astype(np.float32)
    grown *= 2
    grown[:, 0] += squares
    cosines = np.cumsum(passed, axis=1, out=passed)
    cosines /= np.sqrt(np.cumsum(grown, axis=1, out=grown), out=grown)
    cosines[np.arange(thresholds.shape[1]) >= counts[:, None]] = -1
    best = cosines.argmax(axis=1)[:, None]
    scales = (np.take_along_axis(thresholds, best, axis=1)[:, 0] >> SCALE_SHIFT).astype(np.int32).view(np.float32)
    return np.where(np.take_along_axis(cosines, best, axis=1)[:, 0] > start, scales, first)


def _thresholds(
    magnitudes: Floats, below: Floats, largest: Floats, top: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Per row the scales at which some dimension reaches its next level, ascending, and how many there are.

    One sort of plain integers, for which the processor has vector instructions, orders scales and what they stand for.
    """
    rows, dim = magnitudes.shape
    above = np.minimum(np.ceil(largest[:, None] * magnitudes) - 1, np.float32(top))
    counts = np.maximum(above - below, 0).astype(np.int64)
    flat_counts, per_row = counts.reshape(-1), counts.sum(axis=1)
    # The n-th threshold of a dimension has the level below + n.
    bases = np.tile(np.arange(dim) << DIMENSION_SHIFT, rows) + below.reshape(-1).astype(np.int64)
    bases -= np.cumsum(flat_counts) - flat_counts
    keys = np.repeat(bases, flat_counts)
    keys += np.arange(1, len(keys) + 1)
    scales = (keys & LEVEL_MASK).astype(np.float32)
    scales /= np.repeat(magnitudes.reshape(-1), flat_counts)
    keys |= scales.view(np.int32).astype(np.int64) << SCALE_SHIFT
    ordered = np.full((rows, int(per_row.max(initial=0))), NO_THRESHOLD)
    ordered[np.arange(ordered.shape[1]) < per_row[:, None]] = keys
    ordered.sort(axis=1)
    return ordered, per_row
