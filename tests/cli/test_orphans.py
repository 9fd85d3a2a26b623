"""What `clean-orphans` deletes: files that nothing names and nobody can be writing, and nothing else."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import pennon
from pennon.errors import InvalidArgument
from pennon.format import cleanup as housekeeping
from pennon.format.cleanup import Orphan, OrphanKind
from pennon.format.modification_times import ModificationTimes, time_of_store
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from tests.support.cli import as_json, done, run
from tests.support.object_store import BUCKET, storage_options
from tests.support.tables import full_scan, stock_answer

__all__ = ["storage_options"]  # a fixture

pytestmark = pytest.mark.usefixtures("process_engine")

DAY = 86_400


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(200), "k": [i % 10 for i in range(200)]}), path, max_rows_per_file=50)
    done("create-index", path, "k")
    return path


def aged(directory: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (then, then))


def left_behind(uri: str, days: float, *, size: int = 1000) -> str:
    """As a crashed job leaves it."""
    directory = Path(uri) / "_indices" / str(uuid4())
    directory.mkdir()
    (directory / "page_data.lance").write_bytes(b"x" * size)
    (directory / "page_lookup.lance").write_bytes(b"y" * 24)
    aged(directory, days)
    return f"_indices/{directory.name}"


def directories(uri: str) -> set[str]:
    return {f"_indices/{path.name}" for path in (Path(uri) / "_indices").iterdir()}


def test_old_orphans_go_and_young_ones_stay(uri: str) -> None:
    named = directories(uri)
    old, young = left_behind(uri, 8), left_behind(uri, 6)
    planned = as_json("clean-orphans", uri, "--dry-run")
    assert [orphan["path"] for orphan in planned["deleted"]] == [old]
    assert [orphan["path"] for orphan in planned["kept"]] == [young]
    assert [orphan["kind"] for orphan in (*planned["deleted"], *planned["kept"])] == ["index directory"] * 2
    assert (planned["size_bytes"], planned["dry_run"], planned["clock"]) == (1024, True, "this machine")
    shown = done("clean-orphans", uri, "--dry-run")
    assert "1 index directory would be deleted, 1.0 KiB" in shown
    assert "Ages are measured with this machine's clock" in shown
    assert directories(uri) == {*named, old, young}

    shown = done("clean-orphans", uri)
    assert "1 index directory deleted, 1.0 KiB" in shown
    assert f"  {old}  8 days old, 1.0 KiB" in shown
    assert "1 index directory kept, not known to be older than 7 days" in shown
    assert "clock" not in shown
    assert directories(uri) == {*named, young}
    assert done("clean-orphans", uri, "--older-than", "5d").startswith("1 index directory deleted")
    assert directories(uri) == named
    assert done("clean-orphans", uri) == "0 orphans deleted\n"


def test_what_any_version_names_stays_however_old(uri: str) -> None:
    """An index that is dropped, replaced, tagged or on a branch is still there in some version."""
    first = directories(uri)
    lance.dataset(uri).create_branch("side")
    done("create-index", uri, "k")
    done("create-index", uri, "id")
    done("drop-index", uri, "id_idx")
    named = directories(uri)
    assert len(named) == 3
    assert first < named
    for directory in named:
        aged(Path(uri) / directory, 1000)
    assert as_json("clean-orphans", uri, "--older-than", "1s", "--no-jobs-running")["deleted"] == []
    assert directories(uri) == named
    assert stock_answer(uri, "k = 3") == (full_scan(uri, "k = 3"), True)


def test_a_directory_is_as_old_as_the_newest_thing_in_it(uri: str) -> None:
    """A build may run for days, and writes file after file."""
    running = left_behind(uri, 30)
    (Path(uri) / running / "part_1_page_data.lance").write_bytes(b"z")
    aged_ = Path(uri) / running
    os.utime(aged_, (time.time() - 30 * DAY,) * 2)
    assert as_json("clean-orphans", uri, "--older-than", "1d")["deleted"] == []
    assert running in directories(uri)


def test_what_was_committed_or_written_to_meanwhile_stays(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builds come to life between the look at the manifests and the deletion."""
    table = pennon.open(uri)
    written = left_behind(uri, 30)
    looked = housekeeping._list_orphans  # pyright: ignore[reportPrivateUsage]
    committed: list[str] = []

    def looking(snapshot: Any, **options: Any) -> Any:
        before = directories(uri)
        look = looked(snapshot, **options)
        pennon.open(uri).create_index("id")
        [new] = directories(uri) - before
        aged(Path(uri) / new, 30)
        aged(Path(uri) / written, 0)
        committed.append(new)
        return replace(look, found=[Orphan(new, OrphanKind.INDEX, 30 * DAY, 1), *look.found])

    monkeypatch.setattr(housekeeping, "_list_orphans", looking)
    assert housekeeping.delete_orphans(table.refresh()._snapshot).deleted == ()  # pyright: ignore[reportPrivateUsage]
    assert {written, *committed} <= directories(uri)
    assert stock_answer(uri, "id = 3") == (full_scan(uri, "id = 3"), True)


