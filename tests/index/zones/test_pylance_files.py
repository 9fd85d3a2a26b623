"""pylance's zone maps and Bloom filters, as Pennon reads them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import pennon
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.registry import kind_of
from pennon.index.zones.kind import BLOOM_FILTER, ZONE_MAP
from tests.support.tables import FILTERS, MIXED_FILTERS, full_scan, write_every_type

ROWS_PER_ZONE = 50
PARAMETERS = {
    "zonemap": {"rows_per_zone": ROWS_PER_ZONE},
    "bloomfilter": {"number_of_items": ROWS_PER_ZONE, "probability": 0.01},
}


def _built(path: Path, kind: str, stable: bool) -> tuple[str, list[str]]:
    uri = write_every_type(path, rows=2000, rows_per_file=400, enable_stable_row_ids=stable)
    dataset = lance.dataset(uri)
    indexed: list[str] = []
    for column in FILTERS:
        type_ = _type(dataset.schema, column)
        if (ZONE_MAP if kind == "zonemap" else BLOOM_FILTER).supports(type_):
            config = IndexConfig(kind, PARAMETERS[kind])
            dataset.create_scalar_index(column, config, name=f"{column.replace('.', '_')}_idx")
            indexed.append(column)
    return uri, indexed


def _type(schema: pa.Schema, path: str) -> pa.DataType:
    first, *rest = path.split(".")
    type_ = schema.field(first).type
    for name in rest:
        type_ = type_.field(name).type
    return type_


@pytest.mark.parametrize("stable", [False, True])
def test_zone_maps_answer_like_a_scan(tmp_path: Path, stable: bool) -> None:
    uri, indexed = _built(tmp_path / "t.lance", "zonemap", stable)
    table, dataset = pennon.open(uri), lance.dataset(uri)
    unused: list[str] = []
    for filter in [f for column in indexed for f in FILTERS[column]] + MIXED_FILTERS:
        expected = full_scan(dataset, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        if not table.explain(filter).indices:
            unused.append(filter)
    assert table.explain("i64 = 0").skipped == ()
    # Nothing at all is asked for, or nothing that bounds can rule out.
    nothing = {"i64 between 5 and -5", "i64 not in (0, null)", "i64 = 0 and i64 = 100000000000000000"}
    assert set(unused) == nothing | {"text like '%1'", "i64 % 2 = 0 or text > 'k05'"}


@pytest.mark.parametrize("stable", [False, True])
def test_bloom_filters_answer_like_a_scan(tmp_path: Path, stable: bool) -> None:
    uri, indexed = _built(tmp_path / "t.lance", "bloomfilter", stable)
    table, dataset = pennon.open(uri), lance.dataset(uri)
    assert {"i8", "u64", "f64", "text", "large_raw", "ts_ns", "time", "day"} <= set(indexed)
    for filter in [f for column in indexed for f in FILTERS[column]] + MIXED_FILTERS:
        expected = full_scan(dataset, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
    for filter in ("i64 = 0", "i8 in (-60, 0, 59)", "f64 = 0.0", "text = 'k001'", "i64 is null", "u8 in (1, 2, 3)"):
        assert table.explain(filter).indices, filter
    for filter in ("i64 > 0", "text like 'k1%'", "i64 is not null"):
        assert not table.explain(filter).indices, filter


def test_which_answers_are_exact(tmp_path: Path) -> None:
    uri, _ = _built(tmp_path / "t.lance", "zonemap", stable=False)
    table = pennon.open(uri)
    for filter, exact in {"i64 is null": True, "i64 is not null": True, "i64 = 0": False, "key is null": True}.items():
        assert [use.exact for use in table.explain(filter).indices] == [exact], filter
    assert not table.explain("key = X'000001'").indices  # a type without bounds


def test_every_kind_of_details_is_claimed(tmp_path: Path) -> None:
    uri, _ = _built(tmp_path / "t.lance", "zonemap", stable=False)
    segments = Snapshot.open(Location.of(uri)).manifest.user_segments
    assert {kind_of(segment) for segment in segments} == {ZONE_MAP}
    assert all(isinstance(segment, IndexSegment) and segment.details[:1] == b"\x08" for segment in segments)
