"""Memory of B-tree builds: bounded by the budget of a task, whatever the rows, their values and the ranges."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.data import CHUNK, int64_table, write_once
from bench.harness import Choice, Grid, Peaks, peak_memory, report_grids, say
from bench.vectors import copied

ROWS = 100_000_000
TASK_MEMORY = 1 << 30
HEADER = ("values", "rows", "ranges", "largest worker GiB", "all workers", "driver", "JVM", "all together", "seconds")


def btree_memory(choice: Choice) -> None:
    rows = choice.rows or ROWS
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("random int64", int64_table(rows // 10), {}),
        ("random int64", int64_table(rows), {}),
        ("one value in half of the rows", _hot_table(rows), {}),
        ("the same, two ranges asked for", _hot_table(rows), {"ranges": 2}),
    ]
    found: list[tuple[object, ...]] = []
    for label, uri, options in cases:
        say(label)
        # A process of its own: what an earlier build left in driver, JVM and workers does not count.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            peaks, seconds, ranges = process.submit(_build, uri, options).result()
        parts = (peaks.largest_worker, peaks.workers, peaks.driver, peaks.jvm, peaks.total)
        size = lance.dataset(uri).count_rows()
        found.append((label, f"{size:,}", ranges, *(f"{part:.2f}" for part in parts), f"{seconds:.0f}"))
        say(", ".join(map(str, found[-1])))
    report_grids(
        "btree-memory",
        "Peak memory of B-tree builds, task_memory_bytes 1 GiB",
        [Grid(HEADER, found)],
        note="GiB, shared pages counted once, sampled ten times a second from a warm session on. About 0.25 GiB of a "
        "worker is the process itself. Two ranges hold 50,000,000 rows each, 0.75 GiB: more than a third of the "
        "budget, so they are kept in a file, of which the pages that happen to be in memory count here as well.",
        keep=choice.keep,
    )


def _build(uri: str, options: dict[str, Any]) -> tuple[Peaks, float, int]:
    warm = pennon.open(copied(int64_table(1_000_000), "warm-up"))
    warm.create_index("id")
    table = pennon.open(uri)
    ranges = table.plan_index("id", **options).to_dict()["ranges"]
    start = time.perf_counter()
    with peak_memory() as peaks:
        index = table.create_index("id", task_memory_bytes=TASK_MEMORY, **options).index
    seconds = time.perf_counter() - start
    table.drop_index(index.name)
    return peaks, seconds, ranges


def _hot_table(rows: int) -> str:
    return write_once(f"hot-{rows}", pa.schema([("id", pa.int64())]), _hot, rows)


def _hot(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(4)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        values = np.where(rng.random(count) < 0.5, 42, rng.integers(-(2**63), 2**63 - 1, count))
        yield pa.record_batch({"id": pa.array(values)})
