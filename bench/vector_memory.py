"""Memory of vector builds as the table grows: bounded by the budget of a task, not by the rows."""

from __future__ import annotations

from functools import partial

import pennon
from bench.harness import Choice, Grid, Peaks, report_grids
from bench.memory import PARTS, SAMPLED, Case, memory_in_turns, watched
from bench.timing import TURNS
from bench.vectors import PARTITIONS, Kind, chosen, copied, create_pennon, vector_table

KINDS = (Kind("IVF_PQ", (("num_sub_vectors", 16),)), Kind("IVF_FLAT"))
SIZES = (500_000, 2_000_000)
TASK_MEMORY = 128 << 20


def vector_memory(choice: Choice) -> None:
    kinds, turns = chosen(KINDS, choice.kinds), choice.turns or TURNS
    sizes = SIZES if choice.rows is None else (choice.rows, 4 * choice.rows)
    cases = [
        Case((kind, f"{size:,}"), partial(_build, vector_table(size), kind, min(PARTITIONS, size // 256)))
        for kind in kinds
        for size in sizes
    ]
    report_grids(
        "vector-memory",
        f"Peak memory of vector builds, 128 float32, {PARTITIONS} partitions, task_memory_bytes 128 MiB",
        [Grid(("kind", "rows", *PARTS), memory_in_turns(cases, turns), f"{turns} turns")],
        note=f"{SAMPLED} The session is warm; the heap of the JVM may grow to 2 GiB whatever it is used for.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _build(source: str, kind: Kind, partitions: int) -> tuple[Peaks, float]:
    create_pennon(pennon.open(copied(vector_table(4096), "warm-up")), kind, 8)
    table = pennon.open(copied(source, "measured"))
    return watched(lambda: create_pennon(table, kind, partitions, task_memory_bytes=TASK_MEMORY))
