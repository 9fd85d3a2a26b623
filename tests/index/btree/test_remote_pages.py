"""Pages of a B-tree in an object store: requests for those that are apart wait together."""

from __future__ import annotations

import threading

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format import lance_file
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, Store
from pennon.index.btree import points
from pennon.index.btree.segment import BTreeSegment
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import PointSpans
from tests.support.object_store import BUCKET
from tests.support.object_store import storage_options as storage_options  # noqa: PLC0414

ROWS, PAGE = 60_000, 4096
# A row of every other page.
KEYS = pa.array(range(0, ROWS, 2 * PAGE))
TOGETHER = 4
# Bytes of a read of pages; shorter ones are about where they are, and a longer one is of the file's end.
PAGE_BYTES = range(1000, 20_000)


class Reads:
    """Reads of a store, each of which waits until several of them read pages at once."""

    def __init__(self) -> None:
        self.together = self.ends = self._most = 0
        self._changed = threading.Condition()
        self._read = Store._read_remote  # pyright: ignore[reportPrivateUsage]

    def of(self, store: Store, path: str, position: int, length: int) -> bytes:
        if length not in PAGE_BYTES:
            with self._changed:
                self.ends += length >= PAGE_BYTES.stop
            return self._read(store, path, position, length)
        with self._changed:
            self._most += 1
            self.together = max(self.together, self._most)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.together >= TOGETHER, timeout=20)
        try:
            return self._read(store, path, position, length)
        finally:
            with self._changed:
                self._most -= 1


def watched(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads()

    def read(store: Store, path: str, position: int, length: int) -> bytes:
        return reads.of(store, path, position, length)

    monkeypatch.setattr(Store, "_read_remote", read)
    return reads


@pytest.fixture
def remote(
    storage_options: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Snapshot:
    """A table whose B-tree is too large to be fetched at once, with pages too large to be read for those next to
    them."""
    monkeypatch.setattr(lance_file, "SMALL_BYTES", 0)
    monkeypatch.setattr(points, "GAP_BYTES", 0)
    uri = f"s3://{BUCKET}/{request.node.name}.lance"
    rows = pa.table({"id": np.random.default_rng(3).permutation(ROWS)})
    lance.write_dataset(rows, uri, storage_options=storage_options)
    pennon.open(uri, storage_options=storage_options, engine="local").create_index("id")
    return Snapshot.open(Location.of(uri, storage_options))


def opened(remote: Snapshot) -> BTreeSegment:
    [segment] = remote.manifest.segments
    return BTreeSegment(remote.store, segment, pa.int64(), ByteCache(1 << 20))


def test_pages_of_single_values_are_read_together(remote: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, reads = opened(remote), watched(monkeypatch)
    found = list(tree.find(KEYS))
    assert np.concatenate([positions for positions, _ in found]).tolist() == list(range(len(KEYS)))
    addresses = pa.array(np.concatenate([ids for _, ids in found]))
    assert remote.dataset.take(addresses.to_pylist())["id"].to_pylist() == KEYS.to_pylist()
    assert reads.together >= TOGETHER
    assert reads.ends == 1, "a file is opened once"


def test_pages_of_a_list_of_values_are_read_together(remote: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, reads = opened(remote), watched(monkeypatch)
    found = tree.search(ColumnRanges("id", pa.int64(), PointSpans(KEYS))).addresses()
    assert sorted(remote.dataset.take(found.tolist())["id"].to_pylist()) == KEYS.to_pylist()
    assert reads.together >= TOGETHER
    assert reads.ends == 1, "a file is opened once"
