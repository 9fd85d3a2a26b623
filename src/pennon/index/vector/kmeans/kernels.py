"""The sums of a pass."""

from __future__ import annotations

from numba.types import float32, float64, int64, void

from pennon.index.arrays import Float32s, Int, Int64s
from pennon.index.compiled import GIVEN_I64, compiled, given
from pennon.index.vector.kmeans.points import Doubles


@compiled(void(given(float32, 2), GIVEN_I64, int64, int64, float64[:, ::1]))
def add_up(rows: Float32s, ids: Int64s, first: Int, end: Int, sums: Doubles) -> None:
    """Add the first items of each row to the sum of its centroid, if that is one of those from `first` to `end`."""
    dim = sums.shape[1]
    for row in range(len(ids)):
        centroid = ids[row]
        if first <= centroid < end:
            for i in range(dim):
                sums[centroid, i] += rows[row, i]
