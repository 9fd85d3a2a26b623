"""Code that runs inside Spark's Python workers: the three functions given to mapInArrow, and the form of results.

A result is a row `(key long, failed boolean, payload binary)`: the task's number or the destination, and a pickled
value with the `Work` it took, or a pickled PennonError. A `PennonError` is a result like any other, so that Spark does
not retry the task. Any other exception is left to Spark, which retries; so is the error of a store that may answer the
next time.
"""

from __future__ import annotations

import ctypes
import gc
import pickle
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa

from pennon.engine.blocks import Packer, failure_rows, unpack
from pennon.engine.engine import Sent
from pennon.errors import BuildFailed, PennonError, StoreUnavailable
from pennon.secrets import redact_exception
from pennon.work import Work, metered

RESULT_SCHEMA = "key long, failed boolean, payload binary"
# Precedes the cause of a failure in the traceback that Spark sends to the driver.
CAUSE_MARK = "pennon task failed with "
STORE_MARK = f"{StoreUnavailable.__name__}: "

# The number of glibc's option, and enough arenas for the busy threads of a task.
M_ARENA_MAX, ARENAS = -8, 4

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class RunTasks(Generic[T, R]):
    """A Spark task of `Engine.map`."""

    function: Callable[[T], R]
    # Pickled one by one, so that a worker unpickles its own task and not all of them.
    tasks: Sequence[bytes]

    def __call__(self, numbers: Batches) -> Batches:
        for number in _numbers(numbers):
            yield _result(number, lambda task=self.tasks[number]: self.function(pickle.loads(task)))


@dataclass(frozen=True)
class ReduceRows(Generic[R]):
    """A Spark task of `SparkEngine.map_frame`: a result for the rows of one partition."""

    function: Callable[[Batches], R]

    def __call__(self, rows: Batches) -> Batches:
        # Workers have Spark loaded.
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        yield _result(context.partitionId(), lambda: self.function(rows))
        # A worker that leaves input unread cannot be reused.
        deque(rows, maxlen=0)


@dataclass(frozen=True)
class SendBlocks(Generic[T]):
    """A Spark task of the map side of `Engine.exchange`."""

    stage: str
    function: Callable[[T], Generator[Sent, None, object]]
    tasks: Sequence[bytes]
    # The caller's destinations; the reports of the tasks go to one more, after the last.
    destinations: int

    def __call__(self, numbers: Batches) -> Batches:
        for number in _numbers(numbers):
            try:
                with attempt():
                    yield from self._blocks(number)
            except PennonError as error:
                # To every destination: no reducer may assume that it has received everything.
                yield failure_rows(self.destinations + 1, dumps(error))

    def _blocks(self, number: int) -> Batches:
        packer = Packer()
        with metered() as read:
            sending = Sending(self.stage, self.function(pickle.loads(self.tasks[number])), self.destinations)
            for destination, batch in sending:
                yield from packer.add(destination, batch)
            work = read() + Work(shuffle_bytes=packer.packed_bytes)
        yield from packer.add(self.destinations, _report_batch(number, (sending.report, work)))
        yield from packer.flush()


class Sending:
    """The batches that a map function sends and, after the last one, the report it returned: None if it is not a
    generator."""

    def __init__(self, stage: str, sent: Iterable[Sent], destinations: int) -> None:
        self._stage = stage
        self._sent = sent
        self._destinations = destinations
        self.report: Any = None

    def __iter__(self) -> Iterator[Sent]:
        for destination, batch in self._reporting():
            if not 0 <= destination < self._destinations:
                raise BuildFailed(
                    f"A task of {self._stage} sent a batch to destination {destination}, but destinations are "
                    f"0 to {self._destinations - 1}"
                )
            yield destination, batch

    def _reporting(self) -> Iterator[Sent]:
        self.report = yield from self._sent


