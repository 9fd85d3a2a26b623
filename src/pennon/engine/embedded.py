"""The embedded Spark session that Pennon starts: local, quick to start, silent."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pennon.engine.java import find_java
from pennon.engine.jvm import lost_connection
from pennon.engine.settings import embedded_settings
from pennon.errors import SparkUnavailable

CHATTER = ("WARNING: ", "Using Spark's", "Setting default", "To adjust", "Picked up")
REMEDY = "Check the installation of Java and pyspark and the free memory, or pass your own Spark session"


def start() -> SparkSession:
    find_java()
    with tempfile.TemporaryFile() as log, _environment(), _interrupt_handler_restored():
        conf = SparkConf(loadDefaults=False).setAll(list(embedded_settings().items()))
        try:
            if SparkContext._gateway is None:  # pyright: ignore[reportPrivateUsage]
                # The output of the starting JVM cannot be configured away, and is of interest only if the start fails.
                SparkContext._ensure_initialized(  # pyright: ignore[reportPrivateUsage]
                    gateway=launch_gateway(conf, {"stdout": log, "stderr": log})
                )
            SparkContext(conf=conf)
        except PySparkException as error:
            raise SparkUnavailable(f"Spark's JVM did not start: {_error_lines(log) or error}", REMEDY) from error
        except Py4JJavaError as error:
            raise SparkUnavailable(f"Spark did not start: {error.java_exception.getMessage()}", REMEDY) from error
        except Exception as error:
            if not lost_connection(error):
                raise
            reason = _error_lines(log) or "killed, or out of memory"
            raise SparkUnavailable(f"Spark's JVM ended while it started: {reason}", REMEDY) from error
        return SparkSession.builder.getOrCreate()


@contextmanager
def _environment() -> Generator[None]:
    """Set variables so that Spark starts as if no other Spark were installed."""
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # For the small JVM that Spark's scripts run to compute the command line of the large one.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # The home of another Spark would lead to another version of the JVM side.
        "SPARK_HOME": None,
        "PYSPARK_SUBMIT_ARGS": None,
    }
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _interrupt_handler_restored() -> Generator[None]:
    """Keep the program's handler of Ctrl-C: a starting SparkContext installs one that cancels every job of the
    session."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _error_lines(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    # A Java trace is indented below the informative lines.
    return " ".join(
        line for line in lines if line[:1].strip() and not line.startswith(CHATTER) and " WARN " not in line
    )
