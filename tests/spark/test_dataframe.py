"""`table.dataframe` and what leads to it: the rows of a filter, found through indices, in every Spark query."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import pennon
import pennon.spark
from pennon.errors import ColumnNotFound, InvalidArgument, InvalidFilter, SparkUnavailable
from pennon.jobs.dataframe import _ReadParts  # pyright: ignore[reportPrivateUsage]
from tests.support.cases import amounts
from tests.support.tables import write_every_type


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("frames") / "t.lance")
    rows = pa.table({"id": range(1000), "k": [i % 50 for i in range(1000)], "s": [f"s{i % 7}" for i in range(1000)]})
    lance.write_dataset(rows, path, max_rows_per_file=100)
    pennon.open(path, engine="local").create_index("k")
    lance.dataset(path).delete("id % 11 = 3")
    lance.write_dataset(rows.slice(0, 50).set_column(0, "id", pa.array(range(1000, 1050))), path, mode="append")
    return path


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_rows_of_a_filter(spark: SparkSession, uri: str) -> None:
    table = pennon.open(uri, spark=spark)
    frame = table.dataframe("k = 7", ["id", "s"])
    oracle = lance.dataset(uri).to_table(columns=["id", "s"], filter="k = 7", use_scalar_index=False)
    assert rows_of(frame) == sorted(zip(*oracle.to_pydict().values(), strict=True))
    assert frame.columns == ["id", "s"]
    assert table.dataframe(pc.field("k") == 7).count() == len(oracle) == table.where("k = 7").count()
    assert table.dataframe("k = 99").count() == 0
    chained = table.select("id").where("k >= 7").where("k < 9").where(pc.field("s") != "s1")
    assert rows_of(chained.dataframe()) == [(i,) for i in sorted(chained.scan()["id"].to_pylist())]
    assert chained.count() == chained.scan().num_rows > 0
    assert "k_idx" in str(chained.explain())
    assert table.where("k = 7 -- only").where("id < 1000").count() == table.count("k = 7 AND id < 1000")


def test_equals_the_data_source(spark: SparkSession, tmp_path: Path) -> None:
    """Every type, with metadata columns and as many partitions."""
    path = write_every_type(tmp_path / "t.lance", rows=300, rows_per_file=100)
    given = {"with_row_id": True, "with_row_address": True, "rows_per_partition": 100}
    frame = pennon.open(path, spark=spark).dataframe(**given)  # pyright: ignore[reportArgumentType]
    source = pennon.spark.read(spark, path, **given)  # pyright: ignore[reportArgumentType]
    assert frame.schema.simpleString() == source.schema.simpleString()
    # As text, since no NaN equals another.
    assert sorted(map(str, frame.collect())) == sorted(map(str, source.collect()))


def test_only_the_rows_that_were_found_are_read(uri: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    made = _ReadParts.__init__

    def counted(self: _ReadParts, *given: object) -> None:
        made(self, *given)  # pyright: ignore[reportArgumentType]
        parts.extend(part.rows for part in self.parts)

    monkeypatch.setattr(_ReadParts, "__init__", counted)
    found = pennon.open(uri, spark=spark).dataframe("k = 7 AND id < 1000").count()
    assert parts == [found, 50]  # by the index, and the fragment that it does not cover


@pytest.mark.parametrize("queries", amounts(12, 24))
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_one_frame_in_many_queries(spark: SparkSession, uri: str, pushdown: str, queries: int) -> None:
    """Random sequences of queries on one DataFrame, also ones that are planned early and run late, whatever Spark is
    set to push down. The oracle is Spark over rows in its own memory."""
    rng = random.Random(pushdown)
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        oracle = spark.createDataFrame(lance.dataset(uri).to_table()).cache()
        frames = [spark.read.format("pennon").load(uri), pennon.open(uri, spark=spark).dataframe()]
        waiting: list[tuple[DataFrame, DataFrame]] = []
        for _ in range(queries):
            conditions = [f"k {rng.choice(['=', '<', '!='])} {rng.randrange(50)}", "id > 500", "s = 's3'", "true"]
            kind, frame = rng.randrange(4), rng.choice(frames)
            one, two = rng.choice(conditions), rng.choice(conditions)

            def query(rows: DataFrame, kind: int = kind, one: str = one, two: str = two) -> DataFrame:
                first, second = rows.where(one), rows.where(two)
                if kind == 0:
                    return first.select("id")
                if kind == 1:
                    return first.groupBy("s").count()
                if kind == 2:
                    return first.select("id").unionAll(second.select("id"))
                return first.select("id").join(second.select("id", "s"), "id")

            made = (query(frame), query(oracle))
            made[0].explain("formatted") if rng.random() < 0.3 else None
            waiting.append(made)
            if rng.random() < 0.5:
                got, expected = waiting.pop(rng.randrange(len(waiting)))
                assert rows_of(got) == rows_of(expected)
        for got, expected in waiting:
            assert rows_of(got) == rows_of(expected)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before or "false")


def test_views_in_sql(spark: SparkSession, uri: str) -> None:
    pennon.open(uri, spark=spark).where("k < 3").dataframe().createOrReplaceTempView("few")
    spark.read.format("pennon").load(uri).createOrReplaceTempView("every")
    sql = "SELECT count(*) FROM few JOIN every USING (id) WHERE every.k = 1"
    [[count]] = spark.sql(sql).collect()
    assert count == pennon.open(uri, engine="local").count("k = 1")


def test_a_frame_is_fixed_to_its_version(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2]}), path)
    frame = pennon.open(path, spark=spark).dataframe()
    lance.write_dataset(pa.table({"id": [3]}), path, mode="append")
    assert frame.count() == 2


def test_errors_come_at_once(spark: SparkSession, uri: str) -> None:
    table = pennon.open(uri, spark=spark)
    with pytest.raises(InvalidFilter):
        table.where("k = 'x'")
    with pytest.raises(InvalidFilter):
        table.dataframe("nothing = 1")
    with pytest.raises(ColumnNotFound):
        table.select("id", "nothing")
    with pytest.raises(ColumnNotFound):
        table.dataframe(columns=["nothing"])
    with pytest.raises(InvalidArgument, match="at least one column"):
        table.select()
    with pytest.raises(InvalidArgument, match="selectExpr"):
        table.dataframe(columns={"double": "k * 2"})  # pyright: ignore[reportArgumentType]
    with pytest.raises(SparkUnavailable, match="local engine"):
        pennon.open(uri, engine="local").dataframe()
