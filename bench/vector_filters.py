"""Searches under filters: recall and time by the share of rows selected, at random or lying together, by Pennon without
tuning and by pylance with the least nprobes that reach the same recall."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import pennon
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.timing import TURNS, interleaved, medians_in_turns
from bench.vectors import COLUMN, Ids, Kind, Matrix, chosen, copied, create_pennon, ids_by_query, recall
from pennon.query.search.choice import FILTERED_REFINE_FACTOR
from pennon.table import Table

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_PQ"),
    Kind("IVF_HNSW_FLAT"),
    Kind("IVF_HNSW_SQ"),
    Kind("IVF_HNSW_PQ"),
)
SHARES = (0.5, 0.1, 0.01, 0.001, 0.0001)
HELD_OUT, SINGLE, K, EQUAL = 300, 60, 10, 0.005
PROBES = (20, 30, 50, 100, 150, 1000)
HEADER = (
    "kind",
    "filter",
    "Pennon recall",
    "same index, all partitions",
    "pylance recall, no tuning",
    "pylance nprobes, recall",
    "pylance ms",
    "Pennon ms",
    "speed-up",
    "speed-up of a batch",
)


@dataclass(frozen=True)
class Asked:
    """A filter with the neighbors that it leaves."""

    filter: str | None
    label: str
    truth: Ids


def vector_filters(choice: Choice) -> None:
    turns = choice.turns or TURNS
    source, queries, asked = _table(choice.rows)
    rows: list[tuple[object, ...]] = []
    for kind in chosen(KINDS, choice.kinds):
        uri = copied(source, "filtered")
        table = pennon.open(uri, engine="local")
        for column in ("scattered", "together"):
            table.create_index(column)
        create_pennon(table, kind, round(table.count() ** 0.5))
        for each in asked:
            rows.append((kind, each.label, *_compared(uri, table, queries, each, turns, short_codes="PQ" in str(kind))))
            say(", ".join(map(str, rows[-1])))
    report_grids(
        "vector-filters",
        f"Filtered vector search, words of GloVe x 100 float32, l2, k {K}",
        [Grid(HEADER, rows, f"{HELD_OUT} held-out words; times of {SINGLE} of them, {turns} turns")],
        note="Both search the same index, which Pennon built, under a filter that a B-tree answers. `scattered` is "
        "random, `together` are the words farthest in the direction of one word. pylance has the least of "
        f"{', '.join(map(str, PROBES))} nprobes with which its recall is Pennon's less {EQUAL}, or the most; under a "
        f"filter, PQ with a refine_factor of {FILTERED_REFINE_FACTOR}, Pennon's own default there. "
        "A batch is search_batch against pylance one query at a time. Recall is against brute force.",
        keep=choice.keep,
    )


def _compared(
    uri: str, table: Table, queries: Matrix, asked: Asked, turns: int, *, short_codes: bool
) -> tuple[object, ...]:
    dataset, count = lance.dataset(uri), asked.truth.shape[1]
    options: dict[str, Any] = {"filter": asked.filter, "columns": ["id"]}
    batch = table.search_batch(COLUMN, queries, K, **options)
    ours = recall(ids_by_query(batch, len(queries), K), asked.truth)
    whole = table.search_batch(COLUMN, queries, K, nprobes=PROBES[-1], **options)
    best = recall(ids_by_query(whole, len(queries), K), asked.truth)
    some, truth = queries[:SINGLE], asked.truth[:SINGLE]

    def pylance(number: int, nprobes: int | None) -> npt.NDArray[np.int64]:
        nearest = {"column": COLUMN, "q": some[number], "k": K} | ({} if nprobes is None else {"nprobes": nprobes})
        if nprobes is not None and asked.filter is not None and short_codes:
            nearest["refine_factor"] = FILTERED_REFINE_FACTOR
        scanner = dataset.scanner(columns=["id", "_distance"], nearest=nearest, filter=asked.filter, prefilter=True)
        return scanner.to_table()["id"].to_numpy()

    def its_recall(nprobes: int | None) -> float:
        return float(np.mean([np.isin(truth[n], pylance(n, nprobes)).sum() / count for n in range(SINGLE)]))

    untuned, goal = its_recall(None), _recall_of(table, some, truth, options) - EQUAL
    figures = {nprobes: its_recall(nprobes) for nprobes in PROBES}
    nprobes = next((number for number, found in figures.items() if found >= goal), PROBES[-1])
    work: dict[str, Callable[[int], object]] = {
        "pylance": lambda number: pylance(number, nprobes),
        "pennon": lambda number: table.search(COLUMN, some[number], K, **options),
    }
    single = medians_in_turns(work, range(SINGLE), turns)
    batches = interleaved(
        {
            "pylance": lambda: [pylance(number, nprobes) for number in range(SINGLE)],
            "pennon": lambda: table.search_batch(COLUMN, some, K, **options),
        },
        turns,
    )
    return (
        f"{ours:.3f}",
        f"{best:.3f}",
        f"{untuned:.3f}",
        f"{nprobes}, {figures[nprobes]:.3f}",
        f"{single['pylance'].times(1000):.2f}",
        f"{single['pennon'].times(1000):.2f}",
        f"{single['pylance'].over(single['pennon']):.2f}",
        f"{batches['pylance'].over(batches['pennon']):.1f}",
    )


def _recall_of(table: Table, queries: Matrix, truth: Ids, options: dict[str, Any]) -> float:
    return recall(ids_by_query(table.search_batch(COLUMN, queries, K, **options), len(queries), K), truth)


def _table(rows: int | None) -> tuple[str, Matrix, list[Asked]]:
    """A table of words without those that are asked for, which PENNON_BENCH_WORDS names a file of."""
    path = os.environ.get("PENNON_BENCH_WORDS")
    if not path:
        sys.exit("vector-filters needs word vectors: PENNON_BENCH_WORDS names a Parquet file with a column `vector`")
    values = pq.read_table(path, columns=["vector"])["vector"].combine_chunks()
    vectors = values.flatten().to_numpy().reshape(len(values), -1)[:rows]
    rng = np.random.default_rng(0)
    held = rng.choice(len(vectors), HELD_OUT, replace=False)
    queries, kept = vectors[held], np.delete(vectors, held, axis=0)
    columns = {"scattered": rng.permutation(len(kept)) / len(kept)}
    columns["together"] = np.argsort(np.argsort(-(kept @ queries[0]))) / len(kept)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(kept.ravel()), kept.shape[1])
    uri = str(fresh("words.lance"))
    stored = pa.table({"id": np.arange(len(kept)), **columns, COLUMN: lists})
    lance.write_dataset(stored, uri, max_rows_per_file=-(-len(kept) // 4))
    distances = np.stack([((kept - query) ** 2).sum(axis=1) for query in queries])
    asked = [Asked(None, "none", _truth(distances, np.ones(len(kept), dtype=np.bool_)))]
    asked += [
        Asked(f"{name} < {share}", f"{name}, {share:.2%}", _truth(distances, column < share))
        for name, column in columns.items()
        for share in SHARES
    ]
    return uri, queries, asked


def _truth(distances: Matrix, selected: npt.NDArray[np.bool_]) -> Ids:
    width = min(K, int(selected.sum()))
    return np.argsort(np.where(selected, distances, np.inf), axis=1)[:, :width]
