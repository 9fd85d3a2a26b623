"""A search answers for the table as it is, whatever happened since its index was built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.shared.stale_values import held_fragments
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest
from pennon.query.search.run import search
from tests.support.neighbors import DIM, METRICS, PARTITIONS, brute_force, check, index, queries, rows, write

ALL = 1000


def exactly(uri: str, metric: str = "l2", k: int = 10, **options: object) -> None:
    """What FLAT finds in all partitions is what there is."""
    table, asked = pennon.open(uri), queries(5)
    filter = options.get("filter")
    expected = [brute_force(uri, query, k, metric, filter) for query in asked]
    for query, each in zip(asked, expected, strict=True):
        check(table.search("v", query, k, nprobes=ALL, **options), each)
    batch = table.search_batch("v", np.repeat(asked, 3, axis=0), k, nprobes=ALL, **options)
    for number, each in enumerate(expected):
        check(batch.filter(pa.compute.equal(batch["query_index"], 3 * number + 1)), each)


@pytest.fixture(params=METRICS)
def metric(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def uri(tmp_path: Path, metric: str) -> str:
    path = write(tmp_path / "t.lance", rows(1500))
    index(path, "IVF_FLAT", metric)
    return path


def test_an_untouched_table(uri: str, metric: str) -> None:
    exactly(uri, metric)
    assert pennon.open(uri).explain_search("v", queries(1)[0]).measured_fragments == ()


def test_appended_rows_are_measured(uri: str, metric: str) -> None:
    lance.write_dataset(rows(300, 1500, seed=3), uri, mode="append")
    exactly(uri, metric)
    assert pennon.open(uri).explain_search("v", queries(1)[0]).measured_rows == 300


def test_deleted_rows_do_not_come_back_nor_take_places(uri: str, metric: str) -> None:
    lance.dataset(uri).delete("id % 3 = 0 or (id >= 200 and id < 400)")
    exactly(uri, metric)
    lance.dataset(uri).delete("id < 500")
    exactly(uri, metric, k=40)


def test_updated_rows_are_found_where_they_are_now(uri: str, metric: str) -> None:
    changed = rows(120, 40, seed=9)
    dataset = lance.dataset(uri)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed)
    lance.dataset(uri).update({"part": "99"}, where="id >= 700 and id < 800")
    exactly(uri, metric)


def test_deltas_are_merged(uri: str, metric: str) -> None:
    for start in (1500, 1800):
        lance.write_dataset(rows(300, start, seed=start), uri, mode="append")
        lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(50, 2100, seed=5), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 1")
    exactly(uri, metric)
    plan = pennon.open(uri).explain_search("v", queries(1)[0])
    assert len(plan.segments) == 3
    assert plan.measured_rows == 40


@pytest.mark.parametrize("deferred", [False, True])
def test_compaction_moves_rows(uri: str, metric: str, deferred: bool) -> None:
    lance.dataset(uri).delete("id % 4 = 1")
    for _ in range(2):
        lance.dataset(uri).optimize.compact_files(
            target_rows_per_fragment=900, defer_index_remap=deferred, materialize_deletions_threshold=0.0
        )
        exactly(uri, metric)
        lance.dataset(uri).delete("id % 11 = 2")
    lance.write_dataset(rows(100, 3000, seed=8), uri, mode="append")
    exactly(uri, metric)
    assert pennon.open(uri).explain_search("v", queries(1)[0]).measured_rows == 100


@pytest.mark.parametrize("kind", ["IVF_HNSW_SQ", "IVF_PQ", "IVF_RQ"])
def test_deferred_compaction_of_any_kind(tmp_path: Path, kind: str) -> None:
    """Stock fails every search of an HNSW index whose rows died in a deferred compaction."""
    uri = write(tmp_path / "t.lance", rows(1500))
    index(uri, kind)
    lance.dataset(uri).delete("id % 4 = 1")
    lance.dataset(uri).optimize.compact_files(
        target_rows_per_fragment=900, defer_index_remap=True, materialize_deletions_threshold=0.0
    )
    table = pennon.open(uri)
    assert table.explain_search("v", queries(1)[0]).measured_fragments == ()
    for query in queries(5):
        found = table.search("v", query, 10, nprobes=ALL, refine_factor=20, ef=600)
        check(found, brute_force(uri, query, 10))


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_HNSW_SQ", "IVF_PQ"])
def test_stable_row_ids(tmp_path: Path, kind: str) -> None:
    """Stock lets ids of rows that are gone take places, and returns fewer than k."""
    uri = write(tmp_path / "t.lance", rows(1500), enable_stable_row_ids=True)
    index(uri, kind)
    lance.dataset(uri).delete("id % 3 = 0")
    refined = {} if kind == "IVF_FLAT" else {"refine_factor": 30, "ef": 600}
    exactly(uri, **refined)
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=900, materialize_deletions_threshold=0.0)
    exactly(uri, **refined)
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(rows(100, 100, seed=4))
    lance.write_dataset(rows(100, 3000, seed=8), uri, mode="append")
    exactly(uri, **refined)
    exactly(uri, filter="part < 4", **refined)
    found = pennon.open(uri).search("v", queries(1)[0], 10, columns=["id"], with_row_id=True, with_row_address=True)
    told = lance.dataset(uri).to_table(columns=["id"], with_row_id=True, with_row_address=True).to_pydict()
    where = dict(zip(told["id"], zip(told["_rowid"], told["_rowaddr"], strict=True), strict=True))
    for row in found.to_pylist():
        assert (row["_rowid"], row["_rowaddr"]) == where[row["id"]]


def test_rows_without_a_distance_never_come_back(tmp_path: Path, metric: str) -> None:
    def with_odd_ones(start: int, *more: list[float]) -> pa.Table:
        table = rows(400, start, seed=start)
        zero, infinite = [0.0] * DIM, [np.inf] + [0.0] * (DIM - 1)
        odd = [zero, None, [np.nan] * DIM, infinite, [1.0] * (DIM - 1) + [None], *more]
        return table.set_column(3, "v", pa.array([*odd, *table["v"].to_pylist()[len(odd) :]], table["v"].type))

    uri = write(tmp_path / "t.lance", with_odd_ones(0))
    index(uri, "IVF_FLAT", metric, partitions=2)
    # Stock cannot build an index over a vector whose squared length no float32 holds.
    lance.write_dataset(with_odd_ones(400, [3e38] * DIM), uri, mode="append")
    gone = {1, 2, 3, 4, 401, 402, 403, 404, 405} | ({0, 400} if metric == "cosine" else set())
    for options in ({}, {"use_index": False}, {"filter": "id >= 0"}, {"filter": "part < 3"}, {"filter": "id < 10"}):
        found = pennon.open(uri).search("v", queries(1)[0], 2000, metric=metric, columns=["id"], **options)
        expected = lance.dataset(uri).to_table(columns=["id"], filter=options.get("filter"))["id"].to_pylist()
        assert sorted(found["id"].to_pylist()) == sorted(set(expected) - gone), options


def test_more_than_there_are(uri: str, metric: str) -> None:
    found = pennon.open(uri).search("v", queries(1)[0], 10_000)
    check(found, brute_force(uri, queries(1)[0], 10_000, metric))
    assert len(found) == 1500


def test_every_partition_is_probed_until_there_are_k(uri: str) -> None:
    table = pennon.open(uri)
    index(uri, "IVF_FLAT", partitions=60)
    table.refresh()
    asked = queries(3)
    for k in (10, 700, 1500):
        found = table.search_batch("v", asked, k, columns=["id"])
        assert found.num_rows == 3 * k
        for number in range(3):
            assert len(set(found["id"].to_pylist()[number * k : (number + 1) * k])) == k
    few = table.search("v", asked[0], 700, nprobes=1)
    assert len(few) < 700
    probed = table.explain_search("v", asked[0], 700, analyze=True).segments[0].probed
    assert 20 < probed <= 60
    assert table.explain_search("v", asked[0], 3, analyze=True).segments[0].probed == 20


def test_segments_that_overlap_answer_once(tmp_path: Path) -> None:
    """No stock writer commits them."""
    uri = write(tmp_path / "t.lance", rows(900))
    for name in ("x", "y"):
        index(uri, "IVF_FLAT", name=name)
    snapshot = Snapshot.open(Location.of(uri))
    catalog = Catalog.read(snapshot, SHARED_CACHE)
    first, second = catalog.indices["v"]
    catalog.indices["v"] = [replace(first, segments=first.segments + second.segments)]
    for query in queries(3):
        found = search(catalog, SearchRequest("v", 20, nprobes=ALL), query)
        check(found, brute_force(uri, query, 20))


def test_the_fragments_whose_rows_a_segment_holds(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_SQ")
    lance.dataset(uri).delete("id < 300")
    lance.dataset(uri).optimize.compact_files(defer_index_remap=True)
    catalog = Catalog.read(Snapshot.open(Location.of(uri)), SHARED_CACHE)
    [usable] = catalog.indices["v"][0].segments
    # Two fragments became one; the first was deleted whole.
    assert len(usable.coverage) == 1
    lance.write_dataset(rows(300), uri, mode="append")
    snapshot = catalog.snapshot.latest()
    held = held_fragments(snapshot, usable.segment, snapshot.manifest.live, read_fragment_reuse(snapshot))
    assert held == usable.coverage < snapshot.manifest.live


def test_a_handle_stays_with_its_version(uri: str, metric: str) -> None:
    table, query = pennon.open(uri), queries(1)[0]
    before = table.search("v", query, nprobes=PARTITIONS)
    lance.dataset(uri).delete("id % 2 = 0")
    after = pennon.open(uri).search("v", query, nprobes=PARTITIONS)
    assert table.search("v", query, nprobes=PARTITIONS).equals(before)
    assert not after.equals(before)
    check(after, brute_force(uri, query, 10, metric))
