"""What Pennon writes, pylance uses; what pylance writes, Pennon uses; the files are alike, and all answers are those of
a full scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import pennon
from pennon.jobs.bitmap.plan import BitmapPlan
from tests.support.cases import covering
from tests.support.labels import LABEL_FILTERS, label_table, write_labels
from tests.support.tables import FILTERS, MIXED_FILTERS, every_type, full_scans, stock_answer, write_every_type

pytestmark = pytest.mark.usefixtures("process_engine")

# pylance has no such index on a column that is all NULL, nor does it serve these filters by a bitmap.
COLUMNS = [column for column in FILTERS if column != "nothing"]
TASKS: dict[str, dict[str, Any]] = {"one task": {}, "exchanged": {"rows_per_task": 500}}
LISTS = ["tags", "large_tags", "numbers", "floats", "flags", "days"]


def check(uri: str, filters: list[str], *, used: bool = True) -> None:
    """Pennon, pylance and the full scan agree; with `used`, both use an index for most filters."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    scanned = full_scans(dataset, filters)
    served = by_pylance = 0
    for filter in filters:
        expected = scanned[filter]
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, f"pennon: {filter}"
        assert table.count(filter) == len(expected), f"pennon count: {filter}"
        answer, with_index = stock_answer(dataset, filter)
        assert answer == expected, f"pylance: {filter}"
        served += bool(table.explain(filter).indices)
        by_pylance += with_index
    if used:
        assert served >= len(filters) * 3 // 4, f"Pennon used an index for {served} of {len(filters)} filters"
        assert by_pylance >= len(filters) // 2, f"pylance used an index for {by_pylance} of {len(filters)} filters"


# How an index is built and what it calls rows do not depend on each other.
@pytest.mark.parametrize(("tasks", "stable"), covering(TASKS, [False, True], strength=1))
def test_every_type_and_operator_agrees(tasks: str, stable: bool, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", 2000, 400, enable_stable_row_ids=stable)
    table = pennon.open(uri)
    for column in COLUMNS:
        table.create_index(column, "BITMAP", **TASKS[tasks])
    for column in COLUMNS:
        check(uri, FILTERS[column], used=column != "f16")
    check(uri, MIXED_FILTERS, used=False)
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize("stable", [False, True])
def test_files_are_those_of_pylance(stable: bool, tmp_path: Path) -> None:
    ours = write_every_type(tmp_path / "ours.lance", 2000, 400, enable_stable_row_ids=stable)
    theirs = write_every_type(tmp_path / "theirs.lance", 2000, 400, enable_stable_row_ids=stable)
    for column in COLUMNS:
        pennon.open(ours).create_index(column, "BITMAP")
        lance.dataset(theirs).create_scalar_index(column, "BITMAP", name=f"{column}_idx")
    assert_same_files(ours, theirs, [f"{column}_idx" for column in COLUMNS])


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("stable", [False, True])
def test_files_of_labels_are_those_of_pylance(tasks: str, stable: bool, tmp_path: Path) -> None:
    ours = write_labels(tmp_path / "ours.lance", enable_stable_row_ids=stable)
    theirs = write_labels(tmp_path / "theirs.lance", enable_stable_row_ids=stable)
    for column in LISTS:
        pennon.open(ours).create_index(column, "LABEL_LIST", **TASKS[tasks])
        lance.dataset(theirs).create_scalar_index(column, "LABEL_LIST", name=f"{column}_idx")
    assert_same_files(ours, theirs, [f"{column}_idx" for column in LISTS])


def assert_same_files(ours: str, theirs: str, names: list[str]) -> None:
    for name in names:
        own, other = read_index(ours, name), read_index(theirs, name)
        assert own[0].schema == other[0].schema, name
        # Of arrays with NaN, equality is that of the bits.
        assert [column.to_pylist() for column in own[0].drop_columns("keys").columns] == [
            column.to_pylist() for column in other[0].drop_columns("keys").columns
        ], name
        assert repr(own[0]["keys"].to_pylist()) == repr(other[0]["keys"].to_pylist()), name
        assert own[1:] == other[1:], name


def read_index(uri: str, name: str) -> tuple[pa.Table, bytes | None, str | None]:
    """The rows of an index file, its map of NULL lists, and its statistics."""
    [index] = [index for index in pennon.open(uri).indices() if index.name == name]
    [segment] = index.segments
    reader = LanceFileReader(f"{uri}/_indices/{segment.uuid}/bitmap_page_lookup.lance")
    metadata = reader.metadata().schema.metadata or {}
    number = metadata.get(b"lance:label_list_nulls")
    nulls = None if number is None else bytes(reader.read_global_buffer(int(number)))
    return reader.read_all().to_table().replace_schema_metadata(None), nulls, metadata.get(b"lance:index_stats")


@pytest.mark.parametrize(("tasks", "stable"), covering(TASKS, [False, True], strength=1))
def test_labels_agree(tasks: str, stable: bool, tmp_path: Path) -> None:
    uri = write_labels(tmp_path / "t.lance", enable_stable_row_ids=stable)
    for column in LISTS:
        pennon.open(uri).create_index(column, "LABEL_LIST", **TASKS[tasks])
    for filters in LABEL_FILTERS.values():
        check(uri, filters)
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize("stable", [False, True])
def test_pennon_reads_what_pylance_built(stable: bool, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", 1500, 300, enable_stable_row_ids=stable)
    for column in COLUMNS:
        lance.dataset(uri).create_scalar_index(column, "BITMAP", name=f"{column}_idx")
    for column in COLUMNS:
        check(uri, FILTERS[column], used=column != "f16")
    labels = write_labels(tmp_path / "labels.lance", enable_stable_row_ids=stable)
    for column in LISTS:
        lance.dataset(labels).create_scalar_index(column, "LABEL_LIST", name=f"{column}_idx")
    for filters in LABEL_FILTERS.values():
        check(labels, filters)
    assert pennon.open(uri).audit().ok
    assert pennon.open(labels).audit().ok


FEW = [*FILTERS["i64"], "text = 'k001'", "text is null", "text like 'k1%'"]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("by", ["pennon", "pylance"])
def test_life_under_both(by: str, stable: bool, tmp_path: Path) -> None:
    """Several segments, appends, deletions, merges, and compactions at once and deferred."""
    uri = write_every_type(tmp_path / "t.lance", 2000, 400, enable_stable_row_ids=stable)
    fragments = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    for column in ("i64", "text"):
        pennon.open(uri).create_index(column, "BITMAP", fragment_ids=fragments[:2])
        pennon.open(uri).create_index(column, "BITMAP", fragment_ids=fragments[2:])
    check(uri, FEW)
    lance.write_dataset(every_type(300, seed=9, start=10_000), uri, mode="append")
    check(uri, FEW)
    optimize(uri, by)
    check(uri, FEW)
    lance.dataset(uri).delete("id % 17 = 3")
    compact(uri, by, deferred=not stable)
    check(uri, FEW)
    lance.write_dataset(every_type(100, seed=3, start=20_000), uri, mode="append")
    optimize(uri, by)
    check(uri, FEW)
    lance.dataset(uri).delete("i64 < 0")
    compact(uri, by, deferred=False)
    check(uri, FEW)
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("by", ["pennon", "pylance"])
def test_life_of_labels_under_both(by: str, stable: bool, tmp_path: Path) -> None:
    uri = write_labels(tmp_path / "t.lance", 1200, 300, enable_stable_row_ids=stable)
    fragments = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    pennon.open(uri).create_index("tags", "LABEL_LIST", fragment_ids=fragments[:2])
    pennon.open(uri).create_index("tags", "LABEL_LIST", fragment_ids=fragments[2:])
    filters = LABEL_FILTERS["tags"]
    check(uri, filters)
    lance.write_dataset(label_table(300, seed=9, start=10_000), uri, mode="append")
    optimize(uri, by)
    check(uri, filters)
    lance.dataset(uri).delete("id % 17 = 3")
    compact(uri, by, deferred=not stable)
    check(uri, filters)
    lance.write_dataset(label_table(100, seed=3, start=20_000), uri, mode="append")
    optimize(uri, by)
    lance.dataset(uri).delete("array_has(tags, 'd')")
    compact(uri, by, deferred=False)
    check(uri, filters)
    assert pennon.open(uri).audit().ok


def optimize(uri: str, by: str) -> None:
    if by == "pennon":
        pennon.open(uri).optimize_indices()
    else:
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=9)


def compact(uri: str, by: str, *, deferred: bool) -> None:
    if by == "pennon":
        pennon.open(uri).compact(remap="deferred" if deferred else "immediate", target_rows_per_fragment=5000)
    else:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000, defer_index_remap=deferred)


