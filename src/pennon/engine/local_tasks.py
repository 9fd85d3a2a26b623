"""Tasks in threads of this process, with progress reports; the first error cancels the rest."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from threading import Event
from typing import Any, TypeVar

from pennon.engine.failures import REMEDY
from pennon.engine.tasks import cause_of, dumps
from pennon.errors import PennonError, TaskFailed

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)


class TaskCancelled(BaseException):
    """Ends a task because another has failed. Not an Exception, so that no task handles it."""


def run_tasks(
    job: str,
    calls: Sequence[Callable[[], R]],
    threads: int,
    advance: Callable[[int], None],
    around: Callable[[], AbstractContextManager[None]],
    cancelled: Event,
) -> list[R]:
    """The results of the calls in order. With one thread, they run one after the other in the caller's thread."""
    if threads == 1:
        return _in_turn(job, calls, advance)
    futures: list[Future[R]] = []
    # Leaving the pool waits for the running tasks: they write files, which the cleanup must find.
    with ThreadPoolExecutor(min(threads, len(calls)), thread_name_prefix="pennon-task") as pool:
        try:
            futures += [pool.submit(_within, around, call) for call in calls]
            _watch(futures, advance)
        finally:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)
    failures = (future.exception() for future in futures if not future.cancelled())
    failed = next((error for error in failures if error is not None and not isinstance(error, TaskCancelled)), None)
    if failed is not None:
        raise_failure(job, failed)
    return [future.result() for future in futures]


def raise_failure(job: str, error: BaseException) -> None:
    if isinstance(error, PennonError) or not isinstance(error, Exception):
        raise error
    raise TaskFailed(f"{job} failed: {cause_of(error)}", REMEDY) from error


def pickled(value: object) -> bytes:
    """Pickled as for Spark. PySpark's pickler, which also handles objects defined in a script, is slow to import and
    used only when needed."""
    try:
        return pickle.dumps(value)
    except UNPICKLABLE:
        return dumps(value)


def copied(value: R) -> R:
    return pickle.loads(pickled(value))


def copies(function: F) -> Callable[[], F]:
    """A factory that copies a function and its bound objects for every task; a function that cannot be pickled is
    shared."""
    try:
        content = pickle.dumps(function)
    except UNPICKLABLE:
        return lambda: function
    return lambda: pickle.loads(content)


def _in_turn(job: str, calls: Iterable[Callable[[], R]], advance: Callable[[int], None]) -> list[R]:
    results: list[R] = []
    for call in calls:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001  any error is a failure of the task
            raise_failure(job, error)
        advance(len(results))
    return results


def _within(around: Callable[[], AbstractContextManager[None]], call: Callable[[], R]) -> R:
    with around():
        return call()


def _watch(futures: Sequence[Future[Any]], advance: Callable[[int], None]) -> None:
    for done, future in enumerate(as_completed(futures), 1):
        if future.exception() is not None:
            return
        advance(done)
