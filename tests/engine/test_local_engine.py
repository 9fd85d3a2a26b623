"""The local engine does what Spark does, in threads of this process, and keeps to its memory."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.engine import Exchanged, LocalEngine, local_engine
from pennon.engine.mailboxes import PREFIX
from pennon.engine.settings import CORES
from pennon.engine.spill import LOCAL_DIRECTORIES
from pennon.errors import BuildFailed, ColumnNotFound, StoreUnavailable, TaskFailed
from tests.support.exchange import Batches, Sent, finish, gather, scatter
from tests.support.progress import Recorder

THREADS = (1, 3)


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads} threads")
def local(request: pytest.FixtureRequest) -> LocalEngine:
    return LocalEngine(threads=request.param)


def slow_first(number: int) -> int:
    time.sleep(0.1 if number == 0 else 0)
    return number * number


def test_results_come_in_the_order_of_the_tasks(local: LocalEngine) -> None:
    assert local.map("square", slow_first, range(9)) == [number * number for number in range(9)]
    assert local.map("nothing", slow_first, []) == []


def test_as_many_threads_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CORES, raising=False)
    assert LocalEngine().parallelism == os.cpu_count()
    monkeypatch.setenv(CORES, "5")
    engine = LocalEngine()
    assert (engine.parallelism, engine.attached, engine.advice()) == (5, True, [])
    meeting = threading.Barrier(5, timeout=20)
    assert sorted(engine.map("meet", lambda _: meeting.wait(), range(5))) == [0, 1, 2, 3, 4]


def test_one_thread_is_the_callers() -> None:
    seen: list[int] = []
    LocalEngine(threads=1).map("look", lambda _: seen.append(threading.get_ident()), range(3))
    assert seen == [threading.get_ident()] * 3


def append(kept: list[int], task: list[int]) -> list[int]:
    kept.append(1)
    task.append(len(kept))
    return task


def test_tasks_share_nothing(local: LocalEngine) -> None:
    kept: list[int] = []
    tasks: list[list[int]] = [[]] * 4
    results = local.map("append", partial(append, kept), tasks)
    assert results == [[1]] * 4
    assert (kept, tasks) == ([], [[]] * 4)


def test_classes_need_no_module(local: LocalEngine) -> None:
    class Own:
        value = 3

    assert [own.value for own in local.map("own", lambda task: task, [Own(), Own()])] == [3, 3]


@pytest.mark.parametrize("error", [ColumnNotFound("no column 'x'", "Name another"), StoreUnavailable("gone")])
def test_an_error_of_pennon_comes_back_as_it_is_and_at_once(local: LocalEngine, error: Exception) -> None:
    attempts: list[int] = []

    def refuse(number: int) -> int:
        if number == 3:
            attempts.append(number)
            raise error
        return number

    with pytest.raises(type(error)) as raised:
        local.map("refuse", refuse, range(5))
    assert raised.value is error
    assert attempts == [3]


def test_any_other_error_is_a_failed_task(local: LocalEngine) -> None:
    def break_down(number: int) -> None:
        raise ValueError(f"number {number}\nis not to my liking")

    with pytest.raises(TaskFailed, match="break down failed: ValueError: number 7 is not to my liking") as failed:
        local.map("break down", break_down, [7])
    assert isinstance(failed.value.__cause__, ValueError)


def test_a_result_that_cannot_be_pickled_is_reported(local: LocalEngine) -> None:
    with pytest.raises(TaskFailed, match=r"lock failed: TypeError: cannot pickle '_thread.lock'"):
        local.map("lock", lambda _: threading.Lock(), [0])


def test_the_first_error_cancels_what_has_not_begun(local: LocalEngine) -> None:
    begun: list[int] = []

    def refuse(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ColumnNotFound("no column 'x'")
        time.sleep(0.2)

    with pytest.raises(ColumnNotFound):
        local.map("refuse", refuse, range(100))
    assert len(begun) <= 6


def test_nothing_runs_on_after_an_error(local: LocalEngine) -> None:
    """What cleans up must not meet tasks that still write."""
    running: set[int] = set()

    def refuse(number: int) -> None:
        running.add(number)
        time.sleep(0.3 * number)
        running.remove(number)
        raise ColumnNotFound(f"no column {number}")

    with pytest.raises(ColumnNotFound, match="no column 0"):
        local.map("refuse", refuse, range(3))
    assert not running


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_cancels_the_job(local: LocalEngine) -> None:
    begun: list[int] = []

    def sleep(number: int) -> None:
        begun.append(number)
        if number == 0:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(0.3)

    with pytest.raises(KeyboardInterrupt):
        local.map("sleep", sleep, range(60))
    assert len(begun) <= 6
    assert local.map("after", abs, [-1]) == [1]


def test_a_map_is_one_stage_and_an_exchange_two() -> None:
    recorder = Recorder()
    engine = LocalEngine(threads=2, progress=recorder)
    engine.map("square", slow_first, range(3), rows=30)
    assert recorder.events == [
        ("started", "square", 3),
        *(("advanced", "square", done) for done in (1, 2, 3)),
        ("finished", "square", 0),
    ]
    recorder.events.clear()
    engine.exchange("move", partial(scatter, 2, 10), range(3), gather, 5, rows=60)
    assert recorder.events == [
        ("started", "move: map", 3),
        *(("advanced", "move: map", done) for done in (1, 2, 3)),
        ("finished", "move: map", 0),
        ("started", "move: reduce", 5),
        *(("advanced", "move: reduce", done) for done in (1, 2, 3, 4, 5)),
        ("finished", "move: reduce", 0),
    ]
    assert recorder.rows == {"square": 30, "move: map": 60, "move: reduce": 60}


def test_listeners_are_called_by_the_callers_thread() -> None:
    seen: set[int] = set()

    class Threads(Recorder):
        def stage_advanced(self, name: str, done_tasks: int) -> None:
            seen.add(threading.get_ident())

    LocalEngine(threads=3, progress=Threads()).map("square", slow_first, range(6))
    assert seen == {threading.get_ident()}


def test_a_failed_job_ends_its_stage(local: LocalEngine) -> None:
    recorder = Recorder()
    with pytest.raises(TaskFailed):
        LocalEngine(local.parallelism, progress=recorder).map("divide", lambda number: 1 / number, [0])
    assert recorder.events == [("started", "divide", 1), ("finished", "divide", 0)]


def test_a_listener_that_fails_ends_the_job(local: LocalEngine) -> None:
    class Broken(Recorder):
        def stage_advanced(self, name: str, done_tasks: int) -> None:
            raise OSError("no one is listening")

    begun: list[int] = []

    def note(number: int) -> None:
        begun.append(number)
        time.sleep(0.05)

    with pytest.raises(OSError, match="no one is listening"):
        LocalEngine(local.parallelism, progress=Broken()).map("note", note, range(99))
    assert len(begun) < 20


@pytest.fixture(params=[0, 1 << 20, 1 << 40], ids=["all spilled", "some spilled", "none spilled"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where files of an exchange go; when all is over there are none."""
    monkeypatch.setattr(local_engine, "EXCHANGE_BYTES", request.param)
    spilled = tmp_path / "spilled"
    spilled.mkdir()
    monkeypatch.setenv(LOCAL_DIRECTORIES, str(spilled))
    yield spilled
    assert list(spilled.iterdir()) == []


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("tasks", "rows", "destinations"), [(5, 1000, 1), (3, 100, 60), (1, 10, 3), (3, 200_000, 4)])
def test_every_row_arrives_once(local: LocalEngine, tasks: int, rows: int, destinations: int) -> None:
    send = partial(scatter, destinations, rows)
    results: Any = local.exchange("scatter", send, range(tasks), gather, destinations).reduced
    everything = np.arange(tasks * rows)
    for destination in range(destinations):
        mine = everything[everything % destinations == destination]
        assert results[destination] == (destination, len(mine), mine.sum(), True)


