"""Vectors of bits (uint8, hamming): indices of pylance and of Pennon answer both alike, through their whole life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import InvalidArgument, PennonError, UnsupportedColumn
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.jobs.maintain import MaintenancePolicy
from pennon.jobs.vector.codes import wrong_codes
from pennon.testing.engines import in_process

Bits = npt.NDArray[np.uint8]
KINDS = ["IVF_FLAT", "IVF_HNSW_FLAT"]
DIM, PARTITIONS = 12, 4  # 12 bytes: not a whole number of words
HNSW = {"ef": 2000}
ALL: dict[str, Any] = {"nprobes": PARTITIONS}


def bits(count: int, seed: int) -> Bits:
    """Vectors around 12 centers, each with some bits changed."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).integers(0, 2, (12, DIM * 8))
    drawn = centers[rng.integers(0, 12, count)] ^ (rng.random((count, DIM * 8)) < 0.08)
    return np.packbits(drawn.astype(np.uint8), axis=1)


def rows(count: int, start: int = 0, seed: int = 0) -> pa.Table:
    ids, nulls = np.arange(start, start + count), pa.array(np.arange(count) % 90 == 4)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(bits(count, seed + start).reshape(-1)), DIM, mask=nulls)
    return pa.table({"id": ids, "part": ids % 10, "v": lists})


