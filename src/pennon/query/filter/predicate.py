"""A filter as a tree: conditions on single columns and text that only a scan can evaluate, joined by AND and OR.

There is no NOT. A filter keeps the rows for which it is TRUE, and the parser pushes every negation down to the leaves,
so a node represents the set of its TRUE rows: And is the intersection of its children, Or the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.key_spans import order_of, union


@dataclass(frozen=True)
class Opaque:
    """A condition that no index can answer, in SQL that means the same alone as within the filter."""

    sql: str

    @property
    def exact(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class _Joined:
    children: tuple[Node, ...]

    @property
    def exact(self) -> bool:
        """No row that the conditions below select needs to be checked again."""
        return all(child.exact for child in self.children)


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


Node = Condition | Opaque | And | Or

ALWAYS_TRUE = And(())
ALWAYS_FALSE = Or(())


def conjunction(nodes: Iterable[Node]) -> Node:
    """The rows that are in all nodes; conditions on one column become one set of ranges."""
    ranges, others = _by_column(nodes, And)
    merged = [_intersection(group) for group in ranges]
    if ALWAYS_FALSE in others or any(not node.spans and not node.nulls for node in merged):
        return ALWAYS_FALSE
    return _joined(And, [*(node for node in merged if not _holds_everything(node)), *others])


def disjunction(nodes: Iterable[Node]) -> Node:
    """The rows that are in any of the nodes; conditions on one column become one set of ranges."""
    ranges, others = _by_column(nodes, Or)
    merged = [_union(group) for group in ranges]
    if ALWAYS_TRUE in others or any(_holds_everything(node) for node in merged):
        return ALWAYS_TRUE
    return _joined(Or, [*(node for node in merged if node.spans or node.nulls), *others])


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
    return node.exact and node.nulls and node.is_everything


def _joined(kind: type[And | Or], nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else kind(tuple(nodes))


def conditions(node: Node | None) -> Iterator[Condition]:
    """The conditions of a tree, from left to right."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from conditions(child)
    elif node is not None and not isinstance(node, Opaque):
        yield node
