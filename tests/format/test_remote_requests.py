"""How many requests a new table in an object store takes for its first query, as the server counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format import lance_file
from pennon.format.number_rows import AT_ONCE, NumberRows
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from tests.support.faulty_store import BUCKET, FaultyStore

ROWS, FRAGMENTS, DIMENSION = 40_000, 8, 16
RANDOM = np.random.default_rng(3)
VECTORS = RANDOM.standard_normal((ROWS, DIMENSION), dtype=np.float32)
# A listing, the manifest by pylance and by Pennon.
OPENING = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyStore]:
    root = tmp_path_factory.mktemp("store")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), DIMENSION)
    rows = pa.table({"id": RANDOM.permutation(ROWS), "n": np.arange(ROWS), "v": vectors})
    lance.write_dataset(rows, str(root / "t.lance"), max_rows_per_file=ROWS // FRAGMENTS)
    table = pennon.open(str(root / "t.lance"), engine="local")
    table.create_index("id")
    table.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=4, max_iters=3)
    store = FaultyStore(root)
    yield store
    store.close()


@pytest.fixture
def opened(server: FaultyStore) -> Callable[[], pennon.Table]:
    def open() -> pennon.Table:
        SHARED_CACHE.clear()
        server.requests.clear()
        options = server.options | {"timeout": "30 s", "connect_timeout": "10 s", "client_retry_timeout": "30"}
        return pennon.open(f"s3://{BUCKET}/t.lance", storage_options=options, engine="local")

    return open


def local(server: FaultyStore) -> pennon.Table:
    return pennon.open(str(server.root / "t.lance"), engine="local")


def test_counting_and_fetching(server: FaultyStore, opened: Callable[[], pennon.Table]) -> None:
    assert opened().count("id = 77") == 1
    assert len(server.requests) <= OPENING + 2
    found = opened().scan("id = 77", ["n", "id"])
    assert len(server.requests) <= OPENING + 3
    assert found.equals(local(server).scan("id = 77", ["n", "id"]))


def test_searching(server: FaultyStore, opened: Callable[[], pennon.Table]) -> None:
    table = opened()
    found = table.search("v", VECTORS[5], nprobes=8, columns=["id", "n"])
    fragments = len({place // (ROWS // FRAGMENTS) for place in found["n"].to_pylist()})
    assert len(server.requests) <= OPENING + 2 + fragments <= 15
    assert {method for method, _ in server.requests} == {"GET"}, "sizes are in the manifest"
    assert max(Counter(key for _, key in server.requests if "/data/" in key).values()) == 1
    assert found.equals(local(server).search("v", VECTORS[5], nprobes=8, columns=["id", "n"]))
    # What a file holds is known from then on, and of the rows only their chunks are read.
    server.requests.clear()
    assert table.search("v", VECTORS[5], nprobes=8, columns=["id", "n"]).equals(found)
    assert len(server.requests) <= 2 * 10


def test_partitions_of_a_large_file_are_read_together(
    server: FaultyStore, opened: Callable[[], pennon.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which pages the file has is asked for once, and not for every partition."""
    monkeypatch.setattr(lance_file, "SMALL_BYTES", 0)
    for query in (5, 77):
        found = opened().search("v", VECTORS[query], nprobes=8, columns=["id"])
        asked = [method for method, key in server.requests if key.endswith("auxiliary.idx")]
        # The end by Pennon; size and end by pylance; global buffers; pages of two columns; both columns of partitions.
        assert len(asked) <= 4 + 2 + 2 * 8
        assert found.equals(local(server).search("v", VECTORS[query], nprobes=8, columns=["id"]))
    few = opened().search("v", VECTORS[5], nprobes=64, columns=["id"])
    assert few.equals(local(server).search("v", VECTORS[5], nprobes=64, columns=["id"]))


def test_many_rows_are_left_to_pylance(server: FaultyStore) -> None:
    """Which makes the requests for one file at once."""
    snapshot = Snapshot.open(Location.of(f"s3://{BUCKET}/t.lance", server.options))
    numbers = NumberRows(snapshot.store, snapshot.manifest, snapshot.schema)
    size = ROWS // FRAGMENTS
    addresses = np.arange(0, 40 * 100, 100, dtype=np.uint64)
    assert numbers.take(addresses, ["n"]) is None
    few = numbers.take(addresses[:20], ["n"])
    assert few is not None
    assert few["n"].to_pylist() == list(range(0, 2000, 100))
    assert numbers.take(addresses[:20], ["n"]) is None, "its chunks would be read one after another"
    spread = np.array([fragment << 32 | 7 for fragment in range(FRAGMENTS)], dtype=np.uint64)
    found = numbers.take(spread, ["n"])
    assert found is not None
    assert found["n"].to_pylist() == [fragment * size + 7 for fragment in range(FRAGMENTS)]
    assert FRAGMENTS <= AT_ONCE


def test_a_file_that_cannot_be_decoded_is_left_to_pylance(server: FaultyStore) -> None:
    rows = pa.table({"id": np.arange(3000), "n": [None if row % 3 else row for row in range(3000)]})
    lance.write_dataset(rows, str(server.root / "nulls.lance"), max_rows_per_file=1000)
    pennon.open(str(server.root / "nulls.lance"), engine="local").create_index("id")
    table = pennon.open(f"s3://{BUCKET}/nulls.lance", storage_options=server.options, engine="local")
    for _ in range(2):
        assert table.scan("id IN (3, 4, 1500)", ["n"])["n"].to_pylist() == [3, None, 1500]
