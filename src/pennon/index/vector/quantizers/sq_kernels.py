"""The kernel that encodes vectors as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.types import float32, float64, uint8, void

from pennon.index.compiled import compiled, given


@compiled(
    *(void(given(item, 2), float64, float64, uint8[:, ::1]) for item in (float32, float64)),
    raising=False,
)
def encode(vectors: Any, low: float, span: float, codes: Any) -> None:
    """trunc((x - low) * 255 / span), from 0 to 255."""
    rows, dim = vectors.shape
    for row in range(rows):
        for i in range(dim):
            scaled = (np.float64(vectors[row, i]) - low) * 255.0 / span
            codes[row, i] = np.uint8(np.int32(min(max(scaled, 0.0), 255.0)))
