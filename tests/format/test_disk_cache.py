"""Copies of index files on disk: what they save, and that nothing done to them is an error or a wrong answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument
from pennon.format import disk_cache
from pennon.format.disk_cache import DiskCache
from pennon.format.lance_file import LanceFile
from pennon.format.store import Location, Store, open_store
from pennon.index.cache import SHARED_CACHE
from tests.support.object_store import BUCKET
from tests.support.object_store import storage_options as storage_options  # noqa: PLC0414

pytestmark = pytest.mark.usefixtures("process_engine")

ROWS = pa.table({"k": np.arange(1000) % 50, "id": np.arange(1000)})


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Nothing in memory, and no cache of another test."""
    SHARED_CACHE.clear()
    disk_cache._open.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield
    disk_cache._open.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, path, max_rows_per_file=500)
    pennon.open(path).create_index("k")
    pennon.open(path).create_index("id", "BITMAP")
    return path


def check(uri: str, directory: Path, **options: Any) -> pennon.Table:
    """Answers through the disk cache alone: nothing is in memory. A warning would be one of a damaged index."""
    SHARED_CACHE.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = pennon.open(uri, disk_cache=directory, **options)
        assert sorted(table.scan("k = 7")["id"].to_pylist()) == list(range(7, 1000, 50))
        assert table.explain("k = 7").scanned_rows == 0
    return table


def copies(directory: Path) -> list[Path]:
    return sorted((directory / "files").iterdir()) if (directory / "files").exists() else []


