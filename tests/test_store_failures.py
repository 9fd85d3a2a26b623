"""A store that does not answer is neither a table that is not there nor a damaged file."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import (
    DamagedIndexWarning,
    DamagedTable,
    InvalidArgument,
    InvalidFilter,
    StoreUnavailable,
    TableNotFound,
)
from pennon.format.append import find_table
from pennon.format.failures import is_missing, store_failure
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists
from pennon.spark.errors import without_traceback
from pennon.testing.engines import in_process
from tests.support.cli import run
from tests.support.faulty_store import ANSWERS, CUT, DROPPED, FaultyStore

URI = "s3://bucket/t.lance"
LASTING = {"denied", "signature", "unauthorized", "expired"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyStore]:
    """A table of 1,000 rows without 10 of them, a B-tree on `k` and an IVF_FLAT on `v`."""
    served = FaultyStore(tmp_path_factory.mktemp("bucket"))
    vectors = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    rows = pa.table({"id": range(1000), "k": range(1000), "v": to_lists(vectors)})
    uri = str(served.root / "t.lance")
    lance.write_dataset(rows, uri, max_rows_per_file=400).delete("k >= 990")
    with in_process():
        table = pennon.open(uri)
        table.create_index("k", batch_size=64)
        table.create_index("v", "IVF_FLAT", num_partitions=2)
    yield served
    served.close()


@pytest.fixture
def store(server: FaultyStore) -> Iterator[FaultyStore]:
    SHARED_CACHE.clear()
    yield server
    server.heal()
    SHARED_CACHE.clear()


def opened(store: FaultyStore, version: int | None = None) -> pennon.Table:
    return pennon.open(URI, version=version, storage_options=store.options)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", [*(name for name in ANSWERS if name != "no-bucket"), DROPPED, CUT])
def test_opening_a_version_of_a_table(store: FaultyStore, fault: str) -> None:
    store.always(fault)
    problem = "cannot access version 1" if fault in LASTING else "the store did not answer for version 1"
    with pytest.raises(StoreUnavailable, match=problem) as error:
        opened(store, version=1)
    assert error.value.retryable == (fault not in LASTING)
    assert isinstance(error.value, OSError)
    assert "topsecretvalue" not in str(error.value)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", ["denied", "busy", CUT])
def test_opening_the_newest_version(store: FaultyStore, fault: str) -> None:
    store.always(fault)
    with pytest.raises(StoreUnavailable, match=r"s3://bucket/t\.lance"):
        opened(store)


@pytest.mark.usefixtures("engine")
def test_a_writer_takes_no_failure_for_a_place_without_a_table(store: FaultyStore) -> None:
    location = Location.of(URI, store.options)
    store.always("denied")
    with pytest.raises(StoreUnavailable):
        find_table(location)
    store.heal()
    assert find_table(location) is not None
    assert find_table(Location.of("s3://bucket/nowhere.lance", store.options)) is None


def test_a_closed_port(store: FaultyStore) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = store.options | {"aws_endpoint": f"http://127.0.0.1:{port}"}
    with pytest.raises(StoreUnavailable) as error:
        pennon.open(URI, version=1, storage_options=options)
    assert error.value.retryable


@pytest.mark.usefixtures("engine")
def test_what_the_store_reports_as_absent_is_not_found(store: FaultyStore) -> None:
    with pytest.raises(TableNotFound, match="nowhere"):
        pennon.open("s3://bucket/nowhere.lance", storage_options=store.options)
    with pytest.raises(TableNotFound, match="version 77"):
        opened(store, version=77)
    store.always("no-bucket")
    with pytest.raises(TableNotFound):
        opened(store)


def test_an_address_of_no_store() -> None:
    with pytest.raises(InvalidArgument, match="nothing"):
        pennon.open("nothing://bucket/t.lance")


def test_a_damaged_manifest_is_a_damaged_table(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": range(3)}), uri)
    [manifest] = uri.glob("_versions/*.manifest")
    manifest.write_bytes(manifest.read_bytes()[:10])
    with pytest.raises(DamagedTable, match=r"t\.lance"):
        pennon.open(uri)


Query = Callable[[pennon.Table], pa.Table]
QUERIES: dict[str, Query] = {
    "BTREE": lambda table: table.scan("k < 5", ["id"]),
    "IVF_FLAT": lambda table: table.search("v", [0.1, 0.2, 0.3, 0.4], 5, nprobes=2, columns=["id"]),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", ["denied", "busy", CUT])
@pytest.mark.parametrize("kind", QUERIES)
def test_an_index_that_cannot_be_reached_is_not_taken_for_damaged(store: FaultyStore, kind: str, fault: str) -> None:
    query = QUERIES[kind]
    expected = query(opened(store))
    SHARED_CACHE.clear()
    table = opened(store)
    store.always(fault, "_indices/")
    with pytest.raises(StoreUnavailable, match="_indices/"):
        query(table)
    store.heal()
    assert query(table) == expected
    if kind == "BTREE":
        assert table.explain("k < 5").scanned_fragments == ()
    else:
        assert table.explain_search("v", [0.1, 0.2, 0.3, 0.4], 5).measured_fragments == ()


@pytest.mark.usefixtures("engine")
def test_an_index_file_that_is_cut_short_on_the_store_is_damaged(store: FaultyStore) -> None:
    [path] = store.root.glob("t.lance/_indices/*/page_data.lance")
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:200])
        with pytest.warns(DamagedIndexWarning):
            assert sorted(QUERIES["BTREE"](opened(store))["id"].to_pylist()) == [0, 1, 2, 3, 4]
    finally:
        path.write_bytes(whole)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", ["denied", "busy", DROPPED, CUT])
def test_rows_and_deletion_files(store: FaultyStore, fault: str) -> None:
    table = opened(store)
    store.always(fault, "/data/")
    with pytest.raises(StoreUnavailable):
        table.scan("id < 5")
    with pytest.raises(StoreUnavailable):
        table.count("id < 5")
    store.always(fault, "/_deletions/")
    with pytest.raises(StoreUnavailable):
        table.count("k > 900")


@pytest.mark.usefixtures("engine")
def test_an_update_of_a_column(store: FaultyStore) -> None:
    table = opened(store)
    with pytest.raises(InvalidFilter):
        table.update_column("k", "k +* 1")
    store.always("denied", "/data/")
    with pytest.raises(StoreUnavailable):
        table.update_column("k", "k + 1", dry_run=True)
    with pytest.raises(StoreUnavailable):
        table.update_column("k", "k + 1")


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("directory", ["/_indices", "/_versions"])
def test_looking_for_orphans(store: FaultyStore, directory: str) -> None:
    table = opened(store)
    store.always("denied", directory)
    with pytest.raises(StoreUnavailable):
        table.clean_orphans(timedelta(days=1))


@pytest.mark.usefixtures("engine")
def test_maintenance_ends_at_a_store_that_does_not_answer(store: FaultyStore) -> None:
    table = opened(store)
    store.always("denied", "(_versions|_indices|data)/")
    with pytest.raises(StoreUnavailable):
        table.maintain()


@pytest.mark.usefixtures("engine")
def test_a_task_is_tried_again_while_the_store_may_answer(store: FaultyStore) -> None:
    failed, lock = set[str](), threading.Lock()

    def once(method: str, key: str) -> str | None:
        with lock:
            if method == "GET" and "/data/" in key and key not in failed:
                failed.add(key)
                return "broken"
        return None

    table = opened(store)
    store.fault = once
    try:
        table.create_index("id", name="once")
        assert len(failed) == 3
        assert table.count("id < 100") == 100
    finally:
        store.heal()
        table.drop_index("once")


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", ["denied", "broken"])
def test_a_job_that_is_given_up_names_the_store(store: FaultyStore, fault: str) -> None:
    table = opened(store)
    store.always(fault, "/data/")
    with pytest.raises(StoreUnavailable) as error:
        table.create_index("id", name="never")
    assert error.value.retryable == (fault == "broken")


@pytest.mark.usefixtures("engine")
def test_files_stay_where_nobody_knows_whether_they_were_committed(store: FaultyStore) -> None:
    table = opened(store)
    before, served = table.version, store.root / "t.lance"
    store.fault = lambda method, key: "broken" if method == "PUT" and "_versions/" in key else None
    with pytest.raises(StoreUnavailable, match="it is unknown whether the commit succeeded"):
        table.create_index("id", name="lost")
    store.heal()
    segments = {segment.uuid for index in opened(store).indices() for segment in index.segments}
    assert {path.name for path in served.glob("_indices/*")} - segments, "nothing may be deleted then"
    assert opened(store).version == before
    done = opened(store).clean_orphans(timedelta(0), no_jobs_running=True)
    assert len(done.deleted) == 1


def test_the_command_line_tells_failures_that_may_pass_by_its_exit_code(store: FaultyStore) -> None:
    options = [part for pair in store.options.items() for part in ("--storage-option", "=".join(pair))]
    store.always("busy")
    assert run("indices", URI, *options).exit_code == 75
    store.always("denied")
    result = run("indices", URI, *options)
    assert (result.exit_code, "cannot access" in result.stderr) == (1, True)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that the system fails to read")
def test_a_disk_that_fails(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": range(30)}), tmp_path / "t.lance")
    dataset.delete("id = 3")
    [deletions] = (tmp_path / "t.lance/_deletions").iterdir()
    deletions.unlink()
    deletions.symlink_to("/proc/self/mem")
    with pytest.raises(StoreUnavailable, match="Input/output error") as error:
        pennon.open(tmp_path / "t.lance").count("id < 10")
    assert error.value.retryable


LOCAL = "LanceError(IO): Generic LocalFileSystem error: Unable to open file /t.lance/x: "
TEXTS = {
    f"{LOCAL}Permission denied (os error 13)": (False, False),
    f"LanceError(IO): No space left on device (os error 28) at path {'/t/.tmp'!r}": (False, False),
    f"{LOCAL}Too many open files (os error 24)": (True, False),
    f"{LOCAL}No such file or directory (os error 2)": (None, True),
    "LanceError(IO): Generic GCS error: GCP credential error: Unable to open /k: No such file (os error 2)": (
        False,
        False,
    ),
    "LanceError(IO): Generic N/A error: LanceError(IO): Failed to get AWS credentials: ProviderError": (False, False),
    "LanceError(IO): Generic S3 error: Received redirect without LOCATION": (False, False),
    "LanceError(IO): Generic MicrosoftAzure error: HTTP error: error sending request": (True, False),
    "LanceError(IO): Generic N/A error: Not found: /credentials/data/x.lance": (None, True),
    "LanceError(IO): Generic memory error: Invalid range 0..1111 for object of size 100 bytes": (None, False),
    "LanceError(IO): file size is too small": (None, False),
    "Generic S3 error: GET /x - Server returned non-2xx status code: 416 Range Not Satisfiable: ": (None, False),
    "Invalid user input: no column named 'Generic S3 error: status code: 503'": (None, False),
    "Encountered corrupt file": (None, False),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_pylance(text: str) -> None:
    """As pylance 14.0.2 gives them: whether trying again may help, None for no failure of the store; and absence."""
    failure = store_failure(ValueError(text), "a file")
    assert (None if failure is None else failure.retryable, is_missing(ValueError(text))) == TEXTS[text]


def test_errors_of_python() -> None:
    denied = store_failure(PermissionError(13, os.strerror(13), "f"), "a file")
    assert denied is not None
    assert not denied.retryable
    assert store_failure(TimeoutError("slow"), "a file") is not None
    assert store_failure(FileNotFoundError(2, os.strerror(2), "f"), "a file") is None
    assert is_missing(FileNotFoundError(2, os.strerror(2), "f"))


@pytest.mark.parametrize("retryable", [True, False])
def test_the_error_travels_whole(retryable: bool) -> None:
    error = StoreUnavailable("the store did not answer for x", "Wait", retryable)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.remedy, copy.retryable) == (str(error), "Wait", retryable)
    with pytest.raises(StoreUnavailable) as raised, without_traceback():
        raise error
    assert raised.value.retryable == retryable
