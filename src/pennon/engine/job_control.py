"""How a job is marked, followed and cancelled on a classic session and on a Connect one.

The mark that a person sees is the job's description and the name of its stages on Spark's pages, and a tag under
Connect; the one that cancels it is another tag. All of them are properties of the thread that runs the job, and
the user's own come back at its end.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from pennon.engine.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"
# The text that Spark names the stages of a job by.
STAGE_NAME = "callSite.short"
# Spark refuses them in a tag.
NOT_IN_TAGS = str.maketrans(",", ";")


class JobControl(Protocol):
    def begin(self, name: str) -> None:
        """Mark the jobs that this thread starts from now on."""
        ...

    def end(self) -> None:
        """Undo what `begin` did."""
        ...

    def completed_tasks(self) -> int: ...

    def cancel(self) -> None: ...


def job_control(spark: SparkSession) -> JobControl:
    return _ConnectControl(spark) if is_connect(spark) else _ClassicControl(spark)


class _ClassicControl:
    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = f"pennon-{uuid.uuid4().hex}"
        self._marks = ExitStack()

    def begin(self, name: str) -> None:
        # Not a part of the Connect client.
        from pyspark.traceback_utils import SCCallSiteSync  # noqa: PLC0415

        context: Any = self._context
        # A tag, not a job group: notebooks cancel a cell by the group they have set.
        context.addJobTag(self._tag)
        self._marks.callback(context.removeJobTag, self._tag)
        for key in (DESCRIPTION, STAGE_NAME):
            self._marks.callback(context.setLocalProperty, key, context.getLocalProperty(key))
        # PySpark names stages by the line that starts a job, which is one of this package, unless it is within such a
        # call already.
        self._marks.enter_context(SCCallSiteSync(context))
        for key in (DESCRIPTION, STAGE_NAME):
            context.setLocalProperty(key, name)

    def end(self) -> None:
        # The thread ends too, but without PySpark's pinned threads the JVM's thread goes on.
        self._marks.close()

    def completed_tasks(self) -> int:
        context: Any = self._context
        # PySpark's own tracker does not support tags.
        tracker = context._jsc.sc().statusTracker()
        public = context.statusTracker()
        jobs = filter(None, (public.getJobInfo(job) for job in tracker.getJobIdsForTag(self._tag)))
        stages = filter(
            None, (public.getStageInfo(stage) for stage in {stage for job in jobs for stage in job.stageIds})
        )
        return sum(stage.numCompletedTasks for stage in stages)

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)


class _ConnectControl:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"pennon-{uuid.uuid4().hex}"
        self._tags: tuple[str, ...] = ()
        self._thread = 0
        self._completed = 0

    def begin(self, name: str) -> None:
        self._thread = threading.get_ident()
        self._tags = (self._tag, name.translate(NOT_IN_TAGS))
        for tag in self._tags:
            self._spark.addTag(tag)
        self._follow("registerProgressHandler")

    def end(self) -> None:
        self._follow("removeProgressHandler")
        for tag in self._tags:
            self._spark.removeTag(tag)

    def completed_tasks(self) -> int:
        return self._completed

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def _follow(self, method: str) -> None:
        # Spark 3.5 reports no progress to a client.
        call: Any = getattr(self._spark, method, None)
        if call is not None:
            call(self._progressed)

    def _progressed(self, stages: Iterable[Any] | None, **_: object) -> None:
        # Called for every job of the session, by the thread that waits for that job.
        if threading.get_ident() == self._thread:
            self._completed = sum(stage.num_completed_tasks for stage in stages or ())
