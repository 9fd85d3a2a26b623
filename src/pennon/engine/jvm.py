"""Checks whether the JVM of a session is still running, and recognizes the errors that follow when it is not."""

from __future__ import annotations

import sys
from subprocess import TimeoutExpired
from typing import Any

# Time between a broken connection and the report of the system that the process at its other end has ended.
SOON = 1.0
ANSWERS = {"Py4JJavaError", "PySparkException", "PennonError"}


def jvm_ended(within: float = 0.0) -> bool:
    """Whether the JVM that this process started for Spark has ended, or ends within `within` seconds. False for one
    that another program started, such as spark-submit: its state is unknown."""
    # Not imported: a Connect client has no such module.
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return False
    try:
        process.wait(within)
    except TimeoutExpired:
        return False
    return True


def lost_connection(error: BaseException) -> bool:
    """Whether a call of the JVM failed because the JVM does not answer. An exception of Java or Spark is an answer.
    Without an answer, classes of the JVM seem to be missing or to be something else, so any error may occur."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    # By name, as Connect clients may lack py4j.
    names = {kind.__name__ for kind in type(error).__mro__}
    return "Py4JNetworkError" in names or jvm_ended(0.0 if names & ANSWERS else SOON)
