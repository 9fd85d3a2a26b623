"""A kNN join finds for every row of a DataFrame what a search finds, in one task or dealt out over many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.errors import BuildFailed, ColumnNotFound, InvalidArgument, InvalidFilter
from pennon.index.vector.vectors import to_lists
from pennon.jobs.knn_join.join import knn_join
from pennon.jobs.knn_join.plan import KnnJoinPlan, plan_knn_join
from pennon.jobs.knn_join.tasks import answer_questions, finish, route_queries
from pennon.query.search.request import SearchRequest
from tests.support.cases import covering
from tests.support.frames import frame_of, rows_of
from tests.support.neighbors import DIM, KINDS, brute_force, check, index, queries, rows, write
from tests.support.tables import every_type

ALL = 1000
ASKED = queries(50)
# A budget that holds the index, and one that holds few of its partitions.
MEMORIES = {"in one task": 1 << 30, "dealt out": 60_000}

Frame = Any


@pytest.fixture(scope="module")
def spark(engine: SparkEngine) -> Any:
    return engine._cluster._spark  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> int:
    return MEMORIES[request.param]


def frame(spark: Any, vectors: Any = ASKED, type_: pa.DataType | None = None) -> Frame:
    lists = pa.array(list(vectors), type_ or pa.list_(pa.float32()))
    return frame_of(spark, pa.table({"number": pa.array(range(len(lists)), pa.int64()), "q": lists}))


def join(uri: str, df: Frame, k: int | None, memory: int, how: str = "inner", **options: Any) -> pa.Table:
    catalog = pennon.open(uri)._indices()  # pyright: ignore[reportPrivateUsage]
    request = SearchRequest.of("v", k, {"columns": ["id"], **options})
    return rows_of(knn_join(catalog, df, request, "q", how=how, memory_bytes=memory).orderBy("number", "_rank"))


def of_query(found: pa.Table, number: int, column: str = "number") -> pa.Table:
    return found.filter(pa.compute.equal(found[column], number))


def agrees_with_search(uri: str, df: Frame, k: int, memory: int, **options: Any) -> None:
    found = join(uri, df, k, memory, **options)
    expected = pennon.open(uri).search_batch("v", ASKED, k, **{"columns": ["id"], **options})
    assert found["number"].to_pylist() == expected["query_index"].to_pylist()
    for number in range(len(ASKED)):
        own, batch = of_query(found, number), of_query(expected, number, "query_index")
        assert own["_rank"].to_pylist() == list(range(1, len(own) + 1))
        check(own, (batch["id"].to_numpy(), batch["_distance"].to_numpy()), 1e-3)


def agrees_with_brute_force(uri: str, df: Frame, memory: int, metric: str = "l2", k: int = 6, **options: Any) -> None:
    found = join(uri, df, k, memory, nprobes=ALL, **options)
    for number in range(0, len(ASKED), 7):
        check(of_query(found, number), brute_force(uri, ASKED[number], k, metric, options.get("filter")))


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("IVF_FLAT", "dot"), ("IVF_PQ", "l2"), ("IVF_SQ", "cosine"), ("IVF_RQ", "l2"), ("IVF_HNSW_SQ", "cosine")],
)
def test_every_kind(spark: Any, tmp_path: Path, memory: int, kind: str, metric: str) -> None:
    uri = write(tmp_path / "t.lance", rows(1500))
    index(uri, kind, metric)
    lance.dataset(uri).delete("id % 7 = 2")
    walk = {"ef": 400} if "HNSW" in kind else {}
    agrees_with_search(uri, frame(spark), 5, memory, nprobes=3, **walk)


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Segments with centroids of their own, and fragments that none covers."""
    uri = write(tmp_path_factory.mktemp("join") / "t.lance", rows(1500))
    index(uri, "IVF_PQ")
    lance.write_dataset(rows(400, 1500, seed=3), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(100, 1900, seed=4), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 1")
    return uri


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nprobes": 1},
        {"refine_factor": 4},
        {"filter": "part < 8"},
        {"filter": "id < 30"},
        {"use_index": False},
        {"columns": ["id", "word", "_rowid", "part"]},
        {"nprobes": ALL, "distinct_by": "word", "distance_range": (4.0, None), "offset": 1},
    ],
    ids=str,
)
def test_options_mean_what_they_mean_to_a_search(
    spark: Any, deltas: str, memory: int, options: dict[str, object]
) -> None:
    agrees_with_search(deltas, frame(spark), 6, memory, **options)


def test_all_rows_within_a_distance(spark: Any, deltas: str, memory: int) -> None:
    found = join(deltas, frame(spark), None, memory, distance_range=(None, 6.0))
    for number in range(0, len(ASKED), 5):
        ids, distances = brute_force(deltas, ASKED[number], 10_000)
        assert sorted(of_query(found, number)["id"].to_pylist()) == sorted(ids[distances < 6.0].tolist())


