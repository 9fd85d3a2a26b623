"""B-trees of large tables: of 130 million rows, as in seed 003, in 3 and in 50 ranges, and of a billion rows."""

from __future__ import annotations

from datetime import timedelta

import lance

import pennon
from bench.data import int64_table
from bench.floor import clear, floor_of_build
from bench.harness import Choice, Grid, peak_memory, report_grids, say
from bench.timing import TURNS, interleaved

COLUMN = "id"
SEED_ROWS, BILLION = 130_000_000, 1_000_000_000
# Ranges, and how long the builds of the seed took on a cluster that it does not describe.
SEED = {3: "23 min", 50: "3 min"}
NOTE = (
    "Floor: the column is read and files like those of the index are written, by a thread for each core, and nothing "
    "else is done."
)
HEADER = (
    "ranges",
    "Pennon s",
    "floor s",
    "million rows/s",
    "all processes GiB",
    "largest worker GiB",
    "index GiB",
    "audit",
)


def seed_003(choice: Choice) -> None:
    rows = choice.rows or SEED_ROWS
    grid = [(*_built(rows, ranges, choice.turns or TURNS), seconds) for ranges, seconds in SEED.items()]
    title = f"The table of seed 003: a B-tree of {rows:,} random int64"
    report_grids("seed-003", title, [Grid((*HEADER, "the seed's"), grid)], NOTE, keep=choice.keep)


def billion(choice: Choice) -> None:
    rows = choice.rows or BILLION
    grid = [_built(rows, None, choice.turns or 1)]
    report_grids("billion", f"A B-tree of {rows:,} random int64", [Grid(HEADER, grid)], NOTE, keep=choice.keep)


def _built(rows: int, ranges: int | None, turns: int) -> tuple[object, ...]:
    """Seconds of every turn; memory is that of another build, which is not timed, unless there is one turn only."""
    say(f"{rows:,} rows, {ranges or 'as many as chosen'} ranges")
    uri = int64_table(rows)
    table = pennon.open(uri)
    with peak_memory() as peak:
        taken = interleaved({"build": lambda: _build(table, ranges)}, 1)["build"]
    [index] = table.refresh().indices()
    floor = floor_of_build(uri, COLUMN, index.name)
    if turns > 1:
        taken = interleaved({"build": lambda: _build(table, ranges)}, turns)["build"]
    # Not in turns with the builds: gigabytes that it has just written would still be on their way to the disk.
    least = interleaved({"floor": floor}, turns, prepare=lambda: clear(uri))["floor"]
    clear(uri)
    [index] = table.refresh().indices()
    [segment] = index.segments
    report = table.audit()
    # All files but the lookup and the list of contents.
    files, size = segment.files - 2, f"{segment.size_bytes / 2**30:.2f}"
    table.drop_index(index.name)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    speed = taken.per_second(rows).times(1e-6)
    seconds, memory = f"{taken:.1f}", (f"{peak.total:.2f}", f"{peak.largest_worker:.2f}")
    say(f"{files} ranges, {seconds} s, {memory[0]} GiB, audit {report.ok}")
    return files, seconds, f"{least:.1f}", f"{speed:.1f}", *memory, size, "clean" if report.ok else "NOT CLEAN"


def _build(table: pennon.Table, ranges: int | None) -> None:
    table.create_index(COLUMN, replace=True, ranges=ranges)
