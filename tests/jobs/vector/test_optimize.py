"""Vector deltas merged: the same answers whatever the order, the recall of one build, stock reads all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kinds import VECTOR_KINDS
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Vectors, to_lists
from pennon.table import Table
from tests.support.cases import covering
from tests.support.vectors import COLUMN, clustered

pytestmark = pytest.mark.usefixtures("any_engine")

DIM, ROWS, PARTS = 16, 600, 4
KINDS = list(VECTOR_KINDS)


def options(kind: str) -> dict[str, Any]:
    return {"num_partitions": 4, "max_iters": 5} | ({"num_sub_vectors": 4} if kind.endswith("PQ") else {})


def rows(vectors: Vectors, start: int) -> pa.Table:
    ids = np.arange(start, start + len(vectors))
    return pa.table({"id": pa.array(ids), COLUMN: to_lists(vectors), "n": pa.array(ids % 7)})


def write(path: Path, vectors: Vectors, *, stable: bool = False) -> str:
    """One fragment with an index to come, and further fragments for deltas."""
    parts = np.array_split(vectors, PARTS)
    at = 0
    for number, part in enumerate(parts):
        mode = "append" if number else "create"
        lance.write_dataset(rows(part, at), path, mode=mode, enable_stable_row_ids=stable)
        at += len(part)
    return str(path)


def with_deltas(path: Path, vectors: Vectors, kind: str, *, stable: bool = False, **more: Any) -> Table:
    """A segment for every fragment, all with the models of the first."""
    parts = np.array_split(vectors, PARTS)
    lance.write_dataset(rows(parts[0], 0), path, enable_stable_row_ids=stable)
    table = pennon.open(path)
    table.create_index(COLUMN, kind, **(options(kind) | more))
    at = len(parts[0])
    for part in parts[1:]:
        lance.write_dataset(rows(part, at), path, mode="append")
        table.optimize_indices(num_indices_to_merge=0)
        at += len(part)
    assert len(segments(table)) == PARTS
    return table


def segments(table: Table) -> list[VectorFiles]:
    [index] = table.refresh().indices()
    assert index.coverage == 1.0
    return [VectorFiles(open_store(Location.of(table.uri)), f"_indices/{s.uuid}") for s in index.segments]


def contents(files: VectorFiles) -> list[dict[int, bytes]]:
    """Partition -> row id -> its codes."""
    found: list[dict[int, bytes]] = []
    for number in range(files.ivf.num_partitions):
        part = files.read_partition(number)
        codes = [b"".join(part.columns[name][i].tobytes() for name in sorted(part.columns)) for i in range(len(part))]
        found.append(dict(zip(part.row_ids.tolist(), codes, strict=True)))
    return found


def answers(table: Table, queries: Vectors, **more: Any) -> list[int]:
    return table.search_batch(COLUMN, queries, 5, nprobes=4, columns=["id"], **more)["id"].to_pylist()


def stock_answers(uri: str, queries: Vectors, k: int = 5) -> list[list[int]]:
    dataset = lance.dataset(uri)
    found = []
    for query in queries:
        nearest = {"column": COLUMN, "q": query, "k": k, "nprobes": 4}
        scanner = dataset.scanner(columns=["id", "_distance"], nearest=nearest)
        assert "ANN" in scanner.explain_plan()
        found.append(scanner.to_table()["id"].to_pylist())
    return found


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return clustered(ROWS, DIM, seed=11).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_merges_in_any_order_are_one_build(tmp_path: Path, vectors: Vectors, kind: str) -> None:
    queries = vectors[::40] + np.float32(0.05)
    found, stored = [], []
    for number, steps in enumerate([(PARTS,), (2, 3), (2, 2, 2)]):
        table = with_deltas(tmp_path / f"{number}.lance", vectors, kind, seed=3)
        for count in steps:
            table.optimize_indices(num_indices_to_merge=count)
        [files] = segments(table)
        assert files.layout.rows == ROWS
        stored.append(contents(files))
        found.append(answers(table, queries))
        assert all(len(ids) == 5 for ids in stock_answers(table.uri, queries))
    # A merge of all, and a build over everything with the same models.
    assert stored[0] == stored[1] == stored[2]
    table = pennon.open(tmp_path / "0.lance")
    first = VectorFiles(open_store(Location.of(table.uri)), f"_indices/{table.indices()[0].segments[0].uuid}")
    again = with_models_of(first, tmp_path / "one.lance", vectors, kind)
    assert [set(part) for part in contents(first)] == [set(part) for part in contents(segments(again)[0])]
    if "HNSW" not in kind:
        assert found[0] == found[1] == found[2]
    if kind in ("IVF_FLAT", "IVF_PQ"):  # other builds draw a rotation or bounds of their own
        assert answers(again, queries) == found[0]


def with_models_of(files: VectorFiles, path: Path, vectors: Vectors, kind: str) -> Table:
    table = pennon.open(write(path, vectors))
    given: dict[str, Any] = {"ivf_centroids": files.ivf.centroids}
    if kind.endswith("PQ"):
        given["pq_codebook"] = getattr(files.quantizer, "codebook")  # noqa: B009 - only PQ has one
    table.create_index(COLUMN, kind, **given)
    return table


def test_uneven_deltas_of_sq_are_what_their_model_says(tmp_path: Path) -> None:
    """Where one fragment has a wider range of values, its delta keeps the bounds of the index, and a merge keeps codes;
    training anew gives bounds for all, and the recall of one build."""
    narrow = clustered(800, DIM, seed=5).astype(np.float32)
    wide = narrow[:400] * np.float32(5)
    vectors = np.concatenate([narrow, wide])
    table = with_deltas(tmp_path / "t.lance", vectors, "IVF_SQ")
    table.optimize_indices(num_indices_to_merge=PARTS)
    [files] = segments(table)
    assert files.layout.rows == len(vectors)
    for number in range(files.ivf.num_partitions):
        part = files.read_partition(number)
        own = vectors[
            (part.row_ids >> np.uint64(32)) * (len(vectors) // PARTS) + (part.row_ids & np.uint64(0xFFFF_FFFF))
        ]
        assert (files.ivf.assign(own)[0] == number).all()
        coded = files.quantizer.encode(own, files.ivf.centroids, np.full(len(own), number))
        for name, column in coded.items():
            np.testing.assert_array_equal(part.columns[name], column)
    queries = vectors[::30]
    truth = np.argsort(Metric.L2.distances(queries, vectors), axis=1, kind="stable")[:, :10]

    def recall(of: Table) -> float:
        found = (
            of.search_batch(COLUMN, queries, 10, nprobes=4, columns=["id"])["id"].to_numpy().reshape(len(queries), -1)
        )
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), truth.tolist(), strict=True)]))

    table.optimize_indices(retrain=True)
    one = pennon.open(write(tmp_path / "one.lance", vectors))
    one.create_index(COLUMN, "IVF_SQ", **options("IVF_SQ"))
    assert recall(table) >= recall(one) - 0.005


def test_different_models_are_reconciled(tmp_path: Path, vectors: Vectors) -> None:
    uri = write(tmp_path / "t.lance", vectors)
    table = pennon.open(uri)
    for fragment in range(PARTS):
        table.create_index(COLUMN, "IVF_PQ", fragment_ids=[fragment], seed=fragment, **options("IVF_PQ"))
    assert len(segments(table)) == PARTS
    table.optimize_indices(num_indices_to_merge=PARTS)
    [files] = segments(table)
    assert files.layout.rows == ROWS
    ids = np.concatenate([files.read_partition(p).row_ids for p in range(4)])
    assert len(np.unique(ids)) == ROWS
    stock_answers(uri, vectors[:5])
    directories = {path.name for path in (Path(uri) / "_indices").iterdir()}
    assert table.indices()[0].segments[0].uuid in directories


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_SQ"])
def test_rows_that_are_gone_are_left_out(tmp_path: Path, vectors: Vectors, kind: str, stable: bool) -> None:
    table = with_deltas(tmp_path / "t.lance", vectors, kind, stable=stable)
    dataset = lance.dataset(table.uri)
    dataset.delete("n = 3")
    dataset.update({"n": "100"}, where="n = 5")
    table.refresh().optimize_indices()
    [files] = segments(table)
    live = lance.dataset(table.uri).count_rows()
    assert files.layout.rows == live
    queries = vectors[::50]
    expected = table.search_batch(COLUMN, queries, 5, use_index=False, columns=["id"])["id"].to_pylist()
    found = answers(table, queries, refine_factor=20)
    assert len(set(found) & set(expected)) > 0.9 * len(set(expected))
    assert not set(found) & set(range(3, ROWS, 7))


def test_an_outstanding_reuse_index_is_followed(tmp_path: Path, vectors: Vectors) -> None:
    table = with_deltas(tmp_path / "t.lance", vectors, "IVF_SQ")
    lance.dataset(table.uri).delete("n = 1")
    lance.dataset(table.uri).optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=300)
    table.refresh().optimize_indices(num_indices_to_merge=PARTS)
    files = segments(table)
    live = lance.dataset(table.uri).to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    held = np.concatenate([f.read_partition(p).row_ids for f in files for p in range(4)])
    assert sorted(held.tolist()) == live


def test_graphs_of_partitions_that_stay_are_kept(tmp_path: Path, vectors: Vectors) -> None:
    uri = write(tmp_path / "t.lance", vectors[:300])
    table = pennon.open(uri)
    table.create_index(COLUMN, "IVF_HNSW_SQ", **options("IVF_HNSW_SQ"))
    [before] = segments(table)
    # New rows all fall into one partition.
    near = np.repeat(before.ivf.centroids[:1], 20, axis=0)
    lance.write_dataset(rows(near, 300), uri, mode="append")
    table.refresh().optimize_indices(num_indices_to_merge=1)
    [after] = segments(table)
    assert after.layout.lengths[0] == before.layout.lengths[0] + 20
    for number in range(1, 4):
        assert after.read_graph(number)[0].equals(before.read_graph(number)[0])
    assert after.read_graph(0)[0].num_rows > before.read_graph(0)[0].num_rows


def crowded(path: Path, kind: str, *, stable: bool, metric: str = "l2") -> tuple[Table, Vectors]:
    """Partitions of about 50 rows, and then 700 more rows around one of the centroids."""
    first = clustered(2000, DIM, seed=21).astype(np.float32)
    lance.write_dataset(rows(first, 0), path, enable_stable_row_ids=stable)
    table = pennon.open(path)
    table.create_index(COLUMN, kind, metric=metric, **(options(kind) | {"num_partitions": 40}))
    [files] = segments(table)
    noise = np.random.default_rng(2).standard_normal((700, DIM)).astype(np.float32)
    more = files.ivf.centroids[7] + noise * np.float32(0.2)
    lance.write_dataset(rows(more, 2000), path, mode="append")
    return table, np.concatenate([first, more])


# Which partitions are split does not depend on what rows are called.
@pytest.mark.parametrize(("kind", "stable"), covering(KINDS, [False, True], strength=1))
def test_partitions_that_outgrow_the_others_are_split(tmp_path: Path, kind: str, stable: bool) -> None:
    table, vectors = crowded(tmp_path / "t.lance", kind, stable=stable)
    table.optimize_indices(num_indices_to_merge=0)
    # Some rows are gone by the time.
    lance.dataset(table.uri).delete("id % 10 = 9")
    lengths = sum(files.layout.lengths for files in segments(table.refresh()))
    assert lengths.max() > 600
    plan = table.optimize_indices().plan
    assert "too large" in plan.steps[0].reason
    [files] = segments(table)
    assert files.ivf.num_partitions > 40
    assert files.layout.lengths.max() < 0.6 * lengths.max()
    live = lance.dataset(table.uri).to_table(columns=["id"], with_row_id=True)
    ids = np.concatenate([files.read_partition(p).row_ids for p in range(files.ivf.num_partitions)])
    assert sorted(ids.tolist()) == sorted(live["_rowid"].to_pylist())
    alive = live["id"].to_numpy()
    queries = vectors[alive[::60]]
    truth = alive[np.argsort(Metric.L2.distances(queries, vectors[alive]), axis=1, kind="stable")[:, :5]]
    found = table.search_batch(COLUMN, queries, 5, nprobes=12, refine_factor=10, columns=["id"])["id"].to_numpy()
    same = [len(set(a) & set(b)) for a, b in zip(found.reshape(len(queries), -1).tolist(), truth.tolist(), strict=True)]
    assert np.mean(same) / 5 > 0.9
    stock_answers(table.uri, queries[:5])
    # Nothing is due any more.
    assert not table.plan_optimize().due


def test_partitions_that_hold_next_to_nothing_are_joined(tmp_path: Path) -> None:
    table, _ = crowded(tmp_path / "t.lance", "IVF_PQ", stable=False)
    table.optimize_indices(num_indices_to_merge=0)
    files = segments(table)[0]
    # All rows of half of the partitions but for a few.
    emptied = np.concatenate([files.read_partition(p).row_ids[1:] for p in range(0, 40, 2)])
    dataset = lance.dataset(table.uri)
    gone = dataset.to_table(columns=["id"], with_row_id=True)
    mask = np.isin(gone["_rowid"].to_numpy(), emptied)
    dataset.delete(f"id in ({', '.join(map(str, gone['id'].to_numpy()[mask]))})")
    table.refresh().optimize_indices(num_indices_to_merge=2)
    plan = table.optimize_indices().plan
    assert "nearly empty" in plan.steps[0].reason
    [files] = segments(table)
    assert files.layout.rows == lance.dataset(table.uri).count_rows()
    assert files.ivf.num_partitions < 30
    assert files.layout.lengths.min() > 0
    assert not table.plan_optimize().due


def test_an_index_that_grew_as_a_whole_is_trained_anew(tmp_path: Path) -> None:
    first = clustered(400, DIM, seed=3).astype(np.float32)
    lance.write_dataset(rows(first, 0), tmp_path / "t.lance")
    table = pennon.open(tmp_path / "t.lance")
    table.create_index(COLUMN, "IVF_SQ", num_partitions=4, max_iters=3)
    lance.write_dataset(rows(clustered(4000, DIM, seed=4).astype(np.float32), 400), table.uri, mode="append")
    table.optimize_indices()
    plan = table.optimize_indices().plan
    assert plan.steps[0].rebuilt
    [files] = segments(table)
    assert files.ivf.num_partitions > 20
    assert not table.plan_optimize().due
