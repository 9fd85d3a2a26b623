"""Point lookups, warm and cold, Pennon and stock on the same index."""

from __future__ import annotations

import time
from collections.abc import Callable

import lance
import numpy as np

import pennon
from bench.data import int64_table
from bench.harness import interleaved, report
from pennon.index.cache import SHARED_CACHE

POINTS = 300


def points() -> None:
    uri = int64_table(10_000_000)
    table = pennon.open(uri)
    table.create_index("id", name="points")
    dataset = lance.dataset(uri)
    rows = np.sort(np.random.default_rng(3).choice(10_000_000, POINTS, replace=False))
    ids = dataset.take(rows.tolist(), columns=["id"])["id"].to_pylist()

    def pennon_points() -> None:
        for value in ids:
            assert table.scan(f"id = {value}", ["id", "v"]).num_rows >= 1

    def stock_points() -> None:
        for value in ids:
            assert dataset.scanner(filter=f"id = {value}", columns=["id", "v"]).to_table().num_rows >= 1

    best = interleaved({"stock": stock_points, "pennon": pennon_points}, rounds=5)
    warm = {name: seconds / POINTS * 1000 for name, seconds in best.items()}
    cold_stock = _cold(lambda value: lance.dataset(uri).scanner(filter=f"id = {value}", columns=["id"]).to_table(), ids)
    cold_pennon = _cold(lambda value: _cold_scan(uri, value), ids)
    SHARED_CACHE.clear()
    reads = pennon.open(uri).explain(f"id = {ids[0]}", analyze=True).reads
    table.drop_index("points")
    report(
        "points",
        "Point lookup on 10 million rows, range-partitioned B-tree",
        ("", "stock ms", "Pennon ms", "speed-up"),
        [
            ("warm", f"{warm['stock']:.2f}", f"{warm['pennon']:.2f}", f"{warm['stock'] / warm['pennon']:.2f}"),
            ("cold (table opened anew)", f"{cold_stock:.2f}", f"{cold_pennon:.2f}", f"{cold_stock / cold_pennon:.2f}"),
        ],
        note=f"A cold lookup makes {reads} index reads: the lookup, and one page.",
    )


def _cold_scan(uri: str, value: int) -> None:
    SHARED_CACHE.clear()
    pennon.open(uri).scan(f"id = {value}", ["id"])


def _cold(work: Callable[[int], object], values: list[int]) -> float:
    taken: list[float] = []
    for value in values[:30]:
        start = time.perf_counter()
        work(value)
        taken.append(time.perf_counter() - start)
    return float(np.median(taken)) * 1000
