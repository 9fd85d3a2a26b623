"""What `optimize` decides, and that it mends what it finds broken."""

from __future__ import annotations

import itertools
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning, IndexNotFound, InvalidArgument, InvalidFilter
from pennon.jobs.shared.merge_policy import RATIO, Tier, choose_segments
from pennon.table import Table
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("engine")


def rows(count: int, start: int) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": pa.array(ids), "k": pa.array(ids * 7 % 20)})


def make(path: Path, fragments: int = 5, **options: bool) -> Table:
    for number in range(fragments):
        lance.write_dataset(rows(40, number * 40), path, mode="append" if number else "create", **options)
    table = pennon.open(path)
    table.create_index("k", batch_size=16)
    return table


def append(table: Table, count: int, start: int = 10_000) -> None:
    lance.write_dataset(rows(count, start), table.uri, mode="append")


def check(table: Table) -> None:
    for filter in ("k = 7", "k < 5", "k in (1, 19)"):
        expected = full_scan(table.uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected
        assert stock_answer(table.uri, filter)[0] == expected


def parts(table: Table) -> int:
    [index] = table.refresh().indices()
    assert index.coverage == 1.0
    return len(index.segments)


def test_tiers_bound_segments_and_rewriting() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(1000):
        choice = choose_segments([Tier(size) for size in sizes], 1)
        taken = sizes[len(sizes) - choice.count :]
        written += 1 + (sum(taken) if taken else 0)
        sizes = [*sizes[: len(sizes) - choice.count], 1 + sum(taken)]
    assert len(sizes) <= np.log2(1000)
    assert written / 1000 <= 2 * np.log2(1000)
    assert all(older > RATIO * newer for older, newer in itertools.pairwise(sizes))


@pytest.mark.parametrize("stable", [False, True])
def test_nothing_is_due_after_it_was_done(tmp_path: Path, stable: bool) -> None:
    """Compaction gives old rows the highest fragment ids; their segment is still the oldest."""
    table = make(tmp_path / "t.lance", enable_stable_row_ids=stable)
    append(table, 10)
    table.compact()
    assert [step.action for step in table.optimize_indices().plan.steps] == ["add a delta"]
    assert not table.plan_optimize().due
    assert parts(table) == 2
    check(table)


@pytest.mark.heavy
def test_64_appends_become_one_segment(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", 1)
    for number in range(64):
        append(table, 5, 1000 + number * 5)
        table.optimize_indices(num_indices_to_merge=0)
    assert parts(table) == 65
    table.optimize_indices()
    assert parts(table) == 1
    check(table)


def test_the_newest_segments_are_merged(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", 1)
    for number in range(4):
        append(table, 30, 1000 + number * 30)
        table.optimize_indices(num_indices_to_merge=0)
    table.optimize_indices(num_indices_to_merge=2)
    [index] = table.indices()
    assert sorted(len(segment.fragments) for segment in index.segments) == [1, 1, 1, 2]
    assert max(index.segments, key=lambda segment: len(segment.fragments)).fragments == (3, 4)
    check(table)


@pytest.mark.parametrize("spoil", ["page_data", "page_lookup"])
def test_damaged_segments_are_replaced(tmp_path: Path, spoil: str) -> None:
    table = make(tmp_path / "t.lance")
    append(table, 100)
    table.optimize_indices(num_indices_to_merge=0)
    [index] = table.indices()
    directory = Path(table.uri) / "_indices" / index.segments[0].uuid
    [file] = [path for path in directory.iterdir() if spoil in path.name]
    content = bytearray(file.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    file.write_bytes(content)
    append(table, 300, 20_000)
    if spoil == "page_data":
        with pytest.warns(DamagedIndexWarning, match="built from the data"):
            table.refresh().optimize_indices()
    else:
        table.refresh().optimize_indices()
    check(table)
    assert index.segments[0].uuid not in {s.uuid for i in table.indices() for s in i.segments}


@pytest.mark.parametrize("kept", [0, 100])
def test_segments_without_a_page_file_are_replaced(tmp_path: Path, kept: int) -> None:
    """Missing, or shorter than it was written: known without reading it, so that a plan tells, too."""
    table = make(tmp_path / "t.lance")
    [index] = table.indices()
    directory = Path(table.uri) / "_indices" / index.segments[0].uuid
    [file] = [path for path in directory.iterdir() if "page_data" in path.name]
    file.write_bytes(file.read_bytes()[:kept])
    if not kept:
        file.unlink()
    assert table.plan_optimize().due
    table.optimize_indices()
    check(table)
    assert index.segments[0].uuid not in {s.uuid for i in table.indices() for s in i.segments}


def test_values_changed_in_place_are_covered_again(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance")
    done = table.update_column("k", "k + 100", where="id < 50 and id % 2 = 0")
    assert (done.rows, done.fragments) == (25, (0, 1))
    [index] = table.indices()
    assert index.coverage == pytest.approx(0.6)
    check(table)
    assert "changed in place" in str(table.plan_optimize()) or table.plan_optimize().due
    table.optimize_indices(num_indices_to_merge=0)
    assert parts(table) == 1
    check(table)
    assert table.count("k >= 100") == 25


@pytest.mark.parametrize("stable", [False, True])
def test_an_empty_table_is_kept_too(tmp_path: Path, stable: bool) -> None:
    table = make(tmp_path / "t.lance", enable_stable_row_ids=stable)
    lance.dataset(table.uri).delete("true")
    table.refresh().optimize_indices()
    table.optimize_indices(retrain=True)
    table.compact()
    table.maintain()
    assert table.count("k = 7") == 0
    append(table, 50)
    table.optimize_indices()
    assert parts(table) == 1
    check(table)


def test_bad_input(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", 1)
    with pytest.raises(IndexNotFound, match="nope"):
        table.optimize_indices(index_names=["nope"])
    with pytest.raises(InvalidArgument, match="negative"):
        table.optimize_indices(num_indices_to_merge=-1)
    with pytest.raises(InvalidArgument, match="remap"):
        table.compact(remap="sometimes")
    with pytest.raises(InvalidFilter, match="nope"):
        table.update_column("k", "nope + 1")
    with pytest.raises(InvalidFilter, match="not a condition"):
        table.update_column("k", "1", where="k + 1")
    with pytest.raises(InvalidArgument, match="type"):
        table.update_column("k", "'abc'")
    check(table)
