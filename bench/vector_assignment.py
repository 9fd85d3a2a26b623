"""Assigning vectors to many partitions: `Ivf.assign` against products with all centroids, in CPU time of one thread,
and the share of vectors that get the nearest partition."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.harness import Choice, Grid, report_grids, say
from bench.timing import TURNS, Timing
from bench.vectors import ROWS, Ids, Matrix, read_vectors, vector_table
from pennon.index.threads import one_thread
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import Metric

PARTITIONS = (8192, 16384)
# Vectors that are assigned: enough for the order of the third decimal of the share, few enough for products.
ASSIGNED = 65_536
# Rows of a product, whose scores stay in the processor's caches.
PRODUCT_ROWS = 384
HEADER = ("partitions", "products, s", "Ivf.assign, s", "speed-up", "turns", "nearest partition")


def vector_assignment(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    vectors = read_vectors(vector_table(rows))
    assigned = vectors[np.random.default_rng(2).permutation(rows)[:ASSIGNED]]
    results = [_race(vectors, assigned, partitions, turns) for partitions in PARTITIONS if partitions * 8 <= rows]
    report_grids(
        "vector-assignment",
        f"Assigning {len(assigned):,} vectors of 128 float32 to many partitions, l2, CPU seconds of one thread",
        [Grid(HEADER, results)],
        note=f"Partitions are trained on {rows:,} clustered synthetic vectors, 2,000 centers. Products: float32 "
        "products with all centroids and the lowest score of each row. The last column is the share of "
        "the vectors that both assign to the same partition.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _race(vectors: Matrix, assigned: Matrix, partitions: int, turns: int) -> tuple[object, ...]:
    say(f"training {partitions:,} partitions")
    ivf = Ivf.train(vectors, Metric.L2, partitions)
    factors = np.concatenate([-2 * ivf.centroids.T, (ivf.centroids**2).sum(axis=1)[None]])
    points = np.concatenate([assigned, np.ones((len(assigned), 1), dtype=np.float32)], axis=1)
    taken: dict[str, list[float]] = {"products": [], "assign": []}
    nearest, found = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    with one_thread():
        ivf.assign(assigned[:PRODUCT_ROWS])  # groups and kernels are made once
        for _ in range(turns):
            seconds, nearest = _measured(lambda: _products(points, factors))
            taken["products"].append(seconds)
            seconds, found = _measured(lambda: ivf.assign(assigned)[0].astype(np.int64))
            taken["assign"].append(seconds)
    products, assign = (Timing(tuple(seconds)) for seconds in taken.values())
    return (
        f"{partitions:,}",
        f"{products:.2f}",
        f"{assign:.2f}",
        f"{products.over(assign):.1f}",
        turns,
        f"{(found == nearest).mean():.5f}",
    )


def _products(points: Matrix, factors: Matrix) -> Ids:
    starts = range(0, len(points), PRODUCT_ROWS)
    return np.concatenate([(points[at : at + PRODUCT_ROWS] @ factors).argmin(axis=1) for at in starts])


def _measured(work: Callable[[], Ids]) -> tuple[float, Ids]:
    start = time.thread_time()
    found = work()
    return time.thread_time() - start, found
