"""What Spark refuses to do with a source in Python, call by call, and what each call answers: the table "Write this
instead" of the docs. Calls that reach the source give its sentence; others are refused by Spark before that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

VIEW = "CREATE TEMPORARY VIEW name USING pennon"
Call = Callable[[SparkSession, DataFrame, str], object]


def writer(frame: DataFrame, mode: str = "append") -> DataFrameWriter:
    return frame.write.format("pennon").mode(mode)


# The call, and the words that its error has.
REFUSED: dict[str, tuple[Call, str]] = {
    "default mode": (lambda _, df, uri: df.write.format("pennon").save(uri), 'use either the "Append" or "Overwrite"'),
    "mode ignore": (lambda _, df, uri: writer(df, "ignore").save(uri), 'use either the "Append" or "Overwrite"'),
    "insertInto": (lambda _, df, uri: writer(df).insertInto("unknown"), "TABLE_OR_VIEW_NOT_FOUND"),
    "partitionBy": (lambda _, df, uri: writer(df).partitionBy("part").save(uri), "partitioning or clustering columns"),
    "clusterBy": (lambda _, df, uri: writer(df).clusterBy("part").save(uri), "partitioning or clustering columns"),
    "bucketBy": (lambda _, df, uri: writer(df).bucketBy(2, "part").save(uri), "does not support bucketBy"),
    "sortBy": (lambda _, df, uri: writer(df).sortBy("part").save(uri), "sortBy must be used together with bucketBy"),
    "CREATE TABLE": (lambda s, _, uri: s.sql(f"CREATE TABLE t USING pennon OPTIONS (path '{uri}')"), VIEW),
    "CREATE TABLE AS": (lambda s, _, __: s.sql("CREATE TABLE t USING pennon AS SELECT 1L id, 1 part"), VIEW),
    "writeTo create": (lambda _, df, __: df.writeTo("t").using("pennon").create(), VIEW),
    "writeTo append": (lambda _, df, uri: df.writeTo(f"pennon.`{uri}`").append(), "TABLE_OR_VIEW_NOT_FOUND"),
    "a path in SQL": (lambda s, _, uri: s.sql(f"SELECT * FROM pennon.`{uri}`"), "direct query on files"),
    "dynamic partitions": (
        lambda _, df, uri: writer(df, "overwrite").option("partitionOverwriteMode", "dynamic").save(uri),
        "a table has no partitions. Write the rows of some keys with table.merge",
    ),
    "replaceWhere": (
        lambda _, df, uri: writer(df, "overwrite").option("replaceWhere", "part = 1").save(uri),
        "Use table.merge with when_not_matched_by_source",
    ),
    "mergeSchema": (lambda _, df, uri: writer(df).option("mergeSchema", "true").save(uri), "add_columns"),
    "overwriteSchema": (
        lambda _, df, uri: writer(df, "overwrite").option("overwriteSchema", "true").save(uri),
        'mode("overwrite") always takes the columns of the rows',
    ),
    "DELETE FROM": (lambda s, _, __: s.sql("DELETE FROM pennon_rows WHERE id = 1"), "does not support deletes"),
    "UPDATE": (lambda s, _, __: s.sql("UPDATE pennon_rows SET part = 1"), "does not support UPDATE"),
    "MERGE INTO": (
        lambda s, _, __: s.sql(
            "MERGE INTO pennon_rows USING pennon_rows AS x ON pennon_rows.id = x.id WHEN MATCHED THEN DELETE"
        ),
        "does not support MERGE",
    ),
}


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("refused") / "t.lance")
    writer(rows(spark)).save(path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW pennon_rows USING pennon OPTIONS (path '{path}')")
    return path


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr("id", "CAST(id % 2 AS INT) AS part")


@pytest.mark.parametrize("call", REFUSED)
def test_refused_calls_write_nothing(spark: SparkSession, uri: str, call: str) -> None:
    run, answer = REFUSED[call]
    with pytest.raises((AnalysisException, IllegalArgumentException, UnsupportedOperationException)) as refused:
        run(spark, rows(spark), uri)
    assert answer in str(refused.value)
    assert lance.dataset(uri).version == 1


def test_what_the_docs_say_instead_works(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    writer(rows(spark)).save(path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW instead USING pennon OPTIONS (path '{path}')")
    spark.sql("INSERT INTO instead SELECT 100L, 1")
    assert lance.dataset(path).count_rows() == 11
    spark.sql("INSERT OVERWRITE instead SELECT 100L, 1")
    assert lance.dataset(path).count_rows() == 1
    spark.catalog.dropTempView("instead")
