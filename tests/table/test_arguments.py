"""A value of the wrong Python type is refused with one clear error, before anything is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
import pennon.spark
from pennon.errors import InvalidArgument
from pennon.index.vector.vectors import to_lists
from tests.support.processes import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 100
QUERY = [0.5] * 8
Call = Callable[[Any], object]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("arguments") / "t.lance")
    vectors = np.random.default_rng(0).random((ROWS, 8), dtype=np.float32)
    lance.write_dataset(pa.table({"id": range(ROWS), "v": to_lists(vectors)}), path)
    pennon.open(path, engine="local").create_index("id")
    return path


OPENED: dict[str, Callable[[str], object]] = {
    "number as address": lambda uri: pennon.open(42),  # pyright: ignore[reportArgumentType]
    "None as address": lambda uri: pennon.open(None),  # pyright: ignore[reportArgumentType]
    "bytes as address": lambda uri: pennon.open(uri.encode()),  # pyright: ignore[reportArgumentType]
    "table as address": lambda uri: pennon.open(pennon.open(uri)),  # pyright: ignore[reportArgumentType]
    "text as version": lambda uri: pennon.open(uri, version="x"),  # pyright: ignore[reportArgumentType]
    "float as version": lambda uri: pennon.open(uri, version=1.5),  # pyright: ignore[reportArgumentType]
    "bool as version": lambda uri: pennon.open(uri, version=True),
    "text as storage options": lambda uri: pennon.open(uri, storage_options="x"),  # pyright: ignore[reportArgumentType]
    "number in storage options": lambda uri: pennon.open(uri, storage_options={"a": 1}),  # pyright: ignore[reportArgumentType]
    "text as session": lambda uri: pennon.open(uri, spark="local[2]"),  # pyright: ignore[reportArgumentType]
    "number as engine": lambda uri: pennon.open(uri, engine=3),  # pyright: ignore[reportArgumentType]
}
CALLS: dict[str, Call] = {
    "scan: text as columns": lambda t: t.scan(columns="id"),
    "scan: number as filter": lambda t: t.scan(42),
    "scan: list as filter": lambda t: t.scan(["id = 1"]),
    "scan: series as filter": lambda t: t.scan(pd.Series([True])),
    "scan: list in columns": lambda t: t.scan(columns=[["id"]]),
    "scan: text as limit": lambda t: t.scan(limit="3"),
    "scan: text as order_by": lambda t: t.scan(order_by="id"),
    "scan: number as fragments": lambda t: t.scan(fragments=1),
    "scan: number as expression": lambda t: t.scan(columns={"a": 3}),
    "batches: text as size": lambda t: list(t.scan_batches(batch_size="x")),
    "count: number": lambda t: t.count(42),
    "search: text as k": lambda t: t.search("v", QUERY, k="3"),
    "search: float as k": lambda t: t.search("v", QUERY, k=3.0),
    "search: text as vector": lambda t: t.search("v", "x"),
    "search: dict as vector": lambda t: t.search("v", {"a": 1}),
    "search: list as column": lambda t: t.search(["v"], QUERY),
    "search: None as column": lambda t: t.search(None, QUERY),
    "search: number as metric": lambda t: t.search("v", QUERY, metric=3),
    "search: number as filter": lambda t: t.search("v", QUERY, filter=42),
    "search: text as columns": lambda t: t.search("v", QUERY, columns="id"),
    "search: text as flag": lambda t: t.search("v", QUERY, use_index="no"),
    "search_batch: number": lambda t: t.search_batch("v", 3),
    "explain: number": lambda t: t.explain(42),
    "explain: text as flag": lambda t: t.explain("id = 1", analyze="yes"),
    "explain_search: list as column": lambda t: t.explain_search(["v"], QUERY),
    "create_index: list as column": lambda t: t.create_index(["id"]),
    "create_index: None as column": lambda t: t.create_index(None),
    "create_index: number as type": lambda t: t.create_index("id", 3),
    "create_index: class as type": lambda t: t.create_index("id", pennon.BTree),
    "create_index: number as name": lambda t: t.create_index("id", name=3),
    "create_index: number as fragments": lambda t: t.create_index("id", fragment_ids=1),
    "create_index: text as fragments": lambda t: t.create_index("id", fragment_ids="01"),
    "create_index: None in fragments": lambda t: t.create_index("id", fragment_ids=[0, "a"]),
    "create_index: text as memory": lambda t: t.create_index("id", task_memory_bytes="1G"),
    "create_index: text as replace": lambda t: t.create_index("id", replace="no"),
    "create_index: text as dry_run": lambda t: t.create_index("id", dry_run="no"),
    "create_index: text as option": lambda t: t.create_index("v", "IVF_PQ", num_partitions="x"),
    "plan_index: list as column": lambda t: t.plan_index(["id"]),
    "drop_index: list as name": lambda t: t.drop_index(["id_idx"]),
    "drop_index: None": lambda t: t.drop_index(None),
    "update_column: list as column": lambda t: t.update_column(["id"], "1"),
    "update_column: number as expression": lambda t: t.update_column("id", 3),
    "update_column: number as filter": lambda t: t.update_column("id", "1", where=42),
    "optimize: text as names": lambda t: t.optimize_indices(index_names="id_idx"),
    "optimize: number as names": lambda t: t.optimize_indices(index_names=3),
    "optimize: text as number": lambda t: t.optimize_indices(num_indices_to_merge="x"),
    "optimize: text as flag": lambda t: t.optimize_indices(retrain="x"),
    "compact: number as mode": lambda t: t.compact(remap=3),
    "compact: unknown option": lambda t: t.compact(rows=3),
    "compact: text as rows": lambda t: t.compact(target_rows_per_fragment="x"),
    "compact: float as rows": lambda t: t.plan_compact(target_rows_per_fragment=1.5),
    "compact: text as threshold": lambda t: t.compact(materialize_deletions_threshold="x"),
    "catch_up: text as memory": lambda t: t.catch_up_indices(task_memory_bytes="x"),
    "maintain: text as policy": lambda t: t.maintain("nightly"),
    "maintain: dict as policy": lambda t: t.maintain({"remap": "drop"}),
    "policy: text as number": lambda t: pennon.MaintenancePolicy(min_fragments_to_compact="x"),  # pyright: ignore[reportArgumentType]
    "policy: number as flag": lambda t: pennon.MaintenancePolicy(optimize_indices=1),  # pyright: ignore[reportArgumentType]
    "audit: text as share": lambda t: t.audit(sample="x"),
    "audit: text as names": lambda t: t.audit(index_names="id_idx"),
    "clean_orphans: text as age": lambda t: t.clean_orphans("7d"),
    "clean_orphans: number as age": lambda t: t.clean_orphans(7),
}


@pytest.mark.parametrize("call", OPENED.values(), ids=OPENED.keys())
def test_opening(uri: str, call: Callable[[str], object]) -> None:
    with pytest.raises(InvalidArgument):
        call(uri)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_verbs(uri: str, call: Call) -> None:
    with pytest.raises(InvalidArgument) as refused:
        call(pennon.open(uri, engine="local"))
    assert "'i'" not in str(refused.value), "text was taken for a list of letters"


def test_values_of_other_but_fitting_types(uri: str) -> None:
    """numpy's numbers, paths and expressions are as good as Python's own."""
    table = pennon.open(Path(uri), version=int(np.int64(2)), engine="local")
    assert table.search("v", np.array(QUERY), k=np.int64(3)).num_rows == 3  # pyright: ignore[reportArgumentType]
    assert table.scan(limit=np.int32(5)).num_rows == 5  # pyright: ignore[reportArgumentType]
    assert table.plan_update_column("id", "id", where=pc.field("id") < 7).rows == 7
    assert table.plan_index("id", fragment_ids=np.array([0])).rows == ROWS  # pyright: ignore[reportArgumentType]
    assert table.plan_index("id", task_memory_bytes=np.int64(1 << 30)).rows == ROWS  # pyright: ignore[reportArgumentType]
    assert table.clean_orphans(timedelta(days=8), dry_run=True).deleted == ()


def test_frames_and_sessions_of_another_kind(uri: str, spark: SparkSession) -> None:
    table = pennon.open(uri, spark=spark)
    with pytest.raises(InvalidArgument, match=r"not pandas.*DataFrame"):
        table.knn_join(pd.DataFrame({"v": [QUERY]}), "v")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="query_column must be text"):
        table.knn_join(spark.range(3), "v", ["id"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="not a Spark session"):
        pennon.spark.register("local")  # pyright: ignore[reportArgumentType]
    assert pennon.spark.read(spark, Path(uri), ["id"], pc.field("id") < 5).count() == 5
    for wrong in ({"columns": "id"}, {"filter": 42}, {"version": "x"}, {"with_row_id": "no"}, {"batch_size": "x"}):
        with pytest.raises(InvalidArgument):
            pennon.spark.read(spark, uri, **wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.process
def test_reading_registers_the_source_and_a_stopped_session_is_refused(uri: str) -> None:
    """In a process of its own, whose session is new and can be stopped."""
    code = f"""
import pennon, pennon.spark
table = pennon.open({uri!r})
session = table.engine.session
print(pennon.spark.read(session, {uri!r}, ["id"], "id < 5").count(), pennon.spark.read(session, {uri!r}).columns)
frame, version = session.range(3), table.version
session.stop()
for call in (
    lambda: table.create_index("id", rows_per_task=10),
    lambda: pennon.open({uri!r}, spark=session).create_index("id"),
    lambda: pennon.spark.read(session, {uri!r}),
    lambda: pennon.open({uri!r}).merge(frame, on="id"),
    lambda: pennon.open({uri!r}).lookup_join(frame, on="id"),
):
    try:
        call()
    except pennon.errors.SparkUnavailable as error:
        print(error.problem)
print(pennon.open({uri!r}).version == version)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)
    assert done.stdout.splitlines() == ["5 ['id', 'v']", *["The Spark session was stopped"] * 5, "True"], done.stderr
