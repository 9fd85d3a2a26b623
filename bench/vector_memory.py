"""Memory of vector builds as the table grows: bounded by the budget of a task, not by the rows."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pennon
from bench.harness import Choice, Grid, Peaks, peak_memory, report_grids, say
from bench.vectors import PARTITIONS, Kind, chosen, copied, create_pennon, vector_table

KINDS = (Kind("IVF_PQ", (("num_sub_vectors", 16),)), Kind("IVF_FLAT"))
SIZES = (500_000, 2_000_000)
TASK_MEMORY = 128 << 20
HEADER = ("kind", "rows", "largest worker GiB", "all workers", "driver", "JVM", "all together", "seconds")


def vector_memory(choice: Choice) -> None:
    kinds = chosen(KINDS, choice.kinds)
    sizes = SIZES if choice.rows is None else (choice.rows, 4 * choice.rows)
    rows: list[tuple[object, ...]] = []
    for size in sizes:
        say(f"table of {size:,} vectors")
        source = vector_table(size)
        for kind in kinds:
            uri = copied(source, "measured")
            # A process of its own: what an earlier build left in driver, JVM and workers does not count.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                peaks, seconds = process.submit(_build, uri, kind, min(PARTITIONS, size // 256)).result()
            parts = (peaks.largest_worker, peaks.workers, peaks.driver, peaks.jvm, peaks.total)
            rows.append((kind, f"{size:,}", *(f"{part:.2f}" for part in parts), f"{seconds:.0f}"))
            say(", ".join(map(str, rows[-1])))
    rows.sort(key=lambda row: [str(kind) for kind in kinds].index(str(row[0])))
    report_grids(
        "vector-memory",
        f"Peak memory of vector builds, 128 float32, {PARTITIONS} partitions, task_memory_bytes 128 MiB",
        [Grid(HEADER, rows)],
        note="GiB, shared pages counted once, sampled ten times a second from a warm session on; each part's peak is "
        "its own, so they add up to more than all together. At most two workers run at a time; the heap of the JVM "
        "may grow to 2 GiB whatever it is used for.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _build(uri: str, kind: Kind, partitions: int) -> tuple[Peaks, float]:
    create_pennon(pennon.open(copied(vector_table(4096), "warm-up")), kind, 8)
    table = pennon.open(uri)
    start = time.perf_counter()
    with peak_memory() as peaks:
        create_pennon(table, kind, partitions, task_memory_bytes=TASK_MEMORY)
    return peaks, time.perf_counter() - start
