"""Hostile names and values through Spark: the data source, pushed filters, the SQL functions and the kNN join."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import pennon
import pennon.spark
from pennon.engine import SparkEngine
from pennon.errors import InvalidArgument
from tests.hostile_names.names import NAMES, ROWS, VALUES, literal, oracle, quoted, vectors, write

FEW = [
    NAMES[kind]
    for kind in ("quote", "double quote", "backslash", "newline", "html", "sql", "escape", "decomposed", "dash")
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    columns = {name: [(i + at) % 9 for i in range(ROWS)] for at, name in enumerate(FEW)}
    text = [VALUES[i % len(VALUES)] for i in range(ROWS)]
    path = write(tmp_path_factory.mktemp("spark") / "it's t.lance", {**columns, "text": text, "'v\"": vectors()})
    lance.dataset(path).create_scalar_index(FEW[5], "BTREE", name=NAMES["html"])
    return path


def test_reads_and_filters(spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("pennon").option("columns", json.dumps(["id", *FEW])).load(uri)
    assert frame.columns == ["id", *FEW]
    assert [tuple(row) for row in frame.orderBy("id").limit(3).collect()] == [
        tuple(row.values()) for row in lance.dataset(uri).to_table(columns=["id", *FEW]).slice(0, 3).to_pylist()
    ]
    for name in (FEW[5], FEW[3]):
        read = pennon.spark.read(spark, uri, ["id"], f"{quoted(name)} = 4")
        assert sorted(row.id for row in read.collect()) == oracle(uri, f"{quoted(name)} = 4")


def test_values_in_filters_of_spark(spark: SparkSession, uri: str) -> None:
    names = json.dumps(["id", "text", FEW[5]])
    for value in (v for v in VALUES if "'" in v or "\\" in v or "\0" in v or "`" in v):
        frame = spark.read.format("pennon").option("columns", names).load(uri)
        found = frame.where((sf.col("text") == value) & (sf.col(quoted(FEW[5])) >= 0)).select("id")
        assert sorted(row.id for row in found.collect()) == oracle(uri, f"text = {literal(value)}"), value


def test_functions_take_names_as_text(spark: SparkSession, uri: str) -> None:
    named = spark.sql("SELECT name, fields FROM pennon_indices(:uri)", {"uri": uri}).collect()
    assert [(row.name, row.fields) for row in named] == [(NAMES["html"], [FEW[5]])]
    plan = spark.sql("SELECT * FROM pennon_explain(:uri, :filter)", {"uri": uri, "filter": f"{quoted(FEW[5])} = 1"})
    assert any(NAMES["html"] in row.plan for row in plan.collect())
    query = lance.dataset(uri).take([7], columns=["'v\""])["'v\""][0].as_py()
    given = {"uri": uri, "column": "'v\"", "query": query, "filter": f"{quoted(FEW[5])} < 100"}
    call = "SELECT * FROM pennon_search(:uri, :column, :query, 1, filter => :filter, columns => array('id', :c))"
    [row] = spark.sql(call, {**given, "c": FEW[3]}).collect()
    assert row.asDict().keys() == {"id", FEW[3], "_distance"}
    assert row.id == 7


def test_a_join_keeps_all_names(spark: SparkSession, uri: str) -> None:
    queries = pennon.spark.read(spark, uri, ["id", "'v\"", FEW[3]], "id < 3").withColumnRenamed("'v\"", "q\n'")
    table = pennon.open(uri)
    joined = table.knn_join(queries, "'v\"", "q\n'", 1, prefix="n'`.", columns=["id", FEW[5]])
    assert joined.columns == ["id", "q\n'", FEW[3], "_rank", "_distance", "n'`.id", f"n'`.{FEW[5]}"]
    assert sorted((row[0], row[5]) for row in joined.collect()) == [(i, i) for i in range(3)]
    for name in ("a.b", "tick`s"):
        with pytest.raises(InvalidArgument, match="Rename it"):
            table.knn_join(queries.withColumnRenamed("id", name), "'v\"", "q\n'")


def test_writes(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    target = str(tmp_path / "new t.lance")
    pennon.spark.read(spark, uri, ["id", *FEW, "text"]).write.format("pennon").mode("append").save(target)
    copied = lance.dataset(target).to_table().sort_by("id")
    assert copied == lance.dataset(uri).to_table(columns=["id", *FEW, "text"]).cast(copied.schema)
    for name in ("a.b", "tick`s", "", "nul\0l"):
        rows = spark.range(3).withColumnRenamed("id", name)
        with pytest.raises(Exception, match="InvalidArgument"):
            rows.write.format("pennon").mode("append").save(str(tmp_path / "refused.lance"))
    assert not (tmp_path / "refused.lance").exists()


def test_jobs_are_described_by_their_stage_alone(engine: SparkEngine, tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", {NAMES["html"]: range(ROWS)})
    seen: list[str] = []

    class Listener:
        def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
            seen.append(name)

        def stage_advanced(self, name: str, done_tasks: int) -> None: ...

        def stage_finished(self, name: str) -> None: ...

    table = pennon.open(uri, progress=Listener())
    table.create_index(NAMES["html"], name=NAMES["escape"])
    assert seen == ["build"]
    assert pa.array(seen).type == pa.string()
