"""Vector indices: the files hold what the models say, and pylance searches them as its own."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.errors import IgnoredOptionWarning, InvalidArgument, UnsupportedColumn
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kinds import VECTOR_KINDS
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.vectors import Vectors, to_lists
from pennon.jobs.vector import plan as plan_vector
from pennon.jobs.vector.plan import VectorPlan
from tests.support.vectors import COLUMN, clustered, write_table

ROWS, DIM, PARTITIONS = 4000, 32, 8
KINDS = list(VECTOR_KINDS)
METRICS = list(FLOAT_METRICS)


def files_of(uri: str, name: str = "v_idx") -> VectorFiles:
    [index] = [i for i in pennon.open(uri).indices() if i.name == name]
    return VectorFiles(open_store(Location.of(uri)), f"_indices/{index.segments[0].uuid}")


def all_files(uri: str) -> list[VectorFiles]:
    [index] = pennon.open(uri).indices()
    return [VectorFiles(open_store(Location.of(uri)), f"_indices/{segment.uuid}") for segment in index.segments]


def rows_of(files: VectorFiles) -> dict[int, tuple[int, ...]]:
    """Partition -> row ids."""
    return {p: tuple(files.read_partition(p).row_ids.tolist()) for p in range(files.ivf.num_partitions)}


def directories(uri: str) -> set[str]:
    return {path.name for path in (Path(uri) / "_indices").iterdir()}


def named(uri: str) -> set[str]:
    return {str(segment.uuid) for index in pennon.open(uri).indices() for segment in index.segments}


def exact(vectors: Vectors, queries: Vectors, metric: Metric, k: int) -> np.ndarray:
    return np.argsort(metric.distances(queries, vectors), axis=1, kind="stable")[:, :k]


def stock_recall(uri: str, queries: Vectors, truth: np.ndarray, nprobes: int) -> float:
    dataset, found = lance.dataset(uri), 0
    for number, (query, expected) in enumerate(zip(queries, truth, strict=True)):
        nearest = {"column": COLUMN, "q": query, "k": truth.shape[1], "nprobes": nprobes}
        scanner = dataset.scanner(columns=["id", "_distance"], nearest=nearest)
        assert number or "ANN" in scanner.explain_plan()
        found += len(set(scanner.to_table()["id"].to_pylist()) & set(expected.tolist()))
    return found / truth.size


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return clustered(ROWS, DIM, seed=3).astype(np.float32)


@pytest.fixture(scope="module")
def models(vectors: Vectors) -> dict[Metric, tuple[Vectors, Vectors]]:
    """Centroids and a codebook per metric, so that stock's index and ours differ in nothing but the build."""
    found: dict[Metric, tuple[Vectors, Vectors]] = {}
    for metric in METRICS:
        prepared = metric.prepare(vectors)
        ivf = Ivf.train(prepared, metric, PARTITIONS, max_iters=10)
        found[metric] = ivf.centroids, ProductQuantizer.train(prepared, ivf, num_sub_vectors=8, max_iters=5).codebook
    return found


@pytest.mark.usefixtures("any_engine")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_stock_finds_what_it_finds_in_its_own_index(
    tmp_path: Path, vectors: Vectors, models: dict[Metric, tuple[Vectors, Vectors]], kind: str, metric: Metric
) -> None:
    centroids, codebook = models[metric]
    options: dict[str, Any] = {"metric": metric.value, "ivf_centroids": centroids}
    if kind.endswith("PQ"):
        options |= {"pq_codebook": codebook, "num_sub_vectors": 8}
    ours, theirs = (write_table(tmp_path / f"{who}.lance", vectors) for who in ("ours", "theirs"))
    index = pennon.open(ours).create_index(COLUMN, kind, rows_per_task=900, **options).index
    assert (index.type, index.coverage, index.name) == (kind, 1.0, "v_idx")
    lance.dataset(theirs).create_index(COLUMN, kind, num_partitions=PARTITIONS, **options)

    files = files_of(ours)
    assert files.kind.name == kind
    assert np.array_equal(files.ivf.centroids, centroids)
    prepared = metric.prepare(vectors)
    assigned, distances = files.ivf.assign(prepared)
    addresses = lance.dataset(ours).to_table(columns=[], with_row_id=True)["_rowid"].to_numpy()
    expected = {p: tuple(addresses[assigned == p].tolist()) for p in range(PARTITIONS)}
    assert rows_of(files) == expected
    assert files.ivf.loss == pytest.approx(float(distances.sum()), rel=1e-4)

    queries = clustered(200, DIM, seed=3)[:100].astype(np.float32) + np.float32(0.2)
    truth = exact(vectors, queries, metric, 10)
    mine, stocks = (stock_recall(uri, queries, truth, nprobes=3) for uri in (ours, theirs))
    # The rotation of RaBitQ is drawn anew in every build.
    assert mine >= stocks - (0.03 if "RQ" in kind else 0.005)
    assert directories(ours) == named(ours)


