"""Several vectors a row: indices of pylance and of Pennon answer both alike, through their whole life."""

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
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.index.vector.kinds import VECTOR_KINDS
from pennon.jobs.maintain import MaintenancePolicy
from pennon.testing.engines import in_process
from tests.support.damage import rewrite

Matrix = npt.NDArray[np.float32]
DIM, PARTITIONS, K = 8, 3, 6
OPTIONS: dict[str, dict[str, int]] = {"IVF_PQ": {"num_sub_vectors": 4}, "IVF_HNSW_PQ": {"num_sub_vectors": 4}}
# Every vector is found and every row measured, so that there is one right answer.
EXACT: dict[str, Any] = {"nprobes": PARTITIONS, "refine_factor": 200, "ef": 5000}


def rows(count: int, start: int = 0, element: pa.DataType | None = None) -> pa.Table:
    """Up to four vectors a row; some rows have none, and some are NULL."""
    rng = np.random.default_rng(start)
    lists = [rng.standard_normal((rng.integers(1, 5), DIM)).astype(np.float32).tolist() for _ in range(count)]
    lists[4::50], lists[9::70] = [[] for _ in lists[4::50]], [None for _ in lists[9::70]]
    ids = np.arange(start, start + count)
    values = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIM)))
    return pa.table({"id": ids, "v": values.cast(pa.list_(pa.list_(element or pa.float32(), DIM)))})


