"""Zone maps and Bloom filters through their whole life: what Pennon writes, pylance uses; all answers equal a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from lance.indices import IndexConfig

import pennon
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.zones.checksums import CHECKSUMS_KEY
from tests.support.tables import FILTERS, MIXED_FILTERS, full_scan, full_scans, stock_answer, write_every_type

pytestmark = pytest.mark.usefixtures("process_engine")

OPTIONS: dict[str, dict[str, Any]] = {
    "ZONEMAP": {"rows_per_zone": 50},
    "BLOOMFILTER": {"number_of_items": 50, "probability": 0.01},
}
FILES = {"ZONEMAP": "zonemap.lance", "BLOOMFILTER": "bloomfilter.lance"}
UNFILTERED = {"f16", "flag", "span", "money", "wide", "key"}
COLUMNS = {"ZONEMAP": list(FILTERS), "BLOOMFILTER": [column for column in FILTERS if column not in UNFILTERED]}
# Through which of their conditions pylance itself goes to an index.
SERVED = {"ZONEMAP": ["k < 3", "k = 7", "k between 4 and 6", "k is null"], "BLOOMFILTER": ["k = 7", "k in (1, 9)"]}
ASKED = [
    "k = 7",
    "k < 3",
    "k is null",
    "k is not null",
    "k between 4 and 6",
    "k != 2",
    "k in (1, 9) or k is null",
    "s = 's7'",
    "s like 's1%'",
    "s is null",
    "s > 's5' and k < 4",
    "f = 0.0",
    "f >= 5",
    "f < -3",
    "f is null",
]
INDEXED = ("k", "s", "f")


def rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    floats = np.where(ids % 13 == 0, np.nan, np.where(ids % 17 == 0, -0.0, (ids % 23) - 11.0))
    return pa.table(
        {
            "id": ids,
            "k": pa.array(ids // 30 % 10, mask=ids % 11 == 0),
            "s": pa.array([None if i % 9 == 0 else f"s{i // 20 % 12}" for i in ids.tolist()]),
            "f": pa.array(floats, mask=ids % 19 == 0),
        }
    )


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 600), path, max_rows_per_file=100, enable_stable_row_ids=request.param)
    lance.dataset(path).delete("id % 7 = 3 and id < 400")
    return path


def build(uri: str, kind: str, fragments: list[int] | None = None) -> None:
    for column in INDEXED:
        pennon.open(uri).create_index(column, kind, fragment_ids=fragments, **OPTIONS[kind])


def check(uri: str, kind: str, *, used: bool = True) -> None:
    """Pennon, pylance and a scan agree, both use the index, and the audit finds nothing."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    for filter, expected in full_scans(dataset, ASKED).items():
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        assert stock_answer(dataset, filter)[0] == expected, f"pylance: {filter}"
    for filter in SERVED[kind]:
        if used:
            assert stock_answer(dataset, filter)[1], f"pylance does not use the index: {filter}"
            assert table.explain(filter).indices, filter
            assert not table.explain(filter).scanned_fragments, filter
    report = table.audit()
    assert report.ok, report


@pytest.mark.parametrize("kind", OPTIONS)
def test_one_segment(uri: str, kind: str) -> None:
    build(uri, kind)
    check(uri, kind)
    table = pennon.open(uri)
    assert {(index.type, index.coverage) for index in table.indices()} == {(kind, 1.0)}
    table.drop_index("k_idx")
    assert not table.explain("k = 7").indices


@pytest.mark.parametrize("kind", OPTIONS)
def test_several_segments_and_their_merge(uri: str, kind: str) -> None:
    for fragments in ([0, 1], [2, 3], [4, 5]):
        build(uri, kind, fragments)
    check(uri, kind)
    lance.write_dataset(rows(600, 130), uri, mode="append")
    table = pennon.open(uri)
    table.optimize_indices(num_indices_to_merge=0)
    check(uri, kind)
    assert {len(index.segments) for index in table.indices()} == {4}
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert {len(index.segments) for index in pennon.open(uri).indices()} == {1}
    check(uri, kind)


