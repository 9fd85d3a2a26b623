"""Building vector indices: Pennon on Spark `local[2]`, warm, against stock `create_index`, at equal recall."""

from __future__ import annotations

import pennon
from bench.harness import Choice, Grid, in_turns, report_grids, say
from bench.vectors import (
    ROWS,
    Ids,
    Kind,
    Matrix,
    check_partitions,
    chosen,
    copied,
    create_pennon,
    create_stock,
    drop_files_of_old_versions,
    index_mib,
    num_partitions,
    read_vectors,
    recall,
    stock_search,
    true_neighbors,
    vector_queries,
    vector_table,
)

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_RQ", (("num_bits", 5),)),
    Kind("IVF_PQ", (("num_sub_vectors", 16),)),
    Kind("IVF_HNSW_SQ"),
)
ROUNDS = 3
# Seconds that the rounds of one kind may take before no further one begins.
BUDGET = 40
QUERIES, K, NPROBES = 200, 10, 20
HEADER = (
    "kind",
    "stock s",
    "Pennon s",
    "speed-up",
    "best of",
    "stock recall",
    "Pennon recall",
    "stock MiB",
    "Pennon MiB",
)


def vector_build(choice: Choice) -> None:
    rows = choice.rows or ROWS
    kinds = chosen(KINDS, choice.kinds)
    say(f"table of {rows:,} vectors")
    source = vector_table(rows)
    queries = vector_queries(QUERIES)
    truth = true_neighbors(read_vectors(source), queries, K)
    stock, ours = copied(source, "built-by-stock"), copied(source, "built-by-pennon")
    say("starting Spark")
    _warm_up()
    results = [
        _race(kind, stock, ours, num_partitions(rows), choice.rounds or ROUNDS, queries, truth) for kind in kinds
    ]
    report_grids(
        "vector-build",
        f"Vector index build, {rows:,} x 128 float32, {num_partitions(rows)} partitions, l2",
        [Grid(HEADER, results)],
        note=f"Recall@{K} is that of stock's search on both indices, {QUERIES} queries, nprobes {NPROBES}. Clustered "
        "synthetic vectors: 2,000 centres with normal noise around them, 8 fragments.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _warm_up() -> None:
    """Starts the session and its Python workers on a table of its own."""
    table = pennon.open(copied(vector_table(4096), "warm-up"))
    create_pennon(table, Kind("IVF_FLAT"), 8)


def _race(
    kind: Kind, stock: str, ours: str, partitions: int, rounds: int, queries: Matrix, truth: Ids
) -> tuple[object, ...]:
    table = pennon.open(ours)
    taken = in_turns(
        {
            "stock": lambda: create_stock(stock, kind, partitions),
            "pennon": lambda: create_pennon(table, kind, partitions),
        },
        rounds,
        BUDGET,
    )
    for name, seconds in taken.items():
        say(f"{kind}: {name} {', '.join(f'{s:.2f}' for s in seconds)} s")
    check_partitions(stock, partitions)
    recalls = [recall(stock_search(uri, queries, K, NPROBES), truth) for uri in (stock, ours)]
    sizes = [index_mib(uri) for uri in (stock, ours)]
    for uri in (stock, ours):
        drop_files_of_old_versions(uri)
    best = {name: min(seconds) for name, seconds in taken.items()}
    return (
        kind,
        f"{best['stock']:.2f}",
        f"{best['pennon']:.2f}",
        f"{best['stock'] / best['pennon']:.2f}",
        len(taken["stock"]),
        *(f"{value:.3f}" for value in recalls),
        *(f"{size:.1f}" for size in sizes),
    )