@pytest.mark.usefixtures("any_engine")
@pytest.mark.parametrize("element", [np.float16, np.float64])
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ"])
def test_other_floats(tmp_path: Path, vectors: Vectors, kind: str, element: type) -> None:
    narrow = vectors[:1500].astype(element)
    uri = write_table(tmp_path / "t.lance", narrow)
    options: dict[str, Any] = {"num_sub_vectors": 8} if kind == "IVF_PQ" else {}
    pennon.open(uri).create_index(COLUMN, kind, metric="cosine", num_partitions=4, max_iters=5, **options)
    files = files_of(uri)
    assert files.ivf.centroids.dtype == element
    assert files.layout.rows == 1500
    queries = narrow[:40]
    truth = exact(narrow.astype(np.float32), queries.astype(np.float32), Metric.COSINE, 10)
    least = {"IVF_PQ": 0.4, "IVF_RQ": 0.8}.get(kind, 0.9)
    assert stock_recall(uri, queries, truth, nprobes=4) > least


@pytest.mark.usefixtures("any_engine")
def test_trained_models_serve_as_well_as_stocks(tmp_path: Path, vectors: Vectors) -> None:
    queries = vectors[:200] + np.float32(0.1)
    truth = exact(vectors, queries, Metric.L2, 10)
    ours, theirs = (write_table(tmp_path / f"{who}.lance", vectors) for who in ("ours", "theirs"))
    pennon.open(ours).create_index(COLUMN, "IVF_FLAT", num_partitions=32, seed=1)
    lance.dataset(theirs).create_index(COLUMN, "IVF_FLAT", num_partitions=32)
    mine, stocks = (stock_recall(uri, queries, truth, nprobes=4) for uri in (ours, theirs))
    assert mine >= stocks - 0.03
    assert files_of(ours).ivf.loss <= 1.05 * (files_of(theirs).ivf.loss or 0)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_training_on_executors_serves_as_well(tmp_path: Path, vectors: Vectors, metric: str, monkeypatch: Any) -> None:
    uri = write_table(tmp_path / "t.lance", vectors, fragments=4)
    table = pennon.open(uri)
    losses: list[float] = []
    centroids: list[bytes] = []
    for local_partitions in (4096, 16, 16):
        monkeypatch.setattr(plan_vector, "MOST_LOCAL_PARTITIONS", local_partitions)
        plan = table.plan_index(COLUMN, "IVF_FLAT", metric=metric, num_partitions=24)
        assert isinstance(plan, VectorPlan)
        assert plan.trains_on_driver == (local_partitions > 24)
        table.create_index(COLUMN, "IVF_FLAT", metric=metric, num_partitions=24)
        files = files_of(uri)
        losses.append(files.ivf.loss or 0)
        centroids.append(files.ivf.centroids.tobytes())
    assert losses[1] == pytest.approx(losses[0], rel=0.03)
    assert centroids[1] == centroids[2]
    assert directories(uri) >= named(uri)


