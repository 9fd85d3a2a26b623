"""Assigning vectors to many partitions: `Ivf.assign` against comparisons with all centroids, in CPU time of one thread,
and the share of vectors that get the nearest partition. Last, the partitions of a billion vectors of 768 dimensions."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.harness import Choice, Grid, report_grids, say
from bench.timing import TURNS, Timing
from bench.vectors import ROWS, Ids, Matrix, read_vectors, vector_table
from pennon.index.threads import one_thread
from pennon.index.vector.assignment.all_centroids import AllCentroids
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kmeans.hierarchical import hierarchical_start
from pennon.index.vector.metric import Metric

PARTITIONS = (8192, 16384)
# Vectors that are assigned: enough for the order of the third decimal of the share, few enough for products.
ASSIGNED, ASSIGNED_WIDE = 65_536, 16_384
# The partitions of a billion vectors, and the vectors that they are trained on for each.
MOST_PARTITIONS, WIDTH, TRAINED = 31_623, 768, 4
CENTERS, RANK, NOISE = 2000, 64, np.float32(0.5)
# Rows of a product, whose scores stay in the processor's caches.
PRODUCT_ROWS = 384
COLUMNS = ("products, s", "kernel, s", "Ivf.assign, s", "speed-up", "vectors a second", "turns", "nearest partition")


def vector_assignment(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    vectors = read_vectors(vector_table(rows))
    assigned = vectors[np.random.default_rng(2).permutation(rows)[:ASSIGNED]]
    results: list[tuple[object, ...]] = []
    for partitions in PARTITIONS:
        if partitions * 8 <= rows:
            say(f"training {partitions:,} partitions")
            ivf = Ivf.train(vectors, Metric.L2, partitions)
            results.append((f"{partitions:,}", *_race(ivf, assigned, turns)))
    wide: list[tuple[object, ...]] = []
    for name, draw in {"clusters": _clustered, "no clusters": _unclustered}.items():
        say(f"drawing {MOST_PARTITIONS:,} partitions of vectors with {name}")
        drawn = draw(max(1, MOST_PARTITIONS * rows // ROWS) * TRAINED + ASSIGNED_WIDE)
        ivf = Ivf(Metric.L2, hierarchical_start(drawn[ASSIGNED_WIDE:], len(drawn[ASSIGNED_WIDE:]) // TRAINED))
        wide.append((name, *_race(ivf, drawn[:ASSIGNED_WIDE], turns)))
    report_grids(
        "vector-assignment",
        "Assigning vectors to many partitions, l2, CPU seconds of one thread",
        [
            Grid(("partitions", *COLUMNS), results, f"{len(assigned):,} vectors of 128 float32"),
            Grid(
                ("vectors", *COLUMNS),
                wide,
                f"{ASSIGNED_WIDE:,} vectors of {WIDTH} float32, {MOST_PARTITIONS:,} partitions",
            ),
        ],
        note=f"The partitions of 128 dimensions are trained on {rows:,} clustered synthetic vectors, 2,000 centers; "
        f"those of {WIDTH} are first centroids, of {TRAINED} vectors each: around {CENTERS:,} centers, or {RANK} "
        "random dimensions mapped to all. Products: float32 products of numpy with all centroids and the lowest score "
        "of each row. Kernel: the same comparisons by our kernel. The speed-up is that of Ivf.assign over products, "
        "the last column the share of the vectors that both assign to the same partition.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _clustered(rows: int) -> Matrix:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((CENTERS, WIDTH), dtype=np.float32)[rng.integers(0, CENTERS, rows)]
    vectors += NOISE * rng.standard_normal(vectors.shape, dtype=np.float32)
    return vectors


def _unclustered(rows: int) -> Matrix:
    rng = np.random.default_rng(1)
    mapped = rng.standard_normal((RANK, WIDTH), dtype=np.float32)
    vectors = rng.standard_normal((rows, RANK), dtype=np.float32) @ mapped
    vectors += NOISE * rng.standard_normal(vectors.shape, dtype=np.float32)
    return vectors


def _race(ivf: Ivf, assigned: Matrix, turns: int) -> tuple[object, ...]:
    factors = np.concatenate([-2 * ivf.centroids.T, (ivf.centroids**2).sum(axis=1)[None]])
    points = np.concatenate([assigned, np.ones((len(assigned), 1), dtype=np.float32)], axis=1)
    compared = AllCentroids.of(ivf.centroids, by_l2=True)
    taken: dict[str, list[float]] = {"products": [], "kernel": [], "assign": []}
    nearest, found = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    with one_thread():
        ivf.assign(assigned[:PRODUCT_ROWS])  # groups and kernels are made once
        for _ in range(turns):
            seconds, nearest = _measured(lambda: _products(points, factors))
            taken["products"].append(seconds)
            seconds, _ = _measured(lambda: compared.nearest(assigned).ids)
            taken["kernel"].append(seconds)
            seconds, found = _measured(lambda: ivf.assign(assigned)[0].astype(np.int64))
            taken["assign"].append(seconds)
    products, kernel, assign = (Timing(tuple(seconds)) for seconds in taken.values())
    return (
        f"{products:.2f}",
        f"{kernel:.2f}",
        f"{assign:.2f}",
        f"{products.over(assign):.1f}",
        f"{round(len(assigned) / np.median(taken['assign']), -2):,.0f}",
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
