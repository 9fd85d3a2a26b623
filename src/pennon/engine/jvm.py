"""Whether the JVM that a session talks to is still there, and the errors by which that shows when it is not."""

from __future__ import annotations

import sys
from subprocess import TimeoutExpired
from typing import Any

# Between the moment a connection breaks and the moment the system reports the end of the process behind it.
SOON = 1.0
ANSWERS = {"Py4JJavaError", "PySparkException", "PennonError"}


def jvm_ended(within: float = 0.0) -> bool:
    """Whether the JVM that this process started for Spark has ended, or does within so many seconds. Of one that
    another program started, as spark-submit does, nothing is known: False."""
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
    """Whether a call of the JVM failed because nobody answers. What Java or Spark raised is an answer; without any, the
    classes of the JVM do not seem to exist, or to be something else, and errors are of every kind."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    # By name, as Connect clients may lack py4j.
    names = {kind.__name__ for kind in type(error).__mro__}
    return "Py4JNetworkError" in names or jvm_ended(0.0 if names & ANSWERS else SOON)