@pytest.mark.usefixtures("any_engine")
def test_bounds_are_shared_by_uneven_fragments(tmp_path: Path, vectors: Vectors) -> None:
    """Workers that scale their own fragments by their own bounds cannot be merged."""
    uneven = vectors.copy()
    uneven[ROWS // 2 :] *= 5
    uri = write_table(tmp_path / "t.lance", uneven, fragments=4)
    table = pennon.open(uri)
    table.create_index(COLUMN, "IVF_SQ", num_partitions=4, rows_per_task=500)
    queries = uneven[::40] + np.float32(0.1)
    truth = exact(uneven, queries, Metric.L2, 10)
    spread = stock_recall(uri, queries, truth, nprobes=4)
    quantizer = files_of(uri).quantizer.to_metadata()
    lance.dataset(uri).create_index(COLUMN, "IVF_SQ", name="v_idx", num_partitions=4, replace=True)
    assert spread >= stock_recall(uri, queries, truth, nprobes=4) - 0.005
    assert quantizer[0]["bounds"]["end"] > 4 * vectors.max()


@pytest.mark.usefixtures("any_engine")
def test_only_whole_finite_vectors_are_indexed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values: list[list[float | None] | None] = [list(row) for row in rng.standard_normal((300, 8))]
    values[3], values[5], values[7], values[150] = None, [float("nan")] * 8, [float("inf")] + [0.0] * 7, [0.0] * 8
    values[200] = [None] + [1.0] * 7
    table = pa.table({"id": range(300), "v": pa.array(values, pa.list_(pa.float32(), 8))})
    lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=100)
    uri = str(tmp_path / "t.lance")
    lance.dataset(uri).delete("id = 10")
    for metric, missing in (("l2", {3, 5, 7, 10, 200}), ("cosine", {3, 5, 7, 10, 150, 200})):
        pennon.open(uri).create_index("v", "IVF_FLAT", metric=metric, num_partitions=3)
        held = {(a >> 32) * 100 + (a & 0xFFFFFFFF) for ids in rows_of(files_of(uri)).values() for a in ids}
        assert set(range(300)) - held == missing


@pytest.mark.usefixtures("any_engine")
def test_equal_seeds_make_equal_files(tmp_path: Path, vectors: Vectors) -> None:
    uri = write_table(tmp_path / "t.lance", vectors[:2000], fragments=4)
    found: list[tuple[Any, ...]] = []
    for seed in (7, 7, 8):
        pennon.open(uri).create_index(
            COLUMN, "IVF_HNSW_PQ", num_partitions=6, num_sub_vectors=8, seed=seed, rows_per_task=600, max_iters=8
        )
        files = files_of(uri)
        found.append((files.ivf.centroids.tobytes(), files.auxiliary.read(), files.index.read(), files.sub_index))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]


@pytest.mark.usefixtures("any_engine")
def test_stable_row_ids_are_stored(tmp_path: Path, vectors: Vectors) -> None:
    table = pa.table({"id": np.arange(2000), COLUMN: to_lists(vectors[:2000])})
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(table, uri, max_rows_per_file=500, enable_stable_row_ids=True)
    lance.dataset(uri).delete("id % 7 = 0")
    lance.dataset(uri).optimize.compact_files()
    pennon.open(uri).create_index(COLUMN, "IVF_SQ", num_partitions=4, rows_per_task=300)
    expected = lance.dataset(uri).to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    assert sorted(i for ids in rows_of(files_of(uri)).values() for i in ids) == sorted(expected)
    queries = vectors[1:60:9]
    live = np.array([i for i in range(2000) if i % 7])
    truth = live[exact(vectors[live], queries, Metric.L2, 10)]
    assert stock_recall(uri, queries, truth, nprobes=4) > 0.9


@pytest.mark.usefixtures("any_engine")
def test_a_segment_joins_the_others(tmp_path: Path, vectors: Vectors) -> None:
    uri = write_table(tmp_path / "t.lance", vectors[:3000], fragments=3)
    table = pennon.open(uri)
    table.create_index(COLUMN, "IVF_PQ", num_partitions=4, num_sub_vectors=8, fragment_ids=[0, 1])
    index = table.create_index(COLUMN, "IVF_PQ", num_partitions=4, num_sub_vectors=8, fragment_ids=[2]).index
    assert [segment.fragments for segment in index.segments] == [(0, 1), (2,)]
    assert index.coverage == 1.0
    truth = exact(vectors[:3000], vectors[:50], Metric.L2, 10)
    assert stock_recall(uri, vectors[:50], truth, nprobes=4) > 0.5


@pytest.mark.usefixtures("any_engine")
def test_a_segment_that_does_not_fit_the_others_is_not_built(tmp_path: Path, vectors: Vectors) -> None:
    uri = write_table(tmp_path / "t.lance", vectors[:3000], fragments=3)
    table = pennon.open(uri)
    table.create_index(COLUMN, "IVF_SQ", metric="cosine", num_partitions=4, fragment_ids=[0, 1])
    version = table.version
    for kind, metric, fragments in (("IVF_FLAT", None, [2]), ("IVF_SQ", "l2", [2]), ("IVF_SQ", "cosine", [1, 2])):
        with pytest.raises(InvalidArgument, match=r"same type and metric|overlaps"):
            table.create_index(COLUMN, kind, metric=metric, num_partitions=4, fragment_ids=fragments)
    assert table.refresh().version == version
    table.create_index(COLUMN, "IVF_SQ", num_partitions=4, fragment_ids=[2])
    assert {files.metric for files in all_files(uri)} == {Metric.COSINE}