@pytest.mark.usefixtures("memory")
def test_batches_come_in_the_order_of_the_tasks(local: LocalEngine) -> None:
    """So that what is made of them is the same every time."""

    def send(task: int) -> Sent:
        for part in range(3):
            time.sleep(0.02 * (task == 0))
            yield 0, pa.record_batch({"value": np.full(1000, task * 10 + part)})

    def receive(_: int, batches: Batches) -> list[int]:
        return [batch["value"][0].as_py() for batch in batches]

    assert local.exchange("order", send, range(4), receive, 1).reduced[0] == [
        task * 10 + part for task in range(4) for part in range(3)
    ]


@pytest.mark.usefixtures("memory")
def test_a_sender_may_use_its_memory_again(local: LocalEngine) -> None:
    def send(_: int) -> Sent:
        values = np.zeros(1000)
        for part in range(4):
            values[:] = part
            yield 0, pa.record_batch([pa.Array.from_buffers(pa.float64(), 1000, [None, pa.py_buffer(values)])], ["v"])

    received = local.exchange("reuse", send, [0], lambda _, batches: [b["v"].to_numpy().mean() for b in batches], 1)
    assert received.reduced[0] == [0, 1, 2, 3]


def test_map_tasks_report(local: LocalEngine) -> None:
    def send(task: int) -> Any:
        yield from scatter(3, 1000 * task, task)
        return {"task": task} if task != 2 else None

    exchanged = local.exchange("report", send, [3, 2, 1], gather, 4)
    assert exchanged.mapped == [{"task": 3}, None, {"task": 1}]
    assert sorted(exchanged.reduced) == [0, 1, 2], "destinations that were sent nothing are not called"
    plain: Any = lambda _: [(0, pa.record_batch({"value": [1]}))]  # noqa: E731
    assert local.exchange("plain", plain, [1, 2], lambda _, batches: len(list(batches)), 1) == Exchanged(
        [None, None], {0: 2}
    )
    assert local.exchange("nothing", send, [], gather, 3) == Exchanged([], {})


