"""The same verbs on an object store, against a server on loopback."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

import pennon
from pennon.errors import DamagedIndexWarning, TableNotFound
from pennon.format import small_copies as small_files
from pennon.format.small_copies import small_copies
from pennon.format.store import Location, open_store
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import to_lists
from pennon.jobs.merge import merge as merging
from tests.support.object_store import BUCKET
from tests.support.tables import every_type

FILTERS = ["i64 = 0", "i64 < 0", "i64 is null", "text like 'k1%'", "i64 > 0 and text = 'k001'", "i64 != 0"]


def scan_all(uri: str, filter: str, options: dict[str, str]) -> list[int]:
    dataset = lance.dataset(uri, storage_options=options)
    return sorted(dataset.scanner(filter=filter, columns=["id"], use_scalar_index=False).to_table()["id"].to_pylist())


@pytest.mark.usefixtures("engine")
def test_build_query_and_drop(storage_options: dict[str, str]) -> None:
    uri = f"s3://{BUCKET}/t.lance"
    rows = every_type(2000).select(["id", "i64", "text"])
    lance.write_dataset(rows, uri, max_rows_per_file=500, storage_options=storage_options)
    lance.dataset(uri, storage_options=storage_options).delete("id % 7 = 3")
    table = pennon.open(uri, storage_options=storage_options)
    table.create_index("i64", ranges=3, batch_size=64, rows_per_task=600)
    table.create_index("text", batch_size=64)
    lance.write_dataset(
        every_type(300, seed=5, start=9000).select(["id", "i64", "text"]),
        uri,
        mode="append",
        storage_options=storage_options,
    )
    table.refresh()
    stock = lance.dataset(uri, storage_options=storage_options)
    for filter in FILTERS:
        expected = scan_all(uri, filter, storage_options)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        assert sorted(stock.scanner(filter=filter, columns=["id"]).to_table()["id"].to_pylist()) == expected, filter
    assert "ScalarIndexQuery" in stock.scanner(filter="i64 = 0").explain_plan()
    assert table.explain("i64 = 0").scanned_fragments == (4,)
    table.drop_index("i64_idx")
    assert [i.name for i in table.indices()] == ["text_idx"]
    assert "topsecretvalue" not in repr(table) + str(table.explain("i64 = 0")) + str(table.plan_index("i64"))


@pytest.mark.usefixtures("engine")
def test_vectors(storage_options: dict[str, str]) -> None:
    """Sample, models, runs and graphs all pass through the store, and nothing of them stays there."""
    uri = f"s3://{BUCKET}/vectors.lance"
    vectors = np.random.default_rng(0).standard_normal((1500, 16)).astype(np.float32)
    lance.write_dataset(
        pa.table({"id": range(1500), "v": to_lists(vectors)}),
        uri,
        max_rows_per_file=400,
        storage_options=storage_options,
    )
    table = pennon.open(uri, storage_options=storage_options)
    table.create_index("v", "IVF_HNSW_SQ", num_partitions=4, rows_per_task=400)
    [index] = table.indices()
    assert (index.type, index.coverage) == ("IVF_HNSW_SQ", 1.0)
    session = lance.dataset(uri, storage_options=storage_options).new_file_session()
    uuid = index.segments[0].uuid
    names = ["auxiliary.idx", "index.idx", "pennon-contents.json"]
    assert sorted(session.list("_indices")) == [f"_indices/{uuid}/{name}" for name in names]
    truth = Metric.L2.distances(vectors[:20], vectors).argsort(axis=1)[:, :5]
    found = table.search_batch("v", vectors[:20], 5, nprobes=4, refine_factor=4, columns=["id"])
    assert found["id"].to_numpy().reshape(20, 5).tolist() == truth.tolist()
    nearest = {"column": "v", "q": vectors[3], "k": 5, "nprobes": 4, "refine_factor": 4}
    stock = lance.dataset(uri, storage_options=storage_options).scanner(columns=["id", "_distance"], nearest=nearest)
    assert "ANN" in stock.explain_plan()
    assert stock.to_table()["id"].to_pylist() == truth[3].tolist()


@pytest.mark.usefixtures("engine")
def test_maintenance(storage_options: dict[str, str]) -> None:
    uri = f"s3://{BUCKET}/kept.lance"

    def write(count: int, start: int) -> None:
        vectors = np.random.default_rng(start).standard_normal((count, 8)).astype(np.float32)
        rows = pa.table({"id": range(start, start + count), "v": to_lists(vectors)})
        mode = "append" if start else "create"
        lance.write_dataset(rows, uri, mode=mode, max_rows_per_file=100, storage_options=storage_options)

    def check() -> None:
        dataset = lance.dataset(uri, storage_options=storage_options)
        expected = scan_all(uri, "id < 120 or id > 460", storage_options)
        assert sorted(table.scan("id < 120 or id > 460", ["id"])["id"].to_pylist()) == expected
        assert sorted(dataset.to_table(columns=["id"], filter="id < 120 or id > 460")["id"].to_pylist()) == expected
        assert table.search("v", np.zeros(8, np.float32), 5, nprobes=9, columns=["id"]).num_rows == 5

    write(400, 0)
    table = pennon.open(uri, storage_options=storage_options)
    table.create_index("id", ranges=2, batch_size=32)
    table.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4, max_iters=3)
    write(100, 400)
    table.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri, storage_options=storage_options).delete("id % 5 = 1")
    table.compact(remap="deferred", target_rows_per_fragment=200)
    check()
    assert table.catch_up_indices().segments_written == 4
    assert table.trim_fragment_reuse().versions_removed == 1
    check()
    table.compact(target_rows_per_fragment=1000)
    table.optimize_indices(num_indices_to_merge=9)
    assert [(len(index.segments), index.coverage) for index in table.indices()] == [(1, 1.0), (1, 1.0)]
    audited = table.audit(recall_queries=3)
    assert audited.ok, str(audited)
    assert table.update_column("id", "id + 1000", where="id < 10").rows == 8
    check()
    report = table.maintain()
    assert [index.coverage for index in table.indices()] == [1.0, 1.0]
    assert "topsecretvalue" not in str(report)
    check()


@pytest.mark.usefixtures("engine")
def test_small_index_files_take_one_request(storage_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{BUCKET}/small.lance"
    lance.write_dataset(pa.table({"id": np.arange(900) * 7 % 900}), uri, storage_options=storage_options)
    pennon.open(uri, storage_options=storage_options).create_index("id", batch_size=64)
    copies = Path(small_copies()._directory)  # pyright: ignore[reportPrivateUsage]

    def count() -> list[str]:
        """The files that were read in a request each, and those that pylance opened."""
        SHARED_CACHE.clear()
        table = pennon.open(uri, storage_options=storage_options)
        session = table._snapshot.store._session  # pyright: ignore[reportPrivateUsage]
        read = mock.patch.object(session, "read_range", wraps=session.read_range)
        opened = mock.patch.object(session, "open_reader", wraps=session.open_reader)
        with read as reads, opened as opens:
            assert table.count("id >= 10 and id < 14") == 4
        calls = [*reads.call_args_list, *(("opened", *call.args) for call in opens.call_args_list)]
        return [" ".join(str(part).rpartition("/")[2] for part in call[:2]) for call in map(_plain, calls)]

    def _plain(call: Any) -> tuple[Any, ...]:
        return call if isinstance(call, tuple) and call[0] == "opened" else (call.args[0],)

    def left() -> list[str]:
        gc.collect()
        return sorted(path.name for path in copies.iterdir())

    before = left()
    assert count() == ["page_lookup.lance", "page_data.lance"]
    assert left() == before, "copies go with the handle"
    monkeypatch.setattr(small_files, "MOST_BYTES", 0)
    elsewhere = count()
    assert [name for name in elsewhere if name.startswith("opened")] == ["opened page_lookup.lance"]
    # Its end, and of two columns where the chunks are and one chunk each: read without pylance.
    assert elsewhere.count("page_data.lance") == 5


@pytest.mark.usefixtures("engine")
def test_missing_file_and_missing_table(storage_options: dict[str, str]) -> None:
    uri = f"s3://{BUCKET}/damaged.lance"
    lance.write_dataset(pa.table({"id": range(100), "k": range(100)}), uri, storage_options=storage_options)
    table = pennon.open(uri, storage_options=storage_options)
    index = table.create_index("k").index
    SHARED_CACHE.clear()
    session = lance.dataset(uri, storage_options=storage_options).new_file_session()
    session.delete_file(f"_indices/{index.segments[0].uuid}/page_lookup.lance")
    with pytest.warns(DamagedIndexWarning) as caught:
        assert pennon.open(uri, storage_options=storage_options).count("k < 10") == 10
    assert "topsecretvalue" not in str(caught[0].message)
    with pytest.raises(TableNotFound) as error:
        pennon.open(f"s3://{BUCKET}/nowhere.lance", storage_options=storage_options)
    assert "topsecretvalue" not in str(error.value)


@pytest.mark.usefixtures("engine")
def test_an_absurd_ending_is_seen_before_pylance_opens_the_file(
    storage_options: dict[str, str], tmp_path: Path
) -> None:
    uri = f"s3://{BUCKET}/absurd.lance"
    lance.write_dataset(every_type(300).select(["id", "i64"]), uri, storage_options=storage_options)
    table = pennon.open(uri, storage_options=storage_options)
    table.create_index("i64", batch_size=64)
    session = LanceFileSession(uri, storage_options=storage_options)
    [path] = [path for path in session.list("_indices") if path.endswith("page_data.lance")]
    session.download_file(path, str(tmp_path / "file"))
    content = bytearray((tmp_path / "file").read_bytes())
    # The number of columns: pylance would allocate that many before it looks for them.
    content[-12:-8] = (1 << 31).to_bytes(4, "little")
    (tmp_path / "file").write_bytes(content)
    session.delete_file(path)
    session.upload_file(str(tmp_path / "file"), path)
    SHARED_CACHE.clear()
    with pytest.warns(DamagedIndexWarning, match="not a valid Lance file"):
        found = sorted(table.scan("i64 = 0", ["id"])["id"].to_pylist())
    assert found == scan_all(uri, "i64 = 0", storage_options)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.usefixtures("process_engine")
def test_rows_change_by_key(storage_options: dict[str, str], stable: bool) -> None:
    """A merge that inserts is committed as the very next version, or again: also on an object store."""
    uri = f"s3://{BUCKET}/merge-{stable}.lance"

    def rows(ids: list[int], k: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([k] * len(ids), pa.int64())})

    written = rows([*range(100)], 0)
    lance.write_dataset(
        written, uri, max_rows_per_file=20, storage_options=storage_options, enable_stable_row_ids=stable
    )
    table = pennon.open(uri, storage_options=storage_options)
    table.create_index("id")
    commit, left = merging.commit_inserted_rows, [0]

    def later(*arguments: Any) -> Any:
        if left:
            left.pop()
            lance.write_dataset(rows([500], 9), uri, mode="append", storage_options=storage_options)
        return commit(*arguments)

    with mock.patch.object(merging, "commit_inserted_rows", later):
        done = table.merge(rows([5, 500, 501], 1), on="id")
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    assert table.delete("id < 5").rows_deleted == 5
    assert table.update({"k": "7"}, where="id >= 20 and id < 40").rows_updated == 20
    found = lance.dataset(uri, storage_options=storage_options).to_table().sort_by("id").to_pydict()
    assert found["id"] == [*range(5, 100), 500, 501]
    assert found["k"] == [1, *[0] * 14, *[7] * 20, *[0] * 60, 1, 1]
    store = open_store(Location.of(uri, storage_options))
    assert not [path for path in store.list("_versions") if "manifest-" in path]
    assert table.audit(recall_queries=0).ok
