"""A fragment that an index covers is held by the files of the segment that covers it, and by no others: pylance takes
old values from any segment that holds them, as long as some segment covers the fragment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import pennon
from pennon.errors import InvalidArgument
from pennon.format.segment_contents import CONTENTS_FILE, read_contents
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.vector.vectors import to_lists
from pennon.jobs.shared.stale_values import shared_fragments
from pennon.table import Table
from tests.support.cases import covering
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

ROWS, FRAGMENT, CHANGED, DIM = 2_000, 100, 300, 4
DEFERRED = pennon.MaintenancePolicy(remap="deferred", target_rows_per_fragment=400)
FILTERS = ["s = 3", "s < 5", "s >= 1000", "s between 40 and 1001"]
OLD, NEW = 1.0, -1.0  # where the changed vectors were, and are


def table_of(path: Path, **options: bool) -> str:
    ids = np.arange(ROWS)
    vectors = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32) * 100
    vectors[:CHANGED] = OLD
    data = pa.table({"id": pa.array(ids), "s": pa.array(ids % 100), "v": to_lists(vectors)})
    lance.write_dataset(data, str(path), max_rows_per_file=FRAGMENT, **options)
    return str(path)


def change_in_place(uri: str) -> None:
    """New values of `s` and `v` for the first rows, whole fragments of them, where they are."""
    pennon.open(uri).update_column("s", "s + 1000", where=f"id < {CHANGED}")
    dataset = lance.dataset(uri)
    changed = []
    for fragment in dataset.get_fragments()[: CHANGED // FRAGMENT]:
        rows = fragment.scanner(columns=[], with_row_id=True).to_table()
        vectors = to_lists(np.full((len(rows), DIM), NEW, dtype=np.float32))
        changed.append(fragment.update_columns(pa.table({"_rowid": rows["_rowid"], "v": vectors})))
    operation = lance.LanceOperation.Update(
        updated_fragments=[metadata for metadata, _ in changed], fields_modified=changed[0][1]
    )
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def pylance_is_right(uri: str) -> bool:
    return all(stock_answer(uri, filter)[0] == full_scan(uri, filter) for filter in FILTERS) and nearest_old(uri) > 0


def nearest_old(uri: str) -> float:
    """pylance's distance from where the changed vectors were to what is nearest today; 0 where it finds an old one."""
    query = {"column": "v", "q": np.full(DIM, OLD, dtype=np.float32), "k": 1, "nprobes": 100}
    return lance.dataset(uri).to_table(columns=["id"], nearest=query)["_distance"][0].as_py()


def check(uri: str) -> None:
    """Pennon's answers, pylance's and those of a scan are equal, and the audit agrees."""
    table = pennon.open(uri)
    for filter in FILTERS:
        assert table.count(filter) == len(full_scan(uri, filter)), filter
    assert pylance_is_right(uri)
    report = table.audit()
    assert report.ok, report


def shared(uri: str) -> dict[str, BitMap]:
    snapshot = Snapshot.open(Location.of(uri))
    reuse = read_fragment_reuse(snapshot)
    names = {segment.name for segment in snapshot.manifest.user_segments}
    found: dict[str, BitMap] = {}
    for name in names:
        found |= shared_fragments(snapshot, [s for s in snapshot.manifest.user_segments if s.name == name], reuse)
    return found


def build(uri: str) -> None:
    table = pennon.open(uri)
    table.create_index("s", batch_size=64)
    table.create_index("v", "IVF_FLAT", num_partitions=2)


def build_by_pylance(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("s", "BTREE")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)


BUILDS: dict[str, Callable[[str], None]] = {"pennon": build, "pylance": build_by_pylance}


