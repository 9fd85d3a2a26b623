"""Requests to an object store are made at once; files of a local table are read and written in order."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest import mock

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

import pennon
from pennon.errors import PennonError, StoreUnavailable
from pennon.format import deletion_files
from pennon.format.deletion_files import write_deletions
from pennon.format.requests import AHEAD, AT_ONCE, request_ahead, request_all
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, Store, open_store
from tests.support.object_store import BUCKET
from tests.support.object_store import storage_options as storage_options  # noqa: PLC0414

FRAGMENTS = 6
ROWS = pa.table({"id": pa.array(range(60)), "k": pa.array([n % 7 for n in range(60)])})


@pytest.fixture
def remote(storage_options: dict[str, str], request: pytest.FixtureRequest) -> Snapshot:
    """A table of several fragments in an object store."""
    uri = f"s3://{BUCKET}/{request.node.name}.lance"
    lance.write_dataset(ROWS, uri, max_rows_per_file=10, storage_options=storage_options)
    return Snapshot.open(Location.of(uri, storage_options))


def test_requests_wait_together(remote: Snapshot) -> None:
    together = threading.Barrier(AT_ONCE, timeout=60)

    def request(number: int) -> int:
        together.wait()
        return number * 2

    assert request_all(remote.store, request, range(AT_ONCE)) == [number * 2 for number in range(AT_ONCE)]


def test_local_files_are_used_in_order(tmp_path: Path) -> None:
    threads: list[int] = []
    request_all(open_store(Location.of(str(tmp_path))), lambda _: threads.append(threading.get_ident()), range(9))
    assert set(threads) == {threading.get_ident()}


def test_an_error_is_raised_after_all_requests_have_ended(remote: Snapshot) -> None:
    ended: list[int] = []

    def request(number: int) -> None:
        if number % 3 == 1:
            raise PennonError(f"request {number}", "")
        ended.append(number)

    with pytest.raises(PennonError, match="request 1"):
        request_all(remote.store, request, range(40))
    assert sorted(ended) == [number for number in range(40) if number % 3 != 1]


def test_results_come_one_by_one_in_order_and_not_too_far_ahead(remote: Snapshot) -> None:
    begun: list[int] = []

    def request(number: int) -> int:
        begun.append(number)
        return number * 2

    results = request_ahead(remote.store, request, range(4 * AHEAD))
    for number in range(4 * AHEAD):
        assert next(results) == number * 2
        assert len(begun) <= number + AHEAD + 1
    assert list(results) == []


def test_nothing_more_is_requested_after_an_error(remote: Snapshot) -> None:
    begun: list[int] = []

    def request(number: int) -> int:
        begun.append(number)
        if number == 5:
            raise PennonError("request 5", "")
        return number

    results = request_ahead(remote.store, request, range(10 * AHEAD))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(PennonError, match="request 5"):
        next(results)
    assert len(begun) <= 5 + AHEAD + 1


def test_deleted_rows_of_many_fragments(remote: Snapshot, storage_options: dict[str, str]) -> None:
    """By Pennon and then by pylance: the second change reads the vectors of the first."""
    table = pennon.open(remote.location.uri, storage_options=storage_options, engine="local")
    table.create_index("id")
    table.delete("k = 3")
    pennon.open(remote.location.uri, storage_options=storage_options, engine="local").delete("id in (1, 11, 21, 31)")
    lance.dataset(remote.location.uri, storage_options=storage_options).delete("k = 5")
    expected = [n for n in range(60) if n % 7 not in (3, 5) and n not in (1, 11, 21, 31)]
    for filter in (None, "id >= 0"):
        read = pennon.open(remote.location.uri, storage_options=storage_options)
        assert sorted(read.scan(filter, ["id"])["id"].to_pylist()) == expected
    found = lance.dataset(remote.location.uri, storage_options=storage_options).to_table()
    assert sorted(found["id"].to_pylist()) == expected


def test_no_deletion_vector_is_left_if_one_cannot_be_written(remote: Snapshot) -> None:
    write = deletion_files._write  # pyright: ignore[reportPrivateUsage]

    def failing(snapshot: Snapshot, fragment: int, deleted: BitMap) -> object:
        if fragment == 4:
            raise PennonError("no room", "")
        return write(snapshot, fragment, deleted)

    rows = {fragment: BitMap([0, 3]) for fragment in range(FRAGMENTS)}
    with mock.patch.object(deletion_files, "_write", failing), pytest.raises(PennonError, match="no room"):
        write_deletions(remote, rows)
    assert list(remote.store.list("_deletions")) == []
    assert len(write_deletions(remote, rows)) == FRAGMENTS
    assert len(list(remote.store.list("_deletions"))) == FRAGMENTS


def test_a_store_that_does_not_answer_is_not_asked_to_delete(remote: Snapshot) -> None:
    asked: list[str] = []

    def failing(snapshot: Snapshot, fragment: int, deleted: BitMap) -> object:
        raise StoreUnavailable(f"fragment {fragment}", "")

    with (
        mock.patch.object(deletion_files, "_write", failing),
        mock.patch.object(Store, "delete", lambda _, path: asked.append(path)),
        pytest.raises(StoreUnavailable),
    ):
        write_deletions(remote, {fragment: BitMap([0]) for fragment in range(FRAGMENTS)})
    assert asked == []
