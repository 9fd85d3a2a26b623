"""A failed Spark job as one sentence, and what to do about it."""

from __future__ import annotations

import re

from pennon.engine.jvm import SOON, jvm_ended, lost_connection
from pennon.engine.tasks import CAUSE_MARK, STORE_MARK
from pennon.errors import PennonError, StoreUnavailable, TaskFailed

REMEDY = "Nothing was committed; the full trace is the cause of this error. Remove the cause and run it again"
MORE_MEMORY = (
    "Nothing was committed. Give Spark more memory (PENNON_DRIVER_MEMORY for a session that Pennon starts, "
    "spark.driver.memory and spark.executor.memory otherwise) and run it again in a new process"
)
OTHER_PYTHON = (
    "Nothing was committed. Spark's workers use another Python than this one, or run on other machines: install the "
    "missing module there, or set PYSPARK_PYTHON to the right Python before the session starts (for one that runs: "
    "spark.conf.set('spark.sql.execution.pyspark.python', ...))"
)

# Errors that show that the driver's JVM ended during a job, for example because it ran out of memory.
DRIVER_GONE = (
    "Connection refused",
    "Connection reset",
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "SparkContext was shut down",
    "SparkContext.dagScheduler()",
)


def task_failed(stage: str, error: BaseException) -> PennonError:
    trace = _trace(error)
    cause, remedy = root_cause(trace), REMEDY
    if cause.startswith(STORE_MARK):
        return StoreUnavailable(f"{stage} failed: {cause.removeprefix(STORE_MARK)}", REMEDY)
    if "ModuleNotFoundError" in cause or "No module named" in cause:
        remedy = OTHER_PYTHON
    elif "java.lang.OutOfMemoryError" in trace:
        cause, remedy = "Spark's JVM ran out of memory", MORE_MEMORY
    elif any(sign in cause for sign in DRIVER_GONE):
        return driver_ended(stage, cause)
    elif lost_connection(error) and jvm_ended(SOON):
        return driver_ended(stage, cause if trace else type(error).__name__)
    return TaskFailed(f"{stage} failed: {cause}", remedy)


def driver_ended(stage: str, how: str) -> TaskFailed:
    return TaskFailed(f"{stage} failed: Spark's driver has ended ({how})", MORE_MEMORY)


def root_cause(trace: str) -> str:
    """The most informative line in Spark's report of a failed job."""
    marked = re.findall(f"{re.escape(CAUSE_MARK)}(.*)", trace)
    if marked:
        return marked[-1].strip()
    if "worker exited unexpectedly" in trace:
        return "a Python worker died (killed, out of memory, or crashed in native code)"
    # What a Python that could not start has printed.
    printed = re.findall(r"Error from python worker:\n((?:.*\n)*?)PYTHONPATH was:", trace)
    if printed and printed[-1].strip():
        return printed[-1].strip().splitlines()[-1].strip()
    # The last line of a Python traceback is the first that is not indented.
    python = re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", trace)
    if python:
        return python[-1].strip()
    caused = re.findall(r"^Caused by: (.*)", trace, re.MULTILINE)
    if caused:
        return caused[-1].strip()
    # The line before a Java exception only names the call that raised it.
    lines = (
        line.strip(" \t:.") for line in trace.splitlines() if not line.startswith("An error occurred while calling")
    )
    return next(filter(None, lines), "Spark reported no reason")


def _trace(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as gone:  # noqa: BLE001  the text of a JVM error is requested from the JVM
        return str(gone)