@pytest.mark.usefixtures("any_engine")
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ"])
def test_tables_without_vectors_get_an_index_too(tmp_path: Path, kind: str) -> None:
    for name, values in (("empty", []), ("nulls", [None] * 20)):
        table = pa.table({"id": range(len(values)), "v": pa.array(values, pa.list_(pa.float32(), 16))})
        uri = str(tmp_path / f"{name}.lance")
        lance.write_dataset(table, uri)
        index = pennon.open(uri).create_index("v", kind).index
        assert index.type == kind
        assert files_of(uri).layout.rows == 0
        nearest = {"column": "v", "q": np.ones(16, dtype=np.float32), "k": 3}
        assert lance.dataset(uri).scanner(nearest=nearest).to_table().num_rows == 0


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "sub-vectors that do not divide": ("IVF_PQ", {"num_sub_vectors": 5}, "equal sub-vectors"),
    "bits of PQ": ("IVF_PQ", {"num_bits": 5}, "num_bits must be 4 or 8, not 5"),
    "bits of SQ": ("IVF_SQ", {"num_bits": 4}, "num_bits must be 8, not 4"),
    "bits of RQ": ("IVF_RQ", {"num_bits": 10}, "num_bits must be at most 9, not 10"),
    "more partitions than vectors": ("IVF_FLAT", {"num_partitions": 500}, "500 partitions cannot be trained on 60"),
    "no partition": ("IVF_FLAT", {"num_partitions": 0}, "at least 1"),
    "too many partitions": ("IVF_FLAT", {"num_partitions": 1 << 20}, "at most"),
    "metric": ("IVF_SQ", {"metric": "manhattan"}, "unknown metric"),
    "misspelled option": ("IVF_SQ", {"num_partitons": 4}, r"Did you mean num_partitions\?"),
    "option of a B-tree": ("IVF_SQ", {"ranges": 4}, "take no option 'ranges'"),
    "unknown options": ("IVF_SQ", {"zones": 4, "depth": 9}, "take no options depth, zones"),
    "m": ("IVF_HNSW_SQ", {"m": 2}, "m must be at least 4, not 2"),
    "ef_construction": ("IVF_HNSW_SQ", {"m": 20, "ef_construction": 10}, "ef_construction=10"),
    "centroids of another dimension": ("IVF_SQ", {"ivf_centroids": np.ones((4, 3))}, "shape"),
    "centroids that are no numbers": ("IVF_SQ", {"ivf_centroids": [["a"] * 16]}, "floats"),
    "centroids that are not finite": ("IVF_SQ", {"ivf_centroids": np.full((2, 16), np.nan)}, "not finite"),
    "fewer centroids": ("IVF_SQ", {"ivf_centroids": np.ones((4, 16)), "num_partitions": 5}, "contradict"),
    "codebook": ("IVF_PQ", {"pq_codebook": np.ones((4, 3, 4)), "ivf_centroids": np.ones((2, 16))}, "shape"),
    "codebook and sub-vectors": (
        "IVF_PQ",
        {"pq_codebook": np.ones((4, 256, 4)), "num_sub_vectors": 8, "ivf_centroids": np.ones((2, 16))},
        "contradict",
    ),
    "iterations": ("IVF_PQ", {"max_iters": 0}, "max_iters"),
    "half a partition": ("IVF_PQ", {"num_partitions": 12.5}, "num_partitions must be a whole number"),
    "a text": ("IVF_PQ", {"max_iters": "12"}, "max_iters must be a whole number"),
    "a truth": ("IVF_PQ", {"num_partitions": True}, "num_partitions must be a whole number"),
    "negative seed": ("IVF_PQ", {"seed": -1}, "seed"),
    "codebook alone": ("IVF_PQ", {"pq_codebook": np.ones((4, 256, 4))}, "Pass ivf_centroids too"),
}


@pytest.mark.usefixtures("any_engine")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_change_nothing(tmp_path: Path, case: str) -> None:
    kind, options, said = WRONG[case]
    uri = write_table(tmp_path / "t.lance", clustered(60, 16).astype(np.float32))
    with pytest.raises(InvalidArgument, match=said):
        pennon.open(uri).create_index(COLUMN, kind, **options)
    assert lance.dataset(uri).version == 1
    assert not (Path(uri) / "_indices").exists() or not directories(uri)