def fail_midway(task: int) -> Sent:
    for part in range(20):
        yield part % 4, pa.record_batch({"value": np.full(30_000, part)})
        if task == 1 and part == 15:
            raise ColumnNotFound("no column 'x'")


@pytest.mark.usefixtures("memory")
def test_no_destination_begins_when_a_sender_fails(local: LocalEngine, tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    finished.mkdir()
    with pytest.raises(ColumnNotFound):
        local.exchange("midway", fail_midway, range(3), partial(finish, finished), 4)
    assert list(finished.iterdir()) == []


def test_other_tasks_end_where_they_next_send_or_receive() -> None:
    engine, sent, failed = LocalEngine(threads=2), list[int](), list[int]()

    def send(task: int) -> Sent:
        for part in range(200):
            yield 0, pa.record_batch({"value": [part]})
            sent.append(part)
            time.sleep(0.05)
            if task == 1:
                failed.append(len(sent))
                raise ColumnNotFound("no column 'x'")

    with pytest.raises(ColumnNotFound):
        engine.exchange("send", send, range(2), gather, 1)
    assert len(sent) < failed[0] + 100


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("error", [ColumnNotFound("no column 'x'"), ZeroDivisionError("at 2")])
def test_errors_of_a_destination(local: LocalEngine, error: Exception) -> None:
    def refuse(destination: int, batches: Batches) -> int:
        next(batches)
        if destination == 2:
            raise error
        return 0

    expected = r"no column 'x'|refuse failed: ZeroDivisionError: at 2"
    with pytest.raises((ColumnNotFound, TaskFailed), match=expected):
        local.exchange("refuse", partial(scatter, 4, 100_000), range(2), refuse, 4)


@pytest.mark.parametrize("destination", [-1, 4])
def test_a_destination_that_does_not_exist_is_refused(local: LocalEngine, destination: int) -> None:
    def send(_: int) -> Sent:
        yield destination, pa.record_batch({"value": [1]})

    with pytest.raises(BuildFailed, match=f"astray sent a batch to destination {destination}, .* 0 to 3"):
        local.exchange("astray", send, [0], gather, 4)


@pytest.mark.parametrize("threads", THREADS)
def test_an_exchange_keeps_to_its_memory(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """160 MB are sent, 8 MiB may be kept, and every thread has a batch of 2 MB and a copy of it in its hands."""
    monkeypatch.setattr(local_engine, "EXCHANGE_BYTES", 8 << 20)
    monkeypatch.setenv(LOCAL_DIRECTORIES, str(tmp_path))
    before, most, spilled = pa.total_allocated_bytes(), [0], [0]

    def send(task: int) -> Sent:
        for part in range(20):
            yield part % 5, pa.record_batch({"value": pa.array(np.full(250_000, task))})
            most[0] = max(most[0], pa.total_allocated_bytes() - before)

    def receive(_: int, batches: Batches) -> int:
        spilled[0] = sum(file.stat().st_size for file in tmp_path.glob(f"{PREFIX}*/*"))
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            most[0] = max(most[0], pa.total_allocated_bytes() - before)
        return rows

    received = LocalEngine(threads).exchange("large", send, range(4), receive, 5).reduced
    assert received == dict.fromkeys(range(5), 4_000_000)
    assert spilled[0] > 140_000_000
    assert most[0] < (8 << 20) + threads * 3 * 2_100_000
    assert list(tmp_path.iterdir()) == []
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_more_destinations_than_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(local_engine, "EXCHANGE_BYTES", 0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # tables of other tests, whose files are open
    held = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 100, limits[1]))
    try:
        send = partial(scatter, 1000, 1000)
        received = LocalEngine(threads=2).exchange("many", send, range(2), lambda _, batches: len(list(batches)), 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert received.reduced == dict.fromkeys(range(1000), 2)
