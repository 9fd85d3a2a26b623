"""Tasks in threads of this process: in order, reported, and called off at the first error."""

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


class CalledOff(BaseException):
    """Ends a task because another has failed. Not an Exception, so that no task handles it."""


def run_tasks(
    job: str,
    calls: Sequence[Callable[[], R]],
    threads: int,
    advance: Callable[[int], None],
    around: Callable[[], AbstractContextManager[None]],
    called_off: Event,
) -> list[R]:
    """What the calls return, in their order. With one thread they run in the caller's, one after the other."""
    if threads == 1:
        return _in_turn(job, calls, advance)
    futures: list[Future[R]] = []
    # Leaving the pool waits for the tasks that have begun: they write files, which those who clean up must find.
    with ThreadPoolExecutor(min(threads, len(calls)), thread_name_prefix="pennon-task") as pool:
        try:
            futures += [pool.submit(_within, around, call) for call in calls]
            _watch(futures, advance)
        finally:
            called_off.set()
            pool.shutdown(wait=False, cancel_futures=True)
    failures = (future.exception() for future in futures if not future.cancelled())
    failed = next((error for error in failures if error is not None and not isinstance(error, CalledOff)), None)
    if failed is not None:
        raise_failure(job, failed)
    return [future.result() for future in futures]


def raise_failure(job: str, error: BaseException) -> None:
    if isinstance(error, PennonError) or not isinstance(error, Exception):
        raise error
    raise TaskFailed(f"{job} was given up: {cause_of(error)}", REMEDY) from error


def pickled(value: object) -> bytes:
    """As it would travel to Spark. PySpark's pickler, which also takes what is defined in a script, is slow to import
    and used only where it is needed."""
    try:
        return pickle.dumps(value)
    except UNPICKLABLE:
        return dumps(value)


def copied(value: R) -> R:
    return pickle.loads(pickled(value))


def copies(function: F) -> Callable[[], F]:
    """Makes a copy of a function and of what it is bound to, for every task; one that cannot be pickled is shared."""
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
        except Exception as error:  # noqa: BLE001  of whatever kind, it is a failure of the task
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
