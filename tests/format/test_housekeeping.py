"""Orphans: what no version names, whatever the store and the clocks of others report."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import pennon
from pennon.errors import DamagedFile, DamagedTable, StoreReadOnly, UnsupportedTable
from pennon.format.cleanup import ORPHAN_AGE, OrphanKind, delete_orphans, orphans
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, Store
from pennon.testing.engines import in_process
from tests.support.tables import full_scan, stock_answer

DAY = 86_400


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), "k": [i % 10 for i in range(start, start + count)]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four fragments under a B-tree."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 200), path, max_rows_per_file=50)
    with in_process():
        pennon.open(path).create_index("k")
    return path


def opened(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def left_index(uri: str, days: float) -> str:
    path = Path(uri, "_indices", str(uuid4()))
    path.mkdir()
    (path / "page_data.lance").write_bytes(b"x" * 10)
    aged(path / "page_data.lance", days)
    aged(path, days)
    return f"_indices/{path.name}"


def left_data(uri: str, days: float) -> str:
    """As pylance writes it, without a commit."""
    [fragment] = write_fragments(rows(1000, 5), uri, mode="append")
    path = f"data/{fragment.files[0].path}"
    aged(Path(uri, path), days)
    return path


def aged(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def age_all(uri: str, days: float) -> None:
    for path in Path(uri).rglob("*"):
        aged(path, days)


def files(uri: str) -> set[str]:
    return {str(path.relative_to(uri)) for path in Path(uri).rglob("*") if path.is_file()}


def check_answers(uri: str) -> None:
    with in_process():
        for value in (3, 9):
            expected = full_scan(uri, f"k = {value}")
            assert stock_answer(uri, f"k = {value}") == (expected, True)
            assert sorted(pennon.open(uri).scan(f"k = {value}", ["id"])["id"].to_pylist()) == expected


def test_data_files_that_no_version_names_go_when_old(uri: str) -> None:
    named = files(uri)
    old, young, directory = left_data(uri, 8), left_data(uri, 6), left_index(uri, 8)
    size = Path(uri, old).stat().st_size
    found = {orphan.path: orphan for orphan in orphans(opened(uri))}
    assert {path: orphan.kind for path, orphan in found.items()} == {
        old: OrphanKind.DATA,
        young: OrphanKind.DATA,
        directory: OrphanKind.INDEX,
    }
    assert found[old].size_bytes == size
    done = delete_orphans(opened(uri), ORPHAN_AGE)
    assert ([o.path for o in done.deleted], [o.path for o in done.kept]) == ([directory, old], [young])
    assert files(uri) == {*named, young}
    check_answers(uri)


def test_data_files_of_any_version_branch_or_detached_commit_stay(uri: str) -> None:
    """However old: rewritten, deleted, tagged, replaced column by column, or on a branch."""
    first = lance.dataset(uri)
    branch = first.create_branch("side/way")
    lance.write_dataset(rows(500, 5), branch, mode="append")
    with in_process():
        pennon.open(uri).update_column("k", "k + 1", where="id < 60")
        pennon.open(uri).compact()
    [detached] = write_fragments(rows(800, 5), uri, mode="append")
    append = lance.LanceOperation.Append([detached])
    lance.LanceDataset.commit(uri, append, read_version=lance.dataset(uri).version, detached=True)
    lance.dataset(uri).tags.create("kept", 1)
    age_all(uri, 1000)
    before = files(uri)
    snapshot = opened(uri)
    assert delete_orphans(snapshot, 0).deleted == ()
    # Version 1 is tagged and the branch has what it was made of, whatever becomes of the versions between.
    lance.dataset(uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert delete_orphans(snapshot, 0).deleted == ()
    assert files(uri) <= before
    assert lance.dataset(uri, version=1).count_rows() == 200
    assert lance.dataset(uri).checkout_version(("side/way", None)).count_rows() == 205


def test_only_names_that_pylance_gives_are_orphans(uri: str) -> None:
    stem = "01" * 12 + "0123456789abcdef0123456789"
    blobs = Path(uri, "data", stem)
    blobs.mkdir()
    (blobs / "0001.blob").write_bytes(b"x")
    kept = {f"{stem[:-1]}.lance", f"{stem}.txt", "mine.lance", ".tmp", ".tmpabcde", ".hidden12", f"{stem}.lance.bak"}
    gone = {f"{stem}.lance", f"{uuid4()}.lance", ".tmpAb3dEf"}
    for name in kept | gone:
        Path(uri, "data", name).write_bytes(b"x")
    link = Path(uri, "data", "10" * 12 + "0123456789abcdef0123456789.lance")
    link.symlink_to(Path(uri).parent)
    age_all(uri, 1000)
    assert {orphan.path for orphan in delete_orphans(opened(uri)).deleted} == {f"data/{name}" for name in gone}
    assert (blobs / "0001.blob").exists()
    assert link.is_symlink()
    assert all(Path(uri, "data", name).exists() for name in kept)
    check_answers(uri)


KILLED = """
import sys, lance, numpy as np, pyarrow as pa
def batches():
    for _ in range(10_000):
        yield pa.record_batch({"id": list(range(1000)), "b": [np.random.bytes(1000) for _ in range(1000)]})
