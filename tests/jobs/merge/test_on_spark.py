"""Merges of Spark DataFrames, and the other verbs on Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument, SparkUnavailable
from pennon.jobs.merge import match, merge
from tests.jobs.rows.tables import check, files, rows, twins
from tests.support.frames import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("engine")

KNOWN = [*range(20, 60), *range(300, 310), *range(990, 1010), -5]


def test_a_data_frame(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "LARGE_SHARE", 1.0)
    table, theirs = twins(tmp_path)
    source = rows(KNOWN, "new")
    frame = frame_of(spark, source).repartition(5)
    done = table.merge(frame, on="id")
    lance.dataset(theirs).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    assert (done.rows_updated, done.rows_inserted) == (54, 17)
    check(table, theirs)
    assert table.delete("id < 30 or k = 2").rows_deleted == lance.dataset(theirs).count_rows("id < 30 or k = 2")
    lance.dataset(theirs).delete("id < 30 or k = 2")
    assert table.update({"k": "k + 1"}, where="id % 2 = 0").rows_updated > 0
    lance.dataset(theirs).update({"k": "k + 1"}, where="id % 2 = 0")
    check(table, theirs)


def test_many_ranges(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "RANGE_BYTES", 2000)
    monkeypatch.setattr("pennon.jobs.merge.duplicates.FEW_KEYS", 0)
    table, theirs = twins(tmp_path)
    source = rows(KNOWN, "new")
    table.merge(frame_of(spark, source).repartition(3), on="id")
    lance.dataset(theirs).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    check(table, theirs)
    with pytest.raises(InvalidArgument, match="1 key in more than one row, such as id = 20"):
        table.merge(frame_of(spark, rows([*KNOWN, 20])).repartition(3), on="id")


def test_a_frame_with_other_rows_each_time(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is evaluated once, though it is checked, matched, and matched again after a conflict."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(100)).select(["id", "k"]), uri)
    evaluated = spark.sparkContext.accumulator(0)

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            evaluated.add(batch.num_rows)
            yield batch

    frame = spark.range(50, 150, numPartitions=3).selectExpr("id", "cast(rand() * 1000000 as int) as k")
    frame = frame.mapInArrow(seen, "id long, k int")
    commit, left = merge.commit_inserted_rows, [0]

    def later(*arguments: Any) -> Any:
        if left:
            left.pop()
            lance.write_dataset(rows([120]).select(["id", "k"]), uri, mode="append")
        return commit(*arguments)

    monkeypatch.setattr(merge, "commit_inserted_rows", later)
    done = pennon.open(uri).merge(frame, on="id")
    assert (done.rows_updated, done.rows_inserted) == (51, 49)
    assert evaluated.value == 100
    assert lance.dataset(uri).count_rows() == 150


def test_frames_that_fail_leave_nothing(tmp_path: Path, spark: SparkSession) -> None:
    table, theirs = twins(tmp_path)
    before = files(table.uri, "data", "_indices", "_deletions", "_versions")
    frame = spark.range(10).selectExpr("id", "cast(if(id = 7, raise_error('broken row'), 1) as int) as k")
    with pytest.raises(pennon.errors.PennonError, match="broken row"):
        table.merge(frame, on="id")
    with pytest.raises(InvalidArgument, match="does not fit"):
        table.merge(spark.range(10).selectExpr("id", "id * 1000000000 as k"), on="id")
    with pytest.raises(InvalidArgument, match="have type string"):
        table.merge(spark.range(10).selectExpr("cast(id as string) as id"), on="id")
    with pytest.raises(SparkUnavailable):
        pennon.open(table.uri, engine="local").merge(spark.range(10).selectExpr("id"), on="id")
    assert files(table.uri, "data", "_indices", "_deletions", "_versions") == before
    check(table, theirs)


def test_names_of_columns(tmp_path: Path, spark: SparkSession) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(range(10)).select(["id", "k"]).rename_columns(["der Schlüssel", "a b"]), uri)
    frame = spark.createDataFrame([(1, 5), (77, 6)], "`der Schlüssel` long, `a b` int")
    done = pennon.open(uri).merge(frame, on="der Schlüssel", when_matched=pennon.Update({"a b": "source.`a b` * 10"}))
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = lance.dataset(uri).to_table(filter="`der Schlüssel` in (1, 77)").to_pylist()
    assert sorted(row["a b"] for row in found) == [6, 50]


def test_merges_that_race_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    table, _ = twins(tmp_path)

    def upsert(number: int) -> None:
        frame = spark.range(2000, 2010).selectExpr("id", f"cast({number} as int) as k")
        pennon.open(table.uri, spark=spark).merge(frame, on="id")

    threads = [threading.Thread(target=upsert, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lance.dataset(table.uri).to_table(["id"], filter="id >= 2000")["id"].to_pylist()
    assert Counter(found) == dict.fromkeys(range(2000, 2010), 1)
