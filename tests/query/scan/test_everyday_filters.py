"""Filters as people write them, through an index and beside it, with equal answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument, InvalidFilter

ROWS = 300
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("everyday") / "table.lance"
    numbers = range(ROWS)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "amount": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
            "ts": pa.array([START + timedelta(hours=n) for n in numbers], pa.timestamp("us")),
        }
    )
    lance.write_dataset(table.slice(0, 200), str(path))
    opened = pennon.open(str(path), engine="local")
    for column in table.column_names:
        opened.create_index(column)
    lance.write_dataset(table.slice(200), str(path), mode="append")
    return str(path)


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ("amount = 12.25", [49]),
        ("amount >= 74.5 AND id < 299", [298]),
        ("amount IN (0.25, 74.75)", [1, 299]),
        ("id = '7'", [7]),
        ("id IN ('7', '250')", [7, 250]),
        ("ts >= '2026-01-13 10:00' AND ts < '2026-01-14'", list(range(298, 300))),
        ("ts = '2026-01-02'", [24]),
    ],
)
def test_a_filter_in_ordinary_sql_uses_the_index(uri: str, filter: str, ids: list[int]) -> None:
    table = pennon.open(uri, engine="local")
    assert table.scan(filter, ["id"])["id"].to_pylist() == ids
    assert table.count(filter) == len(ids)
    assert [row for batch in table.scan_batches(filter, ["id"]) for row in batch.column(0).to_pylist()] == ids
    assert str(table.explain(filter)).count("_idx:") >= 1


@pytest.mark.parametrize(
    "filter",
    [
        "amount = decimal '12.34'",
        "amount = 12.345",
        "id = 1 LIMIT 1",
        "id = 1; select 1",
        "id = 1 ORDER BY id",
        "unknown_function(id) = 1",
        "id + 'x' = 3",
        "id",
        "ts > 'now'",
    ],
)
def test_a_mistake_in_a_filter_is_reported_as_one(uri: str, filter: str) -> None:
    table = pennon.open(uri, engine="local")
    for verb in (table.scan, table.count, lambda text: list(table.scan_batches(text))):
        with pytest.raises(InvalidFilter):
            verb(filter)


def test_a_filter_of_another_type_is_refused(uri: str) -> None:
    table = pennon.open(uri, engine="local")
    with pytest.raises(InvalidArgument, match="not int"):
        table.scan(42)  # pyright: ignore[reportArgumentType]


def test_an_empty_answer_has_the_columns_that_were_asked_for(tmp_path: Path) -> None:
    """Also the second time, when its schema is known."""
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"id": range(100), "s": ["a"] * 100}), uri)
    table = pennon.open(uri, engine="local")
    table.create_index("id")
    for filter in ("id = -1", "id = -2", "id = -1 AND s LIKE '%b%'"):
        assert table.explain(filter).scanned_rows == 0
        assert table.scan(filter) == dataset.to_table(filter=filter)
        assert table.scan(filter, ["s"], with_row_id=True) == dataset.to_table(["s"], filter, with_row_id=True)
        assert table.scan(filter, ["s"], limit=3) == dataset.to_table(["s"], filter)
        assert table.scan(filter, {"double": "id * 2"}) == dataset.to_table({"double": "id * 2"}, filter)
        with pytest.raises(InvalidArgument):
            table.scan(filter, {"double": "nowhere * 2"})
    with pytest.raises(InvalidFilter):
        table.scan("id = -1 AND nothing_like_it(s)")