schema = pa.schema([("id", pa.int64()), ("b", pa.binary())])
reader = pa.RecordBatchReader.from_batches(schema, batches())
lance.write_dataset(reader, sys.argv[1], mode="create", max_rows_per_file=3000)
"""


@pytest.mark.process
def test_what_a_killed_writer_leaves_is_all_found(tmp_path: Path) -> None:
    """Finished files, and one that has no name of its own yet."""
    written = tmp_path / "killed.lance"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(written)])
    data = written / "data"
    while process.poll() is None and not (data.exists() and len(list(data.glob("*.lance"))) > 2):
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 10), uri)
    named = files(uri)
    for path in data.iterdir():
        shutil.move(path, Path(uri, "data", path.name))
    left = files(uri) - named
    assert len(left) > 2
    assert {orphan.path for orphan in delete_orphans(opened(uri), 0).deleted} == left
    assert files(uri) == named
    assert lance.dataset(uri).count_rows() == 10


@pytest.mark.parametrize("days", [7, 400, -400])
def test_the_clock_of_this_machine_does_not_matter(uri: str, monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """A job elsewhere wrote this an hour ago, and that nine days ago, by the clock of the store."""
    running = {left_index(uri, 1 / 24), left_data(uri, 1 / 24)}
    crashed = {left_index(uri, 9), left_data(uri, 9)}
    before = files(uri)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + days * DAY)
    done = delete_orphans(opened(uri))
    assert {orphan.path for orphan in done.deleted} == crashed
    assert {orphan.path for orphan in done.kept} == running
    assert all(3500 < (orphan.age or 0) < 4000 for orphan in done.kept)
    assert {path for path in before - files(uri) if not path.startswith(tuple(crashed))} == set()
    assert files(uri) - before == set()


def test_asking_for_the_time_leaves_at_most_an_orphan(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = left_data(uri, 9)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            delete_orphans(opened(uri))
    [clock] = [orphan for orphan in orphans(opened(uri)) if orphan.kind is OrphanKind.INDEX]
    aged(Path(uri, clock.path, "clock"), 9)
    aged(Path(uri, clock.path), 9)
    assert {o.path for o in delete_orphans(opened(uri)).deleted} == {orphan, clock.path}
    check_answers(uri)


def test_looking_writes_nothing(uri: str) -> None:
    left_index(uri, 9)
    times = {path: path.stat().st_mtime_ns for path in Path(uri).rglob("*")}
    assert len(orphans(opened(uri))) == 1
    assert {path: path.stat().st_mtime_ns for path in Path(uri).rglob("*")} == times


def test_where_nothing_can_be_written_no_age_is_known(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = left_data(uri, 1000)

    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    [kept] = delete_orphans(opened(uri)).kept
    assert (kept.path, kept.age) == (orphan, None)
    monkeypatch.setattr(Store, "delete", refused)
    with pytest.raises(StoreReadOnly, match=r"data/.* cannot be deleted: .*Read-only file system"):
        delete_orphans(opened(uri), unknown_age=True)
    assert Path(uri, orphan).exists()


def deny(monkeypatch: pytest.MonkeyPatch, *denied: str) -> None:
    """The store lists these, and reports that they are not there."""
    read, exists = Store.read, Store.exists

    def reading(store: Store, path: str) -> bytes:
        if path.endswith(denied):
            raise DamagedFile(f"cannot read {path}")
        return read(store, path)

    monkeypatch.setattr(Store, "read", reading)
    monkeypatch.setattr(Store, "exists", lambda store, path: not path.endswith(denied) and exists(store, path))


@pytest.mark.parametrize("denied", ["newest", "all", "older"])
def test_a_store_that_denies_manifests_it_lists_loses_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    """The index and the data files of the open handle, and of versions it cannot read, are no orphans for that."""
    with in_process():
        pennon.open(uri).create_index("id")
    age_all(uri, 1000)
    orphan = left_data(uri, 1000)
    before = files(uri)
    snapshot = opened(uri)
    newest, *older = sorted(path.name for path in Path(uri, "_versions").glob("*.manifest"))
    deny(monkeypatch, *{"newest": [newest], "all": [".manifest"], "older": older}[denied])
    with pytest.raises(DamagedTable, match=r"the store lists .*\.manifest, but it cannot be read"):
        delete_orphans(snapshot, 0, unknown_age=True)
    assert files(uri) == before
    monkeypatch.undo()
    assert [o.path for o in delete_orphans(snapshot, 0).deleted] == [orphan]
    check_answers(uri)


def test_a_newest_version_that_cannot_be_read_ends_the_search(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    older = opened(uri)
    with in_process():
        pennon.open(uri).create_index("id")
    left_data(uri, 1000)
    before = files(uri)
    deny(monkeypatch, min(path.name for path in Path(uri, "_versions").glob("*.manifest")))
    with pytest.raises(DamagedTable, match=r"the newest version of .* cannot be read: .*Nothing was deleted"):
        delete_orphans(older, 0)
    assert files(uri) == before


def test_a_listing_without_the_newest_version_is_not_believed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_process():
        pennon.open(uri).create_index("id")
    snapshot = opened(uri)
    before = files(uri)
    newest = min(path.name for path in Path(uri, "_versions").glob("*.manifest"))
    for name in ("list", "files_in"):
        listing = getattr(Store, name)
        hidden = lambda store, path, own=listing: [p for p in own(store, path) if not p.endswith(newest)]  # noqa: E731
        monkeypatch.setattr(Store, name, hidden)
    with pytest.raises(DamagedTable, match="does not list version 3"):
        delete_orphans(snapshot, 0)
    assert files(uri) == before


def test_a_handle_on_a_version_that_was_cleaned_up_keeps_its_files(uri: str) -> None:
    """pylance has deleted the version and what only it named; what is left of it is no orphan to its own handle."""
    old = opened(uri)
    lance.dataset(uri).drop_index("k_idx")
    [manifest] = [path for path in Path(uri, "_versions").glob("*.manifest") if path.name.endswith("613.manifest")]
    manifest.unlink()
    age_all(uri, 1000)
    assert delete_orphans(old).deleted == ()
    [segment] = old.manifest.user_segments
    assert [orphan.path for orphan in delete_orphans(opened(uri)).deleted] == [segment.directory]


def test_a_branch_is_not_cleaned_by_itself(uri: str) -> None:
    """Branches made of it share its files, and are kept beside it."""
    branch = lance.dataset(uri).create_branch("first")
    branch = lance.write_dataset(rows(500, 5), branch, mode="append")
    second = branch.create_branch("second")
    age_all(uri, 1000)
    with pytest.raises(UnsupportedTable, match="is the branch 'first' of a table"):
        delete_orphans(opened(branch.uri), 0)
    assert second.count_rows() == 205
    [orphans_step] = [d for d in pennon.open(branch.uri).maintain(dry_run=True).decisions if d.step == "orphans"]
    assert (orphans_step.due, "is the branch 'first'" in orphans_step.reason) == (False, True)


def test_manifests_with_unknown_writer_features_end_the_search(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_data(uri, 1000)
    monkeypatch.setattr("pennon.format.named_files.READER_FLAGS", ~(1 << 3))
    lance.dataset(uri).update_config({"a": "b"})
    with pytest.raises(UnsupportedTable, match="needs writer features 0x8"):
        delete_orphans(opened(uri))
