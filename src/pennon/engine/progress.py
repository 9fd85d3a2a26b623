"""Progress reporting: the protocol of listeners, and stages that run in this process.

Spark reports how many tasks of a stage have ended, and nothing about the progress within a task. A job cuts the rows of
a stage into tasks of about equal size, so the rows done are the share of the tasks done: an estimate while the stage
runs and exact at its end, at no cost to the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol


class ProgressListener(Protocol):
    """Receives the stages of a job in order, always from the thread that runs the job."""

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        """`total_rows` is None if unknown."""

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        """That many tasks of the stage have ended."""

    def stage_finished(self, name: str) -> None:
        """The stage has ended, successfully or not."""


@dataclass
class RunningStage:
    """What a listener that shows stages keeps of each. `started` is by the listener's clock."""

    tasks: int
    rows: int | None
    started: float
    done: int = 0

    @property
    def rows_done(self) -> int | None:
        """An estimate while tasks run; None where the rows are not known."""
        return None if self.rows is None else self.rows * self.done // max(1, self.tasks)

    def rate(self, seconds: float) -> float | None:
        """Rows per second; None until a task has ended."""
        return self.rows_done / seconds if self.rows_done and seconds > 0 else None


@contextmanager
def watched(listener: ProgressListener | None, name: str, rows: int | None = None) -> Generator[None]:
    """A stage that this process runs as one piece of work, such as training or starting Spark."""
    with watched_tasks(listener, name, 1, rows) as advance:
        yield
        advance(1)


@contextmanager
def watched_tasks(
    listener: ProgressListener | None, name: str, tasks: int, rows: int | None = None
) -> Generator[Callable[[int], None]]:
    """A stage whose tasks this process runs itself; it reports how many are done."""
    if listener is None:
        yield lambda _: None
        return
    listener.stage_started(name, tasks, rows)
    try:
        yield partial(listener.stage_advanced, name)
    finally:
        listener.stage_finished(name)
