"""Joining the lookups of a very large tree: the only step of a build that one process does alone."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from bench.harness import fresh, peak_memory, report
from bench.timing import TURNS, Timing
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import LanceFile
from pennon.format.store import Location, Store, open_store
from pennon.index.btree.lookup import PageStats, page_file_name, read_lookup, write_lookup

RANGES = 1000
PAGES = 2442


def merge_lookups() -> None:
    """1,000 ranges of 2,442 pages: an index over 10 billion rows."""
    rows = [_measure(ranges, PAGES) for ranges in (10, 100, RANGES)][::-1]
    header = ("ranges", "pages", "rows indexed", "merge and write s", "lookup MiB", "open s", "peak GiB")
    report("merge_lookups", "Joining page lookups", header, rows, f"The peak is that of all {TURNS} turns.")


def _measure(ranges: int, pages: int) -> tuple[object, ...]:
    parts = [_part(number, pages) for number in range(ranges)]
    store = open_store(Location.of(str(fresh("lookups"))))
    with peak_memory() as peak:
        taken = [_once(store, number, parts) for number in range(TURNS)]
    merged, opened = (Timing(tuple(each[part] for each in taken)) for part in (0, 1))
    size = taken[0][2]
    total = ranges * pages * 4096
    return (
        ranges,
        f"{ranges * pages:,}",
        f"{total:,}",
        f"{merged:.2f}",
        f"{size:.1f}",
        f"{opened:.2f}",
        f"{peak.total:.2f}",
    )


def _once(store: Store, number: int, parts: list[PageStats]) -> tuple[float, float, float]:
    """Seconds to write and to open a lookup, and its size in MiB."""
    directory = f"_indices/{number}"
    start = time.perf_counter()
    file = write_lookup(store, directory, pa.int64(), parts, 4096, "2.2")
    written = time.perf_counter()
    lookup = read_lookup(LanceFile(store, f"{directory}/{file.path}"), pa.int64())
    opened = time.perf_counter()
    assert lookup.pages == sum(part.pages for part in parts)
    return written - start, opened - written, file.size_bytes / 2**20


def _part(number: int, pages: int) -> PageStats:
    """What the writer of a range reports, over disjoint values."""
    edges = np.arange(2 * pages, dtype=np.int64) * 1000 + number * 2 * pages * 1000
    return page_stats(number, pa.array(edges))


def page_stats(number: int, edges: pa.Array) -> PageStats:
    """Of full pages, from the first and the last value of each in turn."""
    pages = len(edges) // 2
    return PageStats(
        file=IndexFile(page_file_name(number << 32), 1),
        partition_id=number << 32,
        rows=pages * 4096,
        nulls=0,
        mins=edges.take(pa.array(np.arange(0, 2 * pages, 2))),
        maxs=edges.take(pa.array(np.arange(1, 2 * pages, 2))),
        null_counts=np.zeros(pages, dtype=np.uint32),
        digests=np.random.default_rng(number).integers(1, 1 << 63, pages, dtype=np.uint64),
    )
