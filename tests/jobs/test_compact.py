"""Compaction in its three modes: rows move, and every index says where they are."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CompactionWarning, UnsupportedTable
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.vector.vectors import to_lists
from pennon.jobs.compact.compact import compact
from pennon.table import Table
from pennon.testing.engines import InProcess
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

DIM = 8


def rows(count: int, start: int) -> pa.Table:
    ids = np.arange(start, start + count)
    vectors = np.random.default_rng(start).standard_normal((count, DIM)).astype(np.float32)
    return pa.table({"id": pa.array(ids), "k": pa.array(ids * 13 % 143), "v": to_lists(vectors)})


def make(path: Path, fragments: int = 6, *, stable: bool = False) -> Table:
    for number in range(fragments):
        mode = "append" if number else "create"
        lance.write_dataset(rows(50, number * 50), path, mode=mode, enable_stable_row_ids=stable)
    table = pennon.open(path)
    table.create_index("k", ranges=3, batch_size=16)
    table.create_index("v", "IVF_SQ", num_partitions=3, max_iters=3)
    return table


def check(table: Table) -> None:
    table.refresh()
    for value in range(0, 143, 11):
        expected = full_scan(table.uri, f"k = {value}")
        assert sorted(table.scan(f"k = {value}", ["id"])["id"].to_pylist()) == expected
        assert stock_answer(table.uri, f"k = {value}")[0] == expected
    everything = lance.dataset(table.uri).to_table(columns=["id", "v"])
    vectors = np.stack(everything["v"].combine_chunks().to_numpy(zero_copy_only=False))
    for query in vectors[::40]:
        order = np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:5]
        expected = everything["id"].to_numpy()[order].tolist()
        found = table.search("v", query, 5, nprobes=9, refine_factor=20, columns=["id"])
        assert found["id"].to_pylist() == expected
        nearest = {"column": "v", "q": query, "k": 5, "nprobes": 9, "refine_factor": 20}
        scanner = lance.dataset(table.uri).scanner(columns=["id", "_distance"], nearest=nearest)
        assert scanner.to_table()["id"].to_pylist() == expected


def coverage(table: Table) -> list[float]:
    return [index.coverage for index in table.refresh().indices()]


@pytest.mark.parametrize("stable", [False, True])
def test_indices_follow_at_once_in_one_transaction(tmp_path: Path, stable: bool) -> None:
    table = make(tmp_path / "t.lance", stable=stable)
    lance.dataset(table.uri).delete("id % 7 = 0")
    version = lance.dataset(table.uri).version
    plan = table.compact(target_rows_per_fragment=120).plan
    assert plan.due
    assert table.version == version + 1
    assert coverage(table) == [1.0, 1.0]
    assert table.fragment_reuse() is None
    check(table)


def test_deferred_and_then_at_once(tmp_path: Path) -> None:
    """Stock's own compaction, run in this order, leaves B-trees that find nothing."""
    table = make(tmp_path / "t.lance")
    lance.dataset(table.uri).delete("id % 7 = 0")
    table.compact(remap="deferred", target_rows_per_fragment=120)
    assert table.indices()[0].compactions_behind == 1
    lance.dataset(table.uri).delete("id % 11 = 0")
    table.compact(remap="immediate", target_rows_per_fragment=1000)
    assert coverage(table) == [1.0, 1.0]
    check(table)
    assert table.catch_up_indices().segments_written == 0
    assert table.trim_fragment_reuse().versions_removed == 1
    assert table.fragment_reuse() is None
    check(table)


