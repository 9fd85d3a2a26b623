"""Batches beyond a task's memory come back from a file, the same and in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import psutil
import pyarrow as pa
import pytest

import pennon
from pennon.engine.spill import LOCAL_DIRECTORIES, batched_by_bytes, buffered
from tests.support.tables import full_scan

ROWS = 10_000
CONDITIONS = {"n": ["n = 8", "n < 100000000", "n > 1000000000000"], "s": ["s = '8'", "s < '11'", "s > '98'"]}


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        values = np.arange(number * ROWS, (number + 1) * ROWS)
        yield pa.record_batch({"n": values, "s": pa.array(values % 977).cast(pa.string())})


def mapped_files() -> int:
    return sum("pennon-spill-" in each.path for each in psutil.Process().memory_maps(grouped=False))


@pytest.mark.parametrize("limit", [0, 300_000, 1 << 40])
def test_batches_are_held_whatever_the_limit(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_DIRECTORIES, f"{tmp_path},elsewhere")
    before = mapped_files()
    kept = list(buffered(batches(5), limit))
    assert pa.Table.from_batches(kept).equals(pa.Table.from_batches(batches(5)))
    assert (mapped_files() > before) == (limit < 1 << 40)
    assert list(tmp_path.iterdir()) == [], "the file has no name any more"


def test_nothing_to_hold() -> None:
    assert list(buffered(iter(()), 0)) == []
    assert list(batched_by_bytes(iter(()), 0)) == []


def test_what_is_kept_in_memory_is_let_go() -> None:
    """A spilled batch is not also kept in memory."""
    before = pa.total_allocated_bytes()
    size = sum(batch.nbytes for batch in batches(40))
    kept = list(buffered(batches(40), size // 10))
    assert len(kept) == 40
    assert pa.total_allocated_bytes() - before < size // 4


def test_parts_within_a_limit() -> None:
    size = next(batches(1)).nbytes
    parts = list(batched_by_bytes(batches(7), size * 3))
    assert [len(part) for part in parts] == [3, 3, 1] or [len(part) for part in parts] == [2, 2, 2, 1]
    assert [len(part) for part in batched_by_bytes(batches(3), 1)] == [1, 1, 1]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("column", ["n", "s"])
def test_reducers_larger_than_their_memory(column: str, tmp_path: Path) -> None:
    """Two ranges of 24 MB and more, of which a third or a sixth of 64 MiB may be held; half of the rows are equal."""
    rng = np.random.default_rng(1)
    n = np.where(rng.random(3_000_000) < 0.5, 7, rng.integers(0, 1 << 40, 3_000_000))
    rows = pa.table({"id": np.arange(len(n)), "n": n, "s": pa.array(n % 10_007).cast(pa.string())})
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=500_000)
    table = pennon.open(tmp_path / "t.lance")
    table.create_index(column, ranges=2, rows_per_task=250_000, task_memory_bytes=64 << 20)
    conditions = (
        ["n = 7", "n < 100000000", "n > 1000000000000"] if column == "n" else ["s = '7'", "s < '11'", "s > '98'"]
    )
    for condition in conditions:
        found = table.scan(condition, ["id"])["id"].to_pylist()
        assert sorted(found) == full_scan(table.uri, condition), condition
    report = table.audit()
    assert not [finding for finding in report.findings if finding.severity == "error"], report
