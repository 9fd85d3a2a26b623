"""Building vector indices: Pennon, warm, against pylance `create_index`, at equal recall. Pennon builds in its process
what is small, as it does by default, and the rest on Spark `local[2]`."""

from __future__ import annotations

import os

import pennon
from bench.floor import clear, floor_of_build
from bench.harness import Choice, Grid, report_grids, say
from bench.timing import TURNS, interleaved
from bench.vectors import (
    COLUMN,
    ROWS,
    Ids,
    Kind,
    Matrix,
    check_partitions,
    chosen,
    copied,
    create_pennon,
    create_pylance,
    drop_files_of_old_versions,
    index_mib,
    num_partitions,
    pylance_search,
    read_vectors,
    recall,
    true_neighbors,
    vector_queries,
    vector_table,
)
from pennon.jobs.shared.placement import VARIABLE

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_RQ", (("num_bits", 5),)),
    Kind("IVF_PQ", (("num_sub_vectors", 16),)),
    Kind("IVF_HNSW_SQ"),
)
QUERIES, K, NPROBES = 200, 10, 20
HEADER = (
    "kind",
    "pylance s",
    "Pennon s",
    "speed-up",
    "floor s",
    "turns",
    "pylance recall",
    "Pennon recall",
    "pylance MiB",
    "Pennon MiB",
)


def vector_build(choice: Choice) -> None:
    rows = choice.rows or ROWS
    kinds = chosen(KINDS, choice.kinds)
    say(f"table of {rows:,} vectors")
    source = vector_table(rows)
    queries = vector_queries(QUERIES)
    truth = true_neighbors(read_vectors(source), queries, K)
    pylance, ours = copied(source, "built-by-pylance"), copied(source, "built-by-pennon")
    say("starting Spark")
    _warm_up()
    results = [
        _race(kind, pylance, ours, num_partitions(rows), choice.turns or TURNS, queries, truth) for kind in kinds
    ]
    report_grids(
        "vector-build",
        f"Vector index build, {rows:,} x 128 float32, {num_partitions(rows)} partitions, l2",
        [Grid(HEADER, results)],
        note=f"Recall@{K} is that of pylance's search on both indices, {QUERIES} queries, nprobes {NPROBES}. Clustered "
        "synthetic vectors: 2,000 centres with normal noise around them, 8 fragments. Floor: the column is read and "
        "files like those of the index are written, by a thread for each core, and nothing else is done.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _warm_up() -> None:
    """Starts the session and its Python workers on a table of its own, which is too small for them otherwise."""
    table = pennon.open(copied(vector_table(4096), "warm-up"))
    create_pennon(table, Kind("IVF_FLAT"), 8)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "0"
    try:
        create_pennon(table, Kind("IVF_HNSW_SQ"), 8, replace=True)
    finally:
        os.environ.pop(VARIABLE)
        os.environ |= {} if before is None else {VARIABLE: before}


def _race(
    kind: Kind, pylance: str, ours: str, partitions: int, turns: int, queries: Matrix, truth: Ids
) -> tuple[object, ...]:
    table = pennon.open(ours)
    create_pennon(table, kind, partitions)
    [index] = table.indices()
    taken = interleaved(
        {
            "pylance": lambda: create_pylance(pylance, kind, partitions),
            "pennon": lambda: create_pennon(table, kind, partitions),
            "floor": floor_of_build(ours, COLUMN, index.name),
        },
        turns,
    )
    clear(ours)
    for name, seconds in taken.items():
        say(f"{kind}: {name} {seconds:.2f} s")
    check_partitions(pylance, partitions)
    recalls = [recall(pylance_search(uri, queries, K, NPROBES), truth) for uri in (pylance, ours)]
    sizes = [index_mib(uri) for uri in (pylance, ours)]
    for uri in (pylance, ours):
        drop_files_of_old_versions(uri)
    return (
        kind,
        f"{taken['pylance']:.2f}",
        f"{taken['pennon']:.2f}",
        f"{taken['pylance'].over(taken['pennon']):.2f}",
        f"{taken['floor']:.2f}",
        turns,
        *(f"{value:.3f}" for value in recalls),
        *(f"{size:.1f}" for size in sizes),
    )
