"""Rows written through Spark: every mode, types, errors, concurrent writers, and what a failed write leaves behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from pennon.errors import CommitConflict
from pennon.spark.source import PennonSource
from pennon.spark.types import cast_batch, spark_schema
from pennon.spark.writer import PennonWriter
from tests.support.tables import every_type, write_every_type

ROWS = "SELECT id, CAST(id AS STRING) AS s, array(float(id), 1F, 2F) AS v FROM range({}, {}, 1, 3)"


def rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.sql(ROWS.format(start, stop))


def save(frame: DataFrame, uri: str, mode: str = "append", **options: str) -> None:
    frame.write.format("pennon").mode(mode).options(**options).save(uri)


def ids(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist())


def files(uri: str) -> int:
    return len(list(Path(uri, "data").glob("*.lance")))


def writer(uri: str, schema: pa.Schema, overwrite: bool = False) -> PennonWriter:
    return PennonSource(CaseInsensitiveDict(path=uri)).writer(spark_schema(schema), overwrite)


def test_create_append_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    save(rows(spark, 0, 90), uri, vector_columns="v:3", max_rows_per_file="20", enable_stable_row_ids="true")
    made = lance.dataset(uri)
    assert made.schema.field("v").type == pa.list_(pa.float32(), 3)
    assert made.has_stable_row_ids
    assert [fragment.count_rows() for fragment in made.get_fragments()] == [20, 10] * 3
    assert made.version == 1
    save(rows(spark, 90, 100).select("v", "id", "s"), uri)
    assert ids(uri) == list(range(100))
    save(spark.read.format("pennon").load(uri).filter("id >= 95"), uri, "overwrite")
    assert ids(uri) == [95, 96, 97, 98, 99]
    assert lance.dataset(uri).schema.field("v").type == pa.list_(pa.float32(), 3)
    assert lance.dataset(uri).has_stable_row_ids
    assert lance.dataset(uri, version=2).count_rows() == 100
    save(spark.sql("SELECT 1 AS other"), uri, "overwrite")
    assert lance.dataset(uri).to_table().to_pydict() == {"other": [1]}


def test_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    save(rows(spark, 0, 0), uri)
    assert lance.dataset(uri).schema.names == ["id", "s", "v"]
    save(rows(spark, 0, 0), uri)
    assert (lance.dataset(uri).version, lance.dataset(uri).count_rows()) == (1, 0)


def test_every_type_goes_back(spark: SparkSession, tmp_path: Path) -> None:
    uri = write_every_type(tmp_path / "t.lance", rows=200, rows_per_file=100)
    lance.dataset(uri).drop_columns(["time"])  # text in Spark, and no way back
    before = lance.dataset(uri).to_table().sort_by("id")
    frame = spark.read.format("pennon").load(uri)
    save(frame.selectExpr("id + 1000 AS id", *(f"`{name}`" for name in before.schema.names if name != "id")), uri)
    after = lance.dataset(uri).to_table(filter="id >= 1000").sort_by("id")
    assert after.schema == before.schema
    assert str(after.drop_columns("id").to_pydict()) == str(before.drop_columns("id").to_pydict())


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT id, s FROM rows", "the rows lack column 'v'"),
        ("SELECT *, 1 AS extra FROM rows", "has no column 'extra'"),
        ("SELECT id, v, 1 AS s FROM rows", "column 's' of table .* has type string, not int. Cast it before writing"),
        ("SELECT CAST(id AS DOUBLE) AS id, s, v FROM rows", "has type bigint, not double"),
    ],
)
def test_rows_that_do_not_fit_are_told(spark: SparkSession, tmp_path: Path, query: str, problem: str) -> None:
    uri = str(tmp_path / "t.lance")
    save(rows(spark, 0, 3), uri, vector_columns="v:3")
    rows(spark, 3, 6).createOrReplaceTempView("rows")
    with pytest.raises(AnalysisException, match=problem):
        save(spark.sql(query), uri)
    assert (ids(uri), lance.dataset(uri).version) == ([0, 1, 2], 1)


def test_narrower_numbers_and_nulls_fit(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    save(rows(spark, 0, 1), uri, vector_columns="v:3")
    save(spark.sql("SELECT 5 AS id, NULL AS s, array(1D, 2D, 3D) AS v"), uri)
    assert lance.dataset(uri).to_table().to_pylist()[1] == {"id": 5, "s": None, "v": [1, 2, 3]}


@pytest.mark.parametrize(
    ("mode", "options", "problem"),
    [
        ("append", {"vector_columns": "v"}, "must list columns with their dimensions"),
        ("append", {"vector_columns": "s:3"}, "column 's' has type string, which cannot be converted to vectors"),
        ("append", {"vector_columns": "w:3"}, "vector_columns lists 'w'"),
        ("append", {"version": "1"}, "the option version is for reading"),
        ("append", {"max_row_per_file": "1"}, "Did you mean one of: max_rows_per_file"),
        ("error", {}, "cannot be written in the .ErrorIfExists. mode"),
    ],
)
def test_a_wrong_option_is_told(
    spark: SparkSession, tmp_path: Path, mode: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        save(rows(spark, 0, 3), str(tmp_path / "t.lance"), mode, **options)
    assert not (tmp_path / "t.lance").exists()


def test_a_failed_write_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    save(rows(spark, 0, 3), uri, vector_columns="v:3")
    before = files(uri)
    with pytest.raises(PythonException, match="values of column 'v' do not fit the type fixed_size_list"):
        save(
            spark.sql("SELECT id, 'x' AS s, slice(array(1F, 2F, 3F), 1, IF(id = 2, 2, 3)) AS v FROM range(0, 3, 1, 3)"),
            uri,
        )
    assert (ids(uri), lance.dataset(uri).version) == ([0, 1, 2], 1)
    assert files(uri) == before, "what the other tasks wrote is deleted"


def test_abort_deletes_what_was_not_committed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = every_type(20).select(["id", "text"])
    lance.write_dataset(table, uri)
    two = [writer(uri, table.schema) for _ in range(2)]
    written = [one.write(iter(table.to_batches())) for one in two]
    assert files(uri) == 3
    two[0].commit([written[0]])
    two[0].abort([written[0]])  # as Spark does when it takes a commit for failed
    two[1].abort([written[1], None])
    assert files(uri) == 2
    assert lance.dataset(uri).count_rows() == 40


def test_a_new_table_that_another_made_first_is_a_conflict(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = every_type(5).select(["id"])
    first, second = writer(uri, table.schema), writer(uri, table.schema)
    messages = [one.write(iter(table.to_batches())) for one in (first, second)]
    first.commit([messages[0]])
    with pytest.raises(CommitConflict, match="another writer created a table at"):
        second.commit([messages[1]])
    second.abort([messages[1]])
    assert (lance.dataset(uri).count_rows(), files(uri)) == (5, 1)


def test_writers_that_an_overwrite_gets_in_the_way_of_are_told(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = every_type(5).select(["id"])
    lance.write_dataset(table, uri)
    appending, replacing = writer(uri, table.schema), writer(uri, table.schema, overwrite=True)
    messages = [one.write(iter(table.to_batches())) for one in (appending, replacing)]
    lance.write_dataset(table.slice(0, 1), uri, mode="overwrite")
    for one, message in zip((appending, replacing), messages, strict=True):
        with pytest.raises(CommitConflict, match=r"t\.lance (was overwritten|changed) "):
            one.commit([message])
        one.abort([message])
    assert (lance.dataset(uri).count_rows(), files(uri)) == (1, 2)


def test_concurrent_appends_all_land(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    table = pa.table({"id": range(60)})
    lance.write_dataset(table.slice(0, 10), uri)

    def append(start: int) -> None:
        one = writer(uri, table.schema)
        one.commit([one.write(iter(table.slice(start, 10).to_batches()))])

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(append, range(10, 60, 10)))
    assert ids(uri) == list(range(60))


def test_a_value_that_does_not_fit_is_never_rounded() -> None:
    batch = pa.record_batch({"n": pa.array([300], pa.int16())})
    with pytest.raises(ValueError, match="values of column 'n' do not fit the type uint8"):
        cast_batch(batch, pa.schema([("n", pa.uint8())]))