@pytest.mark.parametrize("kind", OPTIONS)
def test_tasks_cut_no_zone_in_two(uri: str, kind: str) -> None:
    """The file is the same, whoever reads which rows."""
    made: list[pa.Table] = []
    for rows_per_task in (None, 70):
        index = pennon.open(uri).create_index("k", kind, rows_per_task=rows_per_task, **OPTIONS[kind]).index
        made.append(_file(uri, index.segments[0].uuid, kind)[0])
    assert made[0].equals(made[1])
    assert not _leftovers(uri)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_compactions(uri: str, kind: str, remap: str) -> None:
    build(uri, kind)
    if remap == "deferred" and "stable" in str(_stable(uri)):
        pytest.skip("Lance has no deferred compaction on stable row ids")
    table = pennon.open(uri)
    for target in (250, 1000):
        lance.dataset(uri).delete("id % 10 = 9 and id > 300")
        table = pennon.open(uri)
        table.compact(remap=remap, target_rows_per_fragment=target)
        check(uri, kind, used=remap != "drop")
    table = pennon.open(uri)
    if remap == "deferred":
        table.catch_up_indices()
        check(uri, kind)
        assert table.trim_fragment_reuse().versions_removed == 2
        assert table.fragment_reuse() is None
    else:
        table.optimize_indices()
    assert {index.coverage for index in pennon.open(uri).indices()} == {1.0}
    check(uri, kind)
    assert not _leftovers(uri)


@pytest.mark.parametrize("kind", OPTIONS)
def test_values_change_in_place_and_by_update(uri: str, kind: str) -> None:
    build(uri, kind)
    lance.dataset(uri).update({"k": "k + 3"}, where="id % 5 = 1")
    check(uri, kind, used=False)
    pennon.open(uri).update_column("k", "nullif(k + 1, 4)", where="id < 150")
    check(uri, kind, used=False)
    pennon.open(uri).optimize_indices()
    check(uri, kind)


@pytest.mark.parametrize("kind", OPTIONS)
def test_pylance_maintains_what_pennon_wrote(uri: str, kind: str) -> None:
    build(uri, kind)
    lance.write_dataset(rows(600, 60), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices()
    check(uri, kind)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=300)
    check(uri, kind, used=False)
    lance.dataset(uri).optimize.optimize_indices()
    check(uri, kind)


@pytest.mark.parametrize("kind", OPTIONS)
def test_pennon_maintains_what_pylance_wrote(uri: str, kind: str) -> None:
    for column in INDEXED:
        lance.dataset(uri).create_scalar_index(column, IndexConfig(kind.lower(), OPTIONS[kind]), name=f"{column}_idx")
    details = {index.name: index.details for index in _segments(uri)}
    lance.write_dataset(rows(600, 60), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    assert {len(index.segments) for index in pennon.open(uri).indices()} == {2}
    assert {(segment.name, segment.details) for segment in _segments(uri)} == set(details.items())
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    assert {(segment.name, segment.details) for segment in _segments(uri)} == set(details.items())
    check(uri, kind)
    pennon.open(uri).compact(target_rows_per_fragment=300)
    check(uri, kind)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("stable", [False, True])
def test_files_are_those_of_pylance(tmp_path: Path, kind: str, stable: bool) -> None:
    """Schema, metadata but for checksums, every column and the NULL bitmap, type by type."""
    uri = write_every_type(tmp_path / "t.lance", rows=1500, rows_per_file=400, enable_stable_row_ids=stable)
    different: list[str] = []
    for column in COLUMNS[kind]:
        dataset = lance.dataset(uri)
        dataset.create_scalar_index(column, IndexConfig(kind.lower(), OPTIONS[kind]), name=f"their {column}")
        pennon.open(uri).create_index(column, kind, f"our {column}", **OPTIONS[kind])
        segments = {segment.name: segment for segment in _segments(uri)}
        ours, theirs = segments[f"our {column}"], segments[f"their {column}"]
        if not _same(_file(uri, ours.uuid, kind), _file(uri, theirs.uuid, kind)):
            different.append(column)
        assert (ours.type_url, ours.index_version) == (theirs.type_url, theirs.index_version)
    # There are NaNs with a sign, which pylance leaves out of its bounds.
    assert different == (["f16", "f32", "f64"] if kind == "ZONEMAP" else [])


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_type_and_operator_agrees(tmp_path: Path, kind: str) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=1500, rows_per_file=400)
    table = pennon.open(uri)
    for column in COLUMNS[kind]:
        table.create_index(column, kind, **OPTIONS[kind])
    table, dataset = pennon.open(uri), lance.dataset(uri)
    filters = [filter for column in COLUMNS[kind] for filter in FILTERS[column]] + MIXED_FILTERS
    for filter, expected in full_scans(dataset, filters).items():
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        # NaNs with a sign: no bounds make pylance find these and the numbers of their zone.
        if filter != "f64 < cast('-inf' as double)":
            assert stock_answer(dataset, filter)[0] == expected, f"pylance: {filter}"
    assert table.audit().ok


