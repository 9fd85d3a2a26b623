"""The engine takes the session it finds, leaves it as it was, and starts one of its own without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pennon.engine import SparkEngine
from pennon.errors import SparkUnavailable

SHARED = """
import pyarrow as pa

def scatter(task):
    for destination in range(3):
        yield destination, pa.record_batch({"value": list(range(task, task + 1000))})

def total(destination, batches):
    return sum(sum(batch["value"].to_pylist()) for batch in batches)

def check(engine):
    assert engine.map("square", lambda number: number * number, range(5)) == [0, 1, 4, 9, 16]
    expected = sum(sum(range(task, task + 1000)) for task in range(4))
    assert engine.exchange("scatter", scatter, range(4), total, 5).reduced == dict.fromkeys(range(3), expected)
"""


def python(program: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", SHARED + program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PENNON_LOCAL_CORES": "2", "PYSPARK_PYTHON": sys.executable, **environment},
    )


def session(engine: SparkEngine) -> Any:
    return engine._cluster._spark  # pyright: ignore[reportPrivateUsage]


@pytest.mark.process
def test_importing_the_engine_imports_no_pyspark() -> None:
    finished = python("import sys, pennon.engine; sys.exit('pyspark' in sys.modules or 'rich' in sys.modules)")
    assert finished.returncode == 0, finished.stderr


def test_one_embedded_session_per_process(engine: SparkEngine) -> None:
    assert engine.embedded
    assert engine.advice() == []
    assert engine.parallelism >= 1
    again = SparkEngine.attach()
    assert again.embedded
    assert session(again).sparkContext is session(engine).sparkContext


def test_old_sparks_are_refused() -> None:
    # What can be known of a session of another version without installing it: its class, and that it runs.
    running = SimpleNamespace(_jsc=object())
    attributes = {"version": "3.4.4", "sparkContext": running, "__module__": "pyspark.sql.session"}
    spark: Any = type("SparkSession", (), attributes)()
    with pytest.raises(SparkUnavailable, match=r"needs Spark 3\.5 or newer, but this is 3\.4\.4"):
        SparkEngine.attach(spark)


@pytest.mark.process
def test_an_embedded_session_is_silent_from_start_to_exit(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pennon.engine import SparkEngine
from pennon.errors import TaskFailed
before = signal.getsignal(signal.SIGINT), os.environ.get("SPARK_HOME"), os.environ.get("PYSPARK_PYTHON")
engine = SparkEngine.attach()
check(engine)

def fail(number):
    print("a worker prints")
    raise ValueError(number)

try:
    engine.map("fail", fail, [1])
    sys.exit("did not fail")
except TaskFailed as failed:
    assert failed.problem == "fail failed: ValueError: 1"
engine.stop()
restarted = SparkEngine.attach()
assert restarted.embedded
check(restarted)
assert before == (signal.getsignal(signal.SIGINT), os.environ.get("SPARK_HOME"), os.environ.get("PYSPARK_PYTHON"))
"""
    finished = python(program, "-W", "default", SPARK_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert (finished.stdout, finished.stderr, finished.returncode) == ("", "", 0)


@pytest.mark.process
def test_a_spark_that_does_not_start_says_why() -> None:
    finished = python("from pennon.engine import SparkEngine; SparkEngine.attach()", PENNON_DRIVER_MEMORY="1k")
    assert finished.returncode == 1
    last = finished.stderr.strip().splitlines()[-1]
    assert last.startswith("pennon.errors.SparkUnavailable: Spark's JVM did not start: ")
    assert "Too small maximum heap" in last


@pytest.mark.process
def test_a_given_session_is_used_and_left_as_it_was() -> None:
    program = """
from pennon.engine import SparkEngine
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
assert spark.range(3).count() == 3
spark.sparkContext.setJobGroup("mine", "my own job")

def state():
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    return dict(spark.sparkContext.getConf().getAll()), dict(spark.conf.getAll), group, spark.sparkContext.getJobTags()

before = state()
for engine in (SparkEngine.attach(spark), SparkEngine.attach()):
    assert not engine.embedded
    assert engine.parallelism == 2
    advised = {line.partition(":")[0] for line in engine.advice()}
    assert {"spark.shuffle.sort.bypassMergeThreshold=0", "spark.shuffle.compress=false"} < advised
    assert "master local[N,4]" in advised
check(engine)
engine.stop()
assert state() == before
assert spark.range(3).count() == 3
assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("mine")) >= 4
"""
    finished = python(program)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.process
@pytest.mark.heavy
def test_a_connect_session_does_the_same() -> None:
    program = """
import os, signal, threading, time
from pennon.engine import SparkEngine
from pennon.errors import ColumnNotFound, TaskFailed
from pyspark.sql import SparkSession

class Recorder:
    def __init__(self):
        self.events = []
    def stage_started(self, name, total, rows=None): self.events.append(("started", name, total))
    def stage_advanced(self, name, done): self.events.append(("advanced", name, done))
    def stage_finished(self, name): self.events.append(("finished", name))

spark = SparkSession.builder.remote("local[2]").getOrCreate()
before = dict(spark.conf.getAll)
recorder = Recorder()
engine = SparkEngine.attach(progress=recorder)
assert not engine.embedded
assert engine.parallelism == 2
assert engine.advice()
check(engine)
assert ("started", "square", 5) in recorder.events
assert ("advanced", "square", 5) in recorder.events
assert ("finished", "scatter: reduce") in recorder.events

recorder.events.clear()
engine.map("nap", lambda _: time.sleep(1), range(6))
assert len([event for event in recorder.events if event[0] == "advanced"]) > 1, recorder.events

def refuse(number):
    raise ColumnNotFound("No such column") if number else ValueError("first")

for tasks, kind, text in (([1], ColumnNotFound, "No such column"), ([0], TaskFailed, "ValueError: first")):
    try:
        engine.map("refuse", refuse, tasks)
        raise SystemExit("did not fail")
    except kind as error:
        assert text in str(error), str(error)

threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    SparkEngine.attach().map("sleep", lambda _: time.sleep(60), range(4))
    raise SystemExit("was not interrupted")
except KeyboardInterrupt:
    assert time.monotonic() - began < 30
check(engine)
engine.stop()
assert spark.range(3).count() == 3
assert dict(spark.conf.getAll) == before
"""
    finished = python(program)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_cancels_the_job(engine: SparkEngine) -> None:
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.map("sleep", time.sleep, [60] * 4)
    assert time.monotonic() - began < 30
    assert session(engine).sparkContext.statusTracker().getActiveJobsIds() == []
    assert engine.map("after", abs, [-1]) == [1]
