"""Progress on a terminal: bars where someone watches, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from pennon.engine.progress import ProgressListener, RunningStage
from pennon.wording import plural

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Plain lines: the number that may come at once, the seconds after which one more may, and the least seconds between
# two lines about a running stage.
BURST, REGAIN_SECONDS, RUNNING_SECONDS = 12, 3.0, 5.0
BAR_WIDTH = 16


def progress_for_terminal(stream: TextIO | None = None) -> ProgressListener:
    """Bars if the stream is a terminal, plain lines otherwise. The default is the error stream."""
    output: TextIO = stream or sys.stderr
    if output.isatty() and os.environ.get("TERM") != "dumb":
        return RichProgress(output)
    return PlainProgress(output)


class PlainProgress:
    """A line when a stage starts, one when it ends, and some in between.

    A job of many short stages would fill a log, so lines beyond an allowance are left out.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._stages: dict[str, RunningStage] = {}
        self._allowance, self._last = float(BURST), clock()

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        self._stages[name] = RunningStage(total_tasks, total_rows, self._clock())
        rows = "" if total_rows is None else f", {plural(total_rows, 'row')}"
        self._write(f"{name}: {plural(total_tasks, 'task')}{rows}")

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        stage = self._stages[name]
        stage.done = done_tasks
        if done_tasks < stage.tasks and self._clock() - self._last >= RUNNING_SECONDS:
            rows = "" if stage.rows is None else f", {stage.rows_done:,} of {plural(stage.rows, 'row')}"
            self._write(f"{name}: {done_tasks} of {plural(stage.tasks, 'task')}{rows}{self._speed(stage)}")

    def stage_finished(self, name: str) -> None:
        stage = self._stages.pop(name)
        if stage.done == stage.tasks:
            ended = "done" if stage.rows is None else f"done, {plural(stage.rows, 'row')}"
        else:
            ended = f"ended after {stage.done} of {plural(stage.tasks, 'task')}"
        self._write(f"{name}: {ended}{self._speed(stage)}")

    def _speed(self, stage: RunningStage) -> str:
        seconds = self._clock() - stage.started
        rate = stage.rate(seconds)
        return f", {seconds:.1f} s" + ("" if rate is None else f", {rate:,.0f} rows/s")

    def _write(self, line: str) -> None:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + (now - self._last) / REGAIN_SECONDS)
        self._last = now
        if self._allowance < 1:
            return
        self._allowance -= 1
        self._stream.write(f"{line}\n")
        self._stream.flush()


class RichProgress:
    """A bar for every running stage; the bars are removed when no stage runs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._progress: Progress | None = None
        self._bars: dict[str, tuple[TaskID, RunningStage]] = {}

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        if self._progress is None:
            self._progress = _bars(self._stream)
            self._progress.start()
        stage = RunningStage(total_tasks, total_rows, time.monotonic())
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
    # Only terminals need rich, which is slow to import.
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


def _figures(stage: RunningStage) -> str:
    """Rows, and rows per second once a task has ended."""
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