@pytest.fixture(params=BUILDS)
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table whose indices hold old values of fragments that are not covered."""
    uri = table_of(tmp_path / "t.lance")
    BUILDS[request.param](uri)
    change_in_place(uri)
    return uri


def test_upkeep_with_deferred_compaction_after_a_change_in_place(changed: str) -> None:
    pennon.open(changed).maintain(DEFERRED)
    assert all(index.coverage == 1.0 for index in pennon.open(changed).indices())
    check(changed)
    assert shared(changed) == {}


@pytest.mark.parametrize("merge", [None, 0, 1])
@pytest.mark.parametrize("whose", ["pennon", "pylance"])
def test_a_delta_over_fragments_that_a_deferred_compaction_moved_old_values_to(
    changed: str, merge: int | None, whose: str
) -> None:
    compact_deferred(changed, whose)
    pennon.open(changed).optimize_indices(num_indices_to_merge=merge)
    assert all(index.coverage == 1.0 for index in pennon.open(changed).indices())
    check(changed)
    assert shared(changed) == {}


def compact_deferred(uri: str, whose: str) -> None:
    if whose == "pennon":
        pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=400)
    else:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=400, defer_index_remap=True)


def test_a_segment_beside_one_with_old_values_is_refused(changed: str) -> None:
    compact_deferred(changed, "pylance")
    table = pennon.open(changed)
    [index] = [index for index in table.indices() if index.name == "s_idx"]
    with pytest.raises(InvalidArgument, match="old values"):
        table.create_index("s", fragment_ids=index.uncovered_fragments)
    check(changed)


def spoil(uri: str, *, compacted: bool) -> None:
    """pylance itself puts a delta beside the old values."""
    if compacted:
        compact_deferred(uri, "pylance")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert stock_answer(uri, "s = 3")[0] != full_scan(uri, "s = 3")
    assert nearest_old(uri) > 0  # searches of vectors leave them out, segment by segment
    # As after two weeks of upkeep: nothing tells any more what the segments once covered.
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))


HEALERS: dict[str, Callable[[Table], object]] = {
    "optimize": lambda table: table.optimize_indices(),
    "optimize without merging": lambda table: table.optimize_indices(num_indices_to_merge=0),
    "maintain": lambda table: table.maintain(DEFERRED),
    "audit": lambda table: table.audit(repair=True),
}


@pytest.mark.parametrize(("heal", "compacted"), covering(HEALERS, [False, True], strength=1))
def test_old_values_beside_a_new_segment_are_found_and_healed(changed: str, heal: str, compacted: bool) -> None:
    spoil(changed, compacted=compacted)
    report = pennon.open(changed).audit()
    [finding] = report.errors
    assert finding.index == "s_idx"
    assert "old values of at least" in finding.problem
    assert any("it also holds rows" in finding.problem for finding in report.findings if finding.index == "v_idx")
    HEALERS[heal](pennon.open(changed))
    check(changed)


def test_rows_that_two_segments_hold_with_the_same_value_are_no_error(tmp_path: Path) -> None:
    """Vectors by stable row id, after an update of another column moved rows to a fragment that pylance covers anew."""
    uri = table_of(tmp_path / "t.lance", enable_stable_row_ids=True)
    lance.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=2)
    appended = lance.dataset(uri).to_table().slice(0, 50)
    lance.write_dataset(appended.set_column(0, "id", pa.array(range(ROWS, ROWS + 50))), uri, mode="append")
    lance.dataset(uri).update({"s": "s + 1"}, where=f"id < 10 or id >= {ROWS}")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert shared(uri)
    report = pennon.open(uri).audit()
    assert report.ok, report
    assert any("it also holds rows" in finding.problem for finding in report.findings)


@pytest.mark.parametrize("heal", HEALERS)
def test_rows_that_text_searches_return_twice_are_found_and_healed(tmp_path: Path, heal: str) -> None:
    """Documents by stable row id, after pylance moved rows to a fragment that it covers anew."""
    uri = str(tmp_path / "t.lance")
    texts = [f"common w{number % 3}" for number in range(30)]
    lance.write_dataset(pa.table({"id": range(30), "k": range(30), "t": texts}), uri, enable_stable_row_ids=True)
    pennon.open(uri).create_index("t", "INVERTED")
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(pa.table({"id": [0, 9], "k": [1, 1]}))
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)

    def found_by_pylance() -> list[int]:
        query = lance.query.MatchQuery("common", "t")
        found = lance.dataset(uri).scanner(columns=["id", "_score"], full_text_query=query).to_table()
        return sorted(found["id"].to_pylist())

    assert found_by_pylance() == sorted([*range(30), 0, 9])
    assert sorted(pennon.open(uri).search_text("t", "common", 100, columns=["id"])["id"].to_pylist()) == list(range(30))
    [finding] = pennon.open(uri).audit().errors
    assert "it also holds at least 2 rows of 1 fragment (1)" in finding.problem
    assert "twice" in finding.problem
    HEALERS[heal](pennon.open(uri))
    assert pennon.open(uri).audit().ok
    assert found_by_pylance() == list(range(30))


def test_new_segments_record_what_they_hold(tmp_path: Path) -> None:
    uri = table_of(tmp_path / "t.lance")
    build(uri)
    change_in_place(uri)
    snapshot = Snapshot.open(Location.of(uri))
    for segment in snapshot.manifest.user_segments:
        contents = read_contents(snapshot.store, segment)
        assert contents is not None
        assert contents.fragments == snapshot.manifest.live
        assert segment.fragments == snapshot.manifest.live - BitMap(range(CHANGED // FRAGMENT))


def test_a_record_that_is_not_valid_is_not_used(tmp_path: Path) -> None:
    uri = table_of(tmp_path / "t.lance")
    build(uri)
    change_in_place(uri)
    for record in Path(uri).rglob(CONTENTS_FILE):
        record.write_bytes(record.read_bytes().replace(b"fragments", b"fragmentz"))
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    check(uri)


def test_catching_up_keeps_an_index_that_covers_nothing_any_more(tmp_path: Path) -> None:
    uri = table_of(tmp_path / "t.lance")
    build(uri)
    compact_deferred(uri, "pennon")
    table = pennon.open(uri)
    table.update_column("s", "s + 1000")
    assert {index.name: index.coverage for index in table.indices()} == {"s_idx": 0.0, "v_idx": 1.0}
    table.catch_up_indices()
    table.trim_fragment_reuse()
    assert table.fragment_reuse() is None
    assert {index.name: index.coverage for index in table.indices()} == {"s_idx": 0.0, "v_idx": 1.0}
    table.optimize_indices()
    assert {index.name: index.coverage for index in table.indices()} == {"s_idx": 1.0, "v_idx": 1.0}
    assert all(stock_answer(uri, filter)[0] == full_scan(uri, filter) for filter in FILTERS)
