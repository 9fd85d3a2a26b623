"""Nothing depends on the driver: indices are built, kept and joined where executors share only files with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import psutil
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.engine.tasks import dumps
from pennon.jobs.knn_join.join import knn_join
from pennon.jobs.knn_join.plan import plan_knn_join
from pennon.jobs.knn_join.tasks import search
from pennon.query.search.request import SearchRequest
from tests.support.neighbors import DIM, brute_force, check, queries, rows, write
from tests.support.tables import full_scan

ASKED = queries(40)
K = 5
EXACT = {"nprobes": 1000, "refine_factor": 40}
# Too little for one task to hold the index.
LITTLE = 60_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> str:
    """Built and kept by all the verbs that use Spark."""
    path = write(tmp_path_factory.mktemp("distributed") / "t.lance", rows(2000), fragments=4)
    table = pennon.open(path, spark=spark)
    table.create_index("id", "BTREE", rows_per_task=700)
    table.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4)
    lance.write_dataset(rows(600, 2000, seed=3), path, mode="append")
    lance.dataset(path).delete("id % 7 = 3")
    table.optimize_indices(num_indices_to_merge=0)
    table.compact(target_rows_per_fragment=1500)
    lance.write_dataset(rows(100, 2600, seed=4), path, mode="append")
    return path


def frame(spark: Any) -> Any:
    """In an order that is the same whenever Spark computes it."""
    lists = pa.array(list(ASKED), pa.list_(pa.float32()))
    df = spark.createDataFrame(pa.table({"number": np.arange(len(ASKED)), "q": lists}))
    return df.repartition(3, "number").sortWithinPartitions("number")


def is_exact(uri: str, found: pa.Table) -> None:
    assert found.num_rows == K * len(ASKED)
    for number in range(0, len(ASKED), 3):
        check(found.filter(pa.compute.equal(found["number"], number)), brute_force(uri, ASKED[number], K))


def test_the_session_is_what_it_should_be(spark: Any, connect: bool) -> None:
    engine = SparkEngine.attach(spark)
    assert not engine.embedded
    assert engine.parallelism == 2
    assert type(spark).__module__.startswith("pyspark.sql.connect") is connect
    drivers = engine.map("where", lambda _: os.getpid(), range(4))
    assert os.getpid() not in drivers


@pytest.mark.parametrize("filter", ["id = 77", "id between 500 and 1200", "id > 2500 or id in (1, 3, 9)"])
def test_a_btree(uri: str, filter: str) -> None:
    table = pennon.open(uri)
    assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == full_scan(uri, filter)
    assert table.count(filter) == len(full_scan(uri, filter))


def test_a_lookup_join(spark: Any, uri: str) -> None:
    """Through the index and the keys of the rows that it does not cover, and by reading the table."""
    table = pennon.open(uri)
    asked = pa.table({"number": np.arange(300), "uid": pa.array([*range(0, 2900, 10), *[None] * 10], pa.int64())})
    df = spark.createDataFrame(asked, "number long, uid long").repartition(3)
    live = {row["id"]: row["word"] for row in lance.dataset(uri).to_table(columns=["id", "word"]).to_pylist()}
    expected = sorted((n, live.get(uid)) for n, uid in enumerate(asked["uid"].to_pylist()))
    for keys in (None, 10**6):
        plan = table.plan_lookup_join(df, {"uid": "id"}, "left", columns=["word"], keys=keys)
        assert plan.uses_index == (keys is None)
        assert plan.scanned_rows > 0
        found = table.lookup_join(df, {"uid": "id"}, "left", columns=["word"], keys=keys).toArrow()
        assert sorted(zip(found["number"].to_pylist(), found["word"].to_pylist(), strict=True)) == expected
        assert table.lookup_join(df, {"uid": "id"}, "anti", keys=keys).count() == sum(w is None for _, w in expected)


def test_a_vector_index(uri: str) -> None:
    table = pennon.open(uri)
    index = next(index for index in table.indices() if index.type == "IVF_PQ")
    assert len(index.segments) >= 1
    for number in range(0, len(ASKED), 5):
        check(table.search("v", ASKED[number], K, **EXACT), brute_force(uri, ASKED[number], K))


def test_a_join_in_one_task_each(spark: Any, uri: str) -> None:
    found = pennon.open(uri).knn_join(frame(spark), "v", "q", K, columns=["id", "word"], **EXACT)
    is_exact(uri, found.orderBy("number", "_rank").toArrow())


def dealt_out(spark: Any, uri: str, **options: Any) -> Any:
    catalog = pennon.open(uri)._indices()  # pyright: ignore[reportPrivateUsage]
    request = SearchRequest("v", K, columns=("id",), **{**EXACT, **options})
    assert plan_knn_join(catalog, request, "q", LITTLE, lambda: 2).groups
    return knn_join(catalog, frame(spark), request, "q", memory_bytes=LITTLE)


def test_a_join_over_partitions_dealt_out(spark: Any, uri: str) -> None:
    is_exact(uri, dealt_out(spark, uri).orderBy("number", "_rank").toArrow())


def test_a_join_with_a_filter(spark: Any, uri: str) -> None:
    found = dealt_out(spark, uri, filter="part < 5 and id < 2650").orderBy("number", "_rank").toArrow()
    for number in range(0, len(ASKED), 3):
        own = found.filter(pa.compute.equal(found["number"], number))
        check(own, brute_force(uri, ASKED[number], K, filter="part < 5 and id < 2650"))


def test_closures_stay_small(uri: str, tmp_path: Path) -> None:
    """Models are read from the files of the index."""
    wide = pa.table({"id": np.arange(3000), "v": pa.FixedSizeListArray.from_arrays(np.zeros(3000 * 256, "f4"), 256)})
    lance.write_dataset(wide, str(tmp_path / "t.lance"))
    sizes: list[int] = []
    for path in (uri, str(tmp_path / "t.lance")):
        catalog = pennon.open(path)._indices()  # pyright: ignore[reportPrivateUsage]
        plan = plan_knn_join(catalog, SearchRequest("v", K, columns=("id",)), "q", LITTLE, lambda: 2)
        sizes.append(len(dumps(partial(search, plan, pa.schema([])))))
    assert max(sizes) < 8 * DIM * 4 + 4000


def test_an_executor_is_lost(spark: Any, connect: bool, uri: str, tmp_path: Path) -> None:
    """With all that it held for the tasks that follow: Spark computes it again, and the join is right."""
    if connect:
        pytest.skip("there is one process only")

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                executor = next(p for p in psutil.Process().parents() if p.name() == "java")
                os.kill(executor.pid, signal.SIGKILL)
            yield batch

    joined = dealt_out(spark, uri).drop("q")
    found = joined.mapInArrow(die_once, joined.schema).toArrow()
    assert (tmp_path / "died").exists()
    is_exact(uri, found.sort_by([("number", "ascending"), ("_rank", "ascending")]))


def test_the_data_source(spark: Any, uri: str) -> None:
    register = pytest.importorskip("pennon.spark.register")
    register.register(spark)
    df = spark.read.format("pennon").load(uri)
    assert sorted(df.where("id < 40").toArrow()["id"].to_pylist()) == full_scan(uri, "id < 40")
    table = pennon.open(uri)
    itself = table.knn_join(df.select("id", "v"), "v", k=1, columns=["id"], prefix="near_", **EXACT)
    assert itself.where("id != near_id").count() == 0
    assert itself.count() == table.count()
