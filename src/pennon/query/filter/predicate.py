"""What a filter asks of a table: ranges of single columns, and text only a scan can evaluate, joined by AND and OR.

There is no NOT. A filter keeps the rows for which it is TRUE, and the parser pushes every negation down to the leaves,
so a node stands for the set of its TRUE rows: And is the intersection of its children, Or the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import pyarrow as pa

from pennon.index.intervals import Interval
from pennon.query.filter.key_spans import Spans, order_of, union


@dataclass(frozen=True)
class ColumnRanges:
    """TRUE for the rows whose value lies in one of the sorted, disjoint spans, or is NULL if `nulls`.

    When not `exact`, the ranges hold every TRUE row but may hold others too: the rows must be checked again.
    """

    column: str
    type: pa.DataType
    spans: Spans
    nulls: bool = False
    exact: bool = True

    @cached_property
    def intervals(self) -> tuple[Interval, ...]:
        """The spans in Arrow values of exactly the column's type."""
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

    @property
    def columns(self) -> frozenset[str]:
        return frozenset((self.column,))

    def __hash__(self) -> int:  # Planners key dictionaries by it, and there may be many thousand spans.
        return hash((self.column, len(self.spans), self.spans[:1], self.nulls))

    def __str__(self) -> str:
        parts = [_text(interval) for interval in self.intervals[:4]] + ["NULL"] * self.nulls
        if len(self.spans) > 4:
            parts.insert(4, f"{len(self.spans) - 4} more")
        return f"{self.column} in {{{'; '.join(parts)}}}{'' if self.exact else ' or near it'}"


@dataclass(frozen=True)
class Opaque:
    """A condition no index can answer, in SQL that a scan evaluates by itself with the meaning it has in the filter."""

    sql: str

    @property
    def exact(self) -> bool:
        return False

    @property
    def columns(self) -> frozenset[str]:
        return frozenset()

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class _Joined:
    children: tuple[Node, ...]

    @property
    def exact(self) -> bool:
        """No row the ranges below give needs to be checked again."""
        return all(child.exact for child in self.children)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that ranges below speak of; those of opaque text are not known."""
        return frozenset().union(*(child.columns for child in self.children))


@dataclass(frozen=True)
class And(_Joined):
    """The rows that are in every child; with no child, every row."""

    def __str__(self) -> str:
        return " AND ".join(f"({child})" for child in self.children) or "TRUE"


@dataclass(frozen=True)
class Or(_Joined):
    """The rows that are in any child; with no child, no row."""

    def __str__(self) -> str:
        return " OR ".join(f"({child})" for child in self.children) or "FALSE"


Node = ColumnRanges | Opaque | And | Or

ALWAYS_TRUE = And(())
ALWAYS_FALSE = Or(())


def conjunction(nodes: Iterable[Node]) -> Node:
    """The rows that are in all nodes; conditions on one column become one set of ranges."""
    ranges, others = _by_column(nodes, And)
    met = [_intersection(group) for group in ranges]
    if ALWAYS_FALSE in others or any(not node.spans and not node.nulls for node in met):
        return ALWAYS_FALSE
    return _joined(And, [*(node for node in met if not _holds_everything(node)), *others])


def disjunction(nodes: Iterable[Node]) -> Node:
    """The rows that are in any of the nodes; conditions on one column become one set of ranges."""
    ranges, others = _by_column(nodes, Or)
    met = [_union(group) for group in ranges]
    if ALWAYS_TRUE in others or any(_holds_everything(node) for node in met):
        return ALWAYS_TRUE
    return _joined(Or, [*(node for node in met if node.spans or node.nulls), *others])


def _by_column(nodes: Iterable[Node], kind: type[And | Or]) -> tuple[list[list[ColumnRanges]], list[Node]]:
    ranges: dict[str, list[ColumnRanges]] = {}
    others: dict[Node, None] = {}
    for node in chain.from_iterable(node.children if isinstance(node, kind) else (node,) for node in nodes):
        if isinstance(node, ColumnRanges):
            ranges.setdefault(node.column, []).append(node)
        else:
            others[node] = None
    return list(ranges.values()), list(others)


def _union(group: Sequence[ColumnRanges]) -> ColumnRanges:
    first = group[0]
    if len(group) == 1:
        return first
    spans = union(chain.from_iterable(node.spans for node in group))
    nulls, exact = any(node.nulls for node in group), all(node.exact for node in group)
    return ColumnRanges(first.column, first.type, spans, nulls, exact)


def _intersection(group: Sequence[ColumnRanges]) -> ColumnRanges:
    first = group[0]
    if len(group) == 1:
        return first
    order = order_of(first.type)
    spans = order.complement(union(chain.from_iterable(order.complement(node.spans) for node in group)))
    nulls, exact = all(node.nulls for node in group), all(node.exact for node in group)
    return ColumnRanges(first.column, first.type, spans, nulls, exact)


def _holds_everything(node: ColumnRanges) -> bool:
    return node.exact and node.nulls and node.spans == order_of(node.type).everything


def _joined(kind: type[And | Or], nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else kind(tuple(nodes))


def _text(interval: Interval) -> str:
    if interval.low is not None and interval.low is interval.high:
        return str(interval.low)
    low = "(" if interval.low is None else f"{'[' if interval.low_inclusive else '('}{interval.low}"
    high = ")" if interval.high is None else f"{interval.high}{']' if interval.high_inclusive else ')'}"
    return f"{low}, {high}"
