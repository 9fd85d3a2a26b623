"""Memory of B-tree builds: bounded by the budget of a task, whatever the rows, their values and the ranges."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.data import CHUNK, int64_table, write_once
from bench.harness import Choice, Grid, Peaks, report_grids
from bench.memory import PARTS, SAMPLED, Case, memory_in_turns, watched
from bench.timing import TURNS
from bench.vectors import copied, drop_files_of_old_versions

ROWS = 100_000_000
TASK_MEMORY = 1 << 30


def btree_memory(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    cases = [
        _case("random int64", int64_table(rows // 10)),
        _case("random int64", int64_table(rows)),
        _case("one value in half of the rows", _hot_table(rows)),
        _case("the same, two ranges asked for", _hot_table(rows), ranges=2),
    ]
    report_grids(
        "btree-memory",
        "Peak memory of B-tree builds, task_memory_bytes 1 GiB",
        [Grid(("values", "rows", "ranges", *PARTS), memory_in_turns(cases, turns), f"{turns} turns")],
        note=f"{SAMPLED} The session is warm. About 0.25 GiB of a worker is the process itself. Two ranges hold"
        " 50,000,000 rows each, 0.75 GiB: more than a third of the budget, so they are kept in a file, of which the"
        " pages that happen to be in memory count here as well.",
        keep=choice.keep,
    )


def _case(values: str, uri: str, **options: Any) -> Case:
    ranges = pennon.open(uri).plan_index("id", task_memory_bytes=TASK_MEMORY, **options).to_dict()["ranges"]
    return Case((values, f"{lance.dataset(uri).count_rows():,}", ranges), partial(_build, uri, options))


def _build(uri: str, options: dict[str, Any]) -> tuple[Peaks, float]:
    warm = pennon.open(copied(int64_table(1_000_000), "warm-up"))
    warm.create_index("id")
    table = pennon.open(uri)
    used = watched(lambda: table.create_index("id", name="measured", task_memory_bytes=TASK_MEMORY, **options))
    table.drop_index("measured")
    drop_files_of_old_versions(uri)
    return used


def _hot_table(rows: int) -> str:
    return write_once(f"hot-{rows}", pa.schema([("id", pa.int64())]), _hot, rows)


def _hot(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(4)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        values = np.where(rng.random(count) < 0.5, 42, rng.integers(-(2**63), 2**63 - 1, count))
        yield pa.record_batch({"id": pa.array(values)})
