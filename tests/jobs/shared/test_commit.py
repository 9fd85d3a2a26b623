"""Commits stay right whatever other writers do between the scan and the commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CommitConflict, CoverageWarning, InvalidArgument
from pennon.format.commit import RetryableConflict
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.btree.options import BTree
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.plan import plan_btree
from pennon.jobs.shared import commit as publishing
from pennon.jobs.shared import retry
from pennon.jobs.shared.changes import AddSegments, SegmentChange
from pennon.jobs.shared.commit import commit_change
from tests.support.tables import full_scan, stock_answer

FILTERS = ["k = 7", "k < 5", "k >= 15", "k is null", "k != 3", "k > 900"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": range(400), "k": [None if i % 20 == 0 else i % 20 for i in range(400)], "v": range(400)})
    lance.write_dataset(table, path, max_rows_per_file=100)
    return path


def scan_and_build(uri: str, engine: Any, fragments: list[int] | None = None) -> tuple[Snapshot, IndexSegment]:
    """A segment whose data was read and written, but not yet committed."""
    snapshot = Snapshot.open(Location.of(uri))
    plan = plan_btree(snapshot, "k", BTree(batch_size=16, ranges=3), fragment_ids=fragments, memory_bytes=1 << 30)
    return snapshot, build_btree(engine, snapshot, plan)


def check(uri: str) -> None:
    table = pennon.open(uri)
    for filter in FILTERS:
        expected = full_scan(uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert stock_answer(uri, filter)[0] == expected, f"stock: {filter}"


def coverage(uri: str) -> list[int]:
    return sorted(f for i in pennon.open(uri).indices() for s in i.segments for f in s.fragments)


def update_in_place(uri: str, fragment: int) -> None:
    dataset = lance.dataset(uri)
    target = dataset.get_fragment(fragment)
    ids = target.scanner(columns=[], with_row_id=True).to_table()["_rowid"]
    changed = pa.table({"_rowid": ids[:30], "k": pa.array([999] * 30, pa.int64())})
    metadata, fields = target.update_columns(changed)
    operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def merge_column(uri: str, fragment: int) -> None:
    """Replace the file of column k in a fragment by a Merge, which stock does not notice in an index commit."""
    dataset = lance.dataset(uri)
    target = dataset.get_fragment(fragment)
    ids = target.scanner(columns=[], with_row_id=True).to_table()["_rowid"]
    changed = pa.table({"_rowid": ids[:30], "k": pa.array([999] * 30, pa.int64())})
    metadata, _ = target.update_columns(changed)
    fragments = [metadata if f.fragment_id == fragment else f.metadata for f in dataset.get_fragments()]
    operation = lance.LanceOperation.Merge(fragments, dataset.lance_schema)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def compact(uri: str, **options: Any) -> None:
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, **options)


HARMLESS: dict[str, Callable[[str], Any]] = {
    "append": lambda uri: lance.write_dataset(pa.table({"id": [900], "k": [7], "v": [0]}), uri, mode="append"),
    "delete rows": lambda uri: lance.dataset(uri).delete("id % 3 = 0"),
    "delete a fragment": lambda uri: lance.dataset(uri).delete("id < 100"),
    "update rows": lambda uri: lance.dataset(uri).update({"k": "k + 1"}, where="id % 5 = 0"),
    "add a column": lambda uri: lance.dataset(uri).add_columns({"w": "v * 2"}),
    "drop another column": lambda uri: lance.dataset(uri).drop_columns(["v"]),
    "index another column": lambda uri: lance.dataset(uri).create_scalar_index("v", "BTREE"),
    "index the same name": lambda uri: lance.dataset(uri).create_scalar_index("k", "BTREE", name="k_idx"),
}


@pytest.mark.parametrize("event", HARMLESS)
def test_commit_survives(event: str, uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine)
    HARMLESS[event](uri)
    commit_change(scanned, AddSegments((segment,), replace_whole=True))
    check(uri)
    index = next(i for i in pennon.open(uri).indices() if i.name == "k_idx")
    assert [s.uuid for s in index.segments] == [segment.uuid]


@pytest.mark.parametrize("change", [update_in_place, merge_column])
def test_fragments_changed_in_place_lose_coverage(change: Callable[[str, int], None], uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine)
    change(uri, 2)
    with pytest.warns(CoverageWarning, match="does not cover 1 fragment that changed"):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert coverage(uri) == [0, 1, 3]
    check(uri)


def test_merge_between_check_and_commit_is_mended(uri: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned, segment = scan_and_build(uri, engine)
    commit, raced = publishing.commit_segments, []

    def race(*arguments: Any) -> Snapshot:
        if not raced:
            raced.append(merge_column(uri, 1))
        return commit(*arguments)

    monkeypatch.setattr(publishing, "commit_segments", race)
    with pytest.warns(CoverageWarning):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert coverage(uri) == [0, 2, 3]
    check(uri)


def test_column_dropped_meanwhile(uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine)
    lance.dataset(uri).drop_columns(["k"])
    with pytest.raises(CommitConflict, match="dropped"):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert pennon.open(uri).indices() == []


def test_column_dropped_between_check_and_commit(uri: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned, segment = scan_and_build(uri, engine)
    commit, raced = publishing.commit_segments, []

    def race(*arguments: Any) -> Snapshot:
        if not raced:
            raced.append(lance.dataset(uri).drop_columns(["k"]))
        return commit(*arguments)

    monkeypatch.setattr(publishing, "commit_segments", race)
    with pytest.raises(CommitConflict, match="removed again"):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert pennon.open(uri).indices() == []
    assert lance.dataset(uri).count_rows(filter="v < 10") == 10


def test_compaction_meanwhile_is_a_precise_conflict(uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine)
    compact(uri)
    with pytest.raises(CommitConflict, match="rewritten in the meantime"):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert pennon.open(uri).indices() == []


def test_deferred_compaction_meanwhile_keeps_the_work(uri: str, engine: Any) -> None:
    pennon.open(uri).create_index("v")
    scanned, segment = scan_and_build(uri, engine)
    compact(uri, defer_index_remap=True)
    commit_change(scanned, AddSegments((segment,), replace_whole=True))
    index = next(i for i in pennon.open(uri).indices() if i.name == "k_idx")
    assert index.coverage == 1.0
    check(uri)


def test_change_in_place_then_deferred_compaction(uri: str, engine: Any) -> None:
    """The changed fragment is gone, so only the versions in between tell that its values are stale."""
    pennon.open(uri).create_index("v")
    scanned, segment = scan_and_build(uri, engine)
    update_in_place(uri, 0)
    compact(uri, defer_index_remap=True)
    with pytest.warns(CoverageWarning):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    check(uri)


def test_overwrite_meanwhile(uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine)
    lance.write_dataset(lance.dataset(uri).to_table(), uri, mode="overwrite", max_rows_per_file=100)
    with pytest.raises(CommitConflict):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    check(uri)


def test_segments_side_by_side(uri: str, engine: Any) -> None:
    table = pennon.open(uri)
    table.create_index("k", fragment_ids=[0, 1], batch_size=16)
    table.create_index("k", fragment_ids=[3], batch_size=16)
    [index] = table.indices()
    assert [s.fragments for s in index.segments] == [(0, 1), (3,)]
    assert index.uncovered_fragments == (2,)
    check(uri)
    with pytest.raises(InvalidArgument, match=r"overlaps .* in part"):
        table.create_index("k", fragment_ids=[1, 2], batch_size=16)
    table.create_index("k", fragment_ids=[1, 0, 2], batch_size=16)
    [index] = table.indices()
    assert sorted(s.fragments for s in index.segments) == [(0, 1, 2), (3,)]
    check(uri)


def test_overlap_is_refused_at_the_commit(uri: str, engine: Any) -> None:
    pennon.open(uri).create_index("k", batch_size=16)
    scanned, segment = scan_and_build(uri, engine, [1])
    with pytest.raises(CommitConflict, match="overlap"):
        commit_change(scanned, SegmentChange((segment,)))


def test_wrong_row_id_domain_is_refused(uri: str, engine: Any) -> None:
    from dataclasses import replace

    scanned, segment = scan_and_build(uri, engine)
    with pytest.raises(CommitConflict, match="index version 1"):
        commit_change(scanned, SegmentChange((replace(segment, index_version=1),)))


def test_same_name_on_another_column_is_refused(uri: str, engine: Any) -> None:
    table = pennon.open(uri)
    table.create_index("k", name="mine")
    with pytest.raises(InvalidArgument, match=r"another column \(k\)"):
        table.create_index("v", name="mine")
    with pytest.raises(InvalidArgument, match=r"another column \(k\)"):
        table.create_index("v", name="mine", fragment_ids=[0])


def test_conflicts_are_retried_a_bounded_number_of_times(
    uri: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, segment = scan_and_build(uri, engine)
    attempts: list[int] = []

    def always(*_: Any) -> Snapshot:
        attempts.append(1)
        raise RetryableConflict("busy")

    monkeypatch.setattr(publishing, "commit_segments", always)
    monkeypatch.setattr(retry.time, "sleep", lambda _: None)
    with pytest.raises(CommitConflict):
        commit_change(scanned, AddSegments((segment,), replace_whole=True))
    assert len(attempts) == retry.ATTEMPTS


def test_failed_commit_leaves_no_files(uri: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Snapshot:
        raise CommitConflict("refused")

    monkeypatch.setattr(publishing, "commit_segments", refuse)
    with pytest.raises(CommitConflict, match="refused"):
        pennon.open(uri).create_index("k")
    directory = Path(uri) / "_indices"
    assert not directory.exists() or not [p for p in directory.rglob("*") if p.is_file()]


def test_stale_values_never_stand_beside_a_new_segment(uri: str, engine: Any) -> None:
    """Stock would show the old values of fragment 1 as soon as any segment covers it again."""
    table = pennon.open(uri)
    table.create_index("k", fragment_ids=[0, 1], batch_size=16)
    update_in_place(uri, 1)
    with pytest.raises(InvalidArgument, match=r"fragments \[1\] .* changed in place"):
        table.create_index("k", fragment_ids=[1, 2], batch_size=16)
    check(uri)
    table.create_index("k", fragment_ids=[2, 3], batch_size=16)
    check(uri)
    table.create_index("k", fragment_ids=[0, 1], batch_size=16)
    assert coverage(uri) == [0, 1, 2, 3]
    check(uri)


def test_a_change_is_printed_without_committing_it(uri: str, engine: Any) -> None:
    scanned, segment = scan_and_build(uri, engine, [0, 1])
    version = lance.dataset(uri).version
    change = AddSegments((segment,), replace_whole=False)
    assert str(change) == f"add segment {segment.uuid} over 2 fragments to k_idx, next to its other segments"
    assert change.on(scanned) == SegmentChange((segment,))
    assert lance.dataset(uri).version == version


def test_commits_and_conflicts_are_logged_with_their_fields(
    uri: str, engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scanned, segment = scan_and_build(uri, engine)
    commit, refused = publishing.commit_segments, []

    def busy_once(*arguments: Any) -> Snapshot:
        if not refused:
            refused.append(1)
            raise RetryableConflict("busy")
        return commit(*arguments)

    monkeypatch.setattr(publishing, "commit_segments", busy_once)
    with caplog.at_level("INFO", logger="pennon.jobs.shared"):
        committed = commit_change(scanned, AddSegments((segment,), replace_whole=True))
    conflict, done = (vars(record) for record in caplog.records)
    assert (conflict["attempt"], conflict["retried"], conflict["table"]) == (1, True, uri)
    assert (done["version"], done["added"], done["removed"]) == (committed.version, 1, 0)
    assert "k_idx" in done["change"]
