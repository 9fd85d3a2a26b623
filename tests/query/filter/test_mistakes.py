"""Filters and new values that Lance refuses or misreads: the error tells what to write instead."""

from __future__ import annotations

from datetime import date, datetime, time

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidFilter


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pennon.Table:
    uri = str(tmp_path_factory.mktemp("mistakes") / "t.lance")
    rows = {
        "id": pa.array([1, 2]),
        "small": pa.array([1, 2], pa.uint8()),
        "name": pa.array(["a", "id"]),
        "user id": pa.array(["a", "b"]),
        "tags": pa.array([["x"], ["y"]]),
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2)]),
        "ts": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)]),  # noqa: DTZ001 - a column without a zone
        "at": pa.array([time(10, 10), time(11, 11)], pa.time64("us")),
    }
    lance.write_dataset(pa.table(rows), uri)
    return pennon.open(uri, engine="local")


@pytest.mark.parametrize(
    ("written", "problem", "remedy"),
    [
        ("small = 300", "300 in the filter 'small = 300' is not a value of type UInt8", "can hold"),
        ("at = '10:10:00'", "is not a value of type Time64", "arrow_cast('10:10:00', 'Time64(Microsecond)')"),
        ("tags = 'x'", "'x' in the filter", "array_has(tags, 'x')"),
        ("'x' in tags", "Expected: (, found: tags", "array_has(tags, 'x')"),
        ("id = 1 && small = 1", "Operator && is not supported", "Write AND instead of &&"),
        ("id = 1 || small = 1", "concat", "Write OR instead of ||"),
        ("name = 'a' or 'b'", "boolean operation", "name = 'a' OR name = 'b'"),
        ("name regexp 'a'", "REGEXP", "regexp_like(name, 'pattern')"),
        ("name ~ 'a'", "Operator ~", "regexp_like(name, 'pattern')"),
        ("day > current_date - interval '7 days'", "INTERVAL", "Compute the date or time first"),
        ("select * from t where id = 1", "SELECT", "Pass only a condition"),
        ("id in (select id from t)", "SELECT", "Pass only a condition"),
        ("id", "does not return a boolean", "Write a condition"),
        ("day = date '2026-13-01'", "cannot be evaluated: Cast error", "Write a date as date '2026-01-31'"),
        ("ts > timestamp 'then'", "cannot be evaluated: Parser error", "timestamp '2026-01-31 12:00:00'"),
        ("id is 5", "cannot be evaluated: Expected: [NOT] NULL", "docs/scan.md"),
    ],
)
def test_a_refused_filter_has_a_remedy(table: pennon.Table, written: str, problem: str, remedy: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        table.count(written)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert "SELECT 1 FROM" not in str(caught.value)


def test_the_remedies_work(table: pennon.Table) -> None:
    assert table.count("at = arrow_cast('10:10:00', 'Time64(Microsecond)')") == 1
    assert table.count("array_has(tags, 'x')") == 1
    assert table.count("regexp_like(name, '^a')") == 1
    assert table.count("`user id` = 'a'") == 1


@pytest.mark.parametrize(
    "written",
    [
        "\"user id\" = 'a'",
        "'a' = \"user id\"",
        "NOT \"user id\" = 'a'",
        "id = 1 AND (id = 2 OR \"user id\" != 'a')",
        "\"user id\" IN ('a', 'b')",
        "\"user id\" LIKE 'a%'",
        '"id" BETWEEN 1 AND 2',
        '"user id" IS NULL',
    ],
)
def test_a_column_in_double_quotes_is_refused(table: pennon.Table, written: str) -> None:
    with pytest.raises(InvalidFilter, match=r"in double quotes.*put column names in backticks: `"):
        table.count(written)
    with pytest.raises(InvalidFilter, match="in double quotes"):
        table.delete(written)


@pytest.mark.parametrize(("written", "rows"), [('name = "id"', 1), ('"id" = name', 1), ("\"other\" = 'a'", 0)])
def test_other_text_in_double_quotes_is_a_string(table: pennon.Table, written: str, rows: int) -> None:
    assert table.count(written) == rows == lance.dataset(table.uri).count_rows(written)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_new_value_without_quotes_is_refused(table: pennon.Table, in_place: bool) -> None:
    with pytest.raises(InvalidFilter) as caught:
        table.update({"name": "Austria"}, where="id = 1", in_place=in_place)
    assert "names a column that the table does not have: Austria" in caught.value.problem
    assert caught.value.remedy.endswith("Text needs single quotes within the expression: \"'Austria'\"")
