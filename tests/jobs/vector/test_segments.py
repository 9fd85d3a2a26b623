"""An index of several segments that one build writes: the same rows and models as in one segment, joined by several
tasks."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.errors import InvalidArgument
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kinds import VECTOR_KINDS
from pennon.index.vector.vectors import Vectors
from pennon.jobs.shared.merge_policy import Tier, choose_segments
from pennon.jobs.vector import jobs as vector_jobs
from pennon.jobs.vector import plan as vector_plan
from tests.support.vectors import COLUMN, clustered, row_ids, stock_nearest, write_table

ROWS, DIM, PARTITIONS, FRAGMENTS = 2400, 16, 6, 7


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return clustered(ROWS, DIM, seed=5).astype(np.float32)


@pytest.fixture
def uri(tmp_path: Path, vectors: Vectors) -> str:
    return write_table(tmp_path / "t.lance", vectors, FRAGMENTS)


def stored(uri: str) -> list[tuple[list[int], VectorFiles]]:
    """The fragments and the files of each segment."""
    [index] = pennon.open(uri).indices()
    store = open_store(Location.of(uri))
    return [(sorted(s.fragments), VectorFiles(store, f"_indices/{s.uuid}")) for s in index.segments]


def by_partition(files: list[VectorFiles]) -> dict[int, list[int]]:
    return {
        number: sorted(id for each in files for id in each.read_partition(number).row_ids.tolist())
        for number in range(PARTITIONS)
    }


@pytest.mark.usefixtures("process_engine")
@pytest.mark.parametrize("kind", list(VECTOR_KINDS))
@pytest.mark.parametrize("joined", [False, True])
def test_the_same_rows_and_models_as_in_one_segment(
    uri: str, vectors: Vectors, kind: str, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reducer writes a segment, or several write runs that are joined."""
    if joined:
        monkeypatch.setattr(vector_plan, "REDUCE_COPIES", 1 << 20)
    table = pennon.open(uri)
    table.create_index(COLUMN, kind, num_partitions=PARTITIONS)
    [(_, whole)] = stored(uri)
    result = table.create_index(COLUMN, kind, num_partitions=PARTITIONS, num_segments=3)
    assert result.plan.to_dict()["segments"] == 3
    assert "in 3 segments" in str(result.plan)
    assert (result.plan.to_dict()["reducers"] > 3) == (joined or "HNSW" in kind)
    parts = stored(uri)
    assert len(parts) == 3
    assert sorted(id for fragments, _ in parts for id in fragments) == list(range(FRAGMENTS))
    for fragments, files in parts:
        ids = np.concatenate([files.read_partition(number).row_ids for number in range(PARTITIONS)])
        assert set((ids >> np.uint64(32)).tolist()) == set(fragments)
        np.testing.assert_array_equal(files.ivf.centroids, whole.ivf.centroids)
    assert by_partition([files for _, files in parts]) == by_partition([whole])
    losses = [files.ivf.loss or 0.0 for _, files in parts]
    assert sum(losses) == pytest.approx(whole.ivf.loss, rel=1e-6)
    query = vectors[17]
    found, distances = stock_nearest(uri, query, 10, PARTITIONS)
    ours = table.search(COLUMN, query, 10, nprobes=PARTITIONS, columns=["id"])
    if "RQ" not in kind:  # pylance rounds the queries of RaBitQ
        np.testing.assert_allclose(ours["_distance"].to_numpy(), distances, rtol=1e-4, atol=1e-4)
    assert len(set(row_ids(uri)[ours["id"].to_numpy()].tolist()) & set(found.tolist())) >= 8
    assert table.audit().ok