def test_pylance_finds_every_nan_by_pennons_bounds(tmp_path: Path) -> None:
    """It misses zones of NaNs alone, and NaNs with a sign, in its own zone maps."""
    uri = str(tmp_path / "t.lance")
    negative = np.copysign(np.nan, -1.0)
    values = [np.nan] * 4 + [negative] * 4 + [1.0, negative, 2.0, np.nan] + [3.0] * 4
    lance.write_dataset(pa.table({"id": range(16), "f": values}), uri)
    pennon.open(uri).create_index("f", "ZONEMAP", rows_per_zone=4)
    for filter in ("f > 10", "f < -5", "f >= 2", "not (f < 2)", "f = cast('nan' as double)", "f is not null", "f < 2"):
        expected = full_scan(uri, filter)
        assert stock_answer(uri, filter)[0] == expected, filter
        assert pennon.open(uri).scan(filter, ["id"])["id"].to_pylist() == expected, filter


def test_a_zone_map_next_to_a_btree(tmp_path: Path) -> None:
    """The tree finds few rows exactly; where it would find most of the table, the zones are read in sequence."""
    uri = str(tmp_path / "t.lance")
    count = 200_000
    lance.write_dataset(pa.table({"id": range(count), "k": range(count)}), uri, max_rows_per_file=50_000)
    table = pennon.open(uri)
    table.create_index("k", "ZONEMAP", "k_zones", rows_per_zone=1000)
    table.create_index("k", "BTREE", "k_tree")
    table = pennon.open(uri)
    assert [use.index for use in table.explain("k = 77777").indices] == ["k_tree"]
    assert [use.index for use in table.explain("k < 60000").indices] == ["k_zones"]
    assert table.scan("k < 60000", ["id"]).num_rows == 60_000
    assert not table.explain("k < 60000").exact


def test_zones_leave_most_of_a_sorted_table_unread(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(10_000), "k": range(10_000)}), uri, max_rows_per_file=2500)
    pennon.open(uri).create_index("k", "ZONEMAP", rows_per_zone=100)
    ran = pennon.open(uri).explain("k between 4990 and 5010", analyze=True)
    assert (ran.rows_from_index, ran.rows_returned) == (200, 21)
    pennon.open(uri).create_index("k", "BLOOMFILTER", number_of_items=100, probability=1e-6)
    ran = pennon.open(uri).explain("k in (7, 9999)", analyze=True)
    assert (ran.rows_from_index, ran.rows_returned) == (200, 2)


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("ZONEMAP", {"rows_per_zone": 0}, "rows_per_zone"),
        ("ZONEMAP", {"number_of_items": 5}, "number_of_items"),
        ("BLOOMFILTER", {"number_of_items": -1}, "number_of_items"),
        ("BLOOMFILTER", {"probability": 0.0}, "probability"),
        ("BLOOMFILTER", {"probability": 1.5}, "probability"),
    ],
)
def test_absurd_options_are_refused(uri: str, kind: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(pennon.errors.InvalidArgument, match=problem):
        pennon.open(uri).create_index("k", kind, **options)


def test_unsupported_columns_are_refused(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=50)
    for column in ("flag", "money", "key", "f16"):
        with pytest.raises(pennon.errors.UnsupportedColumn, match=column):
            pennon.open(uri).create_index(column, "BLOOMFILTER")
    with pytest.raises(pennon.errors.UnsupportedColumn, match="inner"):
        pennon.open(uri).create_index("inner", "ZONEMAP")


def _stable(uri: str) -> str:
    return "stable" if lance.dataset(uri).has_stable_row_ids else "plain"


def _segments(uri: str) -> list[IndexSegment]:
    return list(Snapshot.open(Location.of(uri)).manifest.user_segments)


def _file(uri: str, uuid: str, kind: str) -> tuple[pa.Table, dict[bytes, bytes], bytes]:
    path = Path(uri) / "_indices" / uuid / FILES[kind]
    reader = LanceFileReader(str(path))
    schema = reader.metadata().schema
    metadata = {key: value for key, value in schema.metadata.items() if key != CHECKSUMS_KEY.encode()}
    return reader.read_all().to_table(), metadata, reader.read_global_buffer(1)


def _same(ours: tuple[pa.Table, Any, bytes], theirs: tuple[pa.Table, Any, bytes]) -> bool:
    assert ours[0].schema.equals(theirs[0].schema, check_metadata=False)
    assert ours[1:] == theirs[1:]
    return ours[0].equals(theirs[0])


def _leftovers(uri: str) -> list[str]:
    """Directories below `_indices` that are of no segment of any version."""
    known: set[str] = set()
    for version in lance.dataset(uri).versions():
        known |= {s.uuid for i in lance.dataset(uri, version["version"]).describe_indices() for s in i.segments}
    return [path.name for path in (Path(uri) / "_indices").iterdir() if path.name not in known]