def write(path: Path, count: int = 450, element: pa.DataType | None = None, **options: Any) -> str:
    lance.write_dataset(rows(count, element=element), str(path), max_rows_per_file=count // 3, **options)
    return str(path)


def queries(count: int) -> list[Matrix]:
    rng = np.random.default_rng(77)
    return [rng.standard_normal((1 + number % 3, DIM)).astype(np.float32) for number in range(count)]


def max_sim(
    table: str | lance.LanceDataset, query: Matrix, metric: str = "cosine", filter: str | None = None
) -> dict[int, float]:
    """The distance of every row that has a vector, in double precision."""
    dataset = lance.dataset(table) if isinstance(table, str) else table
    held = dataset.to_table(columns=["id", "v"], filter=filter)
    lists = {id_: row for id_, row in zip(held["id"].to_pylist(), held["v"].to_pylist(), strict=True) if row}
    wide = query.astype(np.float64)
    vectors = np.array([vector for row in lists.values() for vector in row], dtype=np.float64)
    if metric == "l2":
        distances = ((wide[:, None] - vectors) ** 2).sum(axis=2)
    else:
        distances = wide @ vectors.T
        if metric == "cosine":
            distances /= np.linalg.norm(wide, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
        distances = 1 - distances
    begins = np.cumsum([0, *(len(row) for row in lists.values())])[:-1]
    return dict(zip(lists, np.minimum.reduceat(distances, begins, axis=1).sum(axis=0).tolist(), strict=True))


def assert_nearest(found: pa.Table, expected: dict[int, float], tolerance: float = 1e-4) -> None:
    """The nearest rows, but for those as far as another, each at its own distance."""
    best = np.sort(list(expected.values()))[:K]
    np.testing.assert_allclose(found["_distance"].to_numpy(), best, rtol=tolerance, atol=tolerance)
    own = [expected[id_] for id_ in found["id"].to_pylist()]
    np.testing.assert_allclose(own, best, rtol=2 * tolerance, atol=2 * tolerance)
    assert len(set(found["id"].to_pylist())) == found.num_rows


def assert_exact(uri: str, tolerance: float = 1e-4) -> None:
    """Pennon, single and in a batch, and pylance find what brute force finds."""
    table, dataset, asked = pennon.open(uri), lance.dataset(uri), queries(4)
    assert table.explain_search("v", asked[0]).segments
    for filter in (None, "id % 3 = 0", "id > 20"):
        options: dict[str, Any] = {"filter": filter, "columns": ["id"]}
        batch = table.search_batch("v", asked, K, **EXACT, **options)
        for number, query in enumerate(asked):
            expected = max_sim(dataset, query, filter=filter)
            assert_nearest(table.search("v", query, K, **EXACT, **options), expected, tolerance)
            scanned = table.search("v", query.tolist(), K, metric="cosine", use_index=False, **options)
            assert_nearest(scanned, expected, tolerance)
            assert_nearest(batch.filter(pc.equal(batch["query_index"], number)), expected, tolerance)
            scanner = dataset.scanner(
                columns=["id", "_distance"],
                nearest={"column": "v", "q": query, "k": K, "metric": "cosine", **EXACT},
                filter=filter,
                prefilter=True,
            )
            assert "MultivectorScoring" in scanner.explain_plan()
            if not dataset.has_stable_row_ids:  # pylance returns fewer rows than asked for
                assert_nearest(scanner.to_table(), expected, tolerance)


@pytest.mark.parametrize("kind", list(VECTOR_KINDS))
def test_pylance_and_pennon_use_the_indices_of_both(tmp_path: Path, kind: str) -> None:
    ours, theirs = write(tmp_path / "ours.lance"), write(tmp_path / "theirs.lance")
    more = OPTIONS.get(kind, {})
    lance.dataset(theirs).create_index("v", kind, metric="cosine", num_partitions=PARTITIONS, **more)
    with in_process():
        built = pennon.open(ours).create_index("v", kind, num_partitions=PARTITIONS, rows_per_task=100, **more)
    assert (built.index.type, built.index.coverage) == (kind, 1.0)
    for uri in (ours, theirs):
        assert_exact(uri)


def test_candidates_are_those_of_pylance(tmp_path: Path) -> None:
    """With few candidates to measure again: the same lookups, estimates and answers on the same index."""
    uri = write(tmp_path / "t.lance", 1500)
    with in_process():
        pennon.open(uri).create_index("v", "IVF_FLAT", num_partitions=8)
    table, same = pennon.open(uri), 0
    for query in queries(12):
        options: dict[str, Any] = {"nprobes": 4, "refine_factor": 2}
        asked = {"column": "v", "q": query, "k": K, **options}
        theirs = lance.dataset(uri).to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist()
        same += len(set(theirs) & set(table.search("v", query, K, **options)["id"].to_pylist()))
    assert same >= 0.97 * 12 * K


@pytest.mark.parametrize("element", [pa.float16(), pa.float64()], ids=str)
def test_other_floats(tmp_path: Path, element: pa.DataType) -> None:
    uri = write(tmp_path / "t.lance", element=element)
    with in_process():
        pennon.open(uri).create_index("v", "IVF_SQ", num_partitions=PARTITIONS)
    assert_exact(uri, 3e-3 if element == pa.float16() else 1e-4)


@pytest.mark.parametrize(
    ("builder", "kind", "remap", "stable_row_ids"),
    [
        ("pennon", "IVF_PQ", "deferred", False),
        ("pennon", "IVF_HNSW_SQ", "immediate", False),
        ("pylance", "IVF_HNSW_SQ", "immediate", False),
        ("pylance", "IVF_FLAT", "immediate", True),
        ("pennon", "IVF_RQ", "immediate", True),
    ],
)
def test_a_whole_life(tmp_path: Path, builder: str, kind: str, remap: str, stable_row_ids: bool) -> None:
    uri = write(tmp_path / "t.lance", enable_stable_row_ids=stable_row_ids)
    more = OPTIONS.get(kind, {})
    with in_process():
        if builder == "pennon":
            pennon.open(uri).create_index("v", kind, num_partitions=PARTITIONS, **more)
        else:
            lance.dataset(uri).create_index("v", kind, metric="cosine", num_partitions=PARTITIONS, **more)
        lance.write_dataset(rows(90, 450), uri, mode="append")
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
        lance.write_dataset(rows(40, 2000), uri, mode="append")
        table.refresh()
        table.optimize_indices(num_indices_to_merge=2)
        [index] = table.indices()
        assert (len(index.segments), index.coverage) == (1, 1.0)
        table.maintain(MaintenancePolicy(min_fragments_to_compact=1))
        report = table.audit(recall_queries=5)
        assert report.ok, str(report)
        assert kind in table.report()
    assert_exact(uri)


def test_the_audit_finds_a_wrong_code(tmp_path: Path) -> None:
    """That of no vector of its row."""
    uri = write(tmp_path / "t.lance")
    lance.dataset(uri).create_index("v", "IVF_FLAT", metric="cosine", num_partitions=2)
    rewrite(uri, "auxiliary.idx", _turned)
    with in_process():
        report = pennon.open(uri).audit()
    assert "codes" in str(report)
    assert not report.ok


def _turned(rows: pa.Table, _: dict[str, str], __: list[bytes]) -> pa.Table:
    flat = pc.negate(rows["flat"].combine_chunks().values)
    lists = pa.FixedSizeListArray.from_arrays(flat, DIM)
    return rows.set_column(1, rows.schema.field("flat"), lists)


def test_vectors_without_a_distance_are_left_out(tmp_path: Path) -> None:
    """Of a row with others; pylance does so in its indices, and leaves out the row where it has none."""
    good, zero = [1.0] * DIM, [0.0] * DIM
    lists: list[Any] = [
        [zero, good],
        [zero],
        [[np.nan] * DIM, good],
        [None, good],
        [[np.inf] * DIM, good],
        [good],
        None,
    ]
    lists += rows(300)["v"].to_pylist()
    uri = str(tmp_path / "t.lance")
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIM)))
    lance.write_dataset(pa.table({"id": np.arange(len(lists)), "v": column}), uri)
    query = np.array([good, [*good[:-1], 0.9]], dtype=np.float32)
    table = pennon.open(uri)
    scanned = table.search("v", query, 8, metric="cosine", columns=["id"])
    assert scanned["id"].to_pylist()[:5] == [0, 2, 3, 4, 5]
    with in_process():
        table = pennon.open(uri)
        table.create_index("v", "IVF_FLAT", num_partitions=2)
        found = table.search("v", query, 8, columns=["id"])
        assert table.audit().ok
    assert found["id"].to_pylist() == scanned["id"].to_pylist()
    np.testing.assert_allclose(found["_distance"].to_numpy(), scanned["_distance"].to_numpy(), atol=1e-5)
    theirs = lance.dataset(uri).to_table(nearest={"column": "v", "q": query, "k": 5}, columns=["id", "_distance"])
    assert sorted(theirs["id"].to_pylist()) == [0, 2, 3, 4, 5]