def write(path: Path, count: int = 900, **options: Any) -> str:
    lance.write_dataset(rows(count), str(path), max_rows_per_file=count // 3, **options)
    return str(path)


def held(dataset: lance.LanceDataset, filter: str | None = None) -> tuple[npt.NDArray[np.int64], Bits]:
    """The ids and vectors of the rows that have one."""
    found = dataset.to_table(columns=["id", "v"], filter=filter)
    found = found.filter(found["v"].is_valid())
    return found["id"].to_numpy(), np.array(found["v"].to_pylist(), dtype=np.uint8)


def brute_force(of: tuple[npt.NDArray[np.int64], Bits], query: Bits, k: int) -> tuple[list[int], list[float]]:
    """Ids and distances by counting the ones of the exclusive or; equal distances by id."""
    ids, vectors = of
    distances = np.unpackbits(vectors ^ query, axis=1).sum(axis=1)
    order = np.lexsort((ids, distances))[:k]
    return ids[order].tolist(), distances[order].astype(float).tolist()


def assert_nearest(found: pa.Table, expected: tuple[list[int], list[float]]) -> None:
    """The same distances, and the rows nearer than the last of them."""
    ids, distances = expected
    assert found["_distance"].to_pylist() == distances
    last = distances[-1] if distances else 0
    nearer = {id_ for id_, distance in zip(ids, distances, strict=True) if distance < last}
    assert nearer <= set(found["id"].to_pylist())
    assert len(set(found["id"].to_pylist())) == len(ids)


def assert_exact(uri: str, *, indexed: bool = True) -> None:
    """Every partition is probed: Pennon, single and in a batch, and pylance find what brute force finds."""
    table, dataset, queries = pennon.open(uri), lance.dataset(uri), bits(6, 1234)
    walk = HNSW if indexed and table.indices() and "HNSW" in table.indices()[0].type else {}
    if indexed:
        assert table.explain_search("v", queries[0]).segments
    for filter in (None, "part = 3", "id % 2 = 0"):
        options: dict[str, Any] = {**ALL, **walk, "filter": filter, "columns": ["id"]}
        batch = table.search_batch("v", queries, 7, **options)
        refined = table.search_batch("v", queries, 7, refine_factor=3, **options)
        selected = held(dataset, filter)
        for number, query in enumerate(queries):
            expected = brute_force(selected, query, 7)
            assert_nearest(table.search("v", query, 7, **options), expected)
            assert_nearest(table.search("v", query.tolist(), 7, use_index=False, filter=filter), expected)
            for many in (batch, refined):
                assert_nearest(many.filter(pc.equal(many["query_index"], number)), expected)
            scanner = dataset.scanner(
                columns=["id", "_distance"],
                nearest={"column": "v", "q": query, "k": 7, "metric": "hamming", **ALL, **walk},
                filter=filter,
                prefilter=True,
            )
            assert not indexed or "ANN" in scanner.explain_plan()
            if not dataset.has_stable_row_ids:  # pylance returns fewer rows than asked for
                assert_nearest(scanner.to_table(), expected)


def files_of(uri: str) -> VectorFiles:
    [segment] = pennon.open(uri).indices()[0].segments
    return VectorFiles(open_store(Location.of(uri)), f"_indices/{segment.uuid}")


@pytest.mark.parametrize("kind", KINDS)
def test_pylance_and_pennon_build_the_same_index(tmp_path: Path, kind: str) -> None:
    """By the same centroids: equal partitions, and equal answers from any number of them."""
    ours, theirs = write(tmp_path / "ours.lance"), write(tmp_path / "theirs.lance")
    lance.dataset(theirs).create_index("v", kind, metric="hamming", num_partitions=PARTITIONS)
    centroids = files_of(theirs).ivf.centroids
    with in_process():
        built = pennon.open(ours).create_index("v", kind, ivf_centroids=centroids, rows_per_task=200)
    assert (built.index.type, built.index.coverage) == (kind, 1.0)
    for uri in (ours, theirs):
        assert_exact(uri)
    for query in bits(10, 7):
        asked = {"column": "v", "q": query, "k": 9, "nprobes": 2, **(HNSW if "HNSW" in kind else {})}
        answers = [lance.dataset(uri).to_table(nearest=asked, columns=["id", "_distance"]) for uri in (ours, theirs)]
        walk = HNSW if "HNSW" in kind else {}
        answers += [pennon.open(uri).search("v", query, 9, nprobes=2, columns=["id"], **walk) for uri in (ours, theirs)]
        for other in answers[1:]:
            assert other["_distance"].to_pylist() == answers[0]["_distance"].to_pylist()


def test_trained_centroids_serve_as_well_as_pylances(tmp_path: Path) -> None:
    ours, theirs = write(tmp_path / "ours.lance", 3000), write(tmp_path / "theirs.lance", 3000)
    with in_process():
        pennon.open(ours).create_index("v", "IVF_FLAT", num_partitions=12)
    lance.dataset(theirs).create_index("v", "IVF_FLAT", metric="hamming", num_partitions=12)
    recalls = []
    for uri in (ours, theirs):
        table, every, hits = pennon.open(uri), held(lance.dataset(uri)), 0
        for query in bits(60, 5):
            last = brute_force(every, query, 10)[1][-1]
            found = table.search("v", query, 10, nprobes=2)["_distance"].to_numpy()
            hits += np.count_nonzero(found <= last)
        recalls.append(hits / 600)
    assert recalls[0] >= recalls[1] - 0.02
    assert recalls[0] > 0.8


@pytest.mark.parametrize(
    ("builder", "kind", "remap", "stable_row_ids"),
    [
        ("pennon", "IVF_FLAT", "deferred", False),
        ("pylance", "IVF_FLAT", "immediate", False),
        ("pylance", "IVF_FLAT", "immediate", True),
        ("pennon", "IVF_HNSW_FLAT", "immediate", True),
        ("pylance", "IVF_HNSW_FLAT", "immediate", False),
    ],
)
def test_a_whole_life(tmp_path: Path, builder: str, kind: str, remap: str, stable_row_ids: bool) -> None:
    uri = write(tmp_path / "t.lance", enable_stable_row_ids=stable_row_ids)
    with in_process():
        if builder == "pennon":
            pennon.open(uri).create_index("v", kind, num_partitions=PARTITIONS)
        else:
            lance.dataset(uri).create_index("v", kind, metric="hamming", num_partitions=PARTITIONS)
        lance.write_dataset(rows(150, 900), uri, mode="append")
        assert_exact(uri)
        table = pennon.open(uri)
        table.optimize_indices(num_indices_to_merge=0)
        assert [len(index.segments) for index in table.indices()] == [2]
        lance.dataset(uri).delete("id % 5 = 0")
        assert_exact(uri)
        table.refresh()
        table.compact(remap=remap)
        assert_exact(uri)
        table.catch_up_indices()
        table.trim_fragment_reuse()
        assert_exact(uri)
        lance.write_dataset(rows(50, 2000), uri, mode="append")
        table.refresh()
        table.optimize_indices(num_indices_to_merge=2)
        [index] = table.indices()
        assert (len(index.segments), index.coverage) == (1, 1.0)
        assert_exact(uri)
        table.maintain(MaintenancePolicy(min_fragments_to_compact=1))
        report = table.audit(recall_queries=5)
        assert report.ok, str(report)
        assert "hamming" in table.report()
    assert_exact(uri)


def test_the_audit_finds_a_single_wrong_bit(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    with in_process():
        pennon.open(uri).create_index("v", "IVF_FLAT", num_partitions=2)
    files = files_of(uri)
    stored = files.read_partition(1).columns
    held = stored["flat"].copy()
    held[3, 5] ^= 16
    assert np.flatnonzero(wrong_codes(files, 1, stored, held)).tolist() == [3]


def test_what_bits_do_not_have(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    floats = str(tmp_path / "f.lance")
    lance.write_dataset(pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}), floats)
    query = bits(1, 3)[0]
    with in_process():
        table = pennon.open(uri)
        for kind in ("IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_PQ", "IVF_HNSW_SQ"):
            with pytest.raises(UnsupportedColumn, match="IVF_FLAT or IVF_HNSW_FLAT"):
                table.create_index("v", kind)
        for metric in ("l2", "cosine", "dot"):
            with pytest.raises(UnsupportedColumn, match="hamming"):
                table.create_index("v", "IVF_FLAT", metric=metric)
            with pytest.raises(InvalidArgument, match="hamming"):
                table.search("v", query, metric=metric)
        with pytest.raises(UnsupportedColumn, match="l2, cosine and dot"):
            pennon.open(floats).create_index("v", "IVF_FLAT", metric="hamming")
        with pytest.raises(InvalidArgument, match="l2, cosine or dot"):
            pennon.open(floats).search("v", [1.0, 2.0], metric="hamming")
        for wrong in ([0.5] * DIM, [256] * DIM, [-1] * DIM, [np.nan] * DIM):
            with pytest.raises(InvalidArgument, match="0 to 255"):
                table.search("v", wrong)
        with pytest.raises(PennonError, match="0 to 255"):
            table.create_index("v", "IVF_FLAT", ivf_centroids=[[0.5] * DIM])
