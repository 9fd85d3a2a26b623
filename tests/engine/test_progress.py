"""A listener hears of every stage in order, whatever becomes of the job."""

from __future__ import annotations

import io
import re
import time

import pyarrow as pa
import pytest

from pennon.cli.progress import PlainProgress, RichProgress, progress_for_terminal
from pennon.engine import SparkEngine
from pennon.errors import ColumnNotFound
from tests.support.progress import Recorder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nap(number: int) -> int:
    time.sleep(0.3)
    return number


def test_a_map_is_one_stage(engine: SparkEngine) -> None:
    recorder = Recorder()
    attached = SparkEngine.attach(progress=recorder)
    attached.map("nap", nap, range(attached.parallelism * 3), rows=1200)
    total = attached.parallelism * 3
    assert recorder.events[0] == ("started", "nap", total)
    assert recorder.events[-2:] == [("advanced", "nap", total), ("finished", "nap", 0)]
    advances = [done for kind, _, done in recorder.events if kind == "advanced"]
    assert advances == sorted(set(advances))
    assert len(advances) > 1, "told only at the end"
    assert recorder.rows == {"nap": 1200}


def test_an_exchange_is_two_stages(engine: SparkEngine) -> None:
    recorder = Recorder()
    attached = SparkEngine.attach(progress=recorder)
    attached.exchange(
        "move",
        lambda task: [(nap(destination), pa.record_batch({"task": [task]})) for destination in range(2)],
        range(4),
        lambda destination, _: nap(destination),
        5,
        rows=8000,
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
    assert recorder.rows == {"move: map": 8000, "move: reduce": 8000}


def test_work_of_the_driver_is_a_stage_of_one_task(engine: SparkEngine) -> None:
    recorder = Recorder()
    attached = SparkEngine.attach(progress=recorder)
    with attached.stage("train", 70):
        pass
    with pytest.raises(ColumnNotFound), attached.stage("fail"):
        raise ColumnNotFound("No such column")
    assert recorder.events == [
        ("started", "train", 1),
        ("advanced", "train", 1),
        ("finished", "train", 0),
        ("started", "fail", 1),
        ("finished", "fail", 0),
    ]
    assert recorder.rows == {"train": 70, "fail": None}


def test_a_failed_job_ends_its_stage(engine: SparkEngine) -> None:
    def refuse(_: int) -> None:
        raise ColumnNotFound("No such column")

    recorder = Recorder()
    with pytest.raises(ColumnNotFound):
        SparkEngine.attach(progress=recorder).map("refuse", refuse, [1])
    assert recorder.events[-1] == ("finished", "refuse", 0)


def test_a_listener_that_fails_ends_the_job(engine: SparkEngine) -> None:
    class Broken(Recorder):
        def stage_advanced(self, name: str, done_tasks: int) -> None:
            raise OSError("no one is listening")

    began = time.monotonic()
    with pytest.raises(OSError, match="no one is listening"):
        SparkEngine.attach(progress=Broken()).map("nap", nap, range(engine.parallelism * 200))
    assert time.monotonic() - began < 30


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_tell_rows_seconds_and_speed() -> None:
    stream, clock = io.StringIO(), Clock()
    plain = PlainProgress(stream, clock)
    plain.stage_started("sort", 4, 1_000_000)
    clock.now += 1
    plain.stage_advanced("sort", 1)  # too soon for a line
    clock.now += 7
    plain.stage_advanced("sort", 2)
    clock.now += 2
    plain.stage_advanced("sort", 4)
    plain.stage_finished("sort")
    plain.stage_started("write", 1)
    clock.now += 0.5
    plain.stage_finished("write")
    assert stream.getvalue().splitlines() == [
        "sort: 4 tasks, 1,000,000 rows",
        "sort: 2 of 4 tasks, 500,000 of 1,000,000 rows, 8.0 s, 62,500 rows/s",
        "sort: done, 1,000,000 rows, 10.0 s, 100,000 rows/s",
        "write: 1 task",
        "write: ended after 0 of 1 task, 0.5 s",
    ]


def test_many_short_stages_do_not_fill_a_log() -> None:
    stream, clock = io.StringIO(), Clock()
    plain = PlainProgress(stream, clock)
    for number in range(1000):
        plain.stage_started(f"pass {number}", 1, 10)
        clock.now += 0.1
        plain.stage_advanced(f"pass {number}", 1)
        plain.stage_finished(f"pass {number}")
    lines = stream.getvalue().splitlines()
    assert 30 < len(lines) < 50, "100 seconds: a handful at first, then one in three seconds"
    assert lines[:2] == ["pass 0: 1 task, 10 rows", "pass 0: done, 10 rows, 0.1 s, 100 rows/s"]
    clock.now += 60
    plain.stage_started("write", 2)
    clock.now += 60
    plain.stage_advanced("write", 2)
    plain.stage_finished("write")
    assert stream.getvalue().splitlines()[len(lines) :] == ["write: 2 tasks", "write: done, 60.0 s"]


def test_bars_tell_rows_and_speed_and_vanish_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    bars = RichProgress(terminal)
    for name, rows in (("sort [x]", 4_000_000), ("write", None)):
        bars.stage_started(name, 4, rows)
        time.sleep(0.3)
        bars.stage_advanced(name, 3)
        time.sleep(0.3)
        bars.stage_finished(name)
    shown = terminal.getvalue()
    assert "sort [x]" in shown
    assert "0/4.0M rows" in shown
    assert re.search(r"3/4 3\.0M/4\.0M rows \d+\.\dM rows/s 0:00:\d\d", re.sub(r"\x1b\[[\d;?]*\w", "", shown))
    assert "write" in shown
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