def test_a_merge_without_changed_rows_equals_a_build(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", 2000, 400)
    fragments = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]
    for some in (fragments[:1], fragments[1:3], fragments[3:]):
        pennon.open(uri).create_index("text", "BITMAP", fragment_ids=some)
    pennon.open(uri).create_index("text", "BITMAP", "whole")
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert read_index(uri, "text_idx")[0].equals(read_index(uri, "whole")[0])
    check(uri, FILTERS["text"])


def test_a_build_of_several_ranges_equals_one_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = write_every_type(tmp_path / "t.lance", 2000, 400)
    pennon.open(uri).create_index("text", "BITMAP", "whole")
    monkeypatch.setattr("pennon.jobs.bitmap.plan.RANGE_BYTES", 4000)
    plan = pennon.open(uri).plan_index("text", "BITMAP", rows_per_task=500)
    assert isinstance(plan, BitmapPlan)
    assert plan.ranges > 2
    pennon.open(uri).create_index("text", "BITMAP", rows_per_task=500)
    assert read_index(uri, "text_idx")[0].equals(read_index(uri, "whole")[0])


def test_old_values_of_updated_rows_do_not_stay(tmp_path: Path) -> None:
    """pylance puts a delta next to a segment that still has the old value of the updated rows, and finds 100 rows where
    a scan finds 90. An optimize by Pennon never leaves that, and an audit finds and repairs it."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(100), "v": ["a"] * 100, "l": pa.array([["a"]] * 100, pa.list_(pa.string()))})
    lance.write_dataset(rows, uri, enable_stable_row_ids=True)
    filters = {"v = 'a'": 90, "array_has(l, 'a')": 90, "v = 'b'": 10, "NOT array_has(l, 'a')": 10}

    def build_and_update(to: str) -> None:
        pennon.open(uri).create_index("v", "BITMAP")
        pennon.open(uri).create_index("l", "LABEL_LIST")
        lance.dataset(uri).update({"v": f"'{to}'", "l": f"['{to}']"}, where="id < 10")

    build_and_update("b")
    pennon.open(uri).optimize_indices()
    check(uri, list(filters))
    for filter, count in filters.items():
        assert pennon.open(uri).count(filter) == count
    lance.dataset(uri).update({"v": "'a'", "l": "['a']"}, where="id < 10")
    build_and_update("b")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(stock_answer(uri, "v = 'a'")[0]) == 100, "pylance no longer has this error"
    for filter, count in filters.items():
        assert pennon.open(uri).count(filter) == count
    assert not pennon.open(uri).audit().ok
    pennon.open(uri).audit(repair=True)
    assert pennon.open(uri).audit().ok
    check(uri, list(filters))
