"""Memory of builds of the other scalar indices: bounded by the budget of a task, whatever the rows."""

from __future__ import annotations

from functools import partial

import pennon
from bench.harness import Choice, Grid, Peaks, report_grids
from bench.memory import PARTS, SAMPLED, Case, memory_in_turns, watched
from bench.scalar_build import CASES, scalar_table
from bench.timing import TURNS
from bench.vectors import drop_files_of_old_versions

ROWS = 100_000_000


def scalar_memory(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    uri = scalar_table(rows)
    cases = [
        Case((case.index_type, case.content, f"{rows:,}"), partial(_build, uri, case.column, case.index_type))
        for case in CASES
        if not choice.kinds or case.index_type in choice.kinds
    ]
    report_grids(
        "scalar-memory",
        "Peak memory of builds of scalar indices, task_memory_bytes 1 GiB",
        [Grid(("index", "column", "rows", *PARTS), memory_in_turns(cases, turns), f"{turns} turns")],
        note=f"{SAMPLED} About 0.25 GiB of a worker is the process itself. Spark starts within the seconds.",
        keep=choice.keep,
    )


def _build(uri: str, column: str, index_type: str) -> tuple[Peaks, float]:
    table = pennon.open(uri)
    used = watched(lambda: table.create_index(column, index_type, name="measured"))
    table.drop_index("measured")
    drop_files_of_old_versions(uri)
    return used
