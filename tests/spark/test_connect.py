"""The same calls under Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import sys
import lance
import pennon.spark
from pyspark.sql import SparkSession

uri = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
pennon.spark.register(spark)
rows = spark.sql("SELECT id, array(float(id), 1F) AS v FROM range(0, 100, 1, 2)")
rows.write.format("pennon").mode("append").option("vector_columns", "v:2").save(uri)
lance.dataset(uri).create_scalar_index("id", "BTREE")
assert pennon.spark.read(spark, uri, ["id"], "id > 97").toArrow()["id"].to_pylist() == [98, 99]
frame = spark.read.format("pennon").load(uri)
assert [frame.filter("id = 3").count(), frame.count()] == [1, 100]
found = spark.sql(f"SELECT id FROM pennon_search('{uri}', 'v', array(6.9, 1), 1)").collect()
assert [row.id for row in found] == [7]
assert [row.name for row in spark.sql(f"SELECT * FROM pennon_indices('{uri}')").collect()] == ["id_idx"]
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
assert [frame.filter("id = 5").count(), frame.count()] == [1, 100]
assert pennon.open(uri, spark=spark).where("id > 97").select("id").dataframe().count() == 2
"""


@pytest.mark.heavy
def test_a_connect_session_does_the_same(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "t.lance")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert finished.returncode == 0, finished.stderr
