"""The demonstration: a realistic table, an index built on Spark, queries with what they touched."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pennon.cli import render
from pennon.engine import progress_for_terminal
from pennon.format.writing import write_table
from pennon.table import open_table

T = TypeVar("T")

FRAGMENTS = 20
COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "KE", "US", "ZA")


def run_demo(rows: int, keep: str | None) -> None:
    directory = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="pennon-demo-"))
    uri = str(directory / "events.lance")
    say = render.console.print
    try:
        say(f"1. A table of {rows:,} events in {FRAGMENTS} fragments", style="bold")
        _, seconds = _timed(
            lambda: write_table(uri, events_schema(), events(rows), rows_per_fragment=-(-rows // FRAGMENTS))
        )
        say(f"   written in {seconds:.1f} s\n")

        table = open_table(uri, progress=progress_for_terminal())
        say("2. The plan of a B-tree on user_id", style="bold")
        say(_indent(str(table.plan_index("user_id"))) + "\n")

        say("3. The build, on Spark (the first job also starts the session)", style="bold")
        _, seconds = _timed(lambda: table.create_index("user_id"))
        say(f"   built and committed in {seconds:.1f} s")
        _, seconds = _timed(lambda: table.create_index("ts"))
        say(f"   a second one, on ts, in {seconds:.1f} s, now that Spark is warm\n")
        render.print_indices(table.indices())

        say("\n4. Queries, and what they touch", style="bold")
        rare = table.scan("user_id between 10000000 and 40000000", ["user_id"], limit=1)
        user = rare["user_id"][0].as_py() if rare.num_rows else 1000
        start = events_start() + 86_400 * 10
        for filter in (
            f"user_id = {user}",
            f"user_id in ({user}, {user + 1}, {user + 2}) and country = 'CH'",
            f"ts >= {_timestamp(start)} and ts < {_timestamp(start + 60)}",
            "user_id is null and amount > 99.9",
        ):
            say(_indent(str(table.explain(filter, analyze=True))) + "\n")

        say("5. Against a full scan", style="bold")
        filter = f"user_id = {user}"
        table.scan(filter)
        found, indexed = _timed(lambda: table.scan(filter))
        scanned, full = _timed(lambda: table.scan(f"user_id + 0 = {user}"))
        assert found.num_rows == scanned.num_rows
        say(f"   {filter}: {found.num_rows} rows in {indexed * 1000:.2f} ms through the index,")
        say(f"   {full * 1000:.0f} ms by a full scan: {full / indexed:,.0f} times longer")
        if keep:
            say(f"\nThe table stays at {uri}")
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def events_schema() -> pa.Schema:
    return pa.schema(
        [
            ("event_id", pa.int64()),
            ("user_id", pa.int64()),
            ("ts", pa.timestamp("us")),
            ("country", pa.string()),
            ("amount", pa.float64()),
        ]
    )


def events_start() -> int:
    return int(np.datetime64("2026-01-01", "s").astype(np.int64))


def events(rows: int) -> Iterator[pa.RecordBatch]:
    """Users of very different activity, some unknown; time moves on with a little disorder."""
    rng = np.random.default_rng(7)
    for start in range(0, rows, 250_000):
        count = min(250_000, rows - start)
        user = np.minimum(rng.pareto(0.8, count) * 1000, 50_000_000).astype(np.int64)
        seconds = events_start() + (np.arange(start, start + count) / rows * 86_400 * 90).astype(np.int64)
        micros = seconds * 1_000_000 + rng.integers(0, 60_000_000, count)
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count)),
                pa.array(user, mask=rng.random(count) < 0.01),
                pa.array(micros).view(pa.timestamp("us")),
                pa.array(np.array(COUNTRIES)[rng.integers(0, len(COUNTRIES), count)]),
                pa.array(rng.random(count) * 100),
            ],
            schema=events_schema(),
        )


def _timestamp(seconds: int) -> str:
    return f"timestamp '{np.datetime64(seconds, 's').item():%Y-%m-%d %H:%M:%S}'"


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _indent(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
