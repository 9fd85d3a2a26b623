"""A pyarrow expression selects the rows that pylance selects by it without an index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import pennon
from pennon.errors import InvalidFilter
from pennon.query.filter.expression_sql import expression_sql

field = pc.field
DAY = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["", "a", "ab", "b%", "a_b", "it's", "b\\", "Ünï", "ab\n"]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "i32": (pa.int32(), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), -5, 0, 1, 2, 2**53 + 1, 2**63 - 1]),
    "f32": (pa.float32(), [float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.0, 3e38, float("nan")]),
    "f64": (pa.float64(), [float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.0, 1e300, 5e-324, float("nan")]),
    "s": (pa.string(), WORDS),
    "raw": (pa.binary(), [b"", b"a", b"\x00\xff"]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), DAY.date(), date(9999, 12, 31)]),
    "us": (pa.timestamp("us"), [datetime(1, 1, 1, tzinfo=UTC), DAY, DAY + timedelta(microseconds=1)]),
    "ms": (pa.timestamp("ms"), [datetime(1900, 1, 1, tzinfo=UTC), DAY, DAY + timedelta(milliseconds=1)]),
    "utc": (pa.timestamp("us", "UTC"), [DAY, datetime(1960, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    "paris": (pa.timestamp("us", "Europe/Paris"), [DAY, datetime(2026, 7, 1, tzinfo=UTC)]),
    "money": (pa.decimal128(12, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("9999999999.99")]),
    "yes": (pa.bool_(), [True, False]),
}
NUMBERS = ["i8", "i32", "i64", "f32", "f64"]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every value in some rows, NULL in others, with an index on a part of some columns."""
    path: Path = tmp_path_factory.mktemp("expressions") / "table.lance"
    count = 30
    columns = {"id": pa.array(range(count))}
    for step, (name, (type_, values)) in enumerate(VALUES.items(), start=1):
        chosen = [None if n % 7 == step % 7 else values[(n * step + n // 5) % len(values)] for n in range(count)]
        columns[name] = pa.array(chosen, type_)
    columns["v"] = pa.array([[1.0, 2.0]] * count, pa.list_(pa.float32(), 2))
    columns["odd name"] = pa.array(range(count))
    columns["inner"] = pa.array([None if n % 6 == 0 else {"x": n % 4, "y": str(n % 3)} for n in range(count)])
    table = pa.table(columns)
    lance.write_dataset(table.slice(0, 20), str(path))
    for column in ("i32", "f32", "s", "us", "utc", "money"):
        lance.dataset(str(path)).create_scalar_index(column, "BTREE")
    lance.write_dataset(table.slice(20), str(path), mode="append")
    return str(path)


def literals(column: str) -> st.SearchStrategy[pa.Scalar]:
    """Values of the column's type. With Python's own, pyarrow would often convert the column, which it cannot write."""
    type_, values = VALUES[column]
    return st.sampled_from(values).map(lambda value: pa.scalar(value, type_))


COMPARE: list[Callable[[Any, Any], pc.Expression]] = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


@st.composite
def comparisons(draw: st.DrawFn) -> pc.Expression:
    column = draw(st.sampled_from(sorted(VALUES)))
    left: Any = field(column)
    if column in NUMBERS and draw(st.booleans()):
        operation = draw(st.sampled_from([pc.add, pc.subtract, pc.multiply, pc.divide, pc.power]))
        left = operation(left, draw(literals(column)))
    elif column in NUMBERS and draw(st.booleans()):
        left = draw(st.sampled_from([pc.negate, pc.abs]))(left)
    elif draw(st.booleans()):
        condition = draw(st.sampled_from([field("yes"), field("i32") > 0]))
        other = draw(literals(column))
        # A zero is another matter, see test_a_zero_of_a_choice_equals_both_zeros.
        assume(not pa.types.is_floating(other.type) or other.as_py() != 0)
        left = pc.if_else(condition, left, other)
    elif draw(st.booleans()):
        left = pc.coalesce(left, draw(literals(column)))
    right = draw(literals(column) | st.just(field(column)) | st.just(pa.scalar(None, VALUES[column][0])))
    right = right if isinstance(right, pc.Expression) else pc.scalar(right)
    compare = draw(st.sampled_from(COMPARE))
    return compare(left, right) if draw(st.booleans()) else compare(right, left)


@st.composite
def memberships(draw: st.DrawFn) -> pc.Expression:
    column = draw(st.sampled_from(sorted(VALUES)))
    own = [*VALUES[column][1], None]
    foreign = st.lists(st.sampled_from([-129, 0, 1, 300, None]), max_size=3) | st.just([0.1, 1.5, None])
    values = draw(st.lists(st.sampled_from(own), max_size=4) | (foreign if column in NUMBERS else st.nothing()))
    array = pa.array(values, VALUES[column][0]) if draw(st.booleans()) and set(values) <= set(own) else pa.array(values)
    return field(column).isin(array)


def of_text(text: str) -> st.SearchStrategy[pc.Expression]:
    functions = [pc.starts_with, pc.ends_with, pc.match_substring]
    return st.sampled_from([function(field("s"), text) for function in functions])


TESTS = [
    *(field(name).is_null() for name in VALUES),
    *(field(name).is_valid() for name in VALUES),
    field("f32").is_nan(),
    field("yes"),
    pc.scalar(True),
    pc.scalar(pa.scalar(None, pa.bool_())),
    field("odd name") > 7,
    field("inner").is_null(),
    field("f64").cast("float", safe=False) > pa.scalar(0.1, pa.float32()),
    field("i32").cast("string", safe=False) == "1",
    field("us").cast(pa.date32(), safe=False) == pa.scalar(DAY.date()),
    pc.sqrt(field("f64")) > 0.5,
]
ATOMS = comparisons() | memberships() | st.sampled_from(WORDS).flatmap(of_text) | st.sampled_from(TESTS)


def joined(inner: st.SearchStrategy[pc.Expression]) -> st.SearchStrategy[pc.Expression]:
    return (
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
        | inner.map(lambda expression: ~expression)
        | st.tuples(inner, inner, inner).map(lambda three: pc.if_else(*three))
    )


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(expression=st.recursive(ATOMS, joined, max_leaves=5))
def test_an_expression_selects_what_it_selects_for_pylance(uri: str, expression: pc.Expression) -> None:
    try:
        expected = ids(lance.dataset(uri).to_table(columns=["id"], filter=expression, use_scalar_index=False))
    except (pa.ArrowException, ValueError, OSError):
        event("refused by pylance")
        return
    assert ids(pennon.open(uri, engine="local").scan(expression, ["id"])) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_of_a_choice_equals_both_zeros(uri: str, zero: float) -> None:
    """As zeros do elsewhere. In pylance, one that is chosen equals only the zero of its sign."""
    chosen = pc.if_else(field("yes"), field("f32"), pa.scalar(zero, pa.float32()))
    rows = lance.dataset(uri).to_table(columns=["id", "f32", "yes"]).to_pylist()
    zeros = [row["id"] for row in rows if not row["yes"] and row["f32"] == 0]
    own = [row["id"] for row in rows if row["yes"] and row["f32"] is not None]
    assert len(zeros) == 2
    assert ids(pennon.open(uri, engine="local").scan(field("f32") == chosen, ["id"])) == sorted([*own, *zeros])


def test_what_pylance_cannot_evaluate(uri: str) -> None:
    table = pennon.open(uri, engine="local")
    assert ids(table.scan(field("inner", "x") > 2, ["id"])) == ids(table.scan("inner.x > 2", ["id"]))
    assert ids(table.scan(field(("inner", "y")).is_null(), ["id"])) == ids(table.scan("inner.y IS NULL", ["id"]))


@pytest.mark.parametrize("join", [and_, or_])
def test_a_long_chain(uri: str, join: Callable[[Any, Any], pc.Expression]) -> None:
    chain = reduce(join, [field("i32") == n for n in range(-6, 6)])
    expected = lance.dataset(uri).to_table(columns=["id"], filter=chain, use_scalar_index=False)
    assert ids(pennon.open(uri, engine="local").scan(chain, ["id"])) == ids(expected)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (field("v").is_null(), "no type for column v"),
        (field("i32") > 1.5, "unsafe casts"),
        (field("i64").cast("double") > 1.5, "unsafe casts"),
        (pc.utf8_upper(field("s")) == "A", "utf8_upper"),
        (pc.bit_wise_and(field("i64"), 1) == 1, "bitwise_and"),
        # pylance ignores the option and compares case-sensitively.
        (pc.starts_with(field("s"), "A", ignore_case=True), "case-sensitively"),
        (reduce(or_, [field("i32") == n for n in range(100)]), "nested more than"),
    ],
)
def test_what_has_no_form_in_sql_is_refused(uri: str, expression: pc.Expression, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=f"(?s){reason}.*rite the filter as SQL text"):
        pennon.open(uri, engine="local").count(expression)


def test_columns_that_substrait_cannot_describe_do_not_disturb() -> None:
    schema = pa.schema(
        [
            ("clock", pa.time64("us")),
            ("span", pa.duration("s")),
            ("map", pa.map_(pa.string(), pa.int32())),
            ("wide", pa.decimal256(50, 2)),
            ("big", pa.large_string()),
            ("count", pa.uint32()),
        ]
    )
    expression = (field("big") == "a") & (field("count") > pa.scalar(7, pa.uint32()))
    assert expression_sql(expression, schema) == "((`big` = 'a') AND (`count` > 7))"


def ids(table: pa.Table) -> list[int]:
    return table["id"].to_pylist()
