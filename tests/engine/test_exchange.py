"""An exchange brings every row to its destination, once, and no destination works on half of its rows."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.engine import Exchanged, SparkEngine
from pennon.errors import BuildFailed, ColumnNotFound, TaskFailed
from tests.support.exchange import Batches, Sent, finish, gather, scatter


@pytest.mark.parametrize(("tasks", "rows", "destinations"), [(5, 1000, 1), (3, 100, 60), (1, 10, 3), (3, 400_000, 4)])
def test_every_row_arrives_once(engine: SparkEngine, tasks: int, rows: int, destinations: int) -> None:
    results = engine.exchange(
        "scatter", partial(scatter, destinations, rows), range(tasks), gather, destinations
    ).reduced
    everything = np.arange(tasks * rows)
    for destination in range(destinations):
        mine = everything[everything % destinations == destination]
        assert results[destination] == (destination, len(mine), mine.sum(), True)


def test_destinations_without_batches_are_not_called(engine: SparkEngine) -> None:
    def send(task: int) -> Sent:
        yield task * 2, pa.record_batch({"value": [task]})

    def add(_: int, batches: Batches) -> int:
        return sum(batch.num_rows for batch in batches)

    assert engine.exchange("sparse", send, [1, 2, 2], add, 9).reduced == {2: 1, 4: 2}
    silent: Any = engine.exchange("silent", lambda _: iter(()), [1, 2], add, 9)
    assert silent == Exchanged([None, None], {})


def test_no_tasks_no_job() -> None:
    engine = SparkEngine(None)  # pyright: ignore[reportArgumentType]
    assert engine.exchange("nothing", partial(scatter, 3, 9), [], gather, 3) == Exchanged([], {})


def test_a_batch_larger_than_a_block_arrives_whole(engine: SparkEngine) -> None:
    values = np.arange(3_000_000)

    def send(_: int) -> Sent:
        yield 1, pa.record_batch({"value": np.arange(3_000_000)})

    def check(_: int, batches: Batches) -> tuple[int, bool]:
        pieces = [batch["value"].to_numpy() for batch in batches]
        return len(pieces), np.array_equal(np.sort(np.concatenate(pieces)), np.arange(3_000_000))

    pieces, equal = engine.exchange("large", send, [0], check, 2).reduced[1]
    assert equal
    assert 1 < pieces < values.nbytes >> 18


@pytest.mark.parametrize("destination", [-1, 4])
def test_a_destination_that_does_not_exist_is_refused(engine: SparkEngine, destination: int) -> None:
    def send(_: int) -> Sent:
        yield destination, pa.record_batch({"value": [1]})

    with pytest.raises(BuildFailed, match=f"astray sent a batch to destination {destination}, .* 0 to 3"):
        engine.exchange("astray", send, [0], gather, 4)


def test_map_tasks_report(engine: SparkEngine) -> None:
    def send(task: int) -> Any:
        yield from scatter(3, 1000 * task, task)
        return {"task": task, "rows": np.arange(task)} if task != 2 else None

    exchanged = engine.exchange("report", send, [3, 2, 1, 0], gather, 3)
    assert [report and (report["task"], report["rows"].tolist()) for report in exchanged.mapped] == [
        (3, [0, 1, 2]),
        None,
        (1, [0]),
        (0, []),
    ]
    assert sorted(exchanged.reduced) == [0, 1, 2], "callers do not see where reports go"


def test_a_report_without_any_batch(engine: SparkEngine) -> None:
    def count(task: int) -> Any:
        yield from ()
        return task * 10

    assert engine.exchange("count", count, [1, 2], gather, 1) == Exchanged([10, 20], {})


def fail_midway(task: int) -> Sent:
    for part in range(20):
        yield part % 4, pa.record_batch({"value": np.full(300_000, part)})
        if task == 1 and part == 15:
            raise ColumnNotFound("The table has no column 'x'", "Name another")


def finish_regardless(folder: Path, destination: int, batches: Batches) -> None:
    with suppress(ColumnNotFound):
        finish(folder, destination, batches)


def read_one(_folder: Path, _destination: int, batches: Batches) -> None:
    next(batches)


@pytest.mark.parametrize("reduce", [finish, finish_regardless, read_one])
def test_no_destination_finishes_when_a_sender_fails(engine: SparkEngine, tmp_path: Path, reduce: Any) -> None:
    with pytest.raises(ColumnNotFound, match="no column 'x'"):
        engine.exchange("midway", fail_midway, range(3), partial(reduce, tmp_path), 4)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_a_destination_comes_back_as_it_is(engine: SparkEngine) -> None:
    def refuse(destination: int, batches: Batches) -> int:
        if destination == 2:
            raise ColumnNotFound("The table has no column 'x'")
        return sum(batch.num_rows for batch in batches)

    with pytest.raises(ColumnNotFound, match="no column 'x'"):
        engine.exchange("refuse", partial(scatter, 4, 100), range(2), refuse, 4)


def test_any_other_error_is_told_in_one_line(engine: SparkEngine) -> None:
    def break_down(destination: int, _: Batches) -> None:
        raise ZeroDivisionError(f"at {destination}")

    with pytest.raises(TaskFailed, match="break down failed: ZeroDivisionError: at 0"):
        engine.exchange("break down", partial(scatter, 1, 10), [0], break_down, 1)


def die_once(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        os._exit(17)


def test_killed_workers_are_survived_on_both_sides(engine: SparkEngine, tmp_path: Path) -> None:
    def send(task: int) -> Sent:
        sent = list(scatter(3, 90_000, task))
        yield sent[0]
        if task == 1:
            die_once(tmp_path / "sender")
        yield from sent[1:]

    def receive(destination: int, batches: Batches) -> tuple[int, int, int, bool]:
        first = next(batches)
        if destination == 2:
            die_once(tmp_path / "receiver")
        return gather(destination, iter([first, *batches]))

    killed = engine.exchange("killed", send, range(4), receive, 3)
    assert {marker.name for marker in tmp_path.iterdir()} == {"sender", "receiver"}
    assert killed == engine.exchange("spared", partial(scatter, 3, 90_000), range(4), gather, 3)
