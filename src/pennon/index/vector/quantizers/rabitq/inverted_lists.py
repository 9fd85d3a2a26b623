"""Many queries against many partitions of RaBitQ codes of one bit, the queries of a partition eight at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from pennon.index.vector.quantizers.rabitq.scorer import BITS, Estimator, RabitScorer, masks
from pennon.index.vector.search.list_scanner import POSITION_BITS, widened
from pennon.index.vector.vectors import Floats, Mask, Positions

# The size of the tables of queries in memory at once, in each thread, and the least and the largest number of them.
QUERY_BYTES = 8 << 20
LEAST_QUERIES, MOST_QUERIES = 64, 512
WORD_ITEMS = 64


def search_lists(
    estimator: Estimator,
    probed: Sequence[RabitScorer],
    queries: Floats,
    places: Positions,
    k: int,
    allowed: Mask | None,
    threads: int,
) -> tuple[Floats, Positions]:
    """As `Quantizer.search_lists`; not for the older estimator, which rotates residuals."""
    values = np.full((len(queries), k), np.inf, dtype=np.float32)
    keys = np.full((len(queries), k), -1, dtype=np.int64)
    flags = masks(probed, allowed)
    # Kernels are compiled when they are imported.
    from pennon.index.vector.quantizers.rabitq.group_kernels import round_tables, scan_partition  # noqa: PLC0415

    def scan(rows: slice) -> None:
        points = np.ascontiguousarray(queries[rows, estimator.dim :])
        padded = widened(points, -(-estimator.dim // WORD_ITEMS) * WORD_ITEMS)
        tables = (padded.reshape(-1, 8) @ BITS).reshape(len(points), -1)
        lows, steps = np.empty((2, len(points)), dtype=np.float32)
        rounded = np.empty(tables.shape, dtype=np.int16)
        round_tables(tables, lows, steps, rounded)
        of_queries = tables, points.sum(axis=1) / np.float32(2), lows, steps, rounded
        order = np.argsort(places[rows], axis=None, kind="stable")
        ends = np.searchsorted(places[rows].reshape(-1)[order], np.arange(len(probed) + 1)).tolist()
        for number, (start, stop) in enumerate(pairwise(ends)):
            if start < stop:
                one, asking = probed[number], order[start:stop] // places.shape[1]
                rotated = estimator.rotate(queries[rows][asking], one.centroid[None], None)
                slopes = np.ones_like(rotated.shifts) if rotated.slopes is None else rotated.slopes
                own, first = np.stack([slopes, rotated.shifts], axis=1), number << POSITION_BITS
                codes = one.signs.words, one.factors, one.codes, flags[number]
                scan_partition(*codes, first, *of_queries, asking, own, values[rows], keys[rows])

    at_once = max(LEAST_QUERIES, min(MOST_QUERIES, QUERY_BYTES // (estimator.dim * 256 // 8 * 4)))
    step = max(1, min(at_once, -(-len(queries) // threads)))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(scan, (slice(at, at + step) for at in range(0, len(queries), step))))
    return values, keys
