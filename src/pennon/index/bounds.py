"""The ends of many intervals as keys, to search for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.conditions import ColumnRanges, Interval
from pennon.index.value_order import SearchKeys, SortedValues

Positions = npt.NDArray[np.int64]


class Bounds:
    """The ends of disjoint, ascending intervals. Only the first can be open below, only the last open above."""

    def __init__(self, intervals: Sequence[Interval], value_type: pa.DataType) -> None:
        self.count = len(intervals)
        self._open_low = bool(intervals) and intervals[0].low is None
        self._open_high = bool(intervals) and intervals[-1].high is None
        lows = intervals[1:] if self._open_low else intervals
        highs = intervals[:-1] if self._open_high else intervals
        # An excluded lower end is after the values equal to it, and so is an included upper end.
        self._lows = _keys([(i.low, not i.low_inclusive) for i in lows], value_type)
        self._highs = _keys([(i.high, i.high_inclusive) for i in highs], value_type)

    @classmethod
    def of(cls, condition: ColumnRanges) -> Bounds:
        """Of a condition; single values that were given as an array are used as they are."""
        known = condition.prepared.get("bounds")
        if known is None:
            known = condition.prepared["bounds"] = cls._of(condition)
        return known

    @classmethod
    def _of(cls, condition: ColumnRanges) -> Bounds:
        if condition.values is None:
            return cls(condition.intervals, condition.type)
        bounds = cls((), condition.type)
        bounds.count = len(condition.values)
        bounds._lows = SearchKeys.of_array(condition.values, right=False)
        bounds._highs = SearchKeys.of_array(condition.values, right=True)
        return bounds

    @cached_property
    def outermost(self) -> tuple[int | None, int | None]:
        """The keys of the lowest and of the highest end; None if that is open, or values have no keys."""
        lows, highs = self._lows.keys, self._highs.keys
        low = None if self._open_low or lows is None or not len(lows) else int(lows[0])
        return low, None if self._open_high or highs is None or not len(highs) else int(highs[-1])

    def starts(self, values: SortedValues, first: int = 0, last: int | None = None) -> Positions:
        """The number of values before each of the intervals [first, last)."""
        last = self.count if last is None else last
        shift = int(self._open_low)
        found = values.positions(self._lows, max(first - shift, 0), last - shift)
        return np.insert(found, 0, 0) if self._open_low and first == 0 < last else found

    def stops(self, values: SortedValues, first: int = 0, last: int | None = None) -> Positions:
        """The number of values before the end of each of the intervals [first, last)."""
        last = self.count if last is None else last
        closed = self.count - int(self._open_high)
        found = values.positions(self._highs, first, min(last, closed))
        return np.append(found, len(values)) if last > closed and first < last else found


def _keys(ends: list[tuple[Any, bool]], value_type: pa.DataType) -> SearchKeys:
    return SearchKeys([value for value, _ in ends], [right for _, right in ends], value_type)