@dataclass(frozen=True)
class ReceiveBlocks(Generic[R]):
    """A Spark task of the reduce side of `Engine.exchange`."""

    function: Callable[[int, Batches], R]
    # The destination of the reports.
    reports: int

    def __call__(self, rows: Batches) -> Batches:
        first = next(rows, None)
        if first is not None:
            destination = first.column("destination")[0].as_py()
            yield _result(destination, lambda: self._reduce(destination, chain([first], rows)))
            # A worker that leaves input unread cannot be reused.
            deque(rows, maxlen=0)

    def _reduce(self, destination: int, rows: Batches) -> R | dict[int, bytes]:
        received = _Received(destination, rows)
        if destination == self.reports:
            return _read_reports(received.batches())
        value = self.function(destination, received.batches())
        # The function may stop reading early, or swallow an error of the map side.
        received.drain()
        return value


class _Received:
    """The rows that one destination receives, as they arrive."""

    def __init__(self, destination: int, rows: Batches) -> None:
        self._destination = destination
        self._rows = rows
        self._failure: PennonError | None = None

    def batches(self) -> Batches:
        for rows in self._checked():
            yield from unpack(rows)

    def drain(self) -> None:
        deque(self._checked(), maxlen=0)
        if self._failure is not None:
            raise self._failure

    def _checked(self) -> Batches:
        for rows in self._rows:
            failed: list[bool] = rows.column("failed").to_pylist()
            if True in failed:
                error: PennonError = pickle.loads(rows.column("block")[failed.index(True)].as_py())
                self._failure = error
                raise error
            misplaced = set(rows.column("destination").to_pylist()) - {self._destination}
            if misplaced:
                raise BuildFailed(f"Spark delivered blocks for {misplaced} to destination {self._destination}")
            yield rows


def dumps(value: object) -> bytes:
    # Cloudpickle also handles objects defined in a script or a notebook. Called only where Spark is already loaded.
    from pyspark.cloudpickle import dumps as cloudpickle  # noqa: PLC0415

    return cloudpickle(value)


def _report_batch(number: int, report: object) -> pa.RecordBatch:
    return pa.record_batch({"task": [number], "report": pa.array([dumps(report)], pa.large_binary())})


def _read_reports(batches: Batches) -> dict[int, bytes]:
    """The pickled reports by the numbers of their tasks."""
    return {row["task"]: row["report"] for batch in batches for row in batch.to_pylist()}


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _result(key: int, compute: Callable[[], Any]) -> pa.RecordBatch:
    failed = False
    try:
        with attempt(), metered() as read:
            value = compute()
            payload = dumps((value, read()))
    except PennonError as error:
        failed, payload = True, dumps(error)
    columns = [pa.array([key], pa.int64()), pa.array([failed]), pa.array([payload], pa.binary())]
    return pa.record_batch(columns, names=["key", "failed", "payload"])


class RetriedBySpark(Exception):
    """Replaces a StoreUnavailable that may pass. Not a PennonError, so that Spark retries the task."""


@contextmanager
def attempt() -> Generator[None]:
    """One attempt at a task: makes garbage collection quick and adds the cause to a failure."""
    _bound_arenas()
    _freeze_modules()
    try:
        yield
    except StoreUnavailable as error:
        if error.retryable:
            raise RetriedBySpark(f"{CAUSE_MARK}{STORE_MARK}{' '.join(error.problem.split())}") from error
        raise
    except PennonError:
        raise
    except Exception as error:
        error.add_note(f"{CAUSE_MARK}{cause_of(error)}")
        raise
    finally:
        _freeze_modules()


def cause_of(error: Exception) -> str:
    """The cause of a failed task in one line, without secrets."""
    redact_exception(error)
    return " ".join(f"{type(error).__name__}: {error}".split())


@cache
def _bound_arenas() -> None:
    """Limit the arenas of the C library's allocator. Otherwise every thread gets one, and memory that pylance's threads
    have freed in theirs is of no use to the others: a worker would grow from task to task."""
    with suppress(AttributeError, OSError):  # only glibc has this
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


_frozen_modules = 0


def _freeze_modules() -> None:
    """Exclude objects of imported modules from garbage collection.

    PySpark collects garbage after every task, and would traverse all objects of all modules each time. Imports happen
    when a function is unpickled and while it runs, so this is called before and after a task and acts if there are new
    modules.
    """
    global _frozen_modules  # noqa: PLW0603
    if len(sys.modules) != _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()
