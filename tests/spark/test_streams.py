"""Streaming queries of Spark itself: restarts, upkeep, views, and processes killed in the middle."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

BATCH = 10
# With fewer, all may come before the first batch.
ENOUGH_KILLS = 20


def append(uri: str, start: int, stop: int) -> None:
    table = pa.table({"id": pa.array(range(start, stop), pa.int64()), "s": [f"s{i}" for i in range(start, stop)]})
    lance.write_dataset(table, uri, mode="append" if Path(uri).exists() else "create")


def ids(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist())


def stream(spark: SparkSession, uri: str, **options: str) -> DataFrame:
    return spark.readStream.format("pennon").options(**options).load(uri)


def run(rows: DataFrame, target: str, checkpoint: Path, **options: str) -> str:
    """All there is, then the end; the id of the query."""
    given = {"checkpointLocation": str(checkpoint), **options}
    query = rows.writeStream.format("pennon").options(**given).trigger(availableNow=True).start(target)
    query.awaitTermination()
    return str(query.id)


def test_from_table_to_table(spark: SparkSession, tmp_path: Path) -> None:
    """Over a restart, with a compaction in between; the id of the checkpoint names the stream."""
    source, target, checkpoint = str(tmp_path / "s.lance"), str(tmp_path / "t.lance"), tmp_path / "checkpoint"
    append(source, 0, 30)
    append(source, 30, 40)
    first = run(stream(spark, source, starting_version="snapshot"), target, checkpoint)
    assert ids(target) == list(range(40))
    append(source, 40, 50)
    lance.dataset(source).optimize.compact_files()
    append(source, 50, 60)
    limits = {"starting_version": "snapshot", "max_versions_per_trigger": "1"}
    second = run(stream(spark, source, **limits).where("id != 45"), target, checkpoint)
    assert ids(target) == [i for i in range(60) if i != 45]
    assert first == second
    assert list(lance.dataset(target).config()) == [f"pennon.stream.{first}"]
    # Spark forgets that it committed the last batch, and repeats it.
    last = max((checkpoint / "commits").iterdir(), key=lambda path: (path.name.isdecimal(), path.name))
    for name in (last.name, f".{last.name}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run(stream(spark, source, **limits).where("id != 45"), target, checkpoint)
    assert ids(target) == [i for i in range(60) if i != 45]


def test_errors_reach_the_query(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "s.lance"), str(tmp_path / "t.lance")
    append(source, 0, 10)
    rows = stream(spark, source, starting_version="1")
    lance.write_dataset(pa.table({"id": pa.array([1.5])}), target)
    with pytest.raises(StreamingQueryException, match="has no column 's'"):
        run(rows, target, tmp_path / "a")
    with pytest.raises(StreamingQueryException, match="must be never, auto or a number of batches"):
        run(rows, str(tmp_path / "u.lance"), tmp_path / "b", maintain="sometimes")
    complete = rows.groupBy("s").count().writeStream.format("pennon").outputMode("complete")
    query = complete.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="foreachBatch"):
        query.start(str(tmp_path / "u.lance")).awaitTermination()
    assert not (tmp_path / "u.lance").exists()


@pytest.mark.process
def test_killed_processes(tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    lose_nothing(tmp_path, random.Random(1), 1, tally)


@pytest.mark.heavy
@pytest.mark.process
@pytest.mark.parametrize("seed", [2, 3])
def test_processes_killed_200_times(tmp_path: Path, tally: Callable[[str, int], None], seed: int) -> None:
    """In two halves, which may run side by side."""
    target, batches = lose_nothing(tmp_path, random.Random(seed), 100, tally)
    assert len(lance.dataset(target).get_fragments()) < batches


def lose_nothing(tmp_path: Path, rng: random.Random, kills: int, tally: Callable[[str, int], None]) -> tuple[str, int]:
    """Kill a query with all its processes, and start it again: at a random time after its start, or after it has
    committed some batches, however long those take. Returns the table that it wrote, and the number of batches appended
    to the other."""
    source, target, checkpoint = (str(tmp_path / name) for name in ("s.lance", "t.lance", "checkpoint"))
    rows = 0
    for _ in range(kills):
        for _ in range(2):
            append(source, rows, rows + BATCH)
            rows += BATCH
        batches = rng.randrange(4)
        killed = _run(source, target, checkpoint, batches, rng.uniform(0, 1 if batches else 6))
        tally("killed processes of streams", int(killed))
        if Path(target).exists():
            got = ids(target)
            assert got == list(range(len(got))), "rows are lost or repeated"
    assert kills < ENOUGH_KILLS or len(ids(target)) > rows // 4, "the query was killed before it did anything"
    _run(source, target, checkpoint, None, 0)
    assert ids(target) == list(range(rows))
    return target, rows // BATCH


def _run(source: str, target: str, checkpoint: str, batches: int | None, after: float) -> bool:
    """Whether the query was killed: `after` seconds from the commit of so many batches, unless it ended before."""
    command = [sys.executable, "-m", "tests.support.streaming_query", source, target, checkpoint]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == "started\n"
        if batches is None:
            assert lines.readline() == "finished\n"
            return process.wait() != 0
        wanted = _committed(checkpoint) + batches
        while _committed(checkpoint) < wanted and process.poll() is None:
            time.sleep(0.02)
        end = time.monotonic() + after
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
        running = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return running


def _committed(checkpoint: str) -> int:
    """How many batches Spark has recorded as done; it keeps the files of the last hundred."""
    numbers = [int(path.name) for path in Path(checkpoint, "commits").glob("*") if path.name.isdecimal()]
    return max(numbers, default=-1) + 1
