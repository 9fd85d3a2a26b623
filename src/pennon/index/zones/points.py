"""Single values of a condition, for lookups in Bloom filters."""

from __future__ import annotations

import pyarrow as pa

from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import Key, order_of

# Consecutive whole numbers are one range; the values of a range of at most this many are looked up one by one.
MOST_POINTS = 4096


def points_of(condition: ColumnRanges) -> pa.Array | None:
    """The values that a condition consists of; None if there are too many, or they cannot be enumerated."""
    if condition.values is not None:
        return condition.values
    order = order_of(condition.type)
    keys: list[Key] = []
    for span in condition.spans:
        low, high = order.low(span), order.high(span)
        if low is None or high is None or not low[1] or not high[1]:
            return None
        if isinstance(low[0], int) and isinstance(high[0], int) and _counts(order.family):
            if high[0] - low[0] >= MOST_POINTS - len(keys):
                return None
            keys += range(low[0], high[0] + 1)
        elif low[0] == high[0]:
            keys.append(low[0])
        else:
            return None
    return pa.array(order.scalars(keys), condition.type)


def _counts(family: str) -> bool:
    """Whether every key between two keys belongs to a value; for floats, -0.0 and 0.0 are neighbors."""
    return family in ("int", "bool", "date", "timestamp", "float")
