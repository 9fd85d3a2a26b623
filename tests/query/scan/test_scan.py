"""How a scan splits a table between indices and fragments, and what it reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

import pennon
from pennon.format.commit import commit_segments
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE, ByteCache
from pennon.query.scan import planner
from tests.support.tables import FILTERS, MIXED_FILTERS, every_type, full_scan, full_scans, write_every_type

pytestmark = pytest.mark.usefixtures("process_engine")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return write_every_type(tmp_path / "t.lance")


def check(uri: str, filters: list[str]) -> None:
    table, dataset = pennon.open(uri), lance.dataset(uri)
    for filter, expected in full_scans(dataset, filters).items():
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        assert sorted(i for b in table.scan_batches(filter, ["id"]) for i in b["id"].to_pylist()) == expected, filter


def test_a_cold_lookup_reads_the_lookup_and_one_page(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": np.random.default_rng(0).permutation(50_000)}), uri, max_rows_per_file=10_000)
    pennon.open(uri).create_index("k", ranges=5, batch_size=512)
    for value in (0, 777, 49_999):
        SHARED_CACHE.clear()
        table = pennon.open(uri)
        explanation = table.explain(f"k = {value}", analyze=True)
        assert explanation.reads == 2
        assert explanation.rows_returned == 1
        assert explanation.indices[0].pages == 1
        assert table.explain(f"k = {value}", analyze=True).reads == 0  # warm


def test_conditions_on_several_indexed_columns_with_different_coverage(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i64", fragment_ids=[0, 2], batch_size=64)
    table.create_index("text", fragment_ids=[2, 3], batch_size=64)
    table.create_index("f64", batch_size=64)
    check(uri, MIXED_FILTERS + FILTERS["i64"] + FILTERS["text"])
    plan = pennon.open(uri).explain("i64 > 0 and text = 'k001'")
    assert {use.index for use in plan.indices} == {"i64_idx", "text_idx"}
    assert plan.scanned_fragments == (4,)


def test_unknown_kinds_and_versions_are_skipped_with_a_note(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i64", batch_size=64)
    table.create_index("text", batch_size=64)
    snapshot = Snapshot.open(Location.of(uri))
    numbers, texts = snapshot.manifest.user_segments
    strange = replace(texts, type_url="/lance.table.StrangeIndexDetails")
    commit_segments(snapshot, [replace(numbers, index_version=7), strange], [])
    check(uri, FILTERS["i64"] + FILTERS["text"])
    plan = pennon.open(uri).explain("i64 = 0")
    assert plan.indices == ()
    assert {(s.index, s.reason) for s in plan.skipped} == {
        ("i64_idx", "unsupported BTREE version 7"),
        ("text_idx", "unknown index type /lance.table.StrangeIndexDetails"),
    }
    assert "skipped  i64_idx" in str(plan)
    assert [i.segments[0].unusable is not None for i in pennon.open(uri).indices()] == [True, True]


def test_a_pruned_fragment_is_scanned(uri: str) -> None:
    pennon.open(uri).create_index("i64", batch_size=64)
    snapshot = Snapshot.open(Location.of(uri))
    [segment] = snapshot.manifest.user_segments
    commit_segments(snapshot, [replace(segment, fragments=FrozenBitMap([0, 3]))], [])
    check(uri, FILTERS["i64"])
    assert set(pennon.open(uri).explain("i64 = 0").scanned_fragments) == {2, 4}


def test_rows_come_in_table_order_with_their_addresses(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i64", fragment_ids=[0, 3], batch_size=64)
    rows = table.scan("i64 > 0", ["id"], with_row_address=True, with_row_id=True)
    addresses = rows["_rowaddr"].to_pylist()
    assert addresses == sorted(addresses)
    assert rows["_rowid"].to_pylist() == addresses
    assert rows["id"].to_pylist() == sorted(rows["id"].to_pylist())
    assert table.scan("i64 > 0", ["id"], limit=7)["id"].to_pylist() == rows["id"].to_pylist()[:7]
    assert table.scan("i64 > 0", ["id"], limit=0).num_rows == 0
    assert [b.num_rows for b in table.scan_batches("i64 > 0", ["id"], limit=7)] == [7]


def test_every_column_comes_back_when_none_is_named(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i64", batch_size=64)
    for filter in ("i64 = 0", "i64 > 0", "i64 = 7", None):
        rows = table.scan(filter)
        expected = lance.dataset(uri).scanner(filter=filter, use_scalar_index=False).to_table()
        assert rows.schema == expected.schema
        assert rows["id"].to_pylist() == expected["id"].to_pylist()


def test_wide_answers_are_scanned_and_counted_from_the_index(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "SMALL_RESULT", 50)
    table = pennon.open(uri)
    table.create_index("i64", batch_size=64)
    plan = table.explain("i64 is not null")
    assert plan.indices == ()
    assert plan.scanned_rows == plan.total_rows
    check(uri, FILTERS["i64"] + MIXED_FILTERS)


def test_costly_conditions_are_left_to_the_check(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "SMALL_RESULT", 10)
    monkeypatch.setattr(planner, "WORTHWHILE", 1)
    table = pennon.open(uri)
    for column in ("i64", "text", "f64"):
        table.create_index(column, batch_size=16)
    check(uri, MIXED_FILTERS)


def test_filters_over_awkward_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    names = ["select", "Üser", "two words", 'quo"te', "UPPER", "1st"]
    columns = {name: [i % 9 for i in range(200)] for name in names}
    lance.write_dataset(pa.table({"id": range(200), **columns}), uri, max_rows_per_file=60)
    table = pennon.open(uri)
    for name in names:
        table.create_index(name, batch_size=16)
        filter = f"`{name}` = 4"
        assert table.count(filter) == len(full_scan(uri, filter)) == 22
        assert [use.index for use in table.explain(filter).indices] == [f"{name}_idx"]


def test_a_small_cache_only_costs_time(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pennon.table.handle.SHARED_CACHE", ByteCache(2000))
    pennon.open(uri).create_index("i64", ranges=3, batch_size=64)
    check(uri, FILTERS["i64"])


def test_empty_tables_and_all_null_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    lance.write_dataset(schema.empty_table(), uri)
    table = pennon.open(uri)
    index = table.create_index("k").index
    assert (index.coverage, index.rows_total) == (1.0, 0)
    assert table.count("k = 5") == 0
    assert table.scan("k is null").num_rows == 0
    lance.write_dataset(pa.table({"id": range(300), "k": pa.nulls(300, pa.int64())}), uri, mode="append")
    table.refresh().create_index("k", ranges=3, batch_size=16)
    assert table.count("k is null") == 300
    assert table.count("k is not null") == 0
    assert lance.dataset(uri).count_rows(filter="k is null") == 300
    lance.dataset(uri).delete("true")
    table.refresh()
    assert table.count("k is null") == 0


def test_a_version_stays_what_it_was(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("i64", batch_size=64)
    before = table.count("i64 = 0")
    lance.write_dataset(every_type(500, seed=2, start=70_000), uri, mode="append")
    lance.dataset(uri).delete("i64 = 0 and id < 1000")
    assert table.count("i64 = 0") == before
    assert pennon.open(uri, version=table.version).count("i64 = 0") == before
    assert table.refresh().count("i64 = 0") == len(full_scan(uri, "i64 = 0")) != before


def test_nested_columns_look_the_same_however_they_are_read(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("id", batch_size=64)
    for filter in ("id = 7", "id < 300"):
        expected = lance.dataset(uri).scanner(filter=filter, columns=["id", "inner.leaf"], use_scalar_index=False)
        assert table.scan(filter, ["id", "inner.leaf"]).equals(expected.to_table()), filter


def test_long_lists_of_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 100_000, 20_000)
    rows = pa.table({"id": range(20_000), "k": numbers, "s": [f"v{n:06d}" for n in numbers]})
    lance.write_dataset(rows, uri, max_rows_per_file=6000)
    table = pennon.open(uri)
    for column in ("k", "s"):
        table.create_index(column, ranges=4, batch_size=256)
    wanted = np.unique(rng.integers(0, 120_000, 5000))
    for filter in (
        f"k in ({', '.join(map(str, wanted))})",
        f"k not in ({', '.join(map(str, wanted))})",
        "s in ({})".format(", ".join(f"'v{n:06d}'" for n in wanted)),
        f"k > 90000 or k < 300 or k in ({', '.join(map(str, wanted[:500]))})",
    ):
        expected = full_scan(uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected
        assert table.count(filter) == len(expected)


@pytest.mark.parametrize("stable", [False, True])
def test_row_ids_and_addresses_can_be_asked_for_as_columns(stable: bool, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", enable_stable_row_ids=stable)
    table = pennon.open(uri)
    table.create_index("id", batch_size=64)
    for filter in ("id = 7", "id < 40", "id = 7 or id = 2000"):
        for columns in (["id", "_rowid"], ["_rowaddr", "id"], ["_rowid"]):
            expected = lance.dataset(uri).scanner(filter=filter, columns=columns, use_scalar_index=False).to_table()
            assert table.scan(filter, columns).equals(expected), (filter, columns)
