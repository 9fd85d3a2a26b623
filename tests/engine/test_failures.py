"""Whatever Spark says about a failed job comes down to one line, and to what the user can do."""

from __future__ import annotations

import pytest

from pennon.engine.failures import task_failed

MISSING = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ModuleNotFoundError: No module named 'pennon'

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)"""
NOT_STARTED = """Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Error from python worker:
  Traceback (most recent call last):
    File "<frozen importlib.util>", line 94, in find_spec
  ModuleNotFoundError: No module named 'pyspark'
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
  ImportError: Error while finding module specification for 'pyspark.daemon' (No module named 'pyspark')
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
\tat org.apache.spark.X"""
NOTED = """[PYTHON_EXCEPTION] Traceback (most recent call last):
  File "x.py", line 3, in f
botocore.exceptions.ClientError: a long story
over two lines
pennon task failed with ClientError: a long story over two lines
 SQLSTATE: 38000"""
MEMORY = """An error occurred while calling o176.getResult.
: java.util.concurrent.ExecutionException: java.lang.OutOfMemoryError: Java heap space
\tat org.apache.spark.X"""
LOST = """An error occurred while calling o9.getResult.
: org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)
\tat org.apache.spark.X"""
STOPPED = """An error occurred while calling o9.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.X
Caused by: org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down
\tat org.apache.spark.X"""
ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError("[Errno 111] Connection refused")


@pytest.mark.parametrize(
    ("trace", "cause", "remedy"),
    [
        (NOTED, "ClientError: a long story over two lines", "Remove the cause and run it again"),
        (MISSING, "ModuleNotFoundError: No module named 'pennon'", "PYSPARK_PYTHON"),
        (
            NOT_STARTED,
            "ImportError: Error while finding module specification for 'pyspark.daemon' (No module named 'pyspark')",
            "PYSPARK_PYTHON",
        ),
        (MEMORY, "Spark's JVM ran out of memory", "PENNON_DRIVER_MEMORY"),
        ("[Errno 111] Connection refused", "Spark's driver has ended ([Errno 111] Connection refused)", "new process"),
        (LOST, ABORTED, "run it again"),
        ("", "Spark reported no reason", "run it again"),
    ],
)
def test_the_line_that_matters(trace: str, cause: str, remedy: str) -> None:
    failed = task_failed("scan", RuntimeError(trace))
    assert failed.problem == f"scan failed: {cause}"
    assert remedy in failed.remedy
    assert "Nothing was committed" in failed.remedy


@pytest.mark.parametrize("error", [RuntimeError(STOPPED), Unspeakable()])
def test_a_driver_that_has_ended(error: Exception) -> None:
    failed = task_failed("scan", error)
    assert failed.problem.startswith("scan failed: Spark's driver has ended (")
    assert "PENNON_DRIVER_MEMORY" in failed.remedy
