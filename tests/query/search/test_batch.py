"""Many queries at once, from many threads, in little memory: the answers of one query at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.index.cache import ByteCache
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kinds import vector_kind
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.query.search import exact, probe, run
from tests.support.neighbors import DIM, KINDS, brute_force, check, index, queries, rows, write
from tests.support.vectors import clustered, row_ids, write_segment

ASKED = queries(60)


@pytest.fixture(scope="module", params=KINDS)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write(tmp_path_factory.mktemp("batch") / "t.lance", rows(1500))
    index(path, request.param, "cosine")
    lance.dataset(path).delete("id % 7 = 2")
    return path


def one_by_one(uri: str, k: int, every: int = 1, **options: object) -> list[np.ndarray]:
    """The distances of each query, or of one in some."""
    table = pennon.open(uri)
    return [table.search("v", query, k, columns=[], **options)["_distance"].to_numpy() for query in ASKED[::every]]


def distances(found: pa.Table, k: int) -> np.ndarray:
    return found["_distance"].to_numpy().reshape(len(ASKED), k)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nprobes": 2},
        {"refine_factor": 3},
        {"filter": "part < 8", "minimum_nprobes": 3},
        {"filter": "id < 30", "nprobes": 3},
    ],
    ids=str,
)
def test_a_batch_is_its_queries_one_by_one(uri: str, options: dict[str, object]) -> None:
    k, table = 6, pennon.open(uri)
    if "HNSW" in table.indices()[0].type:
        options = {"ef": 400} | options  # a walk may miss what measuring all rows finds
    batch = table.search_batch("v", ASKED, k, columns=["id"], **options)
    assert batch["query_index"].to_pylist() == np.repeat(np.arange(60), k).tolist()
    np.testing.assert_allclose(distances(batch, k)[::3], one_by_one(uri, k, 3, **options), rtol=1e-3, atol=1e-5)


def test_little_memory_changes_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lance.write_dataset(rows(100, 5000, seed=4), uri, mode="append")
    expected = pennon.open(uri).search_batch("v", ASKED, 6, columns=["id"], ef=300)
    for module in (run, probe):
        for name in ("BLOCK_BYTES", "LOADED_BYTES"):
            monkeypatch.setattr(module, name, 2000, raising=False)
    monkeypatch.setattr(exact, "BATCH_BYTES", 2000)
    monkeypatch.setattr(exact, "PIECE_ROWS", 30)
    for capacity in (0, 20_000):
        monkeypatch.setattr("pennon.table.handle.SHARED_CACHE", ByteCache(capacity))
        found = pennon.open(uri).search_batch("v", ASKED, 6, columns=["id"], ef=300)
        np.testing.assert_allclose(distances(found, 6), distances(expected, 6), rtol=1e-3, atol=1e-5)
        few = pennon.open(uri).search_batch("v", ASKED[:3], 6, nprobes=1, ef=300)["_distance"].to_numpy()
        for number in range(3):
            found = pennon.open(uri).search("v", ASKED[number], 6, ef=300)["_distance"].to_numpy()
            np.testing.assert_allclose(found, distances(expected, 6)[number], rtol=1e-3, atol=1e-5)
            one = pennon.open(uri).search("v", ASKED[number], 6, nprobes=1, ef=300)["_distance"].to_numpy()
            np.testing.assert_allclose(one, few[number * 6 : number * 6 + 6], rtol=1e-3, atol=1e-5)


def test_threads_share_a_handle(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pennon.table.handle.SHARED_CACHE", ByteCache(300_000))
    expected, table = one_by_one(uri, 5), pennon.open(uri)

    def ask(number: int) -> np.ndarray:
        return table.search("v", ASKED[number], 5, columns=[])["_distance"].to_numpy()

    with ThreadPoolExecutor(6) as threads:
        np.testing.assert_allclose(list(threads.map(ask, range(60))), expected, rtol=1e-5)
        for batch in threads.map(lambda _: table.search_batch("v", ASKED, 5, ef=300), range(4)):
            assert batch.num_rows == 300


class Spread(Ivf):
    """Deals rows out to partitions in turn, however near they are."""

    def assign(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, distances = super().assign(vectors)
        return (np.arange(len(ids)) % self.num_partitions).astype(np.uint32), distances


def test_partitions_that_rank_alike_are_probed_once_each(tmp_path: Path) -> None:
    vectors = clustered(800, DIM).astype(np.float32)
    uri = write(tmp_path / "t.lance", rows(800))
    ivf = Spread(Metric.L2, np.repeat(vectors[:1], 64, axis=0))
    write_segment(uri, vector_kind("IVF_FLAT"), ivf, FlatQuantizer.train(vectors, ivf), vectors, row_ids(uri))
    for k in (10, 300, 800):
        found = pennon.open(uri).search_batch("v", ASKED[:3], k, columns=["id"])
        for number in range(3):
            assert len(set(found["id"].to_pylist()[number * k : (number + 1) * k])) == k
    check(pennon.open(uri).search("v", ASKED[0], 800), brute_force(uri, ASKED[0], 800))
