"""Who is told how far a job is: a protocol, bars for a terminal, plain lines for everything else."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressListener(Protocol):
    """Told about stages in order, always by the thread that runs the job."""

    def stage_started(self, name: str, total_tasks: int) -> None: ...

    def stage_advanced(self, name: str, done_tasks: int) -> None: ...

    def stage_finished(self, name: str) -> None:
        """The stage has ended, well or not."""


def progress_for_terminal(stream: TextIO | None = None) -> ProgressListener:
    """Bars where someone watches, plain lines where the output is kept."""
    output: TextIO = stream or sys.stderr
    if output.isatty() and os.environ.get("TERM") != "dumb":
        return RichProgress(output)
    return PlainProgress(output)


class PlainProgress:
    """One line when a stage starts, one when it ends."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started: dict[str, float] = {}
        self._total: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def stage_started(self, name: str, total_tasks: int) -> None:
        self._started[name] = time.monotonic()
        self._total[name] = total_tasks
        self._done[name] = 0
        self._say(f"{name}: {_tasks(total_tasks)}")

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        self._done[name] = done_tasks

    def stage_finished(self, name: str) -> None:
        seconds = time.monotonic() - self._started.pop(name)
        done, total = self._done.pop(name), self._total.pop(name)
        ended = "done" if done == total else f"ended after {done} of {_tasks(total)}"
        self._say(f"{name}: {ended}, {seconds:.1f} s")

    def _say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class RichProgress:
    """A bar for every running stage; bars vanish when no stage runs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}

    def stage_started(self, name: str, total_tasks: int) -> None:
        if self._progress is None:
            self._progress = _bars(self._stream)
            self._progress.start()
        self._bars[name] = self._progress.add_task(name, total=total_tasks)

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        if self._progress is not None:
            self._progress.update(self._bars[name], completed=done_tasks)

    def stage_finished(self, name: str) -> None:
        if self._progress is None:
            return
        self._progress.remove_task(self._bars.pop(name))
        if not self._bars:
            self._progress.stop()
            self._progress = None


def _bars(stream: TextIO) -> Progress:
    # Only a terminal needs rich, and it takes a while to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
