"""One Spark job, run in a thread of its own so that its caller stays free to watch it and to call it off."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import InheritableThread

from pennon.engine.progress import ProgressListener
from pennon.engine.session import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 0.1
# How often a cancelled job is cancelled again: it may have been between two of its stages, where nothing runs.
CANCEL_SECONDS, CANCEL_TIMES = 0.5, 20


@dataclass(frozen=True)
class Stage:
    """A part of a job, as a listener is told about it."""

    name: str
    tasks: int


def run_job(
    spark: SparkSession, frame: DataFrame, stages: Sequence[Stage], listener: ProgressListener | None
) -> pa.Table:
    """The rows of `frame`. Its stages are told in order; KeyboardInterrupt cancels it."""
    control = _ConnectControl(spark) if is_connect(spark) else _ClassicControl(spark)
    job = _Job(frame, stages, control)
    report = _Report(stages, listener) if listener else None
    try:
        job.start()
        while not job.done.wait(POLL_SECONDS if report else None):
            if report:
                report.advance(control.completed_tasks())
        table = job.result()
        if report:
            report.complete()
        return table
    except KeyboardInterrupt:
        ...
