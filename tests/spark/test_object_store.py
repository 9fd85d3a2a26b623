"""The data source and the functions on an object store, against a server on loopback."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pennon.spark
from tests.support.object_store import BUCKET, storage_options

__all__ = ["storage_options"]


def test_write_read_and_search(
    spark: SparkSession, storage_options: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    uri = f"s3://{BUCKET}/spark.lance"
    options = {f"storage.{key.upper()}": value for key, value in storage_options.items()}
    rows = spark.sql("SELECT id, array(float(id), 1F) AS v FROM range(0, 100, 1, 2)")
    for _ in range(2):
        rows.write.format("pennon").mode("append").options(vector_columns="v:2", **options).save(uri)
    assert lance.dataset(uri, storage_options=storage_options).count_rows() == 200
    frame = spark.read.format("pennon").options(**options, columns="id", filter="id = 7").load(uri)
    assert [row.id for row in frame.collect()] == [7, 7]
    frame.explain(True)
    pennon.spark.register(spark, storage_options=storage_options)
    try:
        found = spark.sql(f"SELECT id FROM pennon_search('{uri}', 'v', array(6.9, 1), 2)")
        assert [row.id for row in found.collect()] == [7, 7]
        found.explain(True)
    finally:
        pennon.spark.register(spark)
    joined = pennon.open(uri, storage_options=storage_options).knn_join(rows.where("id < 3"), "v", "v", 2, prefix="n_")
    assert sorted((row.id, row._rank, row.n_id) for row in joined.collect()) == [
        (i, r, i) for i in range(3) for r in (1, 2)
    ]
    joined.explain(True)
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("pennon").options(**options).load(f"s3://{BUCKET}/nothing.lance")
    assert "TableNotFound" in str(caught.value)
    assert "topsecretvalue" not in capsys.readouterr().out + str(caught.value)
