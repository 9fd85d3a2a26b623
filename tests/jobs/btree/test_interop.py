"""What Pennon writes, stock pylance uses; what stock writes, Pennon uses; all answers equal a full scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import pennon
from tests.support.btree_files import write_version_zero_tree
from tests.support.cases import covering
from tests.support.tables import (
    FILTERS,
    MIXED_FILTERS,
    UNSERVED,
    every_type,
    full_scan,
    full_scans,
    stock_answer,
    write_every_type,
)

pytestmark = pytest.mark.usefixtures("any_engine")

LAYOUTS: dict[str, dict[str, Any]] = {
    "one range": {"batch_size": 64},
    "four ranges in one task": {"batch_size": 64, "ranges": 4},
    "five ranges exchanged": {"batch_size": 64, "ranges": 5, "rows_per_task": 700},
}
INDEXED = list(FILTERS)


def check(uri: str, filters: list[str], stock_index: bool = True) -> None:
    """Pennon, stock and the full scan agree; `stock_index` says whether stock must use the index."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    scanned = full_scans(dataset, filters)
    for filter in filters:
        expected = scanned[filter]
        stock, used = stock_answer(dataset, filter)
        assert stock == expected, f"stock: {filter}"
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, f"pennon: {filter}"
        assert table.count(filter) == len(expected), f"pennon count: {filter}"
        assert dataset.count_rows(filter=filter) == len(expected), f"stock count: {filter}"
        assert used or not stock_index or filter in UNSERVED, f"stock does not use the index: {filter}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_type_and_operator_agrees(layout: str, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance")
    table = pennon.open(uri)
    for column in INDEXED:
        table.create_index(column, **LAYOUTS[layout])
    for filters in FILTERS.values():
        check(uri, filters)
    check(uri, MIXED_FILTERS, stock_index=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stable_row_ids_agree(layout: str, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=True)
    lance.dataset(uri).update({"i64": "i64 + 1"}, where="id % 7 = 1")
    table = pennon.open(uri)
    for column in ("i64", "text", "f64"):
        index = table.create_index(column, **LAYOUTS[layout]).index
        assert index.segments[0].index_version == 1
    check(uri, FILTERS["i64"] + FILTERS["f64"] + MIXED_FILTERS, stock_index=False)


def test_pennon_reads_what_stock_built(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance")
    dataset = lance.dataset(uri)
    for column in INDEXED:
        dataset.create_scalar_index(column, "BTREE", name=f"{column}_idx")
    table = pennon.open(uri)
    assert {i.name for i in table.indices()} == {f"{c}_idx" for c in INDEXED}
    for filters in FILTERS.values():
        check(uri, filters)
    assert [use.index for use in table.explain("i64 = 0").indices] == ["i64_idx"]


def test_pennon_reads_row_id_domain_of_older_writers(tmp_path: Path) -> None:
    """A version 0 tree on a table with stable row ids holds ids, not addresses."""
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=True)
    lance.dataset(uri).update({"f64": "f64 + 1"}, where="id % 7 = 1")
    write_version_zero_tree(uri, "i64")
    check(uri, FILTERS["i64"])


# How a tree is laid out and what it calls rows do not depend on each other.
@pytest.mark.parametrize(("layout", "stable"), covering(LAYOUTS, [False, True], strength=1))
def test_stock_maintenance_keeps_the_index_right(layout: str, stable: bool, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=stable)
    table = pennon.open(uri)
    for column in ("i64", "text"):
        table.create_index(column, **LAYOUTS[layout])
    filters = FILTERS["i64"] + ["text = 'k001'", "text is null", "text between 'k01' and 'k05'"]
    check(uri, filters)
    lance.write_dataset(every_type(500, seed=9, start=10_000), uri, mode="append")
    check(uri, filters)
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    check(uri, filters)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=2000)
    check(uri, filters)
    lance.dataset(uri).delete("i64 < 0")
    lance.dataset(uri).optimize.optimize_indices()
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    check(uri, filters)


def test_deferred_compaction_by_stock(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance")
    pennon.open(uri).create_index("i64", ranges=4, batch_size=64)
    for round in range(3):
        lance.dataset(uri).delete(f"id % 17 = {round}")
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1500, defer_index_remap=True)
        check(uri, FILTERS["i64"])
        lance.write_dataset(every_type(300, seed=round, start=20_000 + 1000 * round), uri, mode="append")
        check(uri, FILTERS["i64"])


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    "emptied", ["i64 < 0", "i64 > 3000000000000000000", "i64 is null", "i64 between -4000000000000000000 and 0"]
)
def test_ranges_emptied_by_deletes_survive_stock_compaction(emptied: str, stable: bool, tmp_path: Path) -> None:
    """The shape that makes stock fail every query cannot arise: each range keeps a guard row."""
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=stable)
    pennon.open(uri).create_index("i64", ranges=6, batch_size=64)
    lance.dataset(uri).delete(emptied)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    check(uri, FILTERS["i64"])
    lance.write_dataset(every_type(400, seed=3, start=50_000), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    check(uri, FILTERS["i64"])
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)
    check(uri, FILTERS["i64"])
    lance.dataset(uri).prewarm_index("i64_idx")


def test_without_guard_rows_stock_would_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the test above can fail: the same history without guard rows breaks stock."""
    uri = write_every_type(tmp_path / "t.lance")
    monkeypatch.setattr("pennon.jobs.btree.build.guard", lambda runs: runs)
    monkeypatch.setattr("pennon.jobs.btree.build.GUARD_ROWS", 0)
    table = pennon.open(uri)
    plan = table.plan_index("i64", ranges=6, batch_size=64)
    from pennon.jobs.btree import build as build_btree
    from pennon.jobs.shared.changes import AddSegments
    from pennon.jobs.shared.commit import commit_change

    snapshot = plan.pin.open()
    uuid, parts = build_btree._build_whole(plan, plan.slices[0])
    segment = build_btree._finish(snapshot, plan, uuid, parts)
    commit_change(snapshot, AddSegments((segment,), replace_whole=True))
    lance.dataset(uri).delete("i64 > 3000000000000000000")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    with pytest.raises(BaseException, match=r"Range start|terminated|panic|stream"):
        lance.dataset(uri).scanner(filter="i64 = 0", columns=["id"]).to_table()
    # Pennon sees the damage, says so, and answers by scanning.
    with pytest.warns(pennon.errors.DamagedIndexWarning, match="i64_idx"):
        found = pennon.open(uri).scan("i64 = 0", ["id"])
    assert sorted(found["id"].to_pylist()) == full_scan(uri, "i64 = 0")
