"""Recall that is asked for: whether `tune` finds a setting that has it on other queries, and what that costs.

A setting is a kind of index, a metric, a filter and k. `tune` measures on rows of the table; the words it is judged by
are not in the table. The cheapest setting that reaches the recall is looked for by brute force on those words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pennon
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.timing import interleaved
from bench.vector_recall import QUERIES, glove, held_out
from bench.vectors import COLUMN, Kind, Matrix, chosen, create_pennon, vector_type
from pennon.table import Table

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_PQ", (("num_sub_vectors", 25),)),
    Kind("IVF_PQ", (("num_sub_vectors", 50),)),
    Kind("IVF_HNSW_FLAT"),
    Kind("IVF_HNSW_SQ"),
)
METRICS = ("l2", "cosine", "dot")
# `part` is random, `first` the first item of the vector, so that the rows it selects are near each other.
FILTERS = (None, "part < 5", "part = 3", "first > 0.35")
KS = (1, 10, 50)
RECALL, TURNS = 0.95, 5
NPROBES = tuple(sorted({round(1.25**power) for power in range(26)}))
REFINEMENTS = (None, 2, 3, 5, 10, 20, 40)
TIMED = 15
HEADER = ("kind", "metric", "filter", "k", "use", "expected", "recall", "±", "reached", "ms", "best ms", "cost")

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """One setting, with the held-out words and their true neighbors."""

    table: Table
    metric: str
    filter: str | None
    k: int
    queries: Matrix
    truth: list[set[int]]

    def shares(self, **options: Any) -> Shares:
        """What each word finds of its neighbors, searched as a batch."""
        found = self.ids(**options)
        return np.array([len(own & ids) / len(own) for own, ids in zip(self.truth, found, strict=True)])

    def alone(self, **options: Any) -> Shares:
        """The same, each word searched alone."""
        found = [
            set(self.table.search(COLUMN, query, self.k, **self.asked(), **options)["id"].to_pylist())
            for query in self.queries
        ]
        return np.array([len(own & ids) / len(own) for own, ids in zip(self.truth, found, strict=True)])

    def asked(self) -> dict[str, Any]:
        return {"metric": self.metric, "filter": self.filter, "columns": ["id"]}

    def ids(self, **options: Any) -> list[set[int]]:
        found = self.table.search_batch(COLUMN, self.queries, self.k, **self.asked(), **options)
        sets: list[set[int]] = [set() for _ in self.queries]
        for number, id_ in zip(found["query_index"].to_pylist(), found["id"].to_pylist(), strict=True):
            sets[number].add(id_)
        return sets


def vector_tuning(choice: Choice) -> None:
    words = glove()
    vectors, queries = held_out(words if choice.rows is None else words[: choice.rows + QUERIES])
    rows: list[tuple[object, ...]] = []
    for kind, metric in product(chosen(KINDS, choice.kinds), choice.metrics or METRICS):
        table = pennon.open(_write(vectors), engine="local")
        for column in ("part", "first"):
            table.create_index(column, "BTREE")
        create_pennon(table, kind, max(8, round(len(vectors) ** 0.5)), metric)
        for filter, k in product(FILTERS, KS):
            rows.append(_judged(kind, _case(table, metric, filter, k, queries), choice.turns or TURNS))
            say(", ".join(map(str, rows[-1])))
    reached, costs = [row[8] == "yes" for row in rows], np.array([float(str(row[11])) for row in rows])
    summary = [
        ("settings", len(rows)),
        ("recall reached within its interval", f"{np.mean(reached):.1%}"),
        ("cost, median", f"{np.median(costs):.2f}"),
        ("cost within 1.3 times the cheapest", f"{np.mean(costs <= 1.3):.1%}"),
    ]
    report_grids(
        "vector-tuning",
        f"Recall@k of {RECALL} asked for, GloVe, {len(vectors):,} x 100 float32",
        [Grid(("figure", "value"), summary), Grid(HEADER, rows)],
        note=f"`tune` measures rows of the table; recall is that of {len(queries)} words that are not in it, each "
        "searched alone, with the half width of its 95% interval. Reached: the recall asked for is not above that "
        "interval. Cost: the least time of a query by that of the cheapest setting that reaches the recall on "
        "these words, found among all pairs of nprobes and refine_factor in steps of 1.25.",
        keep=choice.keep,
    )


def _case(table: Table, metric: str, filter: str | None, k: int, queries: Matrix) -> Case:
    case = Case(table, metric, filter, k, queries, [])
    return Case(table, metric, filter, k, queries, case.ids(use_index=False))


def _judged(kind: Kind, case: Case, turns: int) -> tuple[object, ...]:
    result = case.table.tune(COLUMN, RECALL, case.k, filter=case.filter, metric=case.metric)
    use = result.chosen.options
    shares = case.alone(**use)
    half = 1.96 * shares.std(ddof=1) / len(shares) ** 0.5
    times = {"tuned": use} | {f"{number}": options for number, options in enumerate(_cheapest(case))}
    if "index" not in use:
        times["exact"] = use
    taken = interleaved({name: _timer(case, options) for name, options in times.items()}, turns)
    own = min(taken.pop("tuned").turns)
    best = min((min(each.turns) for each in taken.values()), default=own)
    shown = ", ".join(f"{name}={value}" for name, value in use.items() if name != "index") or "defaults"
    return (
        kind,
        case.metric,
        case.filter or "-",
        case.k,
        shown,
        f"{result.chosen.recall:.3f}",
        f"{shares.mean():.3f}",
        f"{half:.3f}",
        "yes" if shares.mean() + half >= RECALL else "no",
        f"{own * 1000 / TIMED:.2f}",
        f"{best * 1000 / TIMED:.2f}",
        f"{own / best:.2f}",
    )


def _cheapest(case: Case) -> list[dict[str, Any]]:
    """For each refinement, the fewest partitions that reach the recall on these words."""
    found: list[dict[str, Any]] = []
    for refine in REFINEMENTS:
        low, high = 0, len(NPROBES)
        while low < high:
            middle = (low + high) // 2
            shares = case.shares(minimum_nprobes=NPROBES[middle], refine_factor=refine)
            low, high = (low, middle) if shares.mean() >= RECALL else (middle + 1, high)
        if low == len(NPROBES):
            continue
        if found and NPROBES[low] >= found[-1]["minimum_nprobes"]:
            break
        found.append({"minimum_nprobes": NPROBES[low], "refine_factor": refine})
    return found


def _timer(case: Case, options: dict[str, Any]) -> Any:
    def search_some() -> None:
        for query in case.queries[:TIMED]:
            case.table.search(COLUMN, query, case.k, **case.asked(), **options)

    return search_some


def _write(vectors: Matrix) -> str:
    path = fresh("tuning.lance")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=vector_type(vectors.shape[1]))
    part = np.random.default_rng(4).integers(0, 10, len(vectors))
    columns = {"id": np.arange(len(vectors)), "part": part, "first": vectors[:, 0].astype(np.float64), COLUMN: lists}
    lance.write_dataset(pa.table(columns), str(path), max_rows_per_file=-(-len(vectors) // 4))
    return str(path)
