"""One Spark job, run in a separate thread so that its caller can watch and cancel it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from pyspark import InheritableThread

from pennon.engine.failures import driver_ended, task_failed
from pennon.engine.jvm import jvm_ended
from pennon.engine.progress import ProgressListener
from pennon.engine.session import is_connect, spark_errors_translated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 0.1
# When its JVM has ended, a job has this long to fail with its own error, which is more specific.
LAST_SECONDS = 3.0
# A job is cancelled again until it ends: a cancellation between two of its stages finds nothing that runs.
CANCEL_SECONDS, CANCEL_TIMES = 0.5, 20


def run_job(
    spark: SparkSession,
    name: str,
    frame: DataFrame,
    stages: dict[str, int],
    rows: int | None,
    listener: ProgressListener | None,
) -> pa.Table:
    """The rows of `frame`; an interrupt cancels the job.

    `stages` are its parts in order, with the number of their tasks, as reported to the listener. `rows` is the number
    of table rows that each stage reads, if known.
    """
    control = _ConnectControl(spark) if is_connect(spark) else _ClassicControl(spark)
    collected: Future[pa.Table] = Future()
    # Inheritable: the user's job groups, tags and properties apply to Pennon's jobs too.
    job = InheritableThread(target=_collect, args=(frame, name, control, collected), session=spark, daemon=True)
    report = _Report(stages, rows, listener) if listener else None
    try:
        with spark_errors_translated():
            job.start()
        _watch(collected, control, report)
        table = _rows(collected, name)
        if report:
            report.complete()
        return table
    finally:
        if report:
            report.close()


class _Control(Protocol):
    """Marks, follows and cancels a job on one kind of session."""

    def begin(self, name: str) -> None: ...

    def end(self) -> None: ...

    def completed_tasks(self) -> int: ...

    def cancel(self) -> None: ...


def _collect(frame: DataFrame, name: str, control: _Control, rows: Future[pa.Table]) -> None:
    try:
        control.begin(name)
        rows.set_result(frame.toArrow())
    except BaseException as error:  # noqa: BLE001  the caller's thread raises it
        rows.set_exception(error)
    finally:
        control.end()


def _watch(rows: Future[pa.Table], control: _Control, report: _Report | None) -> None:
    try:
        while not wait([rows], POLL_SECONDS).done:
            if jvm_ended():
                wait([rows], LAST_SECONDS)
                return
            if report:
                report.advance(_completed_tasks(control))
    except BaseException:
        # The caller was interrupted or its listener failed: the result of the job is not needed any more.
        for _ in range(CANCEL_TIMES):
            with suppress(Exception):
                control.cancel()
            if wait([rows], CANCEL_SECONDS).done:
                break
        raise


def _completed_tasks(control: _Control) -> int:
    # If this call fails, the job fails too, and its own error is more specific.
    with suppress(Exception):
        return control.completed_tasks()
    return 0


def _rows(rows: Future[pa.Table], name: str) -> pa.Table:
    if not rows.done():
        raise driver_ended(name, "its JVM is gone")
    try:
        return rows.result()
    except Exception as error:
        raise task_failed(name, error) from error


class _ClassicControl:
    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = f"pennon-{uuid.uuid4().hex}"

    def begin(self, name: str) -> None:
        # A tag, not a job group: notebooks cancel a cell by the group they have set.
        self._context.addJobTag(self._tag)
        self._context.setJobDescription(f"pennon: {name}")

    def end(self) -> None:
        pass

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
        self._thread = 0
        self._completed = 0

    def begin(self, name: str) -> None:
        self._thread = threading.get_ident()
        self._spark.addTag(self._tag)
        self._spark.registerProgressHandler(self._progressed)  # pyright: ignore[reportArgumentType]

    def end(self) -> None:
        self._spark.removeProgressHandler(self._progressed)  # pyright: ignore[reportArgumentType]

    def completed_tasks(self) -> int:
        return self._completed

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def _progressed(self, stages: Iterable[Any] | None, **_: object) -> None:
        # Called for every job of the session, by the thread that waits for that job.
        if threading.get_ident() == self._thread:
            self._completed = sum(stage.num_completed_tasks for stage in stages or ())


class _Report:
    """Reports stages to a listener, given only the number of completed tasks of the job.

    Spark runs the stages of a job one after the other, so the count determines which one is running; and unlike
    Spark's numbering of stages it does not depend on how the session plans its queries.
    """

    def __init__(self, stages: dict[str, int], rows: int | None, listener: ProgressListener) -> None:
        self._listener = listener
        self._rows = rows
        self._later = list(stages.items())
        self._completed_before = 0
        self._start_next()

    def advance(self, completed: int) -> None:
        while True:
            done = min(completed - self._completed_before, self._tasks)
            if done > self._done:
                self._done = done
                self._listener.stage_advanced(self._name, done)
            if done < self._tasks or not self._later:
                return
            self.close()
            self._completed_before += self._tasks
            self._start_next()

    def complete(self) -> None:
        self.advance(self._completed_before + self._tasks + sum(tasks for _, tasks in self._later))

    def close(self) -> None:
        self._listener.stage_finished(self._name)

    def _start_next(self) -> None:
        self._name, self._tasks = self._later.pop(0)
        self._done = 0
        self._listener.stage_started(self._name, self._tasks, self._rows)