def test_other_folders_are_not_touched(uri: str) -> None:
    notes = Path(uri) / "_indices" / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("a")
    aged(notes, 1000)
    assert as_json("clean-orphans", uri, "--older-than", "1s", "--no-jobs-running")["deleted"] == []
    assert (notes / "a.txt").exists()


def test_the_facade(uri: str) -> None:
    table = pennon.open(uri)
    orphan = left_behind(uri, 3)
    assert table.clean_orphans().deleted == ()
    assert [o.path for o in table.clean_orphans(timedelta(days=2), dry_run=True).deleted] == [orphan]
    cleaned = table.clean_orphans(older_than=timedelta(days=2))
    assert ([o.path for o in cleaned.deleted], cleaned.size_bytes) == ([orphan], 1024)
    with pytest.raises(InvalidArgument, match="must not be negative"):
        table.clean_orphans(timedelta(days=-1))


def test_less_than_a_day_is_no_sign_that_a_job_is_over(uri: str) -> None:
    orphan = left_behind(uri, 0.5)
    refused = run("clean-orphans", uri, "--older-than", "2h")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    assert "may be what a running job is about to commit" in refused.stderr
    assert orphan in directories(uri)
    assert len(as_json("clean-orphans", uri, "--older-than", "2h", "--dry-run")["deleted"]) == 1
    assert orphan in directories(uri)
    cleaned = as_json("clean-orphans", uri, "--older-than", "2h", "--no-jobs-running")
    assert [each["path"] for each in cleaned["deleted"]] == [orphan]
    assert orphan not in directories(uri)


