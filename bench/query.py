"""Point lookups, warm and cold, Pennon and pylance on the same index."""

from __future__ import annotations

import lance
import numpy as np

import pennon
from bench.data import int64_table
from bench.harness import report
from bench.timing import interleaved, medians_in_turns
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

    def pylance_points() -> None:
        for value in ids:
            assert dataset.scanner(filter=f"id = {value}", columns=["id", "v"]).to_table().num_rows >= 1

    taken = interleaved({"pylance": pylance_points, "pennon": pennon_points})
    warm = {name: seconds.times(1000 / POINTS) for name, seconds in taken.items()}
    taken = medians_in_turns(
        {
            "pylance": lambda value: lance.dataset(uri).scanner(filter=f"id = {value}", columns=["id"]).to_table(),
            "pennon": lambda value: _cold_scan(uri, value),
        },
        ids[:30],
    )
    cold = {name: seconds.times(1000) for name, seconds in taken.items()}
    SHARED_CACHE.clear()
    reads = pennon.open(uri).explain(f"id = {ids[0]}", analyze=True).reads
    table.drop_index("points")
    report(
        "points",
        "Point lookup on 10 million rows, range-partitioned B-tree",
        ("", "pylance ms", "Pennon ms", "speed-up"),
        [
            ("warm", f"{warm['pylance']:.2f}", f"{warm['pennon']:.2f}", f"{warm['pylance'].over(warm['pennon']):.2f}"),
            (
                "cold (table just opened)",
                f"{cold['pylance']:.2f}",
                f"{cold['pennon']:.2f}",
                f"{cold['pylance'].over(cold['pennon']):.2f}",
            ),
        ],
        note=f"A cold lookup makes {reads} index reads: the lookup, and one page.",
    )


def _cold_scan(uri: str, value: int) -> None:
    SHARED_CACHE.clear()
    pennon.open(uri).scan(f"id = {value}", ["id"])