@pytest.mark.usefixtures("process_engine")
def test_a_large_index_has_several_and_keeps_them(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that are large together are not merged, small deltas are; a new training makes several again."""
    table = pennon.open(uri)
    size = table.plan_index(COLUMN, "IVF_FLAT", num_partitions=PARTITIONS).index_bytes
    limit = size // 3 + 1
    for module in (vector_plan, vector_jobs):
        monkeypatch.setattr(module, "SEGMENT_BYTES", limit)
    monkeypatch.setattr(vector_jobs.VectorJobs, "segment_bytes", limit)
    table.create_index(COLUMN, "IVF_FLAT", num_partitions=PARTITIONS)
    assert [len(fragments) for fragments, _ in stored(uri)] == [3, 2, 2]
    table.optimize_indices()
    assert len(stored(uri)) == 3
    more = lance.dataset(uri).to_table().slice(0, 40)
    for _ in range(2):
        lance.write_dataset(more, uri, mode="append")
        table = pennon.open(uri)
        table.optimize_indices()
    assert [len(fragments) for fragments, _ in stored(uri)] == [3, 2, 2, 2]
    plan = table.plan_optimize(retrain=True)
    assert plan.steps[0].segments_after == 4
    table.optimize_indices(retrain=True)
    assert len(stored(uri)) == 4
    assert pennon.open(uri).audit().ok


@pytest.mark.usefixtures("process_engine")
def test_beside_segments_of_other_fragments(uri: str) -> None:
    """Segments of a build replace those whose fragments they cover together."""
    table = pennon.open(uri)
    for some in ([0, 1], [2, 3, 4]):
        table.create_index(COLUMN, "IVF_SQ", num_partitions=PARTITIONS, fragment_ids=some)
    table.create_index(COLUMN, "IVF_SQ", num_partitions=PARTITIONS, fragment_ids=[2, 3, 4, 5, 6], num_segments=2)
    assert sorted(fragments for fragments, _ in stored(uri)) == [[0, 1], [2, 3, 4], [5, 6]]
    assert pennon.open(uri).audit().ok


@pytest.mark.usefixtures("process_engine")
def test_more_segments_than_fragments(uri: str) -> None:
    with pytest.raises(InvalidArgument, match="8 segments cannot be made of 7 fragments with rows"):
        pennon.open(uri).create_index(COLUMN, "IVF_SQ", num_partitions=PARTITIONS, num_segments=8)
    with pytest.raises(InvalidArgument, match="num_segments"):
        pennon.open(uri).create_index(COLUMN, "IVF_SQ", num_partitions=PARTITIONS, num_segments=0)


def test_on_spark(uri: str, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of both segments, with their graphs, are joined by two tasks."""
    monkeypatch.setenv("PENNON_IN_PROCESS_BYTES", "0")
    table = pennon.open(uri, spark=engine.session)
    result = table.create_index(COLUMN, "IVF_HNSW_SQ", num_partitions=PARTITIONS, num_segments=2)
    assert result.plan.to_dict()["reducers"] > 2
    whole = [files for _, files in stored(uri)]
    assert [files.layout.rows for files in whole] == [ROWS // FRAGMENTS * 4 + 4, ROWS // FRAGMENTS * 3 + 2]
    assert all(len(files.sub_index) == PARTITIONS for files in whole)
    assert pennon.open(uri).audit().ok


def test_a_limit_of_bytes() -> None:
    tiers = [Tier(100, nbytes=1000), Tier(100, nbytes=1000), Tier(10, nbytes=100), Tier(8, nbytes=80)]
    assert choose_segments(tiers, 6, limit=1000).count == 2
    assert choose_segments(tiers, 100, limit=1000).count == 0
    assert choose_segments(tiers, 100).count == 4


@pytest.mark.usefixtures("process_engine")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_HNSW_FLAT"])
def test_nulls_deletions_appends_and_compactions(tmp_path: Path, vectors: Vectors, kind: str, stable: bool) -> None:
    """One segment has no vector at all, and pylance, Pennon and brute force agree all the time."""
    uri, step = str(tmp_path / "t.lance"), ROWS // 6
    values = [None if step <= i < 3 * step else list(map(float, vector)) for i, vector in enumerate(vectors)]
    data = pa.table({"id": np.arange(ROWS), COLUMN: pa.array(values, pa.list_(pa.float32(), DIM))})
    lance.write_dataset(data, uri, max_rows_per_file=step, enable_stable_row_ids=stable)
    lance.dataset(uri).delete("id % 7 = 0")
    pennon.open(uri).create_index(COLUMN, kind, num_partitions=3, num_segments=6)

    def check() -> None:
        now = lance.dataset(uri).to_table(filter=f"{COLUMN} is not null")
        held = np.stack(now[COLUMN].combine_chunks().to_numpy(zero_copy_only=False))
        query = vectors[20] + 0.1
        exact = np.sort(((held - query) ** 2).sum(axis=1))[:10]
        ours = pennon.open(uri).search(COLUMN, query, 10, nprobes=3, ef=400, columns=["id"])
        np.testing.assert_allclose(ours["_distance"].to_numpy(), exact, rtol=1e-4)
        nearest = {"column": COLUMN, "q": query, "k": 10, "nprobes": 3, "ef": 400}
        theirs = lance.dataset(uri).to_table(columns=["id"], nearest=nearest)
        assert set(theirs["id"].to_pylist()) == set(ours["id"].to_pylist())

    check()
    assert sorted(files.layout.rows for _, files in stored(uri))[:2] == [0, 0]
    lance.write_dataset(data.slice(0, 100), uri, mode="append")
    check()
    pennon.open(uri).compact(
        target_rows_per_fragment=step, remap="immediate" if stable or "HNSW" in kind else "deferred"
    )
    check()
    pennon.open(uri).optimize_indices()
    check()
    assert pennon.open(uri).audit().ok
