"""A map runs every task once, in whatever order, and gives the results back in the order of the tasks."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pennon.engine import SparkEngine
from pennon.errors import ColumnNotFound, CommitConflict, TaskFailed


@dataclass(frozen=True)
class Attempts:
    """Counts in a file how often a task was tried, across processes."""

    file: Path

    def add(self) -> int:
        with self.file.open("a") as file:
            file.write("x")
        return self.count()

    def count(self) -> int:
        return len(self.file.read_text()) if self.file.exists() else 0


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "attempts")


def slow_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def refuse(attempts: Attempts, number: int) -> int:
    if number == 3:
        attempts.add()
        raise ColumnNotFound("The table has no column 'x'", "Name another")
    return number


def break_down(attempts: Attempts, number: int) -> int:
    attempts.add()
    raise ValueError(f"number {number}\nis not to my liking")


def die_once(attempts: Attempts, number: int) -> int:
    if number == 1 and attempts.add() == 1:
        os._exit(17)
    return number


def fail_once(attempts: Attempts, number: int) -> int:
    if number == 1 and attempts.add() == 1:
        raise OSError("storage has hiccups")
    return number


def test_results_come_in_the_order_of_the_tasks(engine: SparkEngine) -> None:
    assert engine.map("square", slow_first, range(9)) == [number * number for number in range(9)]


def test_functions_and_classes_need_no_module(engine: SparkEngine) -> None:
    @dataclass
    class Local:
        value: int

    factor = 3
    results = engine.map("local", lambda task: Local(task.value * factor), [Local(1), Local(2)])
    assert results == [Local(3), Local(6)]


def test_no_tasks_no_job() -> None:
    assert SparkEngine(None).map("nothing", slow_first, []) == []  # pyright: ignore[reportArgumentType]


def test_an_error_of_pennon_comes_back_as_it_is_and_at_once(engine: SparkEngine, attempts: Attempts) -> None:
    with pytest.raises(ColumnNotFound) as raised:
        engine.map("refuse", partial(refuse, attempts), range(5))
    assert (raised.value.problem, raised.value.remedy) == ("The table has no column 'x'", "Name another")
    assert attempts.count() == 1


def test_the_error_of_the_first_task_wins(engine: SparkEngine) -> None:
    def refuse_all(number: int) -> None:
        raise (CommitConflict if number else ColumnNotFound)("No")

    with pytest.raises(ColumnNotFound):
        engine.map("refuse all", refuse_all, range(3))


def test_any_other_error_is_tried_again_and_told_in_one_line(engine: SparkEngine, attempts: Attempts) -> None:
    with pytest.raises(TaskFailed) as raised:
        engine.map("break down", partial(break_down, attempts), [7])
    assert raised.value.problem == "break down failed: ValueError: number 7 is not to my liking"
    assert raised.value.__cause__ is not None
    assert attempts.count() == 4


def test_a_task_that_recovers_is_no_failure(engine: SparkEngine, attempts: Attempts) -> None:
    assert engine.map("fail once", partial(fail_once, attempts), range(3)) == [0, 1, 2]
    assert attempts.count() == 2


def test_a_killed_worker_is_survived(engine: SparkEngine, attempts: Attempts) -> None:
    assert engine.map("die once", partial(die_once, attempts), range(4)) == [0, 1, 2, 3]
    assert attempts.count() == 2


def test_a_worker_killed_each_time_is_told(engine: SparkEngine) -> None:
    with pytest.raises(TaskFailed, match="die failed: a Python worker died"):
        engine.map("die", os._exit, [1])


def test_a_result_that_cannot_be_pickled_is_told(engine: SparkEngine) -> None:
    def lock(_: int) -> object:
        return threading.Lock()

    with pytest.raises(TaskFailed, match=r"lock failed: TypeError: cannot pickle '_thread.lock'"):
        engine.map("lock", lock, [0])
