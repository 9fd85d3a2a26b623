"""A failed Spark job as one sentence."""

from __future__ import annotations

import re

from pennon.engine.tasks import CAUSE_MARK
from pennon.errors import TaskFailed

REMEDY = "Nothing was committed; the full trace is the cause of this error. Run it again once the cause is removed"
OTHER_PYTHON = (
    "Nothing was committed. Spark's workers run another Python than this one, or on other machines: install there what "
    "is missing, or name the right Python in PYSPARK_PYTHON before the session starts"
)


def task_failed(stage: str, error: BaseException) -> TaskFailed:
    cause = root_cause(str(error))
    return TaskFailed(f"{stage} was given up: {cause}", OTHER_PYTHON if "ModuleNotFoundError" in cause else REMEDY)


def root_cause(trace: str) -> str:
    """The line that matters in what Spark says about a failed job."""
    marked = re.findall(f"{re.escape(CAUSE_MARK)}(.*)", trace)
    if marked:
        return marked[-1].strip()
    if "worker exited unexpectedly" in trace:
        return "a Python worker died (killed, out of memory, or crashed in native code)"
    # The last line of a Python traceback is the first that is not indented.
    python = re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", trace)
    lines = python[-1:] or [line for line in trace.splitlines() if line.strip()] or ["Spark gives no reason"]
    return lines[0].strip()
