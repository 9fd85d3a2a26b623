"""Upserts by key: Pennon's merge, pylance's `merge_insert`, and a Spark join that reads the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import lance
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

ROWS = 10_000_000
# Shares of the rows of the table: 100 to 100,000 of 10 million.
SHARES = (100_000, 10_000, 1_000, 100)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("amount", pa.float64()), ("name", pa.string())])
FRAGMENTS = 100
NAME_BYTES = 176
# Keys are multiples, so that some of those merged are new.
STEP = 4
NEW = 10
HEADER = (
    "rows merged",
    "updated",
    "inserted",
    "Spark's join s",
    "merge_insert s",
    "merge s",
    "merge of an Arrow table s",
    "times the join",
    "read by merge",
)


def upsert(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    say(f"table of {rows:,} rows of about {NAME_BYTES + 20} bytes")
    uri = write_once(f"upsert-{rows}", SCHEMA, rows_of, rows, FRAGMENTS)
    engine = SparkEngine.attach()
    pennon.spark.register(engine.session)
    if not pennon.open(uri).indices():
        pennon.open(uri).create_index("id")
    version = lance.dataset(uri).version
    stored = sum(file.file_size_bytes or 0 for f in lance.dataset(uri).get_fragments() for file in f.data_files())
    grid: list[tuple[object, ...]] = []
    for count in (max(10, rows // share) for share in SHARES):
        source = write_source(rows, count, engine.parallelism)
        done = pennon.open(uri).merge(frame_of(source), on="id", maintain=False)
        share = f"{done.work.bytes_read / stored:.2%} of the table's bytes"
        work: dict[str, Callable[[], object]] = {
            "joined": lambda source=source: run(joined(uri, source)),
            "merge_insert": lambda source=source: _merge_insert(_restored(uri, version), source),
            "merged": lambda source=source: _merged(_restored(uri, version), frame_of(source)),
            "held": lambda source=source: _merged(_restored(uri, version), pq.read_table(source)),
        }
        _check(uri, version, source, done.rows_updated)
        taken = interleaved(work, turns)
        grid.append((*_compared(count, done.rows_updated, done.rows_inserted, taken), share))
        say(", ".join(map(str, grid[-1])))
        _restored(uri, version)
    engine.stop()
    report_grids(
        "upsert",
        f"Upsert, {rows:,} rows in {FRAGMENTS} fragments, a B-tree on the key",
        [Grid(HEADER, grid, f"{turns} turns")],
        note=f"One row in {NEW} is new. `merge` and `merge_insert` include a commit that restores the table. "
        "`merge_insert` and the `merge` of an Arrow table read the source without Spark. Spark's join reads the table "
        "through Pennon's data source, replaces rows by those of the source, and writes nothing.",
        keep=choice.keep,
    )


def _merged(uri: str, source: DataFrame | pa.Table) -> None:
    pennon.open(uri).merge(source, on="id", maintain=False)


def _merge_insert(uri: str, source: str) -> None:
    rows = pq.read_table(source)
    lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def joined(uri: str, source: str, storage_options: dict[str, str] | None = None) -> DataFrame:
    """The table with the rows of the source, by Spark."""
    frame = frame_of(source)
    table = pennon.spark.read(frame.sparkSession, uri, storage_options=storage_options)
    return table.join(frame, "id", "left_anti").unionByName(frame)


def _check(uri: str, version: int, source: str, updated: int) -> None:
    """pylance changes as many rows."""
    rows = pq.read_table(source)
    builder = lance.dataset(_restored(uri, version)).merge_insert("id").when_matched_update_all()
    found = builder.when_not_matched_insert_all().execute(rows)["num_updated_rows"]
    if found != updated:
        raise AssertionError(f"pylance updates {found} rows, Pennon {updated}")


def _restored(uri: str, version: int) -> str:
    dataset = lance.dataset(uri)
    if dataset.version != version:
        dataset.checkout_version(version).restore()
    return uri


def frame_of(source: str) -> DataFrame:
    """What is merged."""
    return SparkSession.active().read.parquet(source)


def run(frame: DataFrame) -> None:
    """Compute all of it."""
    frame.write.format("noop").mode("overwrite").save()


def _compared(count: int, updated: int, inserted: int, taken: dict[str, Timing]) -> tuple[object, ...]:
    join, theirs, own, held = (taken[name] for name in ("joined", "merge_insert", "merged", "held"))
    counts = (f"{count:,}", f"{updated:,}", f"{inserted:,}")
    return (*counts, f"{join:.2f}", f"{theirs:.2f}", f"{own:.2f}", f"{held:.2f}", f"{join.over(own):.1f}")


def rows_of(rows: int) -> Iterator[pa.RecordBatch]:
    """Keys in no order, each once."""
    rng = np.random.default_rng(21)
    keys = rng.permutation(rows) * STEP
    for start in range(0, rows, CHUNK):
        yield _batch(keys[start : start + CHUNK], rng)


def write_source(rows: int, count: int, files: int) -> str:
    """Rows to merge, most of them with keys of the table."""
    rng, directory = np.random.default_rng(22), fresh(f"upsert-source-{count}")
    directory.mkdir()
    keys = rng.choice(rows, count, replace=False) * STEP
    keys[::NEW] += 1
    for number, some in enumerate(np.array_split(keys, files)):
        pq.write_table(pa.Table.from_batches([_batch(some, rng)]), Path(directory) / f"part-{number}.parquet")
    return str(directory)


def _batch(keys: np.ndarray, rng: np.random.Generator) -> pa.RecordBatch:  # pyright: ignore[reportMissingTypeArgument]
    # All printable characters, so that they are not compressed.
    letters = rng.integers(33, 127, len(keys) * NAME_BYTES, dtype=np.uint8).tobytes()
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * NAME_BYTES
    names = pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters))
    days, amounts = rng.integers(0, 365, len(keys)).astype(np.int32), rng.random(len(keys))
    return pa.record_batch([pa.array(keys), pa.array(days), pa.array(amounts), names], schema=SCHEMA)
