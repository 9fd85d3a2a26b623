"""How filters are read: names, structure, and what is left to the scan."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from pennon.errors import InvalidFilter
from pennon.index.conditions import ColumnRanges, ContainsText
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import ALWAYS_FALSE, ALWAYS_TRUE, And, Node, Opaque, Or, conditions

COLUMNS = {
    "user_id": pa.int64(),
    "ts": pa.timestamp("us"),
    "name": pa.string(),
    "score": pa.float64(),
    "weight": pa.float32(),
    "ok": pa.bool_(),
    "Mixed": pa.int32(),
    "odd name": pa.int32(),
    "place.city": pa.string(),
    "place.`zip.code`": pa.int32(),
    "tags": pa.list_(pa.string()),
}


def parse(sql: str) -> Node:
    return parse_filter(sql, COLUMNS)


def ends(node: Node) -> list[tuple[object, bool, object, bool]]:
    assert isinstance(node, ColumnRanges)
    return [
        (i.low and i.low.as_py(), i.low_inclusive, i.high and i.high.as_py(), i.high_inclusive) for i in node.intervals
    ]


def test_a_comparison_becomes_an_interval_of_the_columns_own_type() -> None:
    node = parse("user_id = 42")
    assert isinstance(node, ColumnRanges)
    assert (node.column, node.nulls, node.exact) == ("user_id", False, True)
    assert ends(node) == [(42, True, 42, True)]
    assert {interval.low.type for interval in node.intervals if interval.low} == {pa.int64()}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("score > 1.5", [(1.5, False, None, False)]),
        ("1.5 >= score", [(None, False, 1.5, True)]),
        ("name < 'b'", [(None, False, "b", False)]),
        ("name LIKE 'ab%'", [("ab", True, "ac", False)]),
        ("name LIKE 'ab'", [("ab", True, "ab", True)]),
        ("user_id IN (7, 3, 5, 4, 3)", [(3, True, 5, True), (7, True, 7, True)]),
        ("user_id NOT BETWEEN 1 AND 3", [(None, False, 0, True), (4, True, None, False)]),
        ("NOT (user_id < 1 OR user_id > 3)", [(1, True, 3, True)]),
        ("user_id > 1 AND user_id <= 9 AND user_id != 5", [(2, True, 4, True), (6, True, 9, True)]),
        ("name > 'a' OR name = 'a'", [("a", True, None, False)]),
        ("ok", [(True, True, None, False)]),
    ],
)
def test_conditions_on_one_column_melt_into_sorted_intervals(sql: str, expected: list[object]) -> None:
    assert ends(parse(sql)) == expected


def test_a_pattern_with_wildcards_inside_narrows_down_but_must_be_checked_again() -> None:
    node = parse("name LIKE 'ab_c%'")
    assert isinstance(node, And)
    prefix, pieces = node.children
    assert ends(prefix) == [("ab", True, "ac", False)]
    assert isinstance(pieces, ContainsText)
    assert pieces.pieces == ("ab", "c")
    assert not prefix.exact
    assert not pieces.exact


def test_a_local_time_narrows_down_by_a_day_either_way() -> None:
    zoned = {"ts": pa.timestamp("s", "Asia/Tokyo")}
    node = parse_filter("ts >= timestamp '2020-01-02'", zoned)
    assert isinstance(node, ColumnRanges)
    assert not node.exact
    assert node.intervals[0].low == pa.scalar(1_577_836_800, zoned["ts"])
    assert isinstance(parse_filter("ts != timestamp '2020-01-02'", zoned), Opaque)


def test_conditions_on_several_columns_stay_apart() -> None:
    node = parse("user_id = 1 AND (name = 'a' OR score < 2 OR (name = 'b')) AND ok IS NOT TRUE")
    assert isinstance(node, And)
    assert [type(child) for child in node.children] == [ColumnRanges, ColumnRanges, Or]
    assert {atom.column for atom in conditions(node)} == {"user_id", "name", "score", "ok"}
    assert node.exact


@pytest.mark.parametrize(
    "sql", ["user_id = 1 AND user_id = 2", "name = NULL", "FALSE AND abs(score) > 1", "user_id NOT IN (1, NULL)"]
)
def test_what_no_row_can_meet_is_always_false(sql: str) -> None:
    assert parse(sql) == ALWAYS_FALSE


@pytest.mark.parametrize("sql", ["TRUE", "name IS NULL OR name IS NOT NULL", "NOT FALSE OR abs(score) > 1"])
def test_what_every_row_meets_is_always_true(sql: str) -> None:
    assert parse(sql) == ALWAYS_TRUE


@pytest.mark.parametrize(
    ("sql", "opaque"),
    [
        ("user_id = 1 AND abs(score) > 1", "abs(score) > 1"),
        ("user_id = 1 AND (score + 1 > 2)", "(score + 1 > 2)"),
        ("NOT (user_id = 1 OR name LIKE '%x')", "NOT (name LIKE '%x')"),
        ("user_id = 1 AND name NOT ILIKE 'a%'", "name NOT ILIKE 'a%'"),
        ("user_id = 1 AND user_id < score", "user_id < score"),
        ("user_id = 1 AND place IS NULL", "place IS NULL"),
        ("user_id = 1 AND _rowid < 5", "_rowid < 5"),
        ("user_id = 1 AND tags = 'a'", "tags = 'a'"),
        ("user_id = 1 AND ts > '2026-01-01'", "ts > '2026-01-01'"),
        ("user_id = 1 AND Mixed < 1.5", "Mixed < 1.5"),
        ("user_id = 1 AND Mixed IN (1, 3000000000)", "Mixed IN (1, 3000000000)"),
        ("user_id = 1 AND (ok = TRUE) IS TRUE", "(ok = TRUE) IS TRUE"),
    ],
)
def test_conditions_an_index_cannot_answer_keep_their_text(sql: str, opaque: str) -> None:
    node = parse(sql)
    assert isinstance(node, And)
    assert not node.exact
    assert Opaque(opaque) in node.children


def test_opaque_text_below_a_not_keeps_a_not_above_it() -> None:
    # Lance rounds 0.1 to float32 at the top of a filter, but not below a NOT.
    assert parse("weight = 0.1") != parse("NOT (NOT (weight = 0.1))") == Opaque("NOT (NOT ((weight = 0.1)))")


@pytest.mark.parametrize(
    "sql",
    [
        "user_id = 1 -- a comment",
        "user_id /* a comment */ = 1",
        "user_id IS DISTINCT FROM 1 AND ok",
        "CASE WHEN ok THEN user_id ELSE 1 END = 1 AND user_id = 2",
        "user_id = 1 AND tags[1] = 'a'",
        "name = N'a' AND user_id = 1",
        "name COLLATE x = 'a' AND user_id = 1",
        "user_id IN (SELECT 1)",
        "name = 'a' 'b'",
        "user_id = 1 AND ts > now() - interval '1 day'",
        "user_id NOT IN (1, 2) OR user_id NOT IN (3, 4)",
        "(" * 60 + "ok" + ")" * 60,
    ],
)
def test_a_filter_that_only_lance_can_read_is_left_to_it_whole(sql: str) -> None:
    assert parse(sql) == Opaque(sql)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("user_id", "user_id"),
        ("USER_ID", "user_id"),
        ("`user_id`", "user_id"),
        ("mixed", "Mixed"),
        ("`odd name`", "odd name"),
        ("place.city", "place.city"),
        ("PLACE.`city`", "place.city"),
        ("`Place` . city", "place.city"),
        ("place.`zip.code`", "place.`zip.code`"),
    ],
)
def test_names_are_found_as_lance_finds_them(written: str, path: str) -> None:
    assert [atom.column for atom in conditions(parse(f"{written} IS NULL"))] == [path]


def test_a_name_in_double_quotes_is_text() -> None:
    assert ends(parse('name = "user_id"')) == [("user_id", True, "user_id", True)]


def test_names_that_differ_only_in_case_are_told_apart() -> None:
    columns = {"Id": pa.int64(), "ID": pa.int64()}
    assert [atom.column for atom in conditions(parse_filter("ID = 1", columns))] == ["ID"]
    assert [atom.column for atom in conditions(parse_filter("Id = 1", columns))] == ["Id"]
    with pytest.raises(InvalidFilter):
        parse_filter("id = 1", columns)


@pytest.mark.parametrize("sql", ["user = 1", "`USER_ID` = 1", "place.town = 'x'", "name = 'a' AND usr_id IN (1, 2)"])
def test_an_unknown_column_is_named_beside_those_like_it(sql: str) -> None:
    with pytest.raises(
        InvalidFilter, match=r"a column that the table does not have: .*\. Did you mean .*(user_id|place\.city)"
    ):
        parse(sql)


@pytest.mark.parametrize(
    ("sql", "position", "problem"),
    [
        ("name = 'a", 7, "this ' is never closed"),
        ("`name = 'a'", 0, "this ` is never closed"),
        ("(user_id = 1", 12, "')' is missing"),
        ("abs(score > 1", 13, "')' is missing"),
        ("user_id = 1) AND ok", 11, "has no matching"),
        ("user_id = 1 adn ok", 12, "operator before 'adn'"),
        ("user_id = 1 AND", 15, "an expression is missing"),
        ("user_id = = 1", 10, "instead of '='"),
        ("user_id IN ()", 12, "instead of ')'"),
        ("user_id BETWEEN 1", 17, "'AND' is missing"),
    ],
)
def test_broken_text_is_refused_with_its_position(sql: str, position: int, problem: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(sql)
    assert f"position {position}," in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("sql", ["", "   ", "\n"])
def test_an_empty_filter_is_refused(sql: str) -> None:
    with pytest.raises(InvalidFilter, match="empty"):
        parse(sql)


def test_long_lists_are_read_in_one_go() -> None:
    numbers = parse(f"user_id IN ({', '.join(str(3 * n) for n in range(10_000))}, -7)")
    texts = parse("name NOT IN (" + ",".join(f"'it''s {n}'" for n in range(10_000)) + ")")
    chain = parse(" OR ".join(f"user_id = {n}" for n in range(3_000)))
    assert isinstance(numbers, ColumnRanges)
    assert isinstance(texts, ColumnRanges)
    assert len(numbers.intervals) == len(texts.intervals) == 10_001
    assert ends(numbers)[0] == (-7, True, -7, True)
    assert ends(texts)[1] == ("it's 0", False, "it's 1", False)
    assert ends(chain) == [(0, True, 2_999, True)]


def test_trees_travel_and_explain_themselves() -> None:
    node = parse("(user_id IN (1, 2, 9) OR name LIKE 'a_b') AND abs(score) > 1")
    assert pickle.loads(pickle.dumps(node)) == node
    started = "((name in {[a, b)} or near it) AND (name contains {'a', 'b'}))"
    assert str(node) == f"((user_id in {{[1, 2]; 9}}) OR {started}) AND (abs(score) > 1)"