def test_more_partitions_where_there_are_too_few_answers(spark: Any, tmp_path: Path, memory: int) -> None:
    uri = write(tmp_path / "t.lance", rows(1500))
    index(uri, "IVF_FLAT", partitions=60)
    found = join(uri, frame(spark, ASKED[:3]), 2000, memory)
    assert found.num_rows == 3 * 1500
    for number in range(3):
        check(of_query(found, number), brute_force(uri, ASKED[number], 2000))


def appended(uri: str) -> None:
    lance.write_dataset(rows(300, 1500, seed=3), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(50, 2100, seed=5), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 1")


def compacted(uri: str) -> None:
    lance.dataset(uri).delete("id % 4 = 1")
    lance.dataset(uri).optimize.compact_files(
        target_rows_per_fragment=900, defer_index_remap=True, materialize_deletions_threshold=0.0
    )
    lance.dataset(uri).delete("id % 11 = 2")


def updated(uri: str) -> None:
    lance.dataset(uri).delete("id % 3 = 0")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=900, materialize_deletions_threshold=0.0)
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(rows(100, 100, seed=4))


@pytest.mark.parametrize(
    ("happens", "metric", "stable"), [(appended, "cosine", False), (compacted, "l2", False), (updated, "dot", True)]
)
def test_whatever_happened_to_the_table(
    spark: Any, tmp_path: Path, memory: int, happens: Callable[[str], None], metric: str, stable: bool
) -> None:
    uri = write(tmp_path / "t.lance", rows(1500), enable_stable_row_ids=stable)
    index(uri, "IVF_FLAT", metric)
    happens(uri)
    agrees_with_brute_force(uri, frame(spark), memory, metric)


def test_rows_without_a_distance(spark: Any, tmp_path: Path, memory: int) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT", "cosine")
    odd = [None, [float("nan")] * DIM, [0.0] * DIM, [float("inf")] * DIM, [1.0] * (DIM - 1) + [None], [1e300] * DIM]
    df = frame(spark, [*odd, ASKED[0].tolist()], pa.list_(pa.float64()))
    inner = join(uri, df, 4, memory)
    assert inner["number"].to_pylist() == [6] * 4
    left = join(uri, df, 4, memory, how="left")
    assert left["number"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]
    assert left["id"].to_pylist() == [None] * 6 + inner["id"].to_pylist()
    assert left["_rank"].to_pylist() == [None] * 6 + [1, 2, 3, 4]
    check(inner, brute_force(uri, ASKED[0], 4, "cosine"))


def test_nothing_to_join(spark: Any, tmp_path: Path, memory: int) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT")
    assert join(uri, frame(spark, []), 3, memory).num_rows == 0
    lance.dataset(uri).delete("true")
    assert join(uri, frame(spark, ASKED[:2]), 3, memory).num_rows == 0
    assert join(uri, frame(spark, ASKED[:2]), 3, memory, how="left")["number"].to_pylist() == [0, 1]
    never = write(tmp_path / "u.lance", rows(3).slice(0, 0), fragments=1)
    assert join(never, frame(spark, ASKED[:2]), 3, memory).num_rows == 0


