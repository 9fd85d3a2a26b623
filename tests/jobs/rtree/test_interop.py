"""R-trees that Pennon builds and keeps up are used by pylance, and the reverse, with the answers of a scan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import pennon
from pennon.errors import UnsupportedColumn
from pennon.index.checksums import sealed, unsealed
from pennon.index.rtree.checksums import CHECKSUMS_FILE
from pennon.testing.cases import Points
from pennon.testing.oracles import full_scans, pylance_answer
from tests.support.geometries import (
    GEOMETRIES,
    POSITION,
    geometries,
    geometry_table,
    rectangle,
)

pytestmark = pytest.mark.usefixtures("process_engine")

SERVED = (
    f"st_intersects(p, {rectangle(0, 0, 30, 30)})",
    f"st_within(p, {rectangle(-20, -20, 5, 5)})",
    f"st_intersects(p, {rectangle(200, 200, 210, 210)})",
    "st_intersects(p, st_geomfromtext('LINESTRING(-90 -90, 90 90)'))",
    "p IS NULL",
    f"st_intersects(p, {rectangle(0, 0, 10, 10)}) AND id < 300",
    f"st_intersects(p, {rectangle(0, 0, 10, 10)}) OR p IS NULL",
)
SCANNED = (f"NOT st_intersects(p, {rectangle(0, 0, 30, 30)})", "p IS NOT NULL")
POINT = "geoarrow.point"
SMALL: dict[str, Any] = {"page_size": 16}
FILES = ("page_data.lance", "nulls.lance")


def append(uri: str, start: int, count: int, kind: str = POINT) -> None:
    mode = "append" if start else "create"
    lance.write_dataset(geometry_table(start, geometries(count, start, kind), kind), uri, mode=mode)


def write(uri: str, *, stable: bool = False, kind: str = POINT) -> None:
    rows = geometry_table(0, geometries(500, 0, kind), kind)
    lance.write_dataset(rows, uri, max_rows_per_file=100, enable_stable_row_ids=stable)


def build(uri: str, builder: str, segments: int = 1) -> None:
    fragments = sorted(fragment.fragment_id for fragment in lance.dataset(uri).get_fragments())
    if builder == "pylance":
        lance.dataset(uri).create_scalar_index("p", "RTREE", name="p_idx")
        return
    for some in (fragments,) if segments == 1 else (fragments[:2], fragments[2:]):
        pennon.open(uri).create_index("p", "RTREE", fragment_ids=some, **SMALL)


def check(uri: str, *, pylance_uses: bool = True) -> None:
    """Pennon, pylance and a scan agree, by the index wherever that serves a filter."""
    opened, dataset = pennon.open(uri), lance.dataset(uri)
    for filter, expected in full_scans(dataset, (*SERVED, *SCANNED)).items():
        assert sorted(opened.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert opened.count(filter) == len(expected)
        assert bool(opened.explain(filter).indices) == (filter in SERVED), filter
        answer, used = pylance_answer(dataset, filter)
        assert answer == expected, f"pylance: {filter}"
        assert used == (filter in SERVED and pylance_uses), f"pylance: {filter}"
    assert opened.audit().ok


def boxes(uri: str) -> dict[int, tuple[float, ...]]:
    """The box of every id in the files of the only segment."""
    [path] = Path(uri).glob("_indices/*/page_data.lance")
    reader = LanceFileReader(str(path))
    items = int((reader.metadata().schema.metadata or {})[b"num_items"])
    return {row["id"]: tuple(row["bbox"].values()) for row in reader.read_all().to_table()[:items].to_pylist()}


@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize(
    ("stable", "options"),
    [(True, SMALL), (False, {**SMALL, "rows_per_task": 90})],
    ids=["stable, one task", "plain, exchange"],
)
def test_boxes_are_those_of_pylance(tmp_path: Path, kind: str, stable: bool, options: dict[str, Any]) -> None:
    uris = [str(tmp_path / name) for name in ("ours.lance", "theirs.lance")]
    for uri in uris:
        write(uri, stable=stable, kind=kind)
        lance.dataset(uri).delete("id % 7 = 2")
    assert (pennon.open(uris[0]).plan_index("p", "RTREE", **options).tasks > 1) == ("rows_per_task" in options)
    pennon.open(uris[0]).create_index("p", "RTREE", **options)
    lance.dataset(uris[1]).create_scalar_index("p", "RTREE", name="p_idx")
    assert boxes(uris[0]) == boxes(uris[1]) != {}
    files = [[LanceFileReader(str(*Path(uri).glob(f"_indices/*/{name}"))) for uri in uris] for name in FILES]
    for ours, theirs in files:
        assert ours.metadata().schema.equals(theirs.metadata().schema)
        known = [json.loads((each.metadata().schema.metadata or {}).get(b"bbox", b"0")) for each in (ours, theirs)]
        assert known[0] == known[1]
    assert files[1][0].read_all().to_table() == files[1][1].read_all().to_table()
    check(uris[0])


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("builder", ["pennon", "pylance"])
def test_a_life_of_deletions_appends_and_merges(tmp_path: Path, stable: bool, builder: str) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable)
    build(uri, builder)
    lance.dataset(uri).delete("id % 7 = 2")
    append(uri, 500, 150)
    check(uri)
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    [index] = pennon.open(uri).indices()
    assert (len(index.segments), index.coverage, index.type) == (2, 1.0, "RTREE")
    check(uri)
    lance.dataset(uri).update({"id": "id + 10000"}, "id % 19 = 4")
    check(uri)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [index] = pennon.open(uri).indices()
    assert (len(index.segments), index.coverage) == (1, 1.0)
    check(uri)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("builder", ["pennon", "pylance"])
@pytest.mark.parametrize("compactor", ["pennon", "pylance"])
def test_compactions_that_remap_at_once(tmp_path: Path, stable: bool, builder: str, compactor: str) -> None:
    """pylance does not remap R-trees; Pennon does, and they stay in use."""
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable)
    build(uri, builder, segments=2)
    lance.dataset(uri).delete("id % 7 = 2 or id < 30")
    if compactor == "pennon":
        pennon.open(uri).compact(target_rows_per_fragment=1000)
    else:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    if stable or compactor == "pennon":
        [index] = pennon.open(uri).indices()
        assert index.coverage == 1.0
        check(uri)
    else:
        for filter, expected in full_scans(lance.dataset(uri), SERVED).items():
            assert sorted(pennon.open(uri).scan(filter, ["id"])["id"].to_pylist()) == expected
        pennon.open(uri).optimize_indices()
        check(uri)


@pytest.mark.parametrize("builder", ["pennon", "pylance"])
@pytest.mark.parametrize("follow", ["optimize", "catch up", "pylance"])
def test_compactions_that_leave_the_remapping(tmp_path: Path, builder: str, follow: str) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri)
    build(uri, builder, segments=2)
    for start, where in ((500, "id % 7 = 2"), (550, "id % 5 = 1")):
        lance.dataset(uri).delete(where)
        append(uri, start, 50)
        pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150 + start)
        check(uri)
    if follow == "optimize":
        pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    elif follow == "catch up":
        pennon.open(uri).catch_up_indices()
        pennon.open(uri).trim_fragment_reuse()
        assert pennon.open(uri).fragment_reuse() is None
    else:
        lance.dataset(uri).optimize.optimize_indices()
    check(uri)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_a_merge_with_an_exchange_keeps_every_box(
    tmp_path: Path, stable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable)
    for some in ([0, 1], [2, 3], [4]):
        pennon.open(uri).create_index("p", "RTREE", fragment_ids=some, **SMALL)
    lance.dataset(uri).delete("id % 7 = 2")
    monkeypatch.setattr("pennon.jobs.rtree.plan.ROWS_PER_TASK", 90)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [segment] = pennon.open(uri).indices()[0].segments
    assert len(segment.fragments) == 5
    check(uri)


@pytest.mark.parametrize(
    "values",
    [[], [None] * 40, [{"x": float("nan"), "y": float("nan")}] * 40],
    ids=["no rows", "NULL", "empty"],
)
def test_tables_without_a_box(tmp_path: Path, values: list[Any]) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(geometry_table(0, pa.array(values, POSITION)), uri)
    table = pennon.open(uri)
    table.create_index("p", "RTREE")
    assert table.scan(SERVED[0]).num_rows == 0
    assert table.count("p IS NULL") == sum(value is None for value in values)
    assert table.audit().ok
    lance.dataset(uri).delete("true")
    append(uri, 1000, 100)
    pennon.open(uri).optimize_indices(num_indices_to_merge=1)
    check(uri)


def test_infinite_coordinates_hide_no_others(tmp_path: Path) -> None:
    """pylance's own trees find nothing then: the box around all of them cannot be written as JSON."""
    uri = str(tmp_path / "t.lance")
    points = [{"x": 1.0, "y": 1.0}, {"x": float("inf"), "y": 1.0}, {"x": -float("inf"), "y": 2.0}, {"x": 5.0, "y": 5.0}]
    lance.write_dataset(geometry_table(0, pa.array(points * 30, POSITION)), uri)
    pennon.open(uri).create_index("p", "RTREE", **SMALL)
    filter = f"st_intersects(p, {rectangle(0, 0, 2, 2)})"
    [path] = Path(uri).glob("_indices/*/page_data.lance")
    assert b"null" not in (LanceFileReader(str(path)).metadata().schema.metadata or {})[b"bbox"]
    expected = list(range(0, 120, 4))
    assert pennon.open(uri).scan(filter, ["id"])["id"].to_pylist() == expected
    assert pylance_answer(uri, filter) == (expected, True)
    assert pennon.open(uri).audit().ok


