"""1,000 micro-batches of a stream: segments and fragments at the end, and lookups beside those of a fresh index."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict

import pennon
from bench.harness import Choice, fresh, report, say
from pennon.spark.source import PennonSource
from pennon.spark.stream_writer import PennonStreamWriter
from pennon.spark.types import spark_schema

BATCHES, ROWS_PER_BATCH = 1000, 1000
LOOKUPS = 400
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("name", pa.string())])
# What the issue of streams asks for.
MOST_SEGMENTS, MOST_TIMES = 12, 2.0
HEADER = ("batches", "rows", "segments", "fragments", "p95 ms", "p95 of a fresh index ms", "times")


def streams(choice: Choice) -> None:
    """Batches are written and committed as Spark's tasks and driver do it, without a session."""
    rows = choice.rows or BATCHES * ROWS_PER_BATCH
    batches = max(2, rows // ROWS_PER_BATCH)
    uri = str(fresh("streams.lance"))
    keys = np.random.default_rng(31).permutation(batches * ROWS_PER_BATCH)
    for number in range(batches):
        _append(uri, number, keys[number * ROWS_PER_BATCH : (number + 1) * ROWS_PER_BATCH])
        if number == 0:
            pennon.open(uri, engine="local").create_index("id")
        if (number + 1) % 100 == 0:
            say(f"{number + 1} batches")
    [index] = pennon.open(uri).indices()
    fragments = len(lance.dataset(uri).get_fragments())
    rebuilt = str(fresh("streams-fresh.lance"))
    shutil.copytree(uri, rebuilt)
    pennon.open(rebuilt, engine="local").create_index("id", replace=True)
    streamed, alone = _lookups(uri, keys), _lookups(rebuilt, keys)
    taken: dict[str, list[float]] = {"streamed": [], "fresh": []}
    for turn in range(LOOKUPS):
        for name, look in (("streamed", streamed), ("fresh", alone)):
            started = time.perf_counter()
            look(turn)
            taken[name].append(time.perf_counter() - started)
    own, new = (float(np.percentile(taken[name], 95)) * 1e3 for name in ("streamed", "fresh"))
    if len(index.segments) > MOST_SEGMENTS:
        raise AssertionError(f"{len(index.segments)} segments, more than {MOST_SEGMENTS}")
    grid = [
        (batches, f"{len(keys):,}", len(index.segments), fragments, f"{own:.2f}", f"{new:.2f}", f"{own / new:.2f}"),
    ]
    if choice.keep:
        note = f"Goals: at most {MOST_SEGMENTS} segments, and lookups within {MOST_TIMES} times those of a fresh index."
        report("streams", f"{batches:,} micro-batches of {ROWS_PER_BATCH:,} rows", HEADER, grid, note)
    else:
        say(", ".join(f"{name} {cell}" for name, cell in zip(HEADER, grid[0], strict=True)))


def _append(uri: str, number: int, keys: np.ndarray) -> None:  # pyright: ignore[reportMissingTypeArgument]
    names = pa.array(np.char.add("name-", keys.astype(str)))
    batch = pa.record_batch([pa.array(keys), pa.array(keys / 7), names], schema=SCHEMA)
    written = _writer(uri).write(iter([batch]))
    _writer(uri).commit([written], number)


def _writer(uri: str) -> PennonStreamWriter:
    source = PennonSource(CaseInsensitiveDict(path=uri, txn_app_id="bench", maintain="auto"))
    return source.streamWriter(spark_schema(SCHEMA), False)


def _lookups(uri: str, keys: np.ndarray) -> Callable[[int], None]:  # pyright: ignore[reportMissingTypeArgument]
    table = pennon.open(uri)

    def look(turn: int) -> None:
        key = int(keys[turn * 7919 % len(keys)])
        if table.scan(f"id = {key}", columns=["name"]).num_rows != 1:
            raise AssertionError(f"key {key} is not found once")

    look(0)
    return look