def test_a_table_joined_with_itself(spark: Any, tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", rows(200))
    table = pennon.open(uri)
    df = frame_of(spark, table.scan(columns=["id", "v"]).cast(pa.schema([("id", pa.int64()), ("v", LISTS)])))
    with pytest.raises(InvalidArgument, match="two columns 'id'"):
        table.knn_join(df, "v")
    joined = table.knn_join(df, "v", k=2, prefix="near_")
    assert joined.columns == ["id", "v", "_rank", "_distance", "near_id", "near_part", "near_word"]
    nearest = rows_of(joined.where("_rank = 1").orderBy("id"))
    assert nearest["id"] == nearest["near_id"]
    assert max(nearest["_distance"].to_pylist()) == 0


LISTS = pa.list_(pa.float32())


def test_columns_of_every_type(spark: Any, tmp_path: Path) -> None:
    table = every_type(40).append_column("v", rows(40)["v"]).append_column("halves", rows(40, dtype=np.float16)["v"])
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    opened = pennon.open(tmp_path / "t.lance")
    # Spark has a type for times of day since 4.1.
    columns = [field.name for field in table.schema if spark.version >= "4.1" or not pa.types.is_time(field.type)]
    found = rows_of(opened.knn_join(frame(spark, ASKED[:1]), "v", "q", 40, columns=columns).orderBy("id"))
    assert found.num_rows == 40
    for name in columns:
        expected = table[name].to_pylist()
        if name == "u64":
            expected = [None if value is None else Decimal(value) for value in expected]
        elif name == "day64":
            expected = table[name].cast(pa.date32()).to_pylist()
        elif name == "ts_ns":
            expected = table[name].cast(pa.timestamp("us")).to_pylist()
        elif name == "halves":
            expected = table[name].cast(pa.list_(pa.float32())).to_pylist()
        np.testing.assert_equal(found[name].to_pylist(), expected, name)


def test_nothing_runs_before_an_action(spark: Any, deltas: str, memory: int) -> None:
    tracker = spark.sparkContext.statusTracker()
    df, before = frame(spark), len(tracker.getJobIdsForGroup(None))
    catalog = pennon.open(deltas)._indices()  # pyright: ignore[reportPrivateUsage]
    joined = knn_join(catalog, df, SearchRequest("v", filter="id > 3"), "q", memory_bytes=memory)
    assert joined.columns == ["number", "q", "_rank", "_distance", "id", "part", "word"]
    assert len(tracker.getJobIdsForGroup(None)) == before


def test_bad_requests_fail_at_once(spark: Any, deltas: str) -> None:
    table, df = pennon.open(deltas), frame(spark)
    with pytest.raises(ColumnNotFound, match="the DataFrame has no column 'v'"):
        table.knn_join(df, "v")
    with pytest.raises(InvalidArgument, match="column 'number' of the DataFrame has type bigint"):
        table.knn_join(df, "v", "number")
    with pytest.raises(InvalidArgument, match=r"unknown how='outer'\. Use one of: inner, left"):
        table.knn_join(df, "v", "q", how="outer")
    with pytest.raises(InvalidArgument, match="two columns '_RANK'"):
        table.knn_join(df.withColumnRenamed("number", "_RANK"), "v", "q")
    with pytest.raises(ColumnNotFound):
        table.knn_join(df, "v", "q", columns=["wort"])
    with pytest.raises(InvalidFilter):
        table.knn_join(df, "v", "q", filter="id <")
    with pytest.raises(InvalidArgument):
        table.knn_join(df, "v", "q", 0)


def test_vectors_of_another_dimension(spark: Any, deltas: str, memory: int) -> None:
    with pytest.raises(Exception, match="a query vector has 3 items, vectors of column 'v' have 16"):
        join(deltas, frame(spark, [[1.0, 2.0, 3.0]]), 3, memory)


def test_a_damaged_segment(spark: Any, tmp_path: Path, memory: int) -> None:
    uri = write(tmp_path / "t.lance", rows(600))
    index(uri, "IVF_FLAT")
    catalog = pennon.open(uri)._indices()  # pyright: ignore[reportPrivateUsage]
    joined = knn_join(
        catalog, frame(spark, ASKED[:3]), SearchRequest("v", 3, columns=("id",)), "q", memory_bytes=memory
    )
    [codes] = tmp_path.glob("t.lance/_indices/*/auxiliary.idx")
    codes.write_bytes(codes.read_bytes()[:3000])
    if memory == MEMORIES["dealt out"]:
        with pytest.raises(Exception, match="Rebuild the index, or pass use_index=False"):
            rows_of(joined)
        return
    found = rows_of(joined.orderBy("number", "_rank"))
    for number in range(3):
        check(of_query(found, number), brute_force(uri, ASKED[number], 3))


ADDED = pa.schema([("_rank", pa.int32()), ("_distance", pa.float32()), ("id", pa.int64())])


def finished(plan: KnnJoinPlan, first: np.ndarray, second: np.ndarray) -> pa.Table:
    """The tasks of a join one after another, without Spark. `first` is what the carriers tell, `second` what the groups
    were asked."""

    def batches(vectors: np.ndarray) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"q": pa.array(list(vectors), LISTS)})

    groups = len(plan.groups)
    carried = [(p, b) for d, p, b in route_queries(plan, 0, batches(first)) if d >= groups]
    asked = [(d, p, b) for d, p, b in route_queries(plan, 0, batches(second)) if d < groups]
    for group in range(groups):
        mine = iter([(place, batch) for to, place, batch in asked if to == group])
        carried += [(place, batch) for _, place, batch in answer_questions(plan, group, mine)]
    carried.sort(key=lambda message: message[0])
    return pa.Table.from_batches(finish(plan, ADDED, iter(carried)))


