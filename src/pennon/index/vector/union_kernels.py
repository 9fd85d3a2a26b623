"""Union and find over numbered rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba.types import int64

from pennon.index.compiled import GIVEN_I64, MADE_I64, compiled

if TYPE_CHECKING:
    from pennon.index.vector.vectors import Positions


@compiled(MADE_I64(int64, GIVEN_I64, GIVEN_I64))
def first_of_group(count: int, first: Positions, second: Positions) -> Positions:
    """The lowest of the rows that edges connect to each of `count` rows, directly or not."""
    parents = np.arange(count)
    for edge in range(len(first)):
        a, b = first[edge], second[edge]
        while parents[a] != a:
            parents[a] = parents[parents[a]]
            a = parents[a]
        while parents[b] != b:
            parents[b] = parents[parents[b]]
            b = parents[b]
        if a < b:
            parents[b] = a
        elif b < a:
            parents[a] = b
    for row in range(count):
        # A parent is lower than its row, so it already has its root.
        parents[row] = parents[parents[row]]
    return parents
