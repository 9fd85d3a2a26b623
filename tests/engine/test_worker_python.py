"""Spark's workers run the Python of the driver where the user has chosen none, and the user's where one is chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

PROGRAM = """
import sys
import warnings
warnings.simplefilter("ignore")
import pennon
from pennon.engine import SparkEngine
from pyspark.sql import SparkSession

builder = SparkSession.builder.{master}.config("spark.ui.enabled", "false")
# A short session takes half the CPU time.
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()

KEYS = ("spark.sql.execution.pyspark.python", "spark.sql.execution.arrow.maxRecordsPerBatch")

def settings():
    return [spark.conf.get(key, None) for key in KEYS]

before = settings()
engine = SparkEngine.attach(spark)
try:
    assert engine.map("which", lambda _: sys.executable, range(3)) == [sys.executable] * 3
    table = pennon.open(sys.argv[1], spark=spark)
    table.create_index("id", "BTREE", rows_per_task=300)
    assert table.audit().ok
    {more}
finally:
    after = settings()
    spark.stop()
assert before == after
"""

# PySpark itself keeps what it had: a function of the user's runs in the Python that he has on the PATH.
CLASSIC = """
    assert spark.sparkContext.pythonExec == "python3"
    frame = spark.range(2).mapInArrow(lambda batches: batches, "id long")
    try:
        frame.collect()
        raise SystemExit("the user's function has another interpreter")
    except Exception as error:
        assert "python3" in str(error) or "Python worker" in str(error) or "pyspark" in str(error), error
"""


@pytest.fixture
def broken_path(tmp_path: Path) -> str:
    """A PATH on which python3 is a program that ends at once."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "python3"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{os.environ['PATH']}"


def run(tmp_path: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(1000)}), uri, max_rows_per_file=250)
    inherited = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", program, uri],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**inherited, **environment},
    )


@pytest.mark.process
def test_a_local_session_in_an_environment_that_is_not_activated(tmp_path: Path, broken_path: str) -> None:
    program = PROGRAM.format(master='master("local[2]")', more=CLASSIC.strip())
    finished = run(tmp_path, program, PATH=broken_path)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.process
@pytest.mark.heavy
def test_a_local_connect_server_in_an_environment_that_is_not_activated(tmp_path: Path, broken_path: str) -> None:
    finished = run(tmp_path, PROGRAM.format(master='remote("local[2]")', more="pass"), PATH=broken_path)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.process
def test_a_chosen_python_is_left(tmp_path: Path, broken_path: str) -> None:
    """Even one that does not work: a user who has named an interpreter has a reason."""
    chosen = str(Path(broken_path.partition(os.pathsep)[0]) / "python3")
    finished = run(tmp_path, PROGRAM.format(master='master("local[2]")', more="pass"), PYSPARK_PYTHON=chosen)
    assert finished.returncode != 0
    assert "pennon.errors.TaskFailed: which failed" in finished.stderr
