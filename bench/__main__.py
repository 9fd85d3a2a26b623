"""Run the named measurements, all quick ones by default: `python -m bench build_int64 merge_lookups`.

Those of vectors take a size, kinds of index and turns for a trial, whose result is printed but not kept:
`python -m bench vector-build --rows 20000 --kinds IVF_PQ,IVF_SQ --turns 1`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from bench import (
    btree_memory,
    build,
    growth,
    knn_join,
    large,
    limits,
    lookup,
    lookup_join,
    maintenance,
    near_duplicates,
    new_process,
    query,
    scalar_build,
    scalar_memory,
    streams,
    text_build,
    text_search,
    upsert,
    upsert_s3,
    vector_assignment,
    vector_build,
    vector_filters,
    vector_memory,
    vector_recall,
    vector_search,
    vector_tuning,
)
from bench.harness import Choice

QUICK: dict[str, Callable[[], None]] = {
    "build_int64": lambda: build.build_int64((1_000_000, 10_000_000)),
    "build_strings": build.build_strings,
    "build_lineitem": build.build_lineitem,
    "merge_lookups": lookup.merge_lookups,
    "points": query.points,
}
LONG: dict[str, Callable[[], None]] = {"build_large": lambda: build.build_int64((100_000_000,))}
VECTORS: dict[str, Callable[[Choice], None]] = {
    "vector-build": vector_build.vector_build,
    "vector-assignment": vector_assignment.vector_assignment,
    "vector-search": vector_search.vector_search,
    "vector-filters": vector_filters.vector_filters,
    "vector-recall": vector_recall.vector_recall,
    "vector-memory": vector_memory.vector_memory,
    "vector-tuning": vector_tuning.vector_tuning,
    "knn-join": knn_join.knn_join,
    "lookup-join": lookup_join.lookup_join,
    "near-duplicates": near_duplicates.near_duplicates,
    "upsert": upsert.upsert,
    "upsert-s3": upsert_s3.upsert_s3,
    "streams": streams.streams,
    "scalar-build": scalar_build.scalar_build,
    "scalar-memory": scalar_memory.scalar_memory,
    "optimize": maintenance.optimize,
    "compact": maintenance.compact,
    "latency": maintenance.latency,
    "reuse": maintenance.reuse,
    "btree-memory": btree_memory.btree_memory,
    "seed-003": large.seed_003,
    "billion": large.billion,
    "growth": growth.growth,
    "new-process": new_process.new_process,
    "limits": limits.limits,
    "text-build": text_build.text_build,
    "text-search": text_search.text_search,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join([*QUICK, *LONG, *VECTORS]))
    parser.add_argument("--rows", type=int, help="rows of the table of vectors or texts")
    parser.add_argument("--kinds", default="", help="kinds of vector index, with commas between them")
    parser.add_argument("--metrics", default="", help="metrics of vector-recall, with commas between them")
    parser.add_argument("--turns", type=int, help="how often each is measured; for vector-recall, how many builds")
    given = parser.parse_args()
    names = given.names or list(QUICK)
    unknown = [name for name in names if name not in QUICK | LONG | VECTORS]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are: {', '.join(QUICK | LONG | VECTORS)}")
    kinds, metrics = filter(None, given.kinds.upper().split(",")), filter(None, given.metrics.split(","))
    choice = Choice(given.rows, tuple(kinds), tuple(metrics), given.turns)
    if not choice.keep and not all(name in VECTORS for name in names):
        sys.exit(f"only {', '.join(VECTORS)} take --rows, --kinds and --turns")
    for name in names:
        if name in VECTORS:
            VECTORS[name](choice)
        else:
            (QUICK | LONG)[name]()


if __name__ == "__main__":
    main()