def test_registered_extension_types(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    points = pa.ExtensionArray.from_storage(Points(), geometries(300, 4))
    lance.write_dataset(pa.table({"id": range(300), "p": points}), uri, max_rows_per_file=100)
    pa.register_extension_type(Points())
    try:
        assert isinstance(lance.dataset(uri).schema.field("p").type, Points)
        pennon.open(uri).create_index("p", "RTREE", **SMALL)
        pennon.open(uri).compact(target_rows_per_fragment=1000)
        check(uri)
    finally:
        pa.unregister_extension_type("geoarrow.point")
    check(uri)


def test_a_geometry_in_a_struct(tmp_path: Path) -> None:
    """pylance does not use such an index, whoever built it."""
    uri = str(tmp_path / "t.lance")
    inner = geometry_table(0, geometries(200, 5))
    outer = pa.StructArray.from_arrays([inner["p"].combine_chunks()], fields=[inner.schema.field("p")])
    lance.write_dataset(pa.table({"id": inner["id"], "a": outer}), uri, max_rows_per_file=60)
    pennon.open(uri).create_index("a.p", "RTREE", rows_per_task=60, **SMALL)
    filter = f"st_intersects(a.p, {rectangle(0, 0, 30, 30)})"
    assert [use.index for use in pennon.open(uri).explain(filter).indices] == ["a.p_idx"]
    assert pennon.open(uri).scan(filter, ["id"])["id"].to_pylist() == pylance_answer(uri, filter)[0] != []
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        (geometries(3, 1), None, "not marked as a geometry"),
        (pa.array([b""]), "geoarrow.wkb", "geoarrow.wkb, stored as binary"),
        (pa.array([1]), None, "not marked as a geometry"),
    ],
    ids=["plain struct", "wkb", "number"],
)
def test_other_columns_are_refused(tmp_path: Path, values: pa.Array, kind: str | None, text: str) -> None:
    uri = str(tmp_path / "t.lance")
    field = pa.field("p", values.type, metadata={"ARROW:extension:name": kind} if kind else None)
    lance.write_dataset(pa.Table.from_arrays([values], schema=pa.schema([field])), uri)
    with pytest.raises(UnsupportedColumn, match=text):
        pennon.open(uri).create_index("p", "RTREE")