def test_ages_on_an_object_store_come_from_its_listing(
    storage_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{BUCKET}/aged.lance"
    lance.write_dataset(pa.table({"k": range(100)}), uri, storage_options=storage_options)
    store = lance.dataset(uri, storage_options=storage_options).new_file_session()
    orphan = f"_indices/{uuid4()}"
    store.upload_file(__file__, f"{orphan}/page_data.lance")
    [fragment] = write_fragments(pa.table({"k": range(3)}), uri, mode="append", storage_options=storage_options)
    file = f"data/{fragment.files[0].path}"
    table = pennon.open(uri, storage_options=storage_options)
    kept = table.clean_orphans(timedelta(days=7)).kept
    assert [each.path for each in kept] == [orphan, file]
    assert all(each.age is not None and each.age < 600 for each in kept)
    assert kept[0].size_bytes == Path(__file__).stat().st_size
    # A week later.
    now = housekeeping.time_of_store
    monkeypatch.setattr(housekeeping, "time_of_store", lambda *given: (now(*given) or 0) + 7 * DAY)
    assert [each.path for each in table.clean_orphans(timedelta(days=7)).deleted] == [orphan, file]
    assert (len(store.list("data")), store.list("_indices")) == (1, [])
    assert table.scan("k = 3").num_rows == 1


def test_ages_are_unknown_where_the_listing_is_of_another_store(storage_options: dict[str, str]) -> None:
    """Both clients must see what one of them has written."""
    uri = f"s3://{BUCKET}/elsewhere.lance"
    lance.write_dataset(pa.table({"k": range(10)}), uri, storage_options=storage_options)
    pinned = Snapshot.open(Location.of(uri, storage_options))
    own = ModificationTimes.of(pinned.store.location)
    other = ModificationTimes.of(Location.of(f"s3://{BUCKET}/other.lance", storage_options))
    unreachable = ModificationTimes.of(Location.of(uri, storage_options | {"aws_endpoint": "http://127.0.0.1:9"}))
    assert own is not None
    assert other is not None
    assert unreachable is not None
    assert abs((time_of_store(pinned.store, own) or 0) - time.time()) < 600
    assert time_of_store(pinned.store, other) is None
    assert time_of_store(pinned.store, unreachable) is None
    assert ModificationTimes.of(Location.of("gs://bucket/t.lance")) is None
    assert pinned.store.list("_indices") == []


def test_without_ages_nothing_is_deleted_unless_no_job_is_running(storage_options: dict[str, str]) -> None:
    """An option that only pylance knows: another client may see another store."""
    storage_options = storage_options | {"aws_unsigned_payload": "true"}
    uri = f"s3://{BUCKET}/orphans.lance"
    lance.write_dataset(pa.table({"k": range(100)}), uri, storage_options=storage_options)
    options = [word for pair in storage_options.items() for word in ("--storage-option", "=".join(pair))]
    done("create-index", uri, "k", *options)
    store = lance.dataset(uri, storage_options=storage_options).new_file_session()
    [named] = {path.split("/")[1] for path in store.list("_indices")}
    orphan = str(uuid4())
    store.upload_file(__file__, f"_indices/{orphan}/page_data.lance")
    more = pa.table({"k": range(3)})
    [fragment] = write_fragments(more, uri, mode="append", storage_options=storage_options)
    file = f"data/{fragment.files[0].path}"
    shown = done("clean-orphans", uri, *options)
    kept = "1 index directory and 1 data file kept"
    assert shown.startswith(f"0 orphans deleted\n{kept}, not known to be older than 7 days")
    assert f"{orphan}  age unknown" in shown
    assert f"{file}  age unknown" in shown
    assert {path.split("/")[1] for path in store.list("_indices")} == {named, orphan}
    cleaned = as_json("clean-orphans", uri, "--no-jobs-running", *options)
    assert [each["path"] for each in cleaned["deleted"]] == [f"_indices/{orphan}", file]
    assert cleaned["size_bytes"] is None
    assert len(store.list("data")) == 1
    assert {path.split("/")[1] for path in store.list("_indices")} == {named}


@pytest.mark.parametrize("wrong", ["7", "0s", "-1d", "a week"])
def test_an_age_is_a_duration(uri: str, wrong: str) -> None:
    result = run("clean-orphans", uri, "--older-than", wrong)
    assert (result.exit_code, "is not a duration" in result.stderr) == (2, True)


def test_maintain_tells_the_bytes(uri: str) -> None:
    orphan = left_behind(uri, 8)
    said = done("maintain", uri, "--no-compact", "--no-optimize")
    assert "orphans    due: 1 index directory in no version, 1 older than 7 days" in said
    assert "-> 1 deleted, 1.0 KiB" in said
    assert orphan not in directories(uri)
    assert "orphans    not due: every file belongs to a version" in done("maintain", uri, "--dry-run")


def test_data_files_of_a_crash_are_listed_and_deleted(uri: str) -> None:
    directory, file = left_behind(uri, 8), left_data_file(uri, 9)
    assert left_data_file(uri, 1)
    both = "1 index directory and 1 data file"
    said = done("clean-orphans", uri, "--dry-run")
    assert f"{both} would be deleted, " in said
    assert f"  {file}  9 days old, " in said
    assert "1 data file kept, not known to be older than 7 days" in said
    named = "1 index directory and 2 data files in no version"
    assert f"orphans    due: {named}, 2 older than 7 days" in done("maintain", uri, "--dry-run")
    assert f"{named} (_indices/" in done("audit", uri)
    assert f"{named}, 2 older" in pennon.open(uri).report()
    cleaned = as_json("clean-orphans", uri)
    assert [(each["path"], each["kind"]) for each in cleaned["deleted"]] == [
        (directory, "index directory"),
        (file, "data file"),
    ]
    assert (len(cleaned["kept"]), cleaned["clock"]) == (1, "store")
    assert not (Path(uri) / file).exists()
    assert stock_answer(uri, "k = 3") == (full_scan(uri, "k = 3"), True)


def left_data_file(uri: str, days: float) -> str:
    [fragment] = write_fragments(pa.table({"id": [1], "k": [2]}), uri, mode="append")
    path = Path(uri) / "data" / fragment.files[0].path
    os.utime(path, (time.time() - days * DAY,) * 2)
    return f"data/{path.name}"
