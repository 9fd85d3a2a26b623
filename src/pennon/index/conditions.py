"""Conditions on one column that an index may answer. A filter is a tree of them; see `pennon.query.filter`.

A condition selects the rows for which it is TRUE. When not `exact`, it selects every TRUE row of the original filter
but possibly others too: the filter must be checked on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa

from pennon.index.key_spans import PointSpans, Spans, order_of


@dataclass(frozen=True)
class Interval:
    """Values from low to high in the column's order; None is unbounded."""

    low: pa.Scalar | None
    low_inclusive: bool
    high: pa.Scalar | None
    high_inclusive: bool


@dataclass(frozen=True)
class ColumnRanges:
    """TRUE for the rows whose value is in one of the sorted, disjoint spans, or is NULL if `nulls`."""

    column: str
    type: pa.DataType
    spans: Spans
    nulls: bool = False
    exact: bool = True

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """The spans in Arrow values of exactly the column's type."""
        if self.values is not None:
            return tuple(Interval(value, True, value, True) for value in self.values)
        order = order_of(self.type)
        lows = [order.low(span) for span in self.spans]
        highs = [order.high(span) for span in self.spans]
        keys = dict.fromkeys(end[0] for end in chain(lows, highs) if end is not None)
        values = dict(zip(keys, order.scalars(list(keys)), strict=True))
        return tuple(
            Interval(
                None if low is None else values[low[0]],
                low is not None and low[1],
                None if high is None else values[high[0]],
                high is not None and high[1],
            )
            for low, high in zip(lows, highs, strict=True)
        )

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """What searches have worked out for the condition, to be used again for all segments of an index."""
        return {}

    @property
    def values(self) -> pa.Array | None:
        """The single values that the spans consist of, if they were given as an array; searches use it as it is."""
        return self.spans.values if isinstance(self.spans, PointSpans) else None

    @property
    def is_everything(self) -> bool:
        """Whether every value is in the spans; NULL is not a value."""
        return self.spans == order_of(self.type).everything

    @property
    def points(self) -> tuple[pa.Scalar, ...] | None:
        """The single values that the spans consist of; None if one of them is a range."""
        found = [interval.low for interval in self.intervals if interval.low is not None and _is_point(interval)]
        return tuple(found) if len(found) == len(self.spans) else None

    def __hash__(self) -> int:  # Planners key dictionaries by it, and there may be many thousand spans.
        return hash((self.column, len(self.spans), self.spans[:1], self.nulls))

    def __str__(self) -> str:
        parts = [_text(interval) for interval in self.intervals[:4]] + ["NULL"] * self.nulls
        if len(self.spans) > 4:
            parts.insert(4, f"{len(self.spans) - 4} more")
        return f"{self.column} in {{{'; '.join(parts)}}}{'' if self.exact else ' or near it'}"


@dataclass(frozen=True)
class HasLabels:
    """TRUE for the rows whose list holds any of the labels, or all of them if `every`.

    When `negated`, TRUE for the rows for which SQL evaluates that to FALSE, not for those with NULL. A label None means
    a NULL element.
    """

    column: str
    type: pa.DataType
    labels: tuple[pa.Scalar | None, ...]
    every: bool = False
    negated: bool = False
    exact: bool = True

    def __hash__(self) -> int:
        return hash((self.column, len(self.labels), self.every, self.negated))

    def __str__(self) -> str:
        labels = ", ".join("NULL" if label is None else str(label) for label in self.labels[:4])
        more = f", {len(self.labels) - 4} more" if len(self.labels) > 4 else ""
        how = "has all of" if self.every and len(self.labels) > 1 else "has any of" if len(self.labels) > 1 else "has"
        return f"{self.column} {'NOT ' * self.negated}{how} {{{labels}{more}}}"


@dataclass(frozen=True)
class ContainsText:
    """TRUE only for rows whose text contains all of the pieces, in any order and place, ignoring case if `any_case`.
    Exact only if there is one piece and the filter has no other condition."""

    column: str
    type: pa.DataType
    pieces: tuple[str, ...]
    any_case: bool = False
    exact: bool = False

    def __hash__(self) -> int:  # Without the type, whose hash takes longer than to look up the condition.
        return hash((self.column, self.pieces, self.any_case))

    def __str__(self) -> str:
        pieces = ", ".join(repr(piece) for piece in self.pieces[:4])
        more = f", {len(self.pieces) - 4} more" if len(self.pieces) > 4 else ""
        return f"{self.column} contains {{{pieces}{more}}}{' in any case' if self.any_case else ''}"


@dataclass(frozen=True)
class MeetsBox:
    """TRUE only for rows whose geometry has a point in the box, borders included. Never exact: a geometry is compared
    with another one, of which only the box is known here."""

    column: str
    type: pa.DataType
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.column} meets the box ({self.xmin:g} {self.ymin:g}, {self.xmax:g} {self.ymax:g})"


Condition = ColumnRanges | HasLabels | ContainsText | MeetsBox


def _is_point(interval: Interval) -> bool:
    return interval.low is interval.high and interval.low_inclusive and interval.high_inclusive


def _text(interval: Interval) -> str:
    if interval.low is not None and interval.low is interval.high:
        return str(interval.low)
    low = "(" if interval.low is None else f"{'[' if interval.low_inclusive else '('}{interval.low}"
    high = ")" if interval.high is None else f"{interval.high}{']' if interval.high_inclusive else ')'}"
    return f"{low}, {high}"
