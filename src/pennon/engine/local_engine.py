"""The engine without Spark: the same functions over the same tasks, in threads of this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Event
from typing import Any, TypeVar

import pyarrow as pa

from pennon.engine.engine import Exchanged, Sent
from pennon.engine.local_tasks import TaskCancelled, copied, copies, pickled, run_tasks
from pennon.engine.mailboxes import Mailboxes, mailboxes
from pennon.engine.progress import ProgressListener, watched, watched_tasks
from pennon.engine.settings import local_cores
from pennon.engine.tasks import Sending
from pennon.work import Work, count_work

# Memory of an exchange for batches that were sent and not yet read.
EXCHANGE_BYTES = 256 << 20

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")


class LocalEngine:
    """Runs functions in threads of this process, as many as there are cores. numpy, pyarrow and pylance work in several
    threads at once.

    Tasks are not retried. The first error, or an interrupt of the caller, cancels the tasks that have not begun and
    waits for the running ones.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        progress: ProgressListener | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """With one thread, tasks run one after the other in the caller's thread. With several, `around` is entered for
        every task by the thread that runs it."""
        self._threads = threads or local_cores()
        self._progress = progress
        self._around = around

    @property
    def attached(self) -> bool:
        return True

    @property
    def parallelism(self) -> int:
        return self._threads

    @property
    def in_process(self) -> LocalEngine:
        return self

    def advice(self) -> list[str]:
        return []

    def stage(self, name: str, rows: int | None = None) -> AbstractContextManager[None]:
        return watched(self._progress, name, rows)

    def map(self, stage: str, function: Callable[[T], R], tasks: Sequence[T], *, rows: int | None = None) -> list[R]:
        if not tasks:
            return []
        own = copies(function)
        calls = [partial(_call, own, pickled(task)) for task in tasks]
        values = self._run(stage, stage, calls, rows, Event())
        # What tasks read is counted with what this process reads.
        count_work(Work(tasks=len(tasks), rows_read=rows or 0))
        return values

    def exchange(
        self,
        stage: str,
        map_function: Callable[[T], Generator[Sent, None, M]],
        tasks: Sequence[T],
        reduce_function: Callable[[int, Iterator[pa.RecordBatch]], R],
        destinations: int,
        *,
        rows: int | None = None,
    ) -> Exchanged[M, R]:
        if not tasks:
            return Exchanged([], {})
        with mailboxes(destinations, EXCHANGE_BYTES) as mail:
            cancelled, own = Event(), copies(map_function)
            send = partial(_send, stage, own, destinations, mail, cancelled)
            sends = [partial(send, number, pickled(task)) for number, task in enumerate(tasks)]
            mapped = self._run(stage, f"{stage}: map", sends, rows, cancelled)
            cancelled, reduce = Event(), copies(reduce_function)
            receives = [partial(_receive, reduce, number, mail, cancelled) for number in range(destinations)]
            reduced = self._run(stage, f"{stage}: reduce", receives, rows, cancelled)
            sent = mail.sent_bytes
        count_work(Work(tasks=len(tasks) + destinations, rows_read=rows or 0, shuffle_bytes=sent))
        return Exchanged(mapped, {number: value for number, values in enumerate(reduced) for value in values})

    def stop(self) -> None:
        pass

    def _run(
        self, job: str, stage: str, calls: Sequence[Callable[[], R]], rows: int | None, cancelled: Event
    ) -> list[R]:
        with watched_tasks(self._progress, stage, len(calls), rows) as advance:
            return run_tasks(job, calls, self._threads, advance, self._around, cancelled)


def _call(own: Callable[[], Callable[[Any], R]], task: bytes) -> R:
    return copied(own()(pickle.loads(task)))


def _send(
    stage: str,
    own: Callable[[], Callable[[T], Generator[Sent, None, M]]],
    destinations: int,
    mail: Mailboxes,
    cancelled: Event,
    number: int,
    task: bytes,
) -> M:
    """Map task; returns its report."""
    sending = Sending(stage, own()(pickle.loads(task)), destinations)
    for destination, batch in sending:
        _raise_if_cancelled(cancelled)
        mail.send(number, destination, batch)
    return copied(sending.report)


def _receive(
    own: Callable[[], Callable[[int, Iterator[pa.RecordBatch]], R]], number: int, mail: Mailboxes, cancelled: Event
) -> list[R]:
    """Reduce task; an empty list for a destination that was sent nothing."""
    received = mail.receive(number)
    if received is None:
        return []
    return [copied(own()(number, _until(cancelled, received)))]


def _until(cancelled: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        _raise_if_cancelled(cancelled)
        yield batch


def _raise_if_cancelled(cancelled: Event) -> None:
    if cancelled.is_set():
        raise TaskCancelled
