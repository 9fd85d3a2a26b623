"""How builds grow: in rows, ranges, fragments, partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import lance
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import pennon
from bench.data import int64_table
from bench.harness import DATA, Choice, Grid, Peaks, peak_memory, report_grids, say
from bench.timing import TURNS, Timing
from bench.vectors import DIM, PARTITIONS, copied, vector_table
from pennon.query.inventory import Index
from pennon.table import Table

ROWS = (1_000_000, 10_000_000, 100_000_000)
RANGES = (4, 40, 400, 4000)
FRAGMENTS = (12, 120, 1200)
VECTORS = (125_000, 500_000, 2_000_000)
PARTITION_COUNTS = (128, 512, 2048, 8192)
SUB_VECTORS = 16


@dataclass(frozen=True)
class Built:
    index: Index
    seconds: float
    peaks: Peaks
    shuffled: int


@dataclass(frozen=True)
class Case:
    """One line of a table: the same build in every turn."""

    label: str
    rows: int
    build: Callable[[], Built]

    def figures(self, built: Sequence[Built]) -> tuple[object, ...]:
        seconds, last = Timing(tuple(each.seconds for each in built)), built[-1]
        files = sum(segment.files for segment in last.index.segments)
        return (
            self.label,
            f"{seconds:.2f}",
            f"{seconds.per_second(self.rows).times(1e-6):.2f}",
            f"{last.shuffled / 2**20:.0f}",
            f"{last.shuffled / self.rows:.1f}",
            f"{max(each.peaks.largest_worker for each in built):.2f}",
            f"{max(each.peaks.driver for each in built):.2f}",
            files,
            f"{last.index.size_bytes / 2**20:.1f}",
            f"{last.index.size_bytes / self.rows:.1f}",
        )


COLUMNS = (
    "seconds",
    "million rows/s",
    "shuffle MiB",
    "shuffle bytes a row",
    "largest worker GiB",
    "driver GiB",
    "index files",
    "index MiB",
    "index bytes a row",
)


def growth(choice: Choice) -> None:
    scale = (choice.rows or ROWS[1]) / ROWS[1]
    rows = [int(size * scale) for size in ROWS]
    vectors = [int(size * scale) for size in VECTORS]
    turns = choice.turns or TURNS
    grids: list[Grid] = []

    def measure(heading: str, name: str, cases: list[Case]) -> None:
        built: list[list[Built]] = [[] for _ in cases]
        for turn in range(turns):
            for case, each in zip(cases, built, strict=True):
                each.append(case.build())
                say(f"{heading} {case.label}, turn {turn + 1}: {each[-1].seconds:.2f} s")
        found = [case.figures(each) for case, each in zip(cases, built, strict=True)]
        grids.append(Grid((name, *COLUMNS), found, heading))

    _btree(int64_table(rows[1]))  # starts the session
    measure("B-tree: rows", "rows", [Case(f"{n:,}", n, partial(_btree, int64_table(n))) for n in rows])
    middle = int64_table(rows[1])
    measure(
        f"B-tree of {rows[1]:,} rows: ranges",
        "ranges",
        [Case(f"{n:,}", rows[1], partial(_btree, middle, ranges=n)) for n in RANGES],
    )
    measure(
        f"B-tree of {rows[1]:,} rows: fragments",
        "fragments",
        [Case(f"{n:,}", rows[1], partial(_btree, _in_fragments(middle, rows[1], n))) for n in FRAGMENTS],
    )
    measure(
        f"IVF_PQ of {PARTITIONS} partitions: rows",
        "rows",
        [Case(f"{n:,}", n, partial(_vectors, n, PARTITIONS)) for n in vectors],
    )
    measure(
        f"IVF_PQ of {vectors[1]:,} rows: partitions",
        "partitions",
        [Case(f"{n:,}", vectors[1], partial(_vectors, vectors[1], n)) for n in PARTITION_COUNTS],
    )
    report_grids(
        "growth",
        "How builds grow",
        grids,
        note=f"B-trees of random int64; vectors of {DIM} float32, {SUB_VECTORS} sub-vectors, each sample 256 vectors a "
        f"partition, at most the table. Warm session, {turns} interleaved builds a row: seconds are their median and "
        "spread, memory is the most of all. Shuffle bytes are what Spark counted as written; the budget of a task is "
        "the default. Two tasks run at a time.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _btree(uri: str, **options: Any) -> Built:
    return _built(pennon.open(uri), "id", "BTREE", **options)


def _vectors(rows: int, partitions: int) -> Built:
    table = pennon.open(copied(vector_table(rows), "grown"))
    return _built(table, "v", "IVF_PQ", num_partitions=partitions, num_sub_vectors=SUB_VECTORS)


def _built(table: Table, column: str, index_type: str, **options: Any) -> Built:
    for left_over in table.indices():  # of a run that was cut short
        table.drop_index(left_over.name)
    before = _stages()
    start = time.perf_counter()
    with peak_memory() as peaks:
        index = table.create_index(column, index_type, **options).index
    seconds = time.perf_counter() - start
    shuffled = sum(stage.shuffleWriteBytes() for stage in _stages()[len(before) :])
    table.drop_index(index.name)
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    return Built(index, seconds, peaks, shuffled)


def _stages() -> list[Any]:
    """What Spark reports of every stage so far."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return []
    # Without the web UI there is no public way.
    context: Any = vars(spark.sparkContext)["_jsc"]
    store = context.sc().statusStore()
    stages: list[Any] = []
    for number in count():
        try:
            stages.append(store.lastStageAttempt(number))
        except Py4JJavaError:
            return stages
    return stages


def _in_fragments(source: str, rows: int, fragments: int) -> str:
    uri = DATA / f"int64-{rows}-in-{fragments}.lance"
    if not uri.exists():
        reader = lance.dataset(source).scanner().to_reader()
        lance.write_dataset(reader, str(uri), max_rows_per_file=-(-rows // fragments))
    return str(uri)
