"""Few rows that a zone map leaves are checked here. The oracle is a scan without an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.snapshot import Snapshot

ROWS = 3000
DAY = 86_400_000_000
TYPES = {"int64": pa.int64(), "uint8": pa.uint8(), "date": pa.date32(), "ts": pa.timestamp("us")}
FILTERS = {
    "int64": ["v < 50", "v BETWEEN 990 AND 1010", "v = 7", "v > 2990", "v IN (5, 6, 1500)", "v != 5", "NOT (v > 20)"],
    "uint8": ["v < 3", "v >= 250", "v = 100"],
    "date": ["v < date '1970-01-20'", "v >= date '1978-01-01'", "v = date '1972-09-27'"],
    "ts": ["v < timestamp '1970-01-20 00:00:00'", "v = timestamp '1972-09-27 00:00:00'"],
}


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def stable(request: pytest.FixtureRequest) -> bool:
    return request.param


def write(path: Path, type_: pa.DataType, stable: bool) -> str:
    numbers: Any = np.arange(ROWS) // 12 if type_ == pa.uint8() else np.arange(ROWS)
    values = pa.array([None if n % 97 == 5 else n for n in numbers.tolist()], pa.int64())
    if pa.types.is_timestamp(type_):
        values = pa.array([None if n is None else n * DAY for n in values.to_pylist()], pa.int64())
    values = values.cast(pa.int32()).cast(type_) if pa.types.is_date(type_) else values.cast(type_)
    lance.write_dataset(
        pa.table({"v": values, "id": numbers, "s": pa.array(np.arange(ROWS)).cast(pa.string())}),
        str(path),
        max_rows_per_file=1000,
        enable_stable_row_ids=stable,
    )
    pennon.open(str(path), engine="local").create_index("v", "ZONEMAP", rows_per_zone=64)
    return str(path)


def check(uri: str, filter: str) -> None:
    for columns in (["id"], ["s", "v"], ["v"]):
        expected = lance.dataset(uri).scanner(filter=filter, columns=columns, use_scalar_index=False).to_table()
        table = pennon.open(uri)
        assert table.scan(filter, columns) == expected
        assert table.scan(filter, columns, limit=3) == expected.slice(0, 3)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an item for every range that was read."""
    found: list[int] = []
    plain = Snapshot.read_slice

    def counted(self: Snapshot, *given: Any) -> pa.Table:
        found.append(1)
        return plain(self, *given)

    monkeypatch.setattr(Snapshot, "read_slice", counted)
    return found


@pytest.mark.parametrize("name", TYPES)
def test_answers_are_those_of_a_scan(name: str, stable: bool, tmp_path: Path, read: list[int]) -> None:
    uri = write(tmp_path / "t.lance", TYPES[name], stable)
    for filter in FILTERS[name]:
        check(uri, filter)
    assert read


def test_deleted_rows_stay_deleted(stable: bool, tmp_path: Path, read: list[int]) -> None:
    uri = write(tmp_path / "t.lance", pa.int64(), stable)
    lance.dataset(uri).delete("v IN (3, 1002, 2995)")
    for filter in FILTERS["int64"]:
        check(uri, filter)
    assert not read


def test_ranges_that_meet_at_the_end_of_a_fragment_are_one(tmp_path: Path, read: list[int]) -> None:
    uri = write(tmp_path / "t.lance", pa.int64(), stable=False)
    check(uri, "v BETWEEN 990 AND 1010")
    assert read


def test_rows_with_a_gap_between_them_are_scanned(tmp_path: Path, read: list[int]) -> None:
    uri = write(tmp_path / "t.lance", pa.int64(), stable=False)
    check(uri, "v IN (5, 700)")
    check(uri, "v = 5 AND s = '5'")
    assert not read