IGNORED: dict[str, tuple[str, dict[str, Any], str]] = {
    "codes of another type": ("IVF_SQ", {"num_sub_vectors": 4}, "num_sub_vectors has no effect on this IVF_SQ index"),
    "a graph of another type": ("IVF_FLAT", {"m": 8}, "m has no effect on this IVF_FLAT index"),
    "two numbers of partitions": (
        "IVF_SQ",
        {"num_partitions": 4, "target_partition_size": 9},
        "target_partition_size has no effect.*num_partitions takes precedence",
    ),
    "a cache": ("IVF_PQ", {"index_cache_size": 4, "num_sub_vectors": 4}, "index_cache_size has no effect"),
}


@pytest.mark.usefixtures("any_engine")
@pytest.mark.parametrize("case", IGNORED)
def test_what_pylance_ignores_is_ignored_with_a_warning(tmp_path: Path, case: str) -> None:
    kind, options, said = IGNORED[case]
    uri = write_table(tmp_path / "t.lance", clustered(2000, 16).astype(np.float32))
    wanted = {"num_partitions": 4} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        lance.dataset(uri).create_index(COLUMN, kind, name="theirs", **wanted)
    with pytest.warns(IgnoredOptionWarning, match=said) as found:
        pennon.open(uri).create_index(COLUMN, kind, name="ours", **wanted)
    # PySpark up to 4.1 leaves sockets to the garbage collector.
    assert len([each for each in found if each.category is not ResourceWarning]) == 1
    assert {index.type for index in pennon.open(uri).indices()} == {kind}
    assert files_of(uri, "ours").ivf.num_partitions == files_of(uri, "theirs").ivf.num_partitions == 4


@pytest.mark.usefixtures("any_engine")
def test_objects_of_options_are_as_good_as_names(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t.lance", clustered(300, 16).astype(np.float32))
    table = pennon.open(uri)
    chosen = pennon.IvfPq(metric="cosine", num_partitions=4, num_sub_vectors=8)
    plan = table.plan_index(COLUMN, chosen)
    named = table.plan_index(COLUMN, "ivf_pq", metric="cosine", num_partitions=4, num_sub_vectors=8)
    assert plan.to_dict() == named.to_dict()
    assert table.create_index(COLUMN, chosen).index.type == "IVF_PQ"
    assert (plan.to_dict()["metric"], files_of(uri).ivf.num_partitions) == ("cosine", 4)
    with pytest.raises(InvalidArgument, match=r"num_bits given in addition to .* Pass all options to IvfPq"):
        table.plan_index(COLUMN, chosen, num_bits=4)
    with pytest.raises(InvalidArgument, match="not an index type"):
        table.plan_index(COLUMN, pennon.IvfPq)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("any_engine")
def test_other_columns_are_refused(tmp_path: Path) -> None:
    table = pa.table({"i": pa.array([[1] * 8] * 9, pa.list_(pa.int8(), 8)), "l": pa.array([[1.0]] * 9), "f": [1.0] * 9})
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    for column in table.column_names:
        with pytest.raises(UnsupportedColumn, match="fixed-size lists"):
            pennon.open(tmp_path / "t.lance").create_index(column, "IVF_PQ")
    with pytest.raises(UnsupportedColumn, match="B-tree"):
        pennon.open(tmp_path / "t.lance").create_index("i", "BTREE")


def test_the_plan_tells_what_will_be_done(tmp_path: Path, vectors: Vectors, engine: SparkEngine) -> None:
    uri = write_table(tmp_path / "t.lance", vectors)
    plan = pennon.open(uri).plan_index(COLUMN, "ivf_hnsw_pq", metric="cosine")
    text = str(plan)
    for part in (
        "IVF_HNSW_PQ index 'v_idx'",
        "float[32]",
        "63 partitions of about 64 rows",
        "2 sub-vectors of 8 bits",
        "m=20",
        "cosine",
        "sample    4,000 rows",
        "files     about",
    ):
        assert part in text
    said = json.loads(json.dumps(plan.to_dict()))
    assert (said["num_partitions"], said["num_sub_vectors"], said["trained_on"]) == (63, 2, "driver")
    assert lance.dataset(uri).version == 1
