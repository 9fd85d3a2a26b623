"""Progress where a person waits for it: one line on the error stream of a notebook or of a Python prompt.

Nothing is written to the output stream, and a script, a scheduled job or a test shows nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from pennon.engine.progress import ProgressListener, RunningStage
from pennon.errors import InvalidArgument
from pennon.wording import in_line, plural

# Between two changes of the line, so that many short tasks do not fill the messages of a notebook.
REDRAW_SECONDS = 0.1
EVENTS = ("stage_started", "stage_advanced", "stage_finished")


def choose_listener(progress: ProgressListener | bool | None) -> ProgressListener | None:
    """The listener that `progress=` selects: None shows progress where a person waits, a bool always or never.

    Raises:
        InvalidArgument: neither a bool nor a listener.
    """
    if progress is None or isinstance(progress, bool):
        return LineProgress() if (is_interactive() if progress is None else progress) else None
    missing = [name for name in EVENTS if not callable(getattr(progress, name, None))]
    if missing:
        remedy = "Give True, False, or an object with the methods of pennon.ProgressListener"
        raise InvalidArgument(f"progress={progress!r} has no method {missing[0]}", remedy)
    return progress


def is_interactive() -> bool:
    """Whether this is a kernel or shell of IPython, or a Python prompt in a terminal."""
    ask: Any = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if ask is not None and ask() is not None:
        return True
    return hasattr(sys, "ps1") and sys.stderr.isatty()


class LineProgress:
    """One line about the stage that started last. The line is removed when no stage runs."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._given, self._clock = stream, clock
        self._stages: dict[str, RunningStage] = {}
        self._width, self._drawn = 0, 0.0

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        self._stages[name] = RunningStage(total_tasks, total_rows, self._clock())
        self._draw()

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        self._stages[name].done = done_tasks
        if self._clock() - self._drawn >= REDRAW_SECONDS:
            self._draw()

    def stage_finished(self, name: str) -> None:
        self._stages.pop(name, None)
        self._draw()

    def _draw(self) -> None:
        # A notebook gives every cell a stream of its own, so the stream is looked up each time.
        stream, line = self._given or sys.stderr, self._line()
        # Spaces and not an escape sequence: notebooks know `\r` only.
        stream.write(f"\r{line.ljust(self._width)}" + ("" if line else "\r"))
        stream.flush()
        self._width, self._drawn = len(line), self._clock()

    def _line(self) -> str:
        if not self._stages:
            return ""
        name, stage = next(reversed(self._stages.items()))
        seconds = self._clock() - stage.started
        rows = "" if stage.rows is None else f", {stage.rows_done:,} of {plural(stage.rows, 'row')}"
        rate = stage.rate(seconds)
        speed = "" if rate is None else f", {rate:,.0f} rows/s"
        return in_line(f"{name}: {stage.done} of {plural(stage.tasks, 'task')}{rows}, {seconds:.0f} s{speed}")
