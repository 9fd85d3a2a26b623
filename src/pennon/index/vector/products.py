"""Matrix products of the size of a partition."""

from __future__ import annotations

import numpy as np

from pennon.index.vector.vectors import Floats

# Up to this many points, a product with the rows on the left, transposed afterwards, is faster, for few points twice as
# fast.
TURNED_POINTS = 48


def inner_products(points: Floats, rows: Floats, out: Floats) -> None:
    """The inner products of every point with every row, [points, rows]."""
    if 1 < len(points) <= TURNED_POINTS:
        np.copyto(out, (rows @ points.T).T)
    else:
        np.matmul(points, rows.T, out=out)