def test_rows_that_come_in_another_order_are_not_mixed_up(deltas: str) -> None:
    """As when Spark has lost what one task sent, and computes it again for those who had not read it yet."""
    catalog = pennon.open(deltas)._indices()  # pyright: ignore[reportPrivateUsage]
    request = SearchRequest("v", 3, nprobes=1, columns=("id",))
    plan = plan_knn_join(catalog, request, "q", 60_000, lambda: 2)
    assert len(plan.groups) > 2
    assert finished(plan, ASKED, ASKED).num_rows == len(ASKED)
    for other in (ASKED[::-1], ASKED[:-1], np.concatenate([ASKED[:1], ASKED])):
        with pytest.raises(BuildFailed, match="returned other rows"):
            finished(plan, ASKED, other)


def test_a_group_whose_rows_are_all_deleted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors, asked = (rng.random((count, 8), dtype=np.float32) for count in (2000, 40))
    uri = write(tmp_path / "t.lance", pa.table({"id": range(2000), "first": vectors[:, 0], "v": to_lists(vectors)}))
    index(uri, "IVF_FLAT", partitions=100)
    lance.dataset(uri).delete("first > 0.15")
    request = SearchRequest.of("v", 4, {"nprobes": 2, "columns": ("id",)})
    plan = plan_knn_join(pennon.open(uri)._indices(), request, "q", 8_000, lambda: 2)  # pyright: ignore[reportPrivateUsage]
    joined = finished(plan, asked, asked)["_neighbors"].to_pylist()
    alone = [pennon.open(uri).search("v", query, 4, nprobes=2, columns=["id"])["id"].to_pylist() for query in asked]
    assert [[row["id"] for row in rows or ()] for rows in joined] == alone
    assert [] in alone


@pytest.mark.parametrize(
    ("kind", "filter"),
    covering(
        ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ"],
        ["first > 0.6", "first > 0.6 and id % 3 = 0", "id % 4 = 1"],
        strength=1,
    ),
)
def test_under_a_filter_it_has_the_recall_of_single_searches(tmp_path: Path, kind: str, filter: str) -> None:
    """Also where the selected rows are together, and the queries elsewhere: their nearest partitions hold few of
    them."""
    rng = np.random.default_rng(0)
    vectors, asked = (rng.random((count, 8), dtype=np.float32) for count in (4000, 40))
    table = pa.table({"id": range(4000), "first": vectors[:, 0], "v": to_lists(vectors)})
    uri = write(tmp_path / "t.lance", table)
    # Pennon's builds are the same every time.
    given: dict[str, Any] = dict(KINDS[kind])
    pennon.open(uri, engine="local").create_index("v", kind, metric="l2", num_partitions=150, **given)
    options: dict[str, Any] = {"filter": filter, "minimum_nprobes": 12, "refine_factor": 4, "columns": ("id",)}
    request = SearchRequest.of("v", 10, options)
    plan = plan_knn_join(pennon.open(uri)._indices(), request, "q", 60_000, lambda: 2)  # pyright: ignore[reportPrivateUsage]
    assert len(plan.groups) > 4
    joined = finished(plan, asked, asked)["_neighbors"].to_pylist()
    opened = pennon.open(uri)
    opened.warm()  # what has to be read may cost more than measuring all selected rows
    alone = [opened.search("v", query, 10, **options)["id"].to_pylist() for query in asked]
    truth = [set(brute_force(uri, query, 10, filter=filter)[0].tolist()) for query in asked]
    recalls = [
        np.mean([len(own & set(ids)) / 10 for own, ids in zip(truth, found, strict=True)])
        for found in ([[row["id"] for row in rows] for rows in joined], alone)
    ]
    assert recalls[0] >= recalls[1] - 0.03, "steps of a single search may go a little further"
    assert recalls[0] > 0.94


def test_tensors_of_one_dimension_are_vectors(spark: Any, tmp_path: Path) -> None:
    uri, plain = str(tmp_path / "t.lance"), rows(600)
    tensors = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [DIM]), plain["v"].combine_chunks().cast(pa.list_(pa.float32(), DIM))
    )
    lance.write_dataset(plain.set_column(plain.schema.get_field_index("v"), "v", tensors), uri)
    index(uri, "IVF_FLAT", "l2")
    joined = pennon.open(uri).knn_join(frame(spark), "v", "q", k=3, nprobes=ALL)
    assert "v" not in joined.columns
    for number in (0, 49):
        check(
            of_query(rows_of(joined.orderBy("number", "_rank")), number),
            brute_force(uri, ASKED[number], 3, "l2", None),
        )


def test_filters_after_the_search_and_bounds_of_probes(spark: Any, tmp_path: Path, memory: int) -> None:
    uri = write(tmp_path / "t.lance", rows(900))
    index(uri, "IVF_FLAT", partitions=12)
    agrees_with_search(uri, frame(spark), 9, memory, filter="part < 4", prefilter=False, nprobes=ALL)
    agrees_with_search(uri, frame(spark), 300, memory, minimum_nprobes=2, maximum_nprobes=5)
