"""Memory of builds of the other scalar indices: bounded by the budget of a task, whatever the rows."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import lance

import pennon
from bench.harness import Choice, Grid, Peaks, peak_memory, report_grids, say
from bench.scalar_build import CASES, scalar_table

ROWS = 100_000_000
HEADER = ("index", "column", "rows", "largest worker GiB", "all workers", "driver", "JVM", "all together", "seconds")


def scalar_memory(choice: Choice) -> None:
    rows = choice.rows or ROWS
    uri = scalar_table(rows)
    found: list[tuple[object, ...]] = []
    for case in CASES:
        if choice.kinds and case.index_type not in choice.kinds:
            continue
        say(f"{case.index_type} on {case.content}")
        # A process of its own: what an earlier build left in driver, JVM and workers does not count.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            peaks, seconds = process.submit(_build, uri, case.column, case.index_type).result()
        parts = (peaks.largest_worker, peaks.workers, peaks.driver, peaks.jvm, peaks.total)
        found.append((case.index_type, case.content, f"{rows:,}", *(f"{part:.2f}" for part in parts), f"{seconds:.0f}"))
        say(", ".join(map(str, found[-1])))
        lance.dataset(uri).drop_index("measured")
    report_grids(
        "scalar-memory",
        "Peak memory of builds of scalar indices, task_memory_bytes 1 GiB",
        [Grid(HEADER, found)],
        note="GiB, shared pages counted once, sampled ten times a second. About 0.25 GiB of a worker is the process "
        "itself. Two tasks run at a time.",
        keep=choice.keep,
    )


def _build(uri: str, column: str, index_type: str) -> tuple[Peaks, float]:
    table = pennon.open(uri)
    start = time.perf_counter()
    with peak_memory() as peaks:
        table.create_index(column, index_type, name="measured")
    return peaks, time.perf_counter() - start
