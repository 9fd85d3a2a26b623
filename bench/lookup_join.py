"""The lookup join beside Spark's own join over Pennon's data source: 10,000 and 1,000,000 keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import pennon
import pennon.spark
from bench.data import CHUNK, write_once
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.timing import TURNS, Timing, interleaved
from pennon.engine import SparkEngine

ROWS = 100_000_000
# Shares of the rows of the table: 10,000 and 1,000,000 of 100 million.
SHARES = (10_000, 100)
SCHEMA = pa.schema([("user_id", pa.int64()), ("day", pa.int32()), ("amount", pa.float64()), ("name", pa.string())])
COLUMNS = ["day", "amount", "name"]
FRAGMENTS = 100
# Keys are multiples, so that some of those asked for are missing.
STEP = 4
MISSING = 10
HEADER = ("keys", "rows found", "Spark's join s", "lookup join s", "times as fast")


@dataclass(frozen=True)
class Asked:
    uri: str
    keys: str

    def frame(self) -> DataFrame:
        return SparkSession.active().read.parquet(self.keys)

    def looked_up(self) -> DataFrame:
        return pennon.open(self.uri).lookup_join(self.frame(), {"uid": "user_id"}, columns=COLUMNS)

    def joined(self) -> DataFrame:
        frame = self.frame()
        table = pennon.spark.read(frame.sparkSession, self.uri, columns=["user_id", *COLUMNS])
        return frame.join(table, frame["uid"] == table["user_id"]).drop("user_id")


def lookup_join(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    say(f"table of {rows:,} rows")
    uri = write_once(f"users-{rows}", SCHEMA, _users, rows, FRAGMENTS)
    engine = SparkEngine.attach()
    pennon.spark.register(engine.session)
    if not pennon.open(uri).indices():
        pennon.open(uri).create_index("user_id")
    grid: list[tuple[object, ...]] = []
    for count in (max(1, rows // share) for share in SHARES):
        asked = Asked(uri, _write_keys(rows, count, engine.parallelism))
        found = {asked.looked_up().count(), asked.joined().count()}
        if len(found) != 1:
            raise AssertionError(f"the joins return {found} rows")
        work: dict[str, Callable[[], object]] = {
            "joined": lambda asked=asked: _run(asked.joined()),
            "looked up": lambda asked=asked: _run(asked.looked_up()),
        }
        grid.append(_compared(count, found.pop(), interleaved(work, turns)))
        say(", ".join(map(str, grid[-1])))
    engine.stop()
    report_grids(
        "lookup-join",
        f"Lookup join, {rows:,} rows in {FRAGMENTS} fragments, a B-tree on the key",
        [Grid(HEADER, grid, f"{turns} turns")],
        note="The same Spark session, the same DataFrame of keys read from Parquet files; one key in "
        f"{MISSING} is not in the table. Rows go to a sink that drops them. Spark's own join reads the four columns of "
        "the table through Pennon's data source, without a filter.",
        keep=choice.keep,
    )


def _compared(count: int, found: int, taken: dict[str, Timing]) -> tuple[object, ...]:
    theirs, own = taken["joined"], taken["looked up"]
    return (f"{count:,}", f"{found:,}", f"{theirs:.2f}", f"{own:.2f}", f"{theirs.over(own):.1f}")


def _users(rows: int) -> Iterator[pa.RecordBatch]:
    """Keys in no order, each once."""
    rng = np.random.default_rng(11)
    keys = rng.permutation(rows) * STEP
    for start in range(0, rows, CHUNK):
        some = keys[start : start + CHUNK]
        names = pa.array(np.char.add("user-", some.astype(str)))
        days, amounts = rng.integers(0, 365, len(some)).astype(np.int32), rng.random(len(some))
        yield pa.record_batch([pa.array(some), pa.array(days), pa.array(amounts), names], schema=SCHEMA)


def _write_keys(rows: int, count: int, files: int) -> str:
    rng, directory = np.random.default_rng(12), fresh(f"lookup-keys-{count}")
    directory.mkdir()
    keys = rng.choice(rows, count, replace=False) * STEP
    keys[::MISSING] += 1
    for number, some in enumerate(np.array_split(keys, files)):
        pq.write_table(pa.table({"uid": some, "weight": rng.random(len(some))}), directory / f"part-{number}.parquet")
    return str(directory)


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
