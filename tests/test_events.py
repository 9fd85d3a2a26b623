"""Every commit, retry, conflict, fallback to a scan and deletion is a log record and an event, with its fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CommitConflict, InvalidArgument
from pennon.format.commit import RetryableConflict
from pennon.jobs.shared import commit as committing
from tests.support.damage import truncate

ROWS = 400


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(ROWS), "k": range(ROWS)}), path, max_rows_per_file=100)
    return path


@pytest.fixture
def events() -> Iterator[list[pennon.Event]]:
    found: list[pennon.Event] = []
    with pennon.on_event(found.append):
        yield found


@pytest.fixture
def table(uri: str) -> pennon.Table:
    return pennon.open(uri, engine="local")


def of_kind(events: list[pennon.Event], kind: str) -> list[pennon.Event]:
    return [event for event in events if event.kind == kind]


def test_every_version_that_a_verb_commits_is_one_event(
    uri: str, table: pennon.Table, events: list[pennon.Event], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pennon")
    before = lance.dataset(uri).version
    table.create_index("id")
    table.create_index("k", pennon.ZoneMap())
    table.create_index("k", name="part", fragment_ids=[0, 1])
    table.update_column("k", "k + 1", where="id < 150")
    table.update({"k": "k + 1"}, where="id < 20")
    table.delete("id between 20 and 25")
    table.merge(lance.dataset(uri).to_table(filter="id < 5"), on="id", when_matched="delete", when_not_matched=None)
    table.merge(lance.dataset(uri, version=before).to_table(filter="id < 9"), on="id")
    table.optimize_indices()
    table.compact(remap="deferred", target_rows_per_fragment=200)
    table.catch_up_indices()
    table.trim_fragment_reuse()
    table.compact(remap="immediate")
    table.drop_index("id_idx")
    newest, commits = lance.dataset(uri), of_kind(events, "commit")
    mine = [event.version for event in commits]
    assert mine == [number for number in range(before + 1, newest.version + 1) if number in mine]
    # pylance reserves fragment ids for a deferred compaction in a version of its own, without a change of the table.
    (reserved,) = set(range(before + 1, newest.version + 1)) - set(mine)
    transaction = newest.read_transaction(reserved)
    assert transaction is not None
    assert type(transaction.operation) is lance.LanceOperation.BaseOperation
    for event in commits:
        assert event.table == uri
        assert event.details["change"]
        assert event.counts
    assert commits[0].index == "id_idx"
    assert commits[0].to_dict()["added"] == 1
    logged = [record for record in caplog.records if getattr(record, "event", "") == "commit"]
    assert [vars(record)["version"] for record in logged] == mine
    assert {vars(record)["table"] for record in logged} == {uri}
    assert all(record.levelno == logging.INFO for record in logged)
    assert vars(logged[-1])["index"] == "id_idx"


def test_retries_and_conflicts(
    table: pennon.Table, events: list[pennon.Event], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pennon")
    commit, busy = committing.commit_segments, [RetryableConflict("busy"), CommitConflict("overwritten")]

    def busy_twice(*arguments: Any) -> Any:
        if busy:
            raise busy.pop(0)
        return commit(*arguments)

    monkeypatch.setattr(committing, "commit_segments", busy_twice)
    with pytest.raises(CommitConflict):
        table.create_index("id")
    retry, conflict, deletion = events
    assert (retry.kind, retry.index, retry.counts["attempt"]) == ("retry", "id_idx", 1)
    assert (conflict.kind, conflict.index, conflict.counts["attempt"]) == ("conflict", "id_idx", 2)
    assert (deletion.kind, deletion.index, deletion.counts["paths"]) == ("deletion", "id_idx", 1)
    assert conflict.details["reason"] == "overwritten"
    levels = {vars(record)["event"]: record.levelno for record in caplog.records}
    assert levels == {"retry": logging.INFO, "conflict": logging.WARNING, "deletion": logging.WARNING}


def test_a_fallback_to_a_scan(uri: str, table: pennon.Table, events: list[pennon.Event]) -> None:
    name = table.create_index("id").index.segments[0].uuid
    events.clear()
    truncate(next(Path(uri, "_indices", name).glob("*lookup*")))
    with pytest.warns(pennon.errors.DamagedIndexWarning):
        assert pennon.open(uri, engine="local").count("id = 7") == 1
    (fallback,) = events
    assert (fallback.kind, fallback.index, fallback.counts) == ("fallback", "id_idx", {"fragments": 4})
    assert fallback.details["segment"] == name
    assert fallback.version == table.version


def test_orphans_that_are_deleted(uri: str, table: pennon.Table, events: list[pennon.Event]) -> None:
    orphan = Path(uri, "_indices", "0a0b0c0d-0000-4000-8000-000000000000")
    orphan.mkdir(parents=True)
    (orphan / "page.lance").write_bytes(b"12345")
    table.clean_orphans(timedelta(0), no_jobs_running=True)
    (deletion,) = events
    assert (deletion.kind, deletion.counts["bytes"]) == ("deletion", 5)
    assert deletion.details["path"] == f"_indices/{orphan.name}"


def test_a_subscription_ends(table: pennon.Table) -> None:
    first: list[pennon.Event] = []
    second: list[pennon.Event] = []
    subscription = pennon.on_event(first.append)
    with pennon.on_event(second.append):
        table.create_index("id")
    table.drop_index("id_idx")
    subscription.close()
    subscription.close()
    table.create_index("id")
    assert (len(first), len(second)) == (2, 1)


def test_a_hook_that_fails_does_not_stop_the_work(
    table: pennon.Table, events: list[pennon.Event], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: pennon.Event) -> None:
        raise RuntimeError("the metrics server is down")

    with pennon.on_event(broken):
        assert table.create_index("id").status == "done"
    assert [event.kind for event in events] == ["commit"]
    assert "a hook failed" in caplog.text


def test_a_hook_is_a_function() -> None:
    with pytest.raises(InvalidArgument, match="takes a function"):
        pennon.on_event("print")  # pyright: ignore[reportArgumentType]


def test_no_secret_is_in_an_event(table: pennon.Table, events: list[pennon.Event]) -> None:
    secret = "wJalrXUtnFEMIK7MDENGbPxRfiCY"
    pennon.open(table.uri, storage_options={"aws_secret_access_key": secret}, engine="local")
    table.create_index("id", name=f"idx_{secret}")
    (commit,) = events
    assert secret not in commit.message + str(commit.details)
