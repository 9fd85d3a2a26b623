"""The kernel that encodes rotated residuals: the scale of each row's grid, its levels, and the sums that factors follow
from. `grid` describes the choice of the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import boolean, float32, int64, uint8, void

from pennon.index.arrays import Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, compiled, given

# Sums may be computed in any order.
SUMS = frozenset({"reassoc", "contract", "nsz", "nnan"})

# Added to scaled magnitudes before they are rounded down.
ROUNDING = np.float32(1e-5)


@compiled(float32(GIVEN_F32, float32, float32), fastmath=SUMS, inline=True)
def _angle(magnitudes: Float32s, scale: np.float32, top: np.float32) -> np.float32:
    """Grows with the cosine of the angle between a row and its grid point at a scale."""
    product, squares = np.float32(0), np.float32(0)
    for i in range(len(magnitudes)):
        level = min(np.floor(magnitudes[i] * scale + ROUNDING), top) + np.float32(0.5)
        product += level * magnitudes[i]
        squares += level * level
    return np.float32(product / np.sqrt(squares))


@compiled(
    void(
        given(float32, 2),
        given(boolean, 2),
        GIVEN_I64,
        given(float32, 2),
        int64,
        int64,
        GIVEN_F32,
        int64,
        uint8[:, ::1],
        float32[:, ::1],
    ),
    fastmath=SUMS,
)
def encode(
    turned: Any,
    positive: Any,
    which: Int64s,
    centres: Any,
    bits: Int,
    beyond: Int,
    fractions: Float32s,
    fine: Int,
    extra: Any,
    sums: Any,
) -> None:
    """The extra codes of rotated rows, and five sums of each: the products of its signs (±1/2) with itself and with its
    centre, those of its grid point, and that of the row with its centre. Without extra bits there is no grid."""
    count, dim = turned.shape
    top, mask = np.float32((1 << bits) - 1), np.uint8((1 << bits) - 1)
    spacing = (fractions[1] - fractions[0]) / np.float32(fine + 1)
    magnitudes = np.empty(dim, np.float32)
    for row in range(count):
        centre = which[row]
        peak, total, near, product = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for i in range(dim):
            item, other = turned[row, i], centres[centre, i]
            magnitude = abs(item)
            magnitudes[i] = magnitude
            peak = max(peak, magnitude)
            total += magnitude
            near += other if positive[row, i] else -other
            product += item * other
        sums[row, 0], sums[row, 1], sums[row, 4] = total / np.float32(2), near / np.float32(2), product
        if not bits:
            continue
        # A row of length 0 is its own centroid: any code is valid, its factors are 0.
        largest = (top + np.float32(beyond)) / (peak if peak > 0 else np.float32(1))
        best, found = np.float32(0), np.float32(-1)
        for fraction in fractions:
            angle = _angle(magnitudes, largest * fraction, top)
            if angle > found:
                best, found = largest * fraction, angle
        middle = best
        for step in range(-fine, fine + 1):
            scale = middle + largest * (spacing * np.float32(step))
            angle = _angle(magnitudes, scale, top)
            if angle > found:
                best, found = scale, angle
        total, near = np.float32(0), np.float32(0)
        for i in range(dim):
            level = min(np.floor(magnitudes[i] * best + ROUNDING), top)
            code, other = np.uint8(np.int32(level)), centres[centre, i]
            extra[row, i] = code if positive[row, i] else code ^ mask
            level += np.float32(0.5)
            total += level * magnitudes[i]
            near += level * (other if positive[row, i] else -other)
        sums[row, 2], sums[row, 3] = total, near
