"""The kNN join beside pylance called in Spark tasks: throughput, recall, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import pennon
from bench.harness import Choice, Grid, Peaks, fresh, peak_memory, report_grids, say
from bench.timing import TURNS, interleaved
from bench.vectors import (
    COLUMN,
    DIM,
    ROWS,
    Ids,
    Kind,
    copied,
    create_pennon,
    num_partitions,
    pylance_scanner,
    read_vectors,
    recall,
    true_neighbors,
    vector_queries,
    vector_table,
    vector_type,
)
from pennon.engine import SparkEngine

KIND = Kind("IVF_PQ", (("num_sub_vectors", 16),))
QUERIES, K, NPROBES = 100_000, 10, 20
# pylance takes so long that it is given a part of the queries, asked one by one a small one.
SLOW_SHARE = 50
# Queries that are checked against brute force.
CHECKED = 2000
# Too little for one task to hold the index.
LITTLE_MEMORY = 64 << 20
FOUND = "number long, id long, _distance float"
HEADER = ("", "queries", "seconds", "queries/s", "recall", "largest worker GiB", "all workers", "JVM", "all together")


@dataclass(frozen=True)
class Asked:
    """The table, the queries in files, and how many."""

    uri: str
    queries: str
    count: int

    def frame(self, count: int | None = None) -> DataFrame:
        frame = SparkSession.active().read.parquet(self.queries)
        return frame if count is None else frame.where(f"number < {count}")


def knn_join(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    count = QUERIES if choice.rows is None else max(SLOW_SHARE, choice.rows // 5)
    say(f"table of {rows:,} vectors, {count:,} queries")
    source = vector_table(rows)
    uri = copied(source, "joined")
    engine = SparkEngine.attach()
    create_pennon(pennon.open(uri), KIND, num_partitions(rows))
    queries = vector_queries(count)
    asked = Asked(uri, _write_queries(queries, engine.parallelism), count)
    truth = true_neighbors(read_vectors(source), queries[:CHECKED], K)
    recalls = {name: _recall(make(asked, CHECKED), truth) for name, (make, _) in CONTESTANTS.items()}
    say(f"recall {recalls}")
    numbers = {name: count // share for name, (_, share) in CONTESTANTS.items()}
    work: dict[str, Callable[[], object]] = {
        name: lambda make=make, number=numbers[name]: _run(make(asked, number))
        for name, (make, _) in CONTESTANTS.items()
    }
    taken = interleaved(work, turns)
    speed = {name: seconds.per_second(numbers[name]) for name, seconds in taken.items()}
    say(f"queries per second {speed}")
    engine.stop()
    grid: list[tuple[object, ...]] = []
    for name, seconds in taken.items():
        # A process of its own: what the others left in driver, JVM and workers does not count.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            peaks = process.submit(_peaks, asked, name, numbers[name]).result()
        parts = (peaks.largest_worker, peaks.workers, peaks.jvm, peaks.total)
        figures = (f"{numbers[name]:,}", f"{seconds:.1f}", f"{speed[name]:,.0f}", f"{recalls[name]:.3f}")
        grid.append((name, *figures, *(f"{part:.2f}" for part in parts)))
        say(", ".join(map(str, grid[-1])))
    ratios = [
        (name, *(f"{speed[name].over(speed[theirs]):.2f}" for theirs in PYLANCE))
        for name in speed
        if name not in PYLANCE
    ]
    report_grids(
        "knn-join",
        f"kNN join, {rows:,} x {DIM} float32, {KIND}, {num_partitions(rows)} partitions, l2, k {K}, nprobes {NPROBES}",
        [
            Grid(HEADER, grid, f"{turns} turns"),
            Grid(("throughput", *(f"against {theirs}" for theirs in PYLANCE)), ratios, "Against pylance"),
        ],
        note="The same index, which Pennon built, the same Spark session, the same DataFrame read from Parquet files; "
        "rows go to a sink that drops them. pylance is asked in `mapInArrow` through `nearest`, query by query or with "
        "one scanner for each batch that Spark brings, and returns `id` and `_distance`; Pennon returns the same. "
        f"Recall is against brute force, of {CHECKED:,} queries. Memory in GiB, shared pages counted once, in a "
        "process of its own each, after a small join to warm up.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _one_by_one(asked: Asked, count: int) -> DataFrame:
    return asked.frame(count).mapInArrow(_PylanceTask(asked.uri, one_by_one=True), FOUND)


def _in_batches(asked: Asked, count: int) -> DataFrame:
    return asked.frame(count).mapInArrow(_PylanceTask(asked.uri, one_by_one=False), FOUND)


def _joined(asked: Asked, count: int, memory: int | None = None) -> DataFrame:
    joined = pennon.open(asked.uri).knn_join(
        asked.frame(count), COLUMN, "query", K, nprobes=NPROBES, columns=["id"], task_memory_bytes=memory
    )
    return joined.select("number", "id", "_distance")


def _joined_in_little(asked: Asked, count: int) -> DataFrame:
    return _joined(asked, count, LITTLE_MEMORY)


PYLANCE = ("pylance one by one", "pylance in batches")
# What is measured, and which part of the queries it is given.
CONTESTANTS: dict[str, tuple[Callable[[Asked, int], DataFrame], int]] = {
    "pylance one by one": (_one_by_one, SLOW_SHARE),
    "pylance in batches": (_in_batches, 4),
    "Pennon": (_joined, 1),
    "Pennon, partitions dealt out": (_joined_in_little, 1),
}


@dataclass(frozen=True)
class _PylanceTask:
    uri: str
    one_by_one: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = lance.dataset(self.uri)
        for batch in batches:
            numbers = batch["number"].to_numpy()
            queries = batch["query"].flatten().to_numpy().reshape(len(numbers), -1)
            yield from (
                self._one_by_one(dataset, numbers, queries)
                if self.one_by_one
                else self._at_once(dataset, numbers, queries)
            )

    def _one_by_one(self, dataset: Any, numbers: Ids, queries: Any) -> Iterator[pa.RecordBatch]:
        for number, query in zip(numbers, queries, strict=True):
            found = pylance_scanner(dataset, query, K, NPROBES).to_table()
            yield _found(np.full(len(found), number), found)

    def _at_once(self, dataset: Any, numbers: Ids, queries: Any) -> Iterator[pa.RecordBatch]:
        if len(numbers):
            found = pylance_scanner(dataset, queries, K, NPROBES).to_table()
            yield _found(numbers[found["query_index"].to_numpy()], found)


def _found(numbers: Ids, found: pa.Table) -> pa.RecordBatch:
    columns = [pa.array(numbers), *(found[name].combine_chunks() for name in ("id", "_distance"))]
    return pa.record_batch(columns, ["number", "id", "_distance"])


def _write_queries(queries: Any, files: int) -> str:
    directory = fresh("knn-queries")
    directory.mkdir()
    type_ = pa.list_(pa.float32())
    for part, numbers in enumerate(np.array_split(np.arange(len(queries)), files)):
        values = pa.FixedSizeListArray.from_arrays(pa.array(queries[numbers].ravel()), type=vector_type(DIM))
        table = pa.table({"number": numbers, "query": values.cast(type_)})
        pq.write_table(table, directory / f"part-{part}.parquet", row_group_size=16_384)
    return str(directory)


def _recall(frame: DataFrame, truth: Ids) -> float:
    found = frame.orderBy("number", "_distance").toArrow()
    numbers, ids = found["number"].to_numpy(), np.full(truth.shape, -1)
    ids[numbers, np.arange(len(numbers)) - np.searchsorted(numbers, numbers)] = found["id"].to_numpy()
    return recall(ids, truth)


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _peaks(asked: Asked, name: str, count: int) -> Peaks:
    SparkEngine.attach()
    make, _ = CONTESTANTS[name]
    _run(make(asked, 10))
    with peak_memory() as peaks:
        _run(make(asked, count))
    return peaks
