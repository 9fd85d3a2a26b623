"""The extra bits of multi-bit RaBitQ: finds the scale at which a vector's magnitudes fit the grid best.

With a the magnitudes of a vector of length 1, the grid point at scale t is floor(t a) + 1/2, capped at 2^bits - 1/2.
The best scale has the smallest angle between the two. The largest scale to consider is (2^bits + 9) / max(a), and the
best is rarely below a certain fraction of it. pylance computes the angle at every scale at which some level changes;
but the optimum is flat: a few scales over the whole range and a few more around the best of them come within 0.5% of
its error (1 - cos) at the usual 4 extra bits, in a fraction of the time. Any scale is valid, since the factors
that turn a code into distances follow the code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pennon.index.vector.vectors import Codes, Floats, Mask, Positions

# By number of extra bits: the best scale is rarely below this fraction of the largest.
STARTS = np.array([0.0, 0.15, 0.20, 0.52, 0.59, 0.71, 0.75, 0.77, 0.81], dtype=np.float32)
BEYOND = 10

# The number of scales tried over the whole range, and between the best of them and its neighbors.
COARSE, FINE = 9, 3


@dataclass(frozen=True, eq=False)
class GridPoints:
    """Rotated residuals on the grid: inner products of the signs (±1/2) and of the grid points with the residuals
    themselves and with their centroids, and of residuals with centroids."""

    extra: Codes  # [n, dim] values below 2^bits; where the residual is negative, their complement
    signs_self: Floats
    signs_centre: Floats
    self_: Floats
    centre: Floats
    residual_centre: Floats


def grid_points(turned: Floats, positive: Mask, which: Positions, centres: Floats, bits: int) -> GridPoints:
    """Of rotated residuals, around centres[which]; without extra bits, those of the signs alone."""
    # Kernels are compiled when they are imported, and searches do not encode.
    from pennon.index.vector.quantizers.rabitq.encoding_kernels import encode  # noqa: PLC0415

    extra = np.empty((len(turned) if bits else 0, turned.shape[1]), dtype=np.uint8)
    sums = np.empty((len(turned), 5), dtype=np.float32)
    fractions = np.linspace(STARTS[bits] or 1 / COARSE, 1, COARSE, dtype=np.float32)
    encode(turned, positive, which, centres, bits, BEYOND, fractions, FINE, extra, sums)
    return GridPoints(extra, *sums.T)
