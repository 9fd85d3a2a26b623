"""A failed Spark job as one sentence."""

from __future__ import annotations

import re

from pennon.engine.tasks import CAUSE_MARK
from pennon.errors import TaskFailed

REMEDY = "Nothing was committed; the full trace is the cause of this error. Run it again once the cause is removed"


def task_failed(stage: str, error: BaseException) -> TaskFailed:
    return TaskFailed(f"{stage} was given up: {root_cause(str(error))}", REMEDY)


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
