"""The algebra of ranges, checked against plain sets of small numbers."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import order_of, union
from pennon.query.filter.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    And,
    Node,
    Opaque,
    Or,
    conjunction,
    disjunction,
)

TYPES = [pa.int8(), pa.decimal128(5, 0)]  # one whose neighboring keys fuse, one whose do not
VALUES = range(-8, 9)


@st.composite
def ranges(draw: st.DrawFn, type_: pa.DataType, column: str = "c") -> ColumnRanges:
    order = order_of(type_)
    cut = st.tuples(st.integers(-6, 6), st.booleans()).map(lambda c: order.above(c[0]) if c[1] else order.below(c[0]))
    cuts = cut | st.just(order.first) | st.just(order.last)
    pairs = draw(st.lists(st.tuples(cuts, cuts), max_size=4))
    return ColumnRanges(column, type_, union(pairs), draw(st.booleans()), draw(st.booleans()))


def members(node: Node) -> set[int | None]:
    """The values among VALUES, and None for NULL, for which a node on the one column is true."""
    if isinstance(node, And):
        return {*VALUES, None}.intersection(*(members(child) for child in node.children))
    if isinstance(node, Or):
        return set[int | None]().union(*(members(child) for child in node.children))
    assert isinstance(node, ColumnRanges)
    found: set[int | None] = {None} if node.nulls else set()
    for interval in node.intervals:
        low = -99 if interval.low is None else int(interval.low.as_py()) + (not interval.low_inclusive)
        high = 99 if interval.high is None else int(interval.high.as_py()) - (not interval.high_inclusive)
        found.update(value for value in VALUES if low <= value <= high)
    return found


several = st.sampled_from(TYPES).flatmap(lambda type_: st.lists(ranges(type_), min_size=1, max_size=4))


@given(several)
def test_a_conjunction_holds_what_all_hold_and_a_disjunction_what_any_holds(nodes: list[ColumnRanges]) -> None:
    sets = [members(node) for node in nodes]
    assert members(conjunction(nodes)) == set.intersection(*sets)
    assert members(disjunction(nodes)) == set.union(*sets)


@given(several)
def test_one_column_gives_one_set_of_sorted_disjoint_spans(nodes: list[ColumnRanges]) -> None:
    for joined in (conjunction(nodes), disjunction(nodes)):
        if isinstance(joined, ColumnRanges):
            cuts = [cut for span in joined.spans for cut in span]
            assert all(low < high for low, high in itertools.pairwise(cuts))
            assert joined.exact == all(node.exact for node in nodes) or len(nodes) == 1


@given(st.sampled_from(TYPES).flatmap(ranges))
def test_the_complement_of_the_complement_is_the_set_itself(node: ColumnRanges) -> None:
    order = order_of(node.type)
    assert order.complement(order.complement(node.spans)) == node.spans


def test_nested_joins_are_flat() -> None:
    a, b, c = Opaque("a"), Opaque("b"), Opaque("c")
    assert conjunction([conjunction([a, b]), c, a]) == And((a, b, c))
    assert disjunction([disjunction([a, b]), disjunction([c])]) == Or((a, b, c))
    assert disjunction([conjunction([a, b]), c]) == Or((And((a, b)), c))


def test_constants_vanish_or_prevail() -> None:
    a = Opaque("a")
    assert conjunction([]) == conjunction([ALWAYS_TRUE]) == disjunction([a, ALWAYS_TRUE]) == ALWAYS_TRUE
    assert disjunction([]) == disjunction([ALWAYS_FALSE]) == conjunction([a, ALWAYS_FALSE]) == ALWAYS_FALSE
    assert conjunction([a, ALWAYS_TRUE]) == disjunction([a, ALWAYS_FALSE]) == a


def test_ranges_that_hold_no_row_make_a_conjunction_false_even_if_not_exact() -> None:
    order = order_of(pa.int8())
    low = ColumnRanges("c", order.type, (order.between(1, 2),), exact=False)
    high = ColumnRanges("c", order.type, (order.between(3, 4),))
    assert conjunction([low, high, Opaque("a")]) == ALWAYS_FALSE
    assert not disjunction([low, high]).exact