def test_dropped_coverage_is_won_back(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance")
    table.compact(remap="drop", target_rows_per_fragment=120)
    assert coverage(table) == [0.0, 0.0]
    check(table)
    table.optimize_indices()
    assert coverage(table) == [1.0, 1.0]
    check(table)


def test_segments_that_cover_a_group_in_part_are_committed_after_it(tmp_path: Path) -> None:
    """An index that comes after the plan may cover only some fragments of a group."""
    table = make(tmp_path / "t.lance")
    lance.dataset(table.uri).delete("id % 9 = 0")
    table.refresh()
    plan = table.plan_compact(target_rows_per_fragment=1000)
    assert len(plan.tasks) == 1
    table.create_index("id", fragment_ids=[1, 2])

    snapshot = Snapshot.open(Location.of(table.uri), plan.version)
    compact(InProcess(), snapshot, plan, 1 << 28)
    covered = {index.name: index.coverage for index in table.refresh().indices()}
    assert covered == {"k_idx": 1.0, "v_idx": 1.0, "id_idx": 0.0}
    check(table)
    assert table.count("id = 101") == 1


def test_moves_are_not_recorded_beside_stable_row_ids(tmp_path: Path) -> None:
    table = make(tmp_path / "t.lance", 2, stable=True)
    with pytest.raises(UnsupportedTable, match="stable row ids"):
        table.compact(remap="deferred")
    check(table)


def test_a_long_reuse_index_is_kept_in_a_file(tmp_path: Path) -> None:
    """What is left of it after trimming is written by Pennon, beyond 200 KB as a file of its own."""
    uri = str(tmp_path / "t.lance")
    count = 3_000_000
    lance.write_dataset(pa.table({"id": pa.array(np.arange(count))}), uri, max_rows_per_file=count // 4)
    table = pennon.open(uri)
    table.create_index("id")

    def compact_deferred(residue: int) -> None:
        # Every third row or so is gone, so that no run is longer than two rows.
        lance.dataset(uri).delete(f"id % 3 = {residue}")
        table.compact(remap="deferred", target_rows_per_fragment=count, materialize_deletions_threshold=0.0)

    def answers() -> None:
        for value in (2, 5, 299_999, 2_999_999):
            assert table.count(f"id = {value}") == len(stock_answer(uri, f"id = {value}")[0]) == 1

    compact_deferred(0)
    table.catch_up_indices()
    compact_deferred(1)
    assert table.trim_fragment_reuse().versions_removed == 1
    reuse, entry = table.fragment_reuse(), Snapshot.open(Location.of(uri)).manifest.reuse_segment
    assert reuse is not None
    assert entry is not None
    assert (reuse.depth, reuse.size_bytes > 204_800, len(entry.details) < 200) == (1, True, True)
    answers()
    table.catch_up_indices()
    assert table.trim_fragment_reuse().versions_removed == 1
    answers()


def test_indices_by_stable_ids_follow_to_the_new_fragments_and_nowhere_else(tmp_path: Path) -> None:
    """Nothing is remapped, and fragment 0, which no vector segment covers and nothing compacts, stays uncovered."""
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(200, 0), path, enable_stable_row_ids=True)
    for number in range(1, 7):
        lance.write_dataset(rows(50, 200 * number), path, mode="append")
    table = pennon.open(path)
    table.create_index("v", "IVF_FLAT", num_partitions=2, max_iters=2, fragment_ids=[1, 2, 3])
    table.create_index("v", "IVF_FLAT", num_partitions=2, max_iters=2, fragment_ids=[4, 5, 6])
    table.compact(remap="drop", target_rows_per_fragment=150)
    [index] = table.indices()
    covered = [fragment for segment in index.segments for fragment in segment.fragments]
    assert len(covered) == 2
    assert set(covered) | {0} == set(table._snapshot.manifest.fragments)
    check(table)


@pytest.mark.parametrize("kind", ["IVF_SQ", "IVF_HNSW_SQ"])
def test_an_index_that_cannot_be_rewritten_follows_beside_others(tmp_path: Path, kind: str) -> None:
    """On Spark, with a B-tree and vectors that can be, among them graphs over deleted rows."""
    path = tmp_path / "t.lance"
    for number in range(6):
        data = rows(50, number * 50)
        texts = pa.array([f"word{i % 5}" for i in data["id"].to_pylist()])
        lance.write_dataset(data.append_column("text", texts), path, mode="append" if number else "create")
    lance.dataset(path).create_scalar_index("text", "INVERTED", base_tokenizer="icu")
    table = pennon.open(path)
    table.create_index("k", ranges=3, batch_size=16)
    table.create_index("v", kind, num_partitions=3, max_iters=3)
    lance.dataset(path).delete("id % 7 = 0")
    table.refresh().compact(target_rows_per_fragment=1000)
    assert [fragment.count_rows() for fragment in lance.dataset(path).get_fragments()] == [257]
    assert {index.name: index.compactions_behind for index in table.indices()} == {
        "text_idx": 1,
        "k_idx": 0,
        "v_idx": 0,
    }
    check(table)
    asked = {"query": "word3", "columns": ["text"]}
    found = lance.dataset(path).to_table(full_text_query=asked, columns=["id", "_score"], fast_search=True)
    assert sorted(found["id"].to_pylist()) == [i for i in range(300) if i % 5 == 3 and i % 7]


HNSW = ["IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"]


def graph_table(path: Path, kind: str) -> Table:
    """Half of the fragments have deleted rows, and a graph over all of them."""
    for number in range(6):
        lance.write_dataset(rows(50, number * 50), path, mode="append" if number else "create")
    options = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
    table = pennon.open(path)
    table.create_index("v", kind, num_partitions=2, max_iters=3, **options)
    table.create_index("k", batch_size=16)
    lance.dataset(path).delete("id < 150 and id % 5 = 0")
    table.refresh()
    return table


@pytest.mark.parametrize("kind", HNSW)
def test_pylance_can_search_graphs_after_a_deferred_compaction_of_deleted_rows(tmp_path: Path, kind: str) -> None:
    table = graph_table(tmp_path / "t.lance", kind)
    plan = table.plan_compact(remap="deferred")
    assert plan.held_back == (0, 1, 2, 3, 4, 5)  # one group, of which three fragments have deleted rows
    with pytest.warns(CompactionWarning, match="HNSW"):
        table.compact(remap="deferred")
    check(table)
    table.compact(remap="immediate")
    assert lance.dataset(table.uri).stats.dataset_stats()["num_fragments"] == 1
    check(table)


@pytest.mark.parametrize("kind", HNSW)
def test_graphs_whose_deleted_rows_pylance_moved_are_reported_and_healed(tmp_path: Path, kind: str) -> None:
    table = graph_table(tmp_path / "t.lance", kind)
    lance.dataset(table.uri).optimize.compact_files(defer_index_remap=True)
    with pytest.raises(pa.ArrowInvalid, match="HNSW graph has"):
        check(table)
    findings = [f for f in table.audit().findings if f.index == "v_idx" and "pylance may fail" in f.problem]
    assert [f.severity for f in findings] == ["warning"]
    table.catch_up_indices()
    check(table)
    assert not [f for f in table.audit().findings if "pylance may fail" in f.problem]
