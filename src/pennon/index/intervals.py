"""Ranges of a column's values, in the column's own order: what a predicate asks of a scalar index."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Interval:
    """Values from low to high in the column's order; None is unbounded."""

    low: pa.Scalar | None
    low_inclusive: bool
    high: pa.Scalar | None
    high_inclusive: bool
