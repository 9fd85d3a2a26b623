"""Recall that is asked for: whether `tune` finds a setting that has it on other queries, and what that costs.

A setting is a kind of index, a metric, a filter and k, on vectors of words or of texts. `tune` measures on rows of the
table; the words and texts it is judged by are not in the table. The cheapest setting that reaches the recall is looked
for by brute force on them.
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
from bench.real_vectors import QUERIES, glove, held_out, texts
from bench.timing import interleaved
from bench.vectors import COLUMN, Kind, Matrix, create_pennon, vector_type
from pennon.table import Table

GRAPHS = (Kind("IVF_HNSW_FLAT"), Kind("IVF_HNSW_SQ"))
WORD_KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_PQ", (("num_sub_vectors", 25),)),
    Kind("IVF_PQ", (("num_sub_vectors", 50),)),
    *GRAPHS,
)
# RQ wants a multiple of 8 dimensions, which words do not have.
TEXT_KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_PQ", (("num_sub_vectors", 64),)),
    Kind("IVF_RQ", (("num_bits", 5),)),
    *GRAPHS,
    Kind("IVF_HNSW_PQ", (("num_sub_vectors", 64),)),
)
TEXT_ROWS = 60_000
# `part` is random; `first` is the rank of a vector's first item, so that the rows it selects are near each other.
FILTERS = (None, "part < 5", "part = 3", "first >= 0.9")
KS = (1, 10)
RECALL, TURNS = 0.95, 5
NPROBES = tuple(sorted({round(1.25**power) for power in range(26)}))
REFINEMENTS = (None, 2, 3, 5, 10, 20, 40)
TIMED = 15
HEADER = (
    "vectors",
    "kind",
    "metric",
    "filter",
    "k",
    "use",
    "expected",
    "recall",
    "±",
    "reached",
    "ms",
    "best ms",
    "cost",
)

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


@dataclass(frozen=True, eq=False)
class Source:
    """Vectors to index, vectors to ask for, and what is built on them."""

    name: str
    vectors: Matrix
    queries: Matrix
    kinds: tuple[Kind, ...]
    metrics: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}, {len(self.vectors):,} x {self.vectors.shape[1]}"


def vector_tuning(choice: Choice) -> None:
    turns = choice.turns or TURNS
    rows: list[tuple[object, ...]] = []
    sources = _sources(choice)
    for source in sources:
        kinds = [kind for kind in source.kinds if not choice.kinds or kind.index_type in choice.kinds]
        for kind, metric in product(kinds, choice.metrics or source.metrics):
            table = _table(source, kind, metric)
            for filter, k in product(FILTERS, KS):
                rows.append((source.name, *_judged(kind, _case(table, metric, filter, k, source.queries), turns)))
                say(", ".join(map(str, rows[-1])))
    reached = np.array([row[HEADER.index("reached")] == "yes" for row in rows])
    costs = np.array([float(str(row[HEADER.index("cost")])) for row in rows])
    summary = [
        ("settings", len(rows)),
        ("recall reached within its interval", f"{reached.mean():.1%}"),
        ("cost, median", f"{np.median(costs):.2f}"),
        ("cost within 1.3 times the cheapest", f"{np.mean(costs <= 1.3):.1%}"),
    ]
    report_grids(
        "vector-tuning",
        f"Recall@k of {RECALL} asked for: {'; '.join(map(str, sources))} float32",
        [Grid(("figure", "value"), summary), Grid(HEADER, rows)],
        note="Words are GloVe's, texts are paragraphs of reference prose. `tune` measures rows of the table; recall "
        f"is that of {QUERIES} words or texts that are not in it, each searched alone, with the half width of its 95% "
        "interval. Reached: the recall asked for is not above that interval. Cost: the time of a query, the median of "
        f"{turns} interleaved turns, by that of the cheapest setting that reaches the recall on these queries, found "
        "among all pairs of nprobes and refine_factor in steps of 1.25.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _sources(choice: Choice) -> list[Source]:
    given = (
        ("words", glove(), WORD_KINDS, ("l2", "cosine", "dot")),
        ("texts", texts(TEXT_ROWS), TEXT_KINDS, ("cosine",)),
    )
    return [
        Source(name, *held_out(vectors if choice.rows is None else vectors[: choice.rows + QUERIES]), kinds, metrics)
        for name, vectors, kinds, metrics in given
    ]


def _table(source: Source, kind: Kind, metric: str) -> Table:
    table = pennon.open(_write(source.vectors), engine="local")
    for column in ("part", "first"):
        table.create_index(column, "BTREE")
    create_pennon(table, kind, max(8, round(len(source.vectors) ** 0.5)), metric)
    return table


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
    own = taken.pop("tuned").median
    best = min((each.median for each in taken.values()), default=own)
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
    first = np.argsort(np.argsort(vectors[:, 0])) / len(vectors)
    columns = {"id": np.arange(len(vectors)), "part": part, "first": first, COLUMN: lists}
    lance.write_dataset(pa.table(columns), str(path), max_rows_per_file=-(-len(vectors) // 4))
    return str(path)
