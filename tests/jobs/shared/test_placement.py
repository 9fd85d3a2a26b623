"""Small work runs in this process, also where the engine is Spark; no session starts for it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import Engine, LocalEngine, SparkEngine
from pennon.errors import InvalidArgument
from pennon.format.store import Location
from pennon.jobs.shared.placement import IN_PROCESS_BYTES, REMOTE_WEIGHT, VARIABLE, Effort
from pennon.table import Table

ROWS = 2000
KINDS = {
    "id": "BTREE",
    "country": "BITMAP",
    "ts": "ZONEMAP",
    "key": "BLOOMFILTER",
    "tags": "LABEL_LIST",
    "name": "NGRAM",
    "body": "INVERTED",
    "v": "IVF_SQ",
}
FILTERS = {
    "id": "id BETWEEN 100 AND 200",
    "country": "country = 'c3'",
    "ts": "ts < 50",
    "key": "key = 1500",
    "tags": "array_has(tags, 't2')",
    "name": "contains(name, 'me 12')",
}


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "id": numbers,
            "country": [f"c{n % 7}" for n in numbers],
            "ts": numbers,
            "key": numbers,
            "tags": [[f"t{n % 5}"] for n in numbers],
            "name": [f"name {n}" for n in numbers],
            "body": [f"word{n % 11} and text" for n in numbers],
            "v": pa.FixedSizeListArray.from_arrays((np.arange(4 * count) % 97).astype(np.float32), 4),
        }
    )


class Unstarted(SparkEngine):
    """Fails where anything would start Spark."""

    @property
    def _cluster(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        raise AssertionError("Spark was started")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    lance.write_dataset(rows(0, ROWS), str(tmp_path / "t.lance"), max_rows_per_file=ROWS // 4)
    return str(tmp_path / "t.lance")


def opened(uri: str, engine: Engine) -> Table:
    table = pennon.open(uri)
    table._engine = engine  # pyright: ignore[reportPrivateUsage]
    return table


@pytest.mark.parametrize("column", KINDS)
def test_small_builds_and_deltas_start_no_spark(column: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    table = opened(uri, Unstarted())
    result = table.create_index(column, KINDS[column])
    assert "in this process" in str(result.plan)
    lance.write_dataset(rows(ROWS, 300), uri, mode="append")
    table.refresh()
    plan = table.optimize_indices(dry_run=True)
    assert "in this process" in str(plan)
    table.optimize_indices()
    index = table.indices()[0]
    assert index.rows_covered == index.rows_total
    if column in FILTERS:
        expected = lance.dataset(uri).scanner(filter=FILTERS[column], use_scalar_index=False).to_table()
        assert table.scan(FILTERS[column]).sort_by("id") == expected.sort_by("id")
    elif column == "v":
        assert table.search(column, np.zeros(4, np.float32), k=3).num_rows == 3
    else:
        assert table.search_text(column, "word3", k=3).num_rows == 3


def test_large_work_goes_to_the_engine(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(ROWS * 8 - 1))
    with pytest.raises(AssertionError, match="Spark was started"):
        opened(uri, Unstarted()).create_index("ts", "ZONEMAP")
    assert "in this process" not in str(pennon.open(uri).create_index("ts", "ZONEMAP", dry_run=True))
    monkeypatch.setenv(VARIABLE, str(ROWS * 8))
    assert "in this process" in str(pennon.open(uri).create_index("ts", "ZONEMAP", dry_run=True))


def test_small_merges_start_no_spark(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of pyarrow, and of frames of pandas, whose index is no column."""
    monkeypatch.delenv(VARIABLE)
    table = opened(uri, Unstarted())
    table.create_index("id")
    changed = rows(ROWS - 10, 20)
    done = table.merge(changed, on="id")
    assert (done.rows_updated, done.rows_inserted) == (10, 10)
    assert "merged in this process" in str(done.plan)
    assert done.work.tasks > 0
    assert done.work.bytes_read > 0
    frame = pa.table({"id": [0, ROWS + 50], "country": ["x", "y"]}).to_pandas()
    frame.index = [7, 8]
    done = table.merge(frame, on="id")
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = lance.dataset(uri).to_table(filter=f"id IN (0, {ROWS + 50})", columns=["id", "country", "ts"])
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 0, "country": "x", "ts": 0},
        {"id": ROWS + 50, "country": "y", "ts": None},
    ]
    assert lance.dataset(uri).count_rows() == ROWS + 11
    monkeypatch.setenv(VARIABLE, "1000")
    with pytest.raises(AssertionError, match="Spark was started"):
        table.merge(changed, on="id")


def test_object_stores_count_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    here, there = Location.of("/data/t.lance"), Location.of("s3://bucket/t.lance")
    assert Effort(here, IN_PROCESS_BYTES).in_process
    assert not Effort(here, IN_PROCESS_BYTES + 1).in_process
    assert Effort(there, IN_PROCESS_BYTES // REMOTE_WEIGHT).in_process
    assert not Effort(there, IN_PROCESS_BYTES // REMOTE_WEIGHT + 1).in_process


def test_a_limit_that_is_no_number(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(InvalidArgument, match="PENNON_IN_PROCESS_BYTES is 'much'"):
        pennon.open(uri).create_index("ts", "ZONEMAP")


def test_engines_of_this_process_keep_the_listener() -> None:
    local = LocalEngine()
    assert local.in_process is local
    assert isinstance(SparkEngine().in_process, LocalEngine)
