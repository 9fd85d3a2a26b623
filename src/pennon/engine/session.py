"""The choice of the Spark session: the given one, the active one, the launcher's, or an embedded one."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pyspark
import pyspark.util
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pennon.engine.choice import is_session
from pennon.engine.jvm import lost_connection
from pennon.engine.older_sparks import version_of
from pennon.errors import InvalidArgument, SparkUnavailable

MINIMUM_VERSION = (3, 5)
# Variables that a launcher sets for a session that is not active yet: spark-submit's, and that of a Connect server.
LAUNCHED_BY = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")

_embedded: SparkSession | None = None
_lock = threading.Lock()


def choose_session(given: SparkSession | None) -> SparkSession:
    check_version(pyspark.__version__)
    if given is not None:
        check_running(given)
    spark = given or _active_session() or _launched_session() or _embedded_session()
    check_version(spark.version)
    return spark


def starts_session() -> bool:
    """Whether `choose_session` would have to start a session, which takes seconds."""
    return _active_session() is None and not any(variable in os.environ for variable in LAUNCHED_BY)


def is_embedded(spark: SparkSession) -> bool:
    return _embedded is not None and not is_connect(spark) and spark.sparkContext is _embedded.sparkContext


def is_connect(spark: SparkSession) -> bool:
    # By name, because importing the class needs packages that a classic installation lacks.
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_running(spark: SparkSession) -> None:
    """Whether jobs can be started on a session.

    Raises:
        InvalidArgument: it is not a Spark session.
        SparkUnavailable: it was stopped.
    """
    if not is_session(spark):
        remedy = "Give a pyspark.sql.SparkSession, such as SparkSession.builder.getOrCreate()"
        raise InvalidArgument(f"{type(spark).__name__} is not a Spark session", remedy)
    stopped: Any = getattr(spark, "is_stopped", False) if is_connect(spark) else _context(spark) is None
    if stopped:
        raise SparkUnavailable("The Spark session was stopped", "Start another one, and open the table with it")


def _context(spark: SparkSession) -> Any:
    # None from the moment a classic session is stopped; there is no public way to ask.
    return getattr(spark.sparkContext, "_jsc", None)


def check_version(version: str, minimum: tuple[int, int] = MINIMUM_VERSION, what: str = "Pennon") -> None:
    """Raises SparkUnavailable for a version of Spark before `minimum`, which `what` needs."""
    if version_of(version) < minimum:
        raise SparkUnavailable(
            f"{what} needs Spark {'.'.join(map(str, minimum))} or newer, but this is {version}",
            "Upgrade pyspark and the cluster",
        )


@contextmanager
def spark_errors_translated() -> Generator[None]:
    """Raise `SparkUnavailable` for an error whose cause is that the JVM has ended."""
    try:
        yield
    except Exception as error:
        if not lost_connection(error):
            raise
        raise SparkUnavailable(
            "The JVM of this process's Spark session has ended: killed, or out of memory",
            "Start a new process, with more memory (PENNON_DRIVER_MEMORY, or spark.driver.memory of your session)",
        ) from error


def stop_embedded() -> None:
    global _embedded  # noqa: PLW0603  one embedded session per process
    with _lock:
        if _embedded is not None:
            _embedded.stop()
            _embedded = None


def _active_session() -> SparkSession | None:
    try:
        with spark_errors_translated():
            return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _launched_session() -> SparkSession | None:
    if any(variable in os.environ for variable in LAUNCHED_BY):
        return SparkSession.builder.getOrCreate()
    return None


def _embedded_session() -> SparkSession:
    global _embedded  # noqa: PLW0603
    if _is_remote_only():
        raise SparkUnavailable(
            "The installed pyspark is only the Connect client and cannot start a session",
            "Pass a Connect session, or install the package pyspark",
        )
    # The Connect client has no SparkContext to import.
    from pennon.engine.embedded import start  # noqa: PLC0415

    with _lock:
        # Another thread may have started it while this one waited.
        if _embedded is None or _active_session() is None:
            _embedded = start()
        return _embedded


def _is_remote_only() -> bool:
    # There is no such package before Spark 4.0.
    ask: Any = getattr(pyspark.util, "is_remote_only", None)
    return ask is not None and ask()
