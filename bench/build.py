"""Building a B-tree: Pennon on Spark `local[2]`, warm, against pylance `create_scalar_index`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import lance

import pennon
from bench.data import int64_table, lineitem_table, string_table
from bench.floor import clear, floor_of_build
from bench.harness import peak_memory, report
from bench.timing import interleaved

HEADER = ("column", "rows", "pylance s", "Pennon s", "speed-up", "floor s", "Pennon peak GiB")
NOTE = (
    "Floor: the column is read and files like those of the index are written, by a thread for each core, and nothing "
    "else is done."
)


def build_int64(sizes: Sequence[int]) -> None:
    rows = [_race(int64_table(size), "id", f"random int64, {size:,} rows") for size in sizes]
    name = "build_large" if max(sizes) >= 100_000_000 else "build_int64"
    report(name, "B-tree build, random int64", HEADER, rows, NOTE)


def build_strings() -> None:
    rows = [_race(string_table(10_000_000), "s", "random 16-byte strings")]
    report("build_strings", "B-tree build, random strings", HEADER, rows, NOTE)


def build_lineitem() -> None:
    columns = ("l_orderkey", "l_partkey", "l_shipdate", "l_extendedprice", "l_comment")
    rows = [_race(lineitem_table(), column, f"lineitem.{column}") for column in columns]
    report("build_lineitem", "B-tree build, TPC-H lineitem (scale factor 1)", HEADER, rows, NOTE)


def _race(uri: str, column: str, label: str) -> tuple[object, ...]:
    table = pennon.open(uri)
    for left_over in table.indices():  # of a run that was cut short
        table.drop_index(left_over.name)
    table.create_index(column, name="warm-up")
    table.drop_index("warm-up")
    with peak_memory() as peak:
        table.create_index(column, name="pennon")
    floor = floor_of_build(uri, column, "pennon")
    taken = interleaved(
        {
            "pylance": lambda: lance.dataset(uri).create_scalar_index(column, "BTREE", name="pylance", replace=True),
            "pennon": lambda: table.create_index(column, name="pennon"),
            "floor": floor,
        }
    )
    rows = lance.dataset(uri).count_rows()
    for name in ("pylance", "pennon"):
        lance.dataset(uri).drop_index(name)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    clear(uri)
    theirs, ours = taken["pylance"], taken["pennon"]
    times = f"{theirs:.2f}", f"{ours:.2f}", f"{theirs.over(ours):.2f}", f"{taken['floor']:.2f}"
    return label, f"{rows:,}", *times, f"{peak.total:.1f}"
