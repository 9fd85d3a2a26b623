"""Who is told how far a job is: a protocol, bars for a terminal, plain lines for everything else.

Spark tells how many tasks of a stage have ended, and nothing of what happens inside one. A job knows how many rows a
stage goes through and cuts them into tasks of about equal size, so the rows done are the share of the tasks done: an
estimate on the way and exact at the end, at no cost to the tasks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Plain lines: so many may come at once, then one in so many seconds; and of a stage under way no more often than this.
BURST, REGAIN_SECONDS, UNDER_WAY_SECONDS = 12, 3.0, 5.0
BAR_WIDTH = 16


class ProgressListener(Protocol):
    """Told about stages in order, always by the thread that runs the job."""

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        """`total_rows` is None where the job cannot know."""

    def stage_advanced(self, name: str, done_tasks: int) -> None: ...

    def stage_finished(self, name: str) -> None:
        """The stage has ended, well or not."""


def progress_for_terminal(stream: TextIO | None = None) -> ProgressListener:
    """Bars where someone watches, plain lines where the output is kept."""
    output: TextIO = stream or sys.stderr
    if output.isatty() and os.environ.get("TERM") != "dumb":
        return RichProgress(output)
    return PlainProgress(output)


@contextmanager
def watched(listener: ProgressListener | None, name: str, rows: int | None = None) -> Generator[None]:
    """A stage that is one piece of work of this process, such as training or starting Spark."""
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


@dataclass
class _Stage:
    """What is known of a stage that runs."""

    tasks: int
    rows: int | None
    started: float
    done: int = 0

    @property
    def rows_done(self) -> int | None:
        return None if self.rows is None else self.rows * self.done // max(1, self.tasks)

    def rate(self, seconds: float) -> float | None:
        """Rows a second; None as long as that cannot be told."""
        return self.rows_done / seconds if self.rows_done and seconds > 0 else None


class PlainProgress:
    """A line when a stage starts, one when it ends, and now and then one in between.

    A job of many short stages would fill a log with them, so that lines beyond an allowance are left out.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._stages: dict[str, _Stage] = {}
        self._allowance, self._last = float(BURST), clock()

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        self._stages[name] = _Stage(total_tasks, total_rows, self._clock())
        rows = "" if total_rows is None else f", {_counted(total_rows, 'row')}"
        self._say(f"{name}: {_counted(total_tasks, 'task')}{rows}")

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        stage = self._stages[name]
        stage.done = done_tasks
        if done_tasks < stage.tasks and self._clock() - self._last >= UNDER_WAY_SECONDS:
            rows = "" if stage.rows is None else f", {stage.rows_done:,} of {_counted(stage.rows, 'row')}"
            self._say(f"{name}: {done_tasks} of {_counted(stage.tasks, 'task')}{rows}{self._speed(stage)}")

    def stage_finished(self, name: str) -> None:
        stage = self._stages.pop(name)
        if stage.done == stage.tasks:
            ended = "done" if stage.rows is None else f"done, {_counted(stage.rows, 'row')}"
        else:
            ended = f"ended after {stage.done} of {_counted(stage.tasks, 'task')}"
        self._say(f"{name}: {ended}{self._speed(stage)}")

    def _speed(self, stage: _Stage) -> str:
        seconds = self._clock() - stage.started
        rate = stage.rate(seconds)
        return f", {seconds:.1f} s" + ("" if rate is None else f", {rate:,.0f} rows/s")

    def _say(self, line: str) -> None:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + (now - self._last) / REGAIN_SECONDS)
        self._last = now
        if self._allowance < 1:
            return
        self._allowance -= 1
        self._stream.write(f"{line}\n")
        self._stream.flush()


class RichProgress:
    """A bar for every running stage; bars vanish when no stage runs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._progress: Progress | None = None
        self._bars: dict[str, tuple[TaskID, _Stage]] = {}

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        if self._progress is None:
            self._progress = _bars(self._stream)
            self._progress.start()
        stage = _Stage(total_tasks, total_rows, time.monotonic())
        bar = self._progress.add_task(name, total=total_tasks, figures=_figures(stage))
        self._bars[name] = bar, stage

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        if self._progress is not None:
            bar, stage = self._bars[name]
            stage.done = done_tasks
            self._progress.update(bar, completed=done_tasks, figures=_figures(stage))

    def stage_finished(self, name: str) -> None:
        if self._progress is None:
            return
        self._progress.remove_task(self._bars.pop(name)[0])
        if not self._bars:
            self._progress.stop()
            self._progress = None


def _bars(stream: TextIO) -> Progress:
    # Only a terminal needs rich, and it takes a while to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )


def _figures(stage: _Stage) -> str:
    """Rows, and rows a second once a task has ended."""
    if stage.rows is None:
        return ""
    rate = stage.rate(time.monotonic() - stage.started)
    speed = "" if rate is None else f" {_short(rate)} rows/s"
    return f"{_short(stage.rows_done or 0)}/{_short(stage.rows)} rows{speed}"


def _short(count: float) -> str:
    for unit in ("", "k", "M"):
        if count < 1000:
            return f"{count:.0f}" if not unit else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}G"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