def test_all_rows_are_found_where_few_have_most_vectors(tmp_path: Path) -> None:
    """A lookup goes deeper until it has enough rows."""
    near = np.random.default_rng(1).standard_normal((200, DIM)).astype(np.float32) * 0.01 + 1
    lists = [near.tolist(), *([[[-1.0] * DIM]] * 20)]
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(
        pa.table({"id": np.arange(21), "v": pa.array(lists, pa.list_(pa.list_(pa.float32(), DIM)))}), uri
    )
    with in_process():
        pennon.open(uri).create_index("v", "IVF_FLAT", num_partitions=1)
    assert pennon.open(uri).search("v", [[1.0] * DIM], 3).num_rows == 3


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_other_metrics_are_measured_without_an_index(tmp_path: Path, metric: str) -> None:
    uri = write(tmp_path / "t.lance")
    for query in queries(3):
        found = pennon.open(uri).search("v", query, K, metric=metric, columns=["id"])
        assert_nearest(found, max_sim(uri, query, metric))
        asked = {"column": "v", "q": query, "k": K, "metric": metric}
        theirs = lance.dataset(uri).to_table(nearest=asked, columns=["id", "_distance"])
        np.testing.assert_allclose(found["_distance"].to_numpy(), theirs["_distance"].to_numpy(), rtol=1e-4, atol=1e-4)
    with in_process(), pytest.raises(UnsupportedColumn, match="Use cosine"):
        pennon.open(uri).create_index("v", "IVF_FLAT", metric=metric)


@pytest.mark.parametrize(
    ("query", "problem"),
    [([], "no vectors"), ([[1.0] * 3], "3 items"), ([[np.nan] * DIM], "NaN"), ("text", "numbers")],
)
def test_wrong_queries(tmp_path: Path, query: Any, problem: str) -> None:
    table = pennon.open(write(tmp_path / "t.lance"))
    with pytest.raises(InvalidArgument, match=problem):
        table.search("v", query)
    assert table.search_batch("v", []).num_rows == 0
