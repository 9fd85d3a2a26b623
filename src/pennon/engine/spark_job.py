"""One Spark job, run in a separate thread so that its caller can watch and cancel it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import InheritableThread

from pennon.engine.failures import driver_ended, task_failed
from pennon.engine.job_control import JobControl, job_control
from pennon.engine.jvm import jvm_ended
from pennon.engine.older_sparks import THREADS_OF_SESSIONS, collect_table, version_of
from pennon.engine.progress import ProgressListener
from pennon.engine.session import spark_errors_translated
from pennon.engine.worker_python import drivers_python_of_connect
from pennon.work import job_name

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
    control = job_control(spark)
    collected: Future[pa.Table] = Future()
    job = _thread(spark, _collect, (spark, frame, job_name(name), control, collected))
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


def _thread(spark: SparkSession, target: Callable[..., None], arguments: tuple[Any, ...]) -> InheritableThread:
    """Inheritable: the user's job groups, tags and properties apply to Pennon's jobs too."""
    # Spark 3.5 takes no session there, and passes what it does not know on to Python's own thread.
    session = {"session": spark} if version_of(pyspark.__version__) >= THREADS_OF_SESSIONS else {}
    return InheritableThread(target=target, args=arguments, daemon=True, **session)


def _collect(spark: SparkSession, frame: DataFrame, name: str, control: JobControl, rows: Future[pa.Table]) -> None:
    try:
        control.begin(name)
        with drivers_python_of_connect(spark):
            rows.set_result(frame.toArrow() if hasattr(frame, "toArrow") else collect_table(frame))
    except BaseException as error:  # noqa: BLE001  the caller's thread raises it
        rows.set_exception(error)
    finally:
        with suppress(Exception):
            control.end()


def _watch(rows: Future[pa.Table], control: JobControl, report: _Report | None) -> None:
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


def _completed_tasks(control: JobControl) -> int:
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
