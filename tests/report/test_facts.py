"""What a report knows of a table is what is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import pennon
from pennon.format.index_metadata import IndexSegment
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.report import history
from pennon.report.facts import TableFacts, collect
from pennon.report.grid import MAX_COLUMNS, Grid
from pennon.report.summary import Level, headline, level, notices
from tests.report.tables import append, defer, rows, write
from tests.support.manifests import edit_newest
from tests.support.tables import FILTERS, write_every_type


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return write(tmp_path / "t.lance")


def snapshot(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def facts(uri: str) -> TableFacts:
    return collect(snapshot(uri))


def with_segments(uri: str, *segments: IndexSegment) -> TableFacts:
    """As if the manifest named these."""
    pinned = snapshot(uri)
    pinned.manifest = replace(pinned.manifest, segments=segments)
    return collect(pinned)


def told(found: TableFacts) -> str:
    return " ".join(notice.text for notice in notices(found))


def test_a_table_that_is_well(uri: str) -> None:
    found = facts(uri)
    [index] = found.indices
    assert (index.name, index.type, index.columns, index.coverage) == ("k_idx", "BTREE", ("k",), 1.0)
    assert [(c.first, c.live, c.deleted) for c in found.columns] == [(n, 100, 0) for n in range(4)]
    [segment] = index.segments
    assert segment.covered == (1.0, 1.0, 1.0, 1.0)
    assert (segment.description.measures["pages"], segment.description.measures["ranges"]) == (1, 1)
    assert ("rows per page", "4,096") in index.parameters
    assert (level(found), notices(found)) == (Level.GOOD, ())
    assert headline(found) == "The only index covers all rows. Maintain has nothing to do."


def test_uncovered_fragments_and_deltas(uri: str) -> None:
    append(uri, 400)
    [index] = facts(uri).indices
    assert (index.uncovered, index.rows_covered, index.rows_total) == ((0, 0, 0, 0, 1), 400, 450)
    assert headline(facts(uri)).startswith("The only index does not cover all rows.")
    assert told(facts(uri)) == "k_idx: 11.1% of the rows uncovered, in 1 fragment that queries scan."
    assert "Maintain would optimize." in headline(facts(uri))
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    found = facts(uri)
    assert sorted(segment.covered for segment in found.indices[0].segments) == [(0, 0, 0, 0, 1), (1, 1, 1, 1, 0)]
    assert level(found) is Level.GOOD
    assert [(event.version, event.index, event.what) for event in found.history.events] == [
        (4, "k_idx", "added 1 segment over 1 fragment"),
        (2, "k_idx", "created: 1 segment over 4 fragments"),
    ]


def test_deletions(uri: str) -> None:
    lance.dataset(uri).delete("id % 2 = 0 and id < 200")
    found = facts(uri)
    assert [(c.live, c.deleted) for c in found.columns] == [(50, 50), (50, 50), (100, 0), (100, 0)]
    assert "25.0% of the stored rows are deleted" in told(found)
    [index] = found.indices
    assert (index.rows_covered, index.rows_total) == (300, 300)


def test_the_fragment_reuse_index(uri: str) -> None:
    defer(uri)
    found = facts(uri)
    assert found.reuse is not None
    assert (found.reuse.depth, found.reuse.versions[0].old_fragments) == (1, 4)
    [segment] = found.indices[0].segments
    assert (segment.covered, segment.moved) == ((1, 1), (1, 1))
    assert "1 deferred compaction behind" in told(found)
    assert "begun by a deferred compaction" in [event.what for event in found.history.events]


def test_a_damaged_fragment_reuse_index_is_told(uri: str) -> None:
    defer(uri)
    manifest = snapshot(uri).manifest
    assert manifest.reuse_segment is not None
    found = with_segments(uri, *manifest.user_segments, replace(manifest.reuse_segment, details=b"\xff\xff"))
    assert "so no index can be used" in told(found)
    assert (found.indices[0].coverage, level(found)) == (0.0, Level.BAD)
    assert found.decisions_problem is not None


@pytest.mark.usefixtures("process_engine")
def test_old_values_of_a_fragment_changed_in_place(uri: str) -> None:
    pennon.open(uri).update_column("k", "k + 1", where="id < 100")
    found = facts(uri)
    [segment] = found.indices[0].segments
    assert (segment.covered, segment.stale) == ((0, 1, 1, 1), (1, 0, 0, 0))
    assert "old values of 1 fragment" in told(found)
    assert found.history.events[0].what == "coverage of 1 segment went from 4 to 3 fragments"


def test_segments_that_cover_the_same(uri: str) -> None:
    [segment] = snapshot(uri).manifest.segments
    found = with_segments(uri, segment, segment)
    assert (found.indices[0].overlapping_fragments, found.indices[0].overlap) == (4, (1, 1, 1, 1))
    assert (level(found), "cover the same 4 fragments" in told(found)) == (Level.BAD, True)


def test_vector_indices(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 600), uri, max_rows_per_file=200)
    lance.dataset(uri).create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, metric="cosine")
    [index] = facts(uri).indices
    assert (index.type, dict(index.parameters)["metric"], dict(index.parameters)["sub-vectors"]) == (
        "IVF_PQ",
        "cosine",
        "2",
    )
    measures, chart = index.segments[0].description.measures, index.segments[0].description.chart
    assert chart is not None
    assert (measures["partitions"], measures["rows"], sum(bar.value for bar in chart.bars)) == (2, 600, 2)
    assert 1 <= measures["imbalance"] <= measures["skew"]


def test_stable_row_ids(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", enable_stable_row_ids=True)
    append(uri, 400)
    found = facts(uri)
    assert found.stable_row_ids
    assert found.indices[0].uncovered == (0, 0, 0, 0, 1)


def test_no_indices(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 10), uri)
    found = facts(uri)
    assert (found.indices, headline(found)[:25]) == ((), "The table has no indices.")


def test_an_empty_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 0), uri)
    found = facts(uri)
    assert (found.columns, found.rows) == ((), 0)
    assert "no rows" in headline(found)
    write(tmp_path / "u.lance")
    lance.dataset(str(tmp_path / "u.lance")).delete("true")
    assert "no rows" in headline(facts(str(tmp_path / "u.lance")))


def test_kinds_that_pennon_does_not_know(uri: str) -> None:
    lance.dataset(uri).add_columns({"word": "cast(id as string)"})
    lance.dataset(uri).create_scalar_index("word", IndexConfig("fm", {}))
    found = facts(uri)
    assert [index.foreign for index in found.indices] == [False, True]
    assert (level(found), headline(found)[:31]) == (Level.GOOD, "The only index covers all rows.")
    assert "word_idx: not used by Pennon (unknown index type" in told(found)
    [segment] = snapshot(uri).manifest.segments[:1]
    assert "unsupported BTREE version 99" in told(with_segments(uri, replace(segment, index_version=99)))


@pytest.mark.parametrize("name", ["page_lookup.lance", "page_data.lance"])
@pytest.mark.parametrize("harm", ["gone", "cut", "zeroed"])
def test_damaged_files(uri: str, name: str, harm: str) -> None:
    [path] = Path(uri).glob(f"_indices/*/{name}")
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-50] if harm == "cut" else bytes(len(content)))
    found = facts(uri)
    if harm == "zeroed" and name == "page_data.lance":
        return  # of the right length, and not read by a report
    [index] = found.indices
    assert (index.coverage, index.segments[0].damaged, level(found)) == (0.0, True, Level.BAD)
    assert "cannot be read" in told(found)


def test_columns_are_bounded(uri: str) -> None:
    manifest = snapshot(uri).manifest
    one = manifest.fragments[0]
    grid = Grid.of(replace(manifest, fragments={n: replace(one, id=n) for n in range(0, 100_000, 3)}))
    assert len(grid.columns) <= MAX_COLUMNS
    assert sum(column.fragments for column in grid.columns) == len(range(0, 100_000, 3))
    assert (grid.columns[0].first, grid.columns[-1].last) == (0, 99_999)
    half = grid.shares(range(0, 50_001, 3))
    assert set(half) - {0.0, 1.0} == {share for share in half if 0 < share < 1}
    assert sum(0 < share < 1 for share in half) == 1


def test_history_is_bounded(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_VERSIONS", 3)
    for start in (400, 450, 500):
        append(uri, start)
    found = facts(uri).history
    assert (found.versions_read, found.versions_there, found.oldest, found.events) == (3, 5, 3, ())
    monkeypatch.setattr(history, "MAX_VERSIONS", 50)
    monkeypatch.setattr(history, "MAX_FRAGMENTS", 8)
    assert facts(uri).history.versions_read == 2


def test_an_older_version_is_reported_as_it_was(uri: str) -> None:
    append(uri, 400)
    found = collect(Snapshot.open(Location.of(uri), 2))
    assert (found.version, found.decisions_version, found.indices[0].coverage) == (2, 3, 1.0)


def test_b_trees_on_every_type(tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=300, rows_per_file=100)
    for column in FILTERS:
        lance.dataset(uri).create_scalar_index(column, "BTREE")
    found = facts(uri)
    assert [index.columns for index in found.indices] == [(column,) for column in FILTERS]
    assert all(segment.description.measures for index in found.indices for segment in index.segments)
    assert level(found) is Level.GOOD


def test_an_index_for_an_unknown_metric(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    codes = pa.FixedSizeListArray.from_arrays(pa.array(range(256), pa.uint8()), 4)
    lance.write_dataset(pa.table({"v": codes}), uri)
    lance.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=1, metric="hamming")

    def forge(_: pb.Manifest, indices: pb.IndexSection) -> None:
        indices.indices[0].index_details.value = b"\x08\x07"

    edit_newest(Path(uri), forge)
    [index] = facts(uri).indices
    assert (index.foreign, "metric number 7" in (index.segments[0].problem or "")) == (True, True)


def test_nulls(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    values: dict[str, Any] = {"a": [1, None] * 100, "b": range(200)}
    lance.write_dataset(pa.table(values), uri)
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    measures = facts(uri).indices[0].segments[0].description.measures
    assert (measures["pages_with_nulls"], measures["pages_of_one_value"]) == (1, 0)