def test_an_audit_finds_and_repairs_what_is_wrong(tmp_path: Path) -> None:
    """A tree over other geometries, as if rows had been changed behind its back."""
    uri, other = str(tmp_path / "t.lance"), str(tmp_path / "other.lance")
    write(uri)
    values = geometries(500, 0).to_pylist()
    first, second, *_ = (number for number, value in enumerate(values) if value)
    values[first], values[second] = {"x": 1.0, "y": 2.0}, None
    lance.write_dataset(geometry_table(0, pa.array(values, POSITION)), other, max_rows_per_file=100)
    for each in (uri, other):
        pennon.open(each).create_index("p", "RTREE", **SMALL)
    [ours], [theirs] = (list(Path(each).glob("_indices/*")) for each in (uri, other))
    for name in FILES:
        (ours / name).write_bytes((theirs / name).read_bytes())
    checksums = unsealed(theirs.name, (theirs / CHECKSUMS_FILE).read_bytes())
    assert checksums is not None
    (ours / CHECKSUMS_FILE).write_bytes(sealed(ours.name, checksums))
    report = pennon.open(uri).audit()
    assert "2 rows with another value" in str([finding.problem for finding in report.errors])
    assert pennon.open(uri).audit(repair=True).ok
    check(uri)


def test_pages_are_small_in_both_directions(tmp_path: Path) -> None:
    """Half of the leaf pages of a good order overlap few others, even where one coordinate is far off."""
    uri = str(tmp_path / "t.lance")
    xy = np.random.default_rng(6).uniform(0, 1, (4000, 2))
    xy[0] = 1e9
    points = pa.StructArray.from_arrays([pa.array(xy[:, 0]), pa.array(xy[:, 1])], fields=list(POSITION))
    lance.write_dataset(geometry_table(0, points), uri)
    several: dict[str, Any] = {"rows_per_task": 500}
    for options in ({}, several):
        pennon.open(uri).create_index("p", pennon.RTree(page_size=40), replace=True, **options)
        [segment] = pennon.open(uri).report_data()["indices"][0]["segments"]
        assert segment["measures"]["pages"] == 100 + 3 + 1
        assert segment["measures"]["overlapping_pages"] < 5
