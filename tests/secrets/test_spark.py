"""What Spark writes down of a session that works with credentials: plans, event log, log, configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

MARK = "q7Xw9marker"
# None of these is a name that Spark hides by itself.
KEYS = ("azure_storage_account_key", "azure_storage_sas_key", "google_service_account_key")
SCRIPT = """
import sys
from pyspark.sql import SparkSession

events, uri, mark, keys = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4].split(",")
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", f"file://{events}")
    .config("spark.eventLog.compress", "false").config("spark.sql.ui.explainMode", "extended")
    .config("spark.ui.enabled", "false").config("spark.log.level", "INFO").getOrCreate()
)
import pennon, pennon.spark

secrets = {key: f"{mark}{key}" for key in keys}
options = {f"storage.secret.{key}": value for key, value in secrets.items()}
pennon.spark.register(spark, storage_options=secrets)
rows = spark.sql("SELECT id, array(float(id), 1F) AS v FROM range(0, 100, 1, 2)")
rows.write.format("pennon").mode("append").options(vector_columns="v:2", **options).save(uri)
frame = pennon.spark.read(spark, uri, filter="id < 50", storage_options=secrets)
assert frame.count() == 50
frame.explain(True)
named = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
view = f"CREATE OR REPLACE TEMPORARY VIEW seen USING pennon OPTIONS (path '{uri}', {named})"
spark.sql(f"EXPLAIN EXTENDED {view}").show(9, False)
table = pennon.open(uri, storage_options=secrets, spark=spark)
table.create_index("id")
table.maintain()
joined = table.knn_join(rows.where("id < 3"), "v", "v", 2, prefix="n_")
joined.explain(True)
assert joined.count() == 6
found = spark.sql(f"SELECT id FROM pennon_search('{uri}', 'v', array(6.9, 1), 2)")
found.explain(True)
assert found.count() == 2
for wrong in (f"{uri}x", uri):
    try:
        pennon.spark.read(spark, wrong, filter="nope = 1", storage_options=secrets).count()
    except Exception as error:
        print(error)
try:
    spark.sql(f"SELECT * FROM pennon_indices('{uri}', storage_options => map('{keys[0]}', 'x'))").collect()
except Exception as error:
    assert "InvalidArgument" in str(error), error
print(spark.sparkContext.getConf().getAll())
spark.stop()
"""


@pytest.mark.heavy
def test_nothing_spark_writes_down_holds_a_secret(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(events), str(tmp_path / "t.lance"), MARK, ",".join(KEYS)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    logged = "".join(path.read_text("utf-8") for path in events.rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in logged
    assert re.search(r"pennon create_index [^\"]*: build", logged)
    assert "redacted" in done.stdout
    assert MARK not in done.stdout + done.stderr + logged
