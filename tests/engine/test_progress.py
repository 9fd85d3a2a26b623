"""A listener hears of every stage in order, whatever becomes of the job."""

from __future__ import annotations

import io
import time

import pyarrow as pa
import pytest

from pennon.engine import Engine, PlainProgress, RichProgress, progress_for_terminal
from pennon.errors import ColumnNotFound

Event = tuple[str, str, int]


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def stage_started(self, name: str, total_tasks: int) -> None:
        self.events.append(("started", name, total_tasks))

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        self.events.append(("advanced", name, done_tasks))

    def stage_finished(self, name: str) -> None:
        self.events.append(("finished", name, 0))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nap(number: int) -> int:
    time.sleep(0.3)
    return number


def test_a_map_is_one_stage(engine: Engine) -> None:
    recorder = Recorder()
    attached = Engine.attach(progress=recorder)
    attached.map("nap", nap, range(attached.parallelism * 3))
    total = attached.parallelism * 3
    assert recorder.events[0] == ("started", "nap", total)
    assert recorder.events[-2:] == [("advanced", "nap", total), ("finished", "nap", 0)]
    advances = [done for kind, _, done in recorder.events if kind == "advanced"]
    assert advances == sorted(set(advances))
    assert len(advances) > 1, "told only at the end"


def test_an_exchange_is_two_stages(engine: Engine) -> None:
    recorder = Recorder()
    attached = Engine.attach(progress=recorder)
    attached.exchange(
        "move",
        lambda task: [(nap(destination), pa.record_batch({"task": [task]})) for destination in range(2)],
        range(4),
        lambda destination, _: nap(destination),
        5,
    )
    outline = [event for event in recorder.events if event[0] != "advanced"]
    assert outline == [
        ("started", "move: map", 4),
        ("finished", "move: map", 0),
        ("started", "move: reduce", 5),
        ("finished", "move: reduce", 0),
    ]
    between = recorder.events[1 : recorder.events.index(("finished", "move: map", 0))]
    assert {name for _, name, _ in between} == {"move: map"}
    assert between[-1] == ("advanced", "move: map", 4)
    assert recorder.events[-2] == ("advanced", "move: reduce", 5)


def test_a_failed_job_ends_its_stage(engine: Engine) -> None:
    def refuse(_: int) -> None:
        raise ColumnNotFound("No such column")

    recorder = Recorder()
    with pytest.raises(ColumnNotFound):
        Engine.attach(progress=recorder).map("refuse", refuse, [1])
    assert recorder.events[-1] == ("finished", "refuse", 0)


def test_a_listener_that_fails_ends_the_job(engine: Engine) -> None:
    class Broken(Recorder):
        def stage_advanced(self, name: str, done_tasks: int) -> None:
            raise OSError("no one is listening")

    began = time.monotonic()
    with pytest.raises(OSError, match="no one is listening"):
        Engine.attach(progress=Broken()).map("nap", nap, range(engine.parallelism * 200))
    assert time.monotonic() - began < 30


def test_plain_lines() -> None:
    stream = io.StringIO()
    plain = PlainProgress(stream)
    plain.stage_started("sort", 12)
    plain.stage_advanced("sort", 12)
    plain.stage_finished("sort")
    plain.stage_started("write", 1)
    plain.stage_finished("write")
    assert (
        stream.getvalue() == "sort: 12 tasks\nsort: done, 0.0 s\nwrite: 1 task\nwrite: ended after 0 of 1 task, 0.0 s\n"
    )


def test_bars_vanish_when_all_is_done() -> None:
    terminal = Terminal()
    bars = RichProgress(terminal)
    for name in ("sort [x]", "write"):
        bars.stage_started(name, 4)
        bars.stage_advanced(name, 3)
        time.sleep(0.2)
        bars.stage_finished(name)
    shown = terminal.getvalue()
    assert "sort [x]" in shown
    assert "3/4" in shown
    erase_line, show_cursor = "\x1b[2K", "\x1b[?25h"
    assert shown.rstrip().endswith(erase_line + show_cursor)


@pytest.mark.parametrize(
    ("stream", "term", "kind"),
    [(Terminal(), "xterm", RichProgress), (Terminal(), "dumb", PlainProgress), (io.StringIO(), "xterm", PlainProgress)],
)
def test_bars_only_where_someone_watches(
    stream: io.StringIO, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    assert type(progress_for_terminal(stream)) is kind