def test_files_are_read_from_their_copies(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "cache"
    first = check(uri, directory).cache_statistics().disk
    assert first is not None
    assert (first.hits, first.entries) == (0, first.misses)
    assert first.entries > 1
    assert first.bytes == sum(path.stat().st_size for path in copies(directory))
    second = check(uri, directory).cache_statistics().disk
    assert second is not None
    assert (second.hits, second.misses, second.bytes) == (first.misses, first.misses, first.bytes)
    assert "on disk" in str(pennon.open(uri, disk_cache=directory).cache_statistics())
    # The originals are not needed: the copies are what is read.
    opened: list[str] = []
    original = Store.open_reader
    monkeypatch.setattr(Store, "open_reader", lambda self, path, *a: opened.append(path) or original(self, path, *a))
    check(uri, directory)
    assert {str(path.name) for path in copies(directory)} >= set(opened) != set()


def test_tables_on_this_machine_are_copied_only_when_asked(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENNON_DISK_CACHE", str(tmp_path / "cache"))
    table = pennon.open(uri)
    table.scan("k = 7")
    assert table.cache_statistics().disk is None
    assert not copies(tmp_path / "cache")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer"])
@pytest.mark.parametrize("same_process", [True, False])
def test_a_damaged_copy_is_discarded(uri: str, tmp_path: Path, damage: str, same_process: bool) -> None:
    directory = tmp_path / "cache"
    check(uri, directory)
    for path in copies(directory):
        content = bytearray(path.read_bytes())
        if damage == "flip":
            content[len(content) // 2] ^= 1
        path.write_bytes({"flip": content, "cut": content[:-9], "empty": b"", "longer": content + b"x"}[damage])
    if not same_process:
        disk_cache._open.cache_clear()  # pyright: ignore[reportPrivateUsage]
    found = check(uri, directory).cache_statistics().disk
    assert found is not None
    assert found.discarded > 0
    again = check(uri, directory).cache_statistics().disk
    assert again is not None
    assert again.discarded == found.discarded


def test_the_oldest_copies_give_way(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 1000)
    made: list[Path] = []
    for number in range(4):
        copy = cache.copy_of(f"file {number}", 300, lambda path: Path(path).write_bytes(b"x" * 300))
        assert copy is not None
        os.utime(copy, (number, number))
        made.append(copy)
        if number == 2:  # the first was used again
            assert cache.copy_of("file 0", 300, lambda path: pytest.fail("it is there")) is not None
    found = cache.statistics()
    assert (found.entries, found.bytes) == (3, 900)
    assert [copy.exists() for copy in made] == [True, False, True, True]
    assert cache.copy_of("too large", 501, lambda path: pytest.fail("not copied")) is None


def test_a_copy_that_is_deleted_while_it_is_open_is_read_to_the_end(uri: str, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    store = open_store(Location.of(uri, None, str(directory)))
    segment = pennon.open(uri).indices()[0].segments[0]
    [*files] = Path(uri, "_indices", segment.uuid).glob("*page_data*")
    file = LanceFile(store, f"_indices/{segment.uuid}/{files[0].name}", files[0].stat().st_size)
    files[0].rename(tmp_path / "elsewhere")
    for path in copies(directory):
        path.unlink()
    assert file.read().num_rows == file.num_rows > 0


def test_a_copy_that_disappears_before_it_is_opened(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = DiskCache.copy_of

    def gone(self: DiskCache, *arguments: Any) -> Path | None:
        copy = original(self, *arguments)
        if copy is not None:
            copy.unlink()
        return copy

    monkeypatch.setattr(DiskCache, "copy_of", gone)
    check(uri, tmp_path / "cache")


@pytest.mark.parametrize("where", ["write", "directory", "room"])
def test_a_disk_that_is_full_or_read_only_is_no_error(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    directory = tmp_path / "cache"
    if where == "write":

        def full(self: Store, path: str, copy: str) -> None:
            Path(copy).write_bytes(b"a part of it")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Store, "_fetch", full)
    elif where == "directory":
        directory.write_text("a file is in the way")
    else:
        monkeypatch.setenv("PENNON_DISK_CACHE_BYTES", "100")
    found = check(uri, directory).cache_statistics().disk
    assert found is not None
    assert (found.entries, found.hits) == (0, 0)
    assert found.failures == (where != "room")  # the next attempt waits
    if where == "write":
        assert not copies(directory)


def test_unfinished_copies_of_killed_processes_are_deleted(uri: str, tmp_path: Path) -> None:
    (tmp_path / "cache" / "files").mkdir(parents=True)
    old, new = (tmp_path / "cache" / "files" / f"unfinished-{name}" for name in ("old", "new"))
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (0, 0))
    check(uri, tmp_path / "cache")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_limit_that_is_no_number(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_DISK_CACHE_BYTES", "much")
    with pytest.raises(InvalidArgument, match="PENNON_DISK_CACHE_BYTES is 'much'"):
        pennon.open(uri, disk_cache=tmp_path / "cache").scan("k = 7")


@pytest.mark.process
def test_processes_share_the_copies(uri: str, tmp_path: Path) -> None:
    """Readers of one directory that is too small for all, while somebody damages and deletes copies."""
    directory = tmp_path / "cache"
    check(uri, directory)
    size = sum(path.stat().st_size for path in copies(directory))
    options = json.dumps({"disk_cache": str(directory)})
    command = [sys.executable, "-m", "tests.support.disk_cache_reader", uri, "20", options]
    environment = {**os.environ, "PENNON_DISK_CACHE_BYTES": str(size * 2)}
    readers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    rng, turn = np.random.default_rng(0), 0
    while any(reader.poll() is None for reader in readers):
        turn += 1
        time.sleep(0.02)
        for path in copies(directory):
            try:
                if turn % 2:
                    path.unlink()
                elif rng.random() < 0.5:
                    with path.open("r+b") as file:
                        file.truncate(int(rng.integers(0, 1 + path.stat().st_size)))
            except OSError:
                pass
    for reader in readers:
        out, error = reader.communicate()
        assert (reader.returncode, json.loads(out or "null")) == (0, []), error[-2000:]
        assert "Damaged" not in error


def test_an_object_store(storage_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, directory = f"s3://{BUCKET}/cached.lance", tmp_path / "cache"
    lance.write_dataset(ROWS, uri, storage_options=storage_options)
    pennon.open(uri, storage_options=storage_options).create_index("k")
    monkeypatch.setenv("PENNON_DISK_CACHE", str(directory))
    SHARED_CACHE.clear()
    table = pennon.open(uri, storage_options=storage_options)
    assert table.count("k = 7") == 20
    first = table.cache_statistics().disk
    assert first is not None
    assert first.entries == first.misses > 1
    assert not any("topsecretvalue" in str(path) or "cached" in str(path) for path in copies(directory))
    assert all(path.stat().st_mode & 0o077 == 0 for path in [directory / "files"])
    SHARED_CACHE.clear()
    asked: list[str] = []
    original = Store.open_reader
    monkeypatch.setattr(
        Store, "open_reader", lambda self, path, *a: asked.append(self.location.uri) or original(self, path, *a)
    )
    again = pennon.open(uri, storage_options=storage_options)
    assert again.count("k = 7") == 20
    assert set(asked) == {str(directory / "files")}
