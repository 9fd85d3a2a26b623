"""Near-duplicates beside a kNN join written by hand with pylance in Spark tasks: CPU time, and what each finds.

The vectors are those of real texts where PENNON_BENCH_TEXTS names a `.npy` file of them, a row each; otherwise they lie
around centres, a third of them near another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lance
import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pennon
from bench.data import write_once
from bench.harness import Choice, Grid, report_grids, say
from bench.real_vectors import TEXTS, texts
from bench.timing import Timing
from bench.vectors import COLUMN, Matrix, copied, normalized, num_partitions, vector_type
from pennon.engine import SparkEngine

ROWS, DIM, CENTRES, FRAGMENTS = 1_000_000, 256, 5000, 8
DISTANCE, METRIC = 0.05, "cosine"
TURNS = 3
# The kNN join: neighbors of each row, partitions that are probed, and a kind that pylance is fast with.
K, NPROBES, KIND = 10, 20, "IVF_PQ"
SUB_VECTORS = 32
# Rows whose pairs are compared with brute force, and the part of the rows that pylance is given: it takes too long.
CHECKED, SLOW_SHARE = 500, 20
FOUND = "id long, other long, distance float"


def near_duplicates(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    source, vectors = _table(rows)
    uri = copied(source, "duplicates")
    engine = SparkEngine.attach()
    spark = SparkSession.active()
    say(f"{len(vectors):,} vectors of {vectors.shape[1]} dimensions; index for pylance")
    dataset = lance.dataset(uri)
    dataset.create_index(COLUMN, KIND, metric=METRIC, num_partitions=num_partitions(rows), num_sub_vectors=SUB_VECTORS)
    table = pennon.open(uri)
    say(str(table.plan_near_duplicates(COLUMN, DISTANCE)))
    some = max(1, len(vectors) // SLOW_SHARE)
    contestants: dict[str, tuple[Callable[[], DataFrame], int]] = {
        "pylance": (lambda: _by_hand(spark, uri, some, engine.parallelism), some),
        "Pennon, pairs": (lambda: table.near_duplicates(COLUMN, DISTANCE, columns=["id"]), len(vectors)),
        "Pennon, groups": (
            lambda: table.near_duplicates(COLUMN, DISTANCE, columns=["id"], groups=True),
            len(vectors),
        ),
    }
    checked = np.sort(np.random.default_rng(1).choice(some, min(CHECKED, some), replace=False))
    truth = _brute_force(vectors, checked)
    found = {
        "pylance": _pairs(_by_hand(spark, uri, some, engine.parallelism), checked),
        "Pennon, pairs": _pairs(table.near_duplicates(COLUMN, DISTANCE, columns=["id"]), checked),
    }
    used = _interleaved({name: make for name, (make, _) in contestants.items()}, turns)
    grid = [
        (
            name,
            f"{count:,}",
            f"{cpu:.1f}",
            f"{cpu.per_second(count):,.0f}",
            f"{len(found[name] & truth) / max(1, len(truth)):.4f}" if name in found else "",
            f"{len(found[name] - truth):,}" if name in found else "",
        )
        for (name, (_, count)), cpu in zip(contestants.items(), used.values(), strict=True)
    ]
    speed = {name: used[name].per_second(count) for name, (_, count) in contestants.items()}
    ratios = [(name, f"{speed[name].over(speed['pylance']):.2f}") for name in speed if name != "pylance"]
    header = ("", "rows", "CPU seconds", "rows per CPU second", f"share of true pairs of {len(checked)} rows", "wrong")
    report_grids(
        "near-duplicates",
        f"Near-duplicates, {len(vectors):,} x {vectors.shape[1]} float32, {METRIC}, distance {DISTANCE}",
        [
            Grid(header, grid, f"{turns} turns"),
            Grid(("", "rows per CPU second against pylance"), ratios, "Against pylance"),
        ],
        note=f"CPU seconds are those of the driver, the JVM and all Python workers. pylance is asked in `mapInArrow` "
        f"for the {K} nearest rows of every row of a part of the table, through its own {KIND} index with nprobes "
        f"{NPROBES} and a refine factor of 2, one scanner for each 1,024 rows; pairs beyond the distance are dropped. "
        "Pennon's pairs are all there are, of the whole table. Both go to a sink that drops them.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )
    engine.stop()


def _table(rows: int) -> tuple[str, Matrix]:
    vectors = texts(rows) if TEXTS in os.environ else _clustered(rows)
    name = f"{'texts' if TEXTS in os.environ else 'duplicates'}-{rows}"
    schema = pa.schema([("id", pa.int64()), (COLUMN, vector_type(vectors.shape[1]))])

    def batches(_: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(vectors), 50_000):
            some = vectors[start : start + 50_000]
            lists = pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), type=schema.field(COLUMN).type)
            yield pa.record_batch({"id": pa.array(np.arange(start, start + len(some))), COLUMN: lists})

    return write_once(name, schema, batches, rows, FRAGMENTS), vectors


def _clustered(rows: int) -> Matrix:
    rng = np.random.default_rng(6)
    centres = rng.standard_normal((CENTRES, DIM), dtype=np.float32)
    # Texts differ along few directions.
    spread = np.linspace(2, 0.2, DIM, dtype=np.float32)
    vectors = (centres[rng.integers(0, CENTRES, rows)] + rng.standard_normal((rows, DIM), dtype=np.float32)) * spread
    near = rng.choice(rows, rows // 3, replace=False)
    vectors[near] = vectors[rng.choice(rows, len(near))]
    vectors[near] += 0.15 * spread * rng.standard_normal((len(near), DIM), dtype=np.float32)
    return vectors


@dataclass(frozen=True)
class _ByHand:
    """The nearest rows of some rows, by pylance, as far as they are within the distance."""

    uri: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = lance.dataset(self.uri)
        for batch in batches:
            first, stop = batch.column("first")[0].as_py(), batch.column("stop")[0].as_py()
            for start in range(first, stop, 1024):
                yield self._found(dataset, np.arange(start, min(start + 1024, stop)))

    def _found(self, dataset: Any, ids: Any) -> pa.RecordBatch:
        queries = dataset.take(ids, columns=[COLUMN])[COLUMN].combine_chunks()
        matrix = queries.flatten().to_numpy().reshape(len(ids), -1)
        nearest = {"column": COLUMN, "q": matrix, "k": K, "nprobes": NPROBES, "refine_factor": 2}
        found = dataset.scanner(columns=["id", "_distance"], nearest=nearest).to_table()
        near = found["_distance"].to_numpy() <= DISTANCE
        own = ids[found["query_index"].to_numpy()]
        kept = near & (own != found["id"].to_numpy())
        return pa.record_batch(
            [own[kept], found["id"].to_numpy()[kept], found["_distance"].to_numpy()[kept]], ["id", "other", "distance"]
        )


def _by_hand(spark: SparkSession, uri: str, rows: int, parts: int) -> DataFrame:
    edges = np.linspace(0, rows, parts + 1).astype(int).tolist()
    ranges = spark.createDataFrame(list(pairwise(edges)), "first long, stop long")
    return ranges.repartitionByRange(parts, "first").mapInArrow(_ByHand(uri), FOUND)


def _pairs(frame: DataFrame, checked: Any) -> set[tuple[int, int]]:
    """Pairs with one of the checked rows."""
    a, b = frame.columns[:2]
    ids = ", ".join(map(str, checked.tolist()))
    found = frame.where(f"{a} IN ({ids}) OR {b} IN ({ids})").select(a, b).toArrow()
    return {
        (min(pair), max(pair))
        for pair in zip(found[a].to_pylist(), found[b].to_pylist(), strict=True)
        if not set(pair).isdisjoint(checked.tolist())
    }


def _brute_force(vectors: Matrix, checked: Any) -> set[tuple[int, int]]:
    points = normalized(vectors)
    found: set[tuple[int, int]] = set()
    for row in checked.tolist():
        near = np.flatnonzero(1 - points @ points[row] <= DISTANCE + 1e-5)
        exact = ((points[near].astype(np.float64) - points[row]) ** 2).sum(axis=1) / 2 <= DISTANCE
        found |= {(min(row, other), max(row, other)) for other in near[exact].tolist() if other != row}
    return found


def _interleaved(contestants: dict[str, Callable[[], DataFrame]], turns: int) -> dict[str, Timing]:
    """CPU seconds, which other work on the machine hardly changes."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, make in contestants.items():
            start = _cpu_seconds()
            make().write.format("noop").mode("overwrite").save()
            time.sleep(0.1)
            taken[name].append(_cpu_seconds() - start)
            say(f"{name}: {taken[name][-1]:.1f} CPU seconds")
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def _cpu_seconds() -> float:
    """Of this process and everything it started, what has ended included."""
    me, total = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
