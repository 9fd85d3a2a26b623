"""Literals that Lance refuses, spelled as it takes them; the oracle is Lance's own answer to the explicit spelling."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import InvalidFilter
from pennon.query.filter.literal_spelling import spelled_for_lance
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import Opaque

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
TABLE = pa.table(
    {
        "id": [1, 7, 42, None],
        "amount": pa.array([Decimal("12.34"), Decimal("1.00"), Decimal("-3.50"), None], pa.decimal128(10, 2)),
        "ts": pa.array([*DAYS, None], pa.timestamp("us")),
        "utc": pa.array([*DAYS, None], pa.timestamp("ms", "UTC")),
        "tokyo": pa.array([*DAYS, None], pa.timestamp("us", "Asia/Tokyo")),
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3), None]),
        "ratio": [1.5, 2.0, -0.25, None],
        "data": pa.array([b"ab", b"c", b"", None]),
        "name": ["7", "x", "2026-01-01", None],
        "small": pa.array([1, 7, -128, None], pa.int8()),
    }
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    path: Path = tmp_path_factory.mktemp("spelling") / "table.lance"
    return lance.write_dataset(TABLE, str(path))


def types() -> dict[str, pa.DataType]:
    return {field.name: field.type for field in TABLE.schema}


@pytest.mark.parametrize(
    ("written", "explicit"),
    [
        ("amount = 12.34", "amount = cast('12.34' as decimal(10,2))"),
        ("amount > -3.5 AND id = 7", "amount > cast('-3.50' as decimal(10,2)) AND id = 7"),
        ("12.34 <= amount", "cast('12.34' as decimal(10,2)) <= amount"),
        ("amount = '12.34'", "amount = cast('12.34' as decimal(10,2))"),
        ("amount IN (12.34, 1, NULL)", "amount IN (cast('12.34' as decimal(10,2)), 1, NULL)"),
        (
            "amount BETWEEN 0.5 AND 12.34",
            "amount >= cast(0.5 as decimal(10,2)) AND amount <= cast(12.34 as decimal(10,2))",
        ),
        ("ts >= '2026-01-02'", "ts >= timestamp '2026-01-02 00:00:00'"),
        ("ts = '2026-01-02 00:00'", "ts = timestamp '2026-01-02 00:00:00'"),
        ("utc < '2026-01-02T00:00:00.5'", "utc < timestamp '2026-01-02 00:00:00.5'"),
        ("day = '2026-01-02' OR id = '42'", "day = date '2026-01-02' OR id = 42"),
        ("id = '7'", "id = 7"),
        ("id IN ('7', 42)", "id IN (7, 42)"),
        ("small >= '-128'", "small >= -128"),
        ("ratio > '1.5'", "ratio > 1.5"),
        ("data = 0x6162", "data = X'6162'"),
        ("id = 7.0", "id = 7"),
        ("id <= 4.2e1", "id <= 42"),
        ("id IN (7.0, '42')", "id IN (7, 42)"),
        ("utc <= '2026-01-02T02:00:00+02:00'", "utc <= timestamp '2026-01-02 00:00:00'"),
        ("utc <= '2026-01-02 00:00:00.25Z'", "utc <= timestamp '2026-01-02 00:00:00.25'"),
        ("NOT (id = '7')", "NOT (id = 7)"),
    ],
)
def test_a_literal_with_one_meaning_is_accepted(dataset: lance.LanceDataset, written: str, explicit: str) -> None:
    spelled = spelled_for_lance(written, types()).sql
    found = dataset.to_table(filter=spelled, columns=["id"])["id"].to_pylist()
    assert found == dataset.to_table(filter=explicit, columns=["id"])["id"].to_pylist()
    assert found
    if not written.startswith("NOT"):
        assert not isinstance(parse_filter(spelled, types()), Opaque)


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("amount = 12.345", "Round it to 2 decimal places, or compare floats: cast(amount as double) > 12.345"),
        ("amount = 'many'", "cast('1.5' as decimal(10, 2))"),
        ("amount = 123456789.5", "cast('1.5' as decimal(10, 2))"),
        ("id = '7x'", "id = 7"),
        ("small = '128'", "small = 7"),
        ("ts >= 'yesterday'", "timestamp '2026-01-31 12:00:00'"),
        ("ts >= '2026-02-30'", "timestamp '2026-01-31 12:00:00'"),
        ("tokyo >= '2026-01-02'", "timestamp '2026-01-31 12:00:00'"),
        ("day = '2026-1-2'", "date '2026-01-31'"),
        ("ratio = 'much'", "ratio > 1.5"),
        ("data = 'ab'", "data = X'6162'"),
        ("name = 7", "name = '7'"),
        ("id = 7.5", "id = 7"),
        ("id = 99999999999999999999", "id = 7"),
        ("id = 1e999999999", "id = 7"),
        ("id = 0x07", "id = 7"),
        ("ts = 12", "timestamp '2026-01-31 12:00:00'"),
        ("ts >= '2026-01-02T00:00:00Z'", "timestamp '2026-01-31 12:00:00'"),
        ("tokyo >= '2026-01-02T00:00:00Z'", "timestamp '2026-01-31 12:00:00'"),
        ("utc >= '0001-01-01T00:00:00+02:00'", "timestamp '2026-01-31 12:00:00'"),
        ("day > 20000", "date '2026-01-31'"),
        ("name IN (7, 'x')", "name = '7'"),
    ],
)
def test_a_literal_without_one_meaning_is_refused_with_a_spelling_that_works(written: str, remedy: str) -> None:
    with pytest.raises(InvalidFilter, match="cannot be compared with column") as caught:
        spelled_for_lance(written, types())
    assert remedy in str(caught.value)


@pytest.mark.parametrize("sql", ["id = 7", "name = '7'", "amount = 1", "abs(id) = '7'", "id =", "ts = '2026", "true"])
def test_everything_else_stays_as_it_is(sql: str) -> None:
    assert spelled_for_lance(sql, types()).sql == sql


@pytest.mark.parametrize(
    "rest", ["LIMIT 1", "; select 1", "ORDER BY id", "group by id", "FETCH FIRST 1", "for update", "xyz", ")"]
)
@pytest.mark.parametrize("sql", ["id = 7", "(id = 7)", "name = 'x'", "id IN (1, 2)", "contains(name, 'x')"])
def test_text_after_a_filter_is_refused(sql: str, rest: str) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(f"{sql} {rest}", types())


@pytest.mark.parametrize(
    "rest", ["LIMIT 1", "; select 1", "xyz", "_000", ")", ") OR (id = id", "?", "{", "=> 3", "-- x\n LIMIT 1"]
)
@pytest.mark.parametrize("sql", ["id = 7L", "id IS NOT DISTINCT FROM 7", "/* x */ id = 7", "id = 7 -- x\n"])
def test_text_after_a_filter_that_only_lance_parses_is_refused(
    dataset: lance.LanceDataset, sql: str, rest: str
) -> None:
    table = pennon.open(dataset.uri)
    table.count(sql)
    with pytest.raises(InvalidFilter, match="parse at"):
        table.count(f"{sql} {rest}")


@pytest.mark.parametrize(
    "value", ["?", "$1", ":name", "$$x$$", "N'x'", "r'x'", "B'x'", "coalesce(?, 1)", "'x' OR name = 7L OR name = ?"]
)
def test_placeholders_and_prefixed_strings_are_mistakes_not_damage(dataset: lance.LanceDataset, value: str) -> None:
    with pytest.raises(InvalidFilter, match=r"placeholder|prefix"):
        pennon.open(dataset.uri).count(f"name = {value}")


@pytest.mark.parametrize("sql", ["name IS NOT DISTINCT FROM '?$1:x)'", "id = 7L -- ? )", "id = 7L /* :x */"])
def test_quotes_and_comments_may_hold_anything(dataset: lance.LanceDataset, sql: str) -> None:
    assert pennon.open(dataset.uri).count(sql) == dataset.count_rows(sql)


def test_a_uuid_is_found_by_its_text(tmp_path: Path) -> None:
    uuids = [UUID(int=number << 100) for number in range(3)]
    table = pa.table({"key": pa.array([each.bytes for each in uuids], pa.uuid()), "flag": [True, False, None]})
    lance.write_dataset(table, str(tmp_path / "table.lance"))
    opened = pennon.open(str(tmp_path / "table.lance"), engine="local")
    opened.create_index("key")
    assert opened.count(f"key = '{uuids[1]}'") == 1
    assert opened.count(f"key IN ('{uuids[1]}', '{str(uuids[2]).upper()}')") == 2
    assert "key_idx" in str(opened.explain(f"key = '{uuids[1]}'"))
    with pytest.raises(InvalidFilter, match=f"key = X'{'00' * 16}'"):
        opened.count("key = 'xyz'")
    assert opened.count("flag = 'TRUE'") == 1
    with pytest.raises(InvalidFilter, match="flag = true"):
        opened.count("flag = 1")


@pytest.mark.parametrize(
    ("written", "remedy"), [('"id" = 7', "backticks"), ("amount = decimal '12.34'", "12.34, or as cast")]
)
def test_common_mistakes_have_a_remedy(dataset: lance.LanceDataset, written: str, remedy: str) -> None:
    with pytest.raises(InvalidFilter, match=remedy):
        pennon.open(dataset.uri).count(written)


def test_an_expression_with_a_missing_column_names_it(dataset: lance.LanceDataset) -> None:
    with pytest.raises(InvalidFilter, match=r"does not have: amout\. Did you mean amount"):
        pennon.open(dataset.uri).count(pc.field("amout") == 1)


@pytest.mark.parametrize("text", ["ratio * 2 LIMIT 1", "?", "ratio; select 1", "N'x'", "ratio +", "ratio)"])
def test_expressions_are_checked_like_filters(dataset: lance.LanceDataset, text: str) -> None:
    table = pennon.open(dataset.uri, engine="local")
    with pytest.raises(InvalidFilter, match="expression does not parse"):
        table.scan(columns={"x": text})
    with pytest.raises(InvalidFilter, match="expression does not parse"):
        table.update({"ratio": text}, where="id = 7", dry_run=True)
    with pytest.raises(InvalidFilter, match="expression does not parse"):
        table.update_column("ratio", text, dry_run=True)
    with pytest.raises(InvalidFilter, match="expression does not parse"):
        table.merge(TABLE, on="id", when_matched=pennon.Update({"ratio": text}), dry_run=True)


@pytest.mark.parametrize("where", ["id = 7 LIMIT 1", "id = 7_0", "id = ?", "id = '7x'"])
def test_conditions_of_changes_are_read_as_filters(dataset: lance.LanceDataset, where: str) -> None:
    table = pennon.open(dataset.uri, engine="local")
    for refused in (
        lambda: table.delete(where, dry_run=True),
        lambda: table.update({"ratio": "1"}, where=where, dry_run=True),
        lambda: table.update({"ratio": "1"}, where=where, in_place=True, dry_run=True),
        lambda: table.update_column("ratio", "1", where=where, dry_run=True),
    ):
        with pytest.raises(InvalidFilter):
            refused()
