"""A driver whose JVM is killed ends within seconds, with an error of Pennon's, whatever it was doing."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.process

# From the kill to the end of the process; without Spark's start, which comes before.
LIMIT = 20

KILLING = """
import contextlib, os, sys, threading, time
import psutil, pyarrow as pa
from pennon.engine import SparkEngine
from pennon.cli.progress import PlainProgress

def jvm():
    # Neither the one that is asked for its version nor the one that finds out how to start Spark's.
    found = [(p, p.cmdline()) for p in psutil.Process().children(recursive=True) if p.name() == "java"]
    spark, launcher = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"
    return [p for p, words in found if spark in words and launcher not in words]

def kill(after=0.0):
    found = []
    while not found:
        time.sleep(0.01)
        with contextlib.suppress(psutil.NoSuchProcess):
            found = jvm()
    time.sleep(after)
    print(time.monotonic(), flush=True)
    for process in found:
        process.kill()

def scatter(task):
    for destination in range(4):
        time.sleep(0.2)
        yield destination, pa.record_batch({"value": list(range(200_000))})

def count(destination, batches):
    time.sleep(0.5)
    return sum(batch.num_rows for batch in batches)

def attach():
    engine = SparkEngine.attach(progress=PlainProgress() if progress else None)
    engine.map("warm up", abs, [1, 2])
    return engine

def killed(seconds, work):
    threading.Thread(target=kill, args=(seconds,), daemon=True).start()
    return work()

moment, progress = sys.argv[1], "progress" in sys.argv
"""
MOMENTS = {
    "while it starts": "killed(1, attach)",
    "as its session starts": "killed(2.5, attach)",
    "as soon as it is there": "killed(0, attach)",
    "as a job begins": "engine = attach(); killed(0, lambda: [engine.map('m', abs, [1, 2]) for _ in range(1000)])",
    "in a map": "engine = attach(); killed(0.5, lambda: engine.map('m', time.sleep, [1.0] * 20))",
    "in an exchange": "engine = attach(); killed(1, lambda: engine.exchange('x', scatter, list(range(20)), count, 4))",
    "as results come": "engine = attach(); killed(1, lambda: engine.map('r', lambda _: b'x' * (20 << 20), range(40)))",
    "between jobs": "engine = attach(); kill(); engine.map('m', abs, [1])",
    "before another engine": "attach(); kill(); attach()",
    "before it is asked": "engine = attach(); kill(); engine.parallelism",
    # Whatever Spark's client may wait for: a connection that nobody ends.
    "unnoticed by the client": """
engine = SparkEngine.attach()
from pyspark.sql.classic.dataframe import DataFrame
DataFrame.toArrow = lambda self: (kill(), threading.Event().wait())
engine.map('m', abs, [1])""",
}


def check(moment: str, *how: str) -> None:
    environment = {**os.environ, "PENNON_LOCAL_CORES": "2"}
    command = [sys.executable, "-c", KILLING + MOMENTS[moment], moment, *how]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    ended = time.monotonic()
    assert finished.returncode == 1, finished.stderr
    assert ended - float(finished.stdout.split()[0]) < LIMIT
    last = finished.stderr.strip().splitlines()[-1]
    assert last.startswith(("pennon.errors.TaskFailed: ", "pennon.errors.SparkUnavailable: ")), finished.stderr
    assert any(told in last for told in ("has ended", "ended while it started", "did not start")), last
    assert "PENNON_DRIVER_MEMORY" in last or "free memory" in last


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_driver_without_its_jvm_does_not_wait_for_it() -> None:
    check("unnoticed by the client")


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", [(), ("progress",)], ids=["silent", "watched"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_driver_whose_jvm_is_killed_ends(moment: str, how: tuple[str, ...]) -> None:
    check(moment, *how)
