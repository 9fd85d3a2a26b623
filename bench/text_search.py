"""Searching text: Pennon against pylance, both warm, each through its own index on a copy of one table.

The texts are those of `text-build`. A loop of pylance for hybrid queries is what its users write: a vector search, a
text search, reciprocal ranks added up, and the rows taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.text_build import FRAGMENTS, ROWS, texts_of
from bench.timing import TURNS, Timing, interleaved, medians_in_turns

K, CANDIDATES = 10, 10
SINGLE, MANY = 100, 1000
# About a thousand vectors in a partition, as in `vector-search`.
DIM, PARTITIONS, NPROBES = 64, 1024, 20
HEADER = ("queries", "pylance ms", "Pennon ms", "speed-up")


def text_search(choice: Choice) -> None:
    """Milliseconds of a query, one by one and in batches."""
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    say(f"table of {rows:,} texts and vectors")
    texts, source = texts_of(rows)
    rng = np.random.default_rng(11)
    queries = _Queries(texts, rng)
    vectors = rng.standard_normal((rows, DIM), dtype=np.float32)
    asked = vectors[rng.integers(0, rows, MANY)] + rng.standard_normal((MANY, DIM), dtype=np.float32) / 4
    ours, theirs = str(fresh("text-search-pennon.lance")), str(fresh("text-search-pylance.lance"))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    table = pa.table({"id": np.arange(rows), "text": texts, "vector": column})
    for uri in (ours, theirs):
        lance.write_dataset(table, uri, max_rows_per_file=-(-rows // FRAGMENTS))
    say("building indices")
    pennon.open(ours).create_index("text", "INVERTED", with_position=True)
    pennon.open(ours).create_index("vector", "IVF_PQ", num_partitions=PARTITIONS, num_sub_vectors=16)
    lance.dataset(theirs).create_scalar_index("text", "INVERTED", with_position=True)
    lance.dataset(theirs).create_index("vector", "IVF_PQ", num_partitions=PARTITIONS, num_sub_vectors=16)
    race = _Race(pennon.open(ours), lance.dataset(theirs), turns)
    results = [race.singles(f"one by one, {label}", asks) for label, asks in queries.single.items()]
    results.append(race.batch(f"{MANY:,} of 1 to 3 words, a batch of Pennon's", queries.mixed))
    results.append(race.hybrid(f"{MANY:,} hybrid, a batch of Pennon's", asked, queries.mixed))
    report_grids(
        "text-search",
        f"Text queries, {rows:,} texts, top {K}",
        [Grid(HEADER, results)],
        note=f"{source}, {FRAGMENTS} fragments. Words are drawn from texts, so that frequent ones are frequent. Times"
        " are of one query; those of hybrid queries and batches are of all of them divided by their number.",
        packages=["numba", "PyStemmer"],
        keep=choice.keep,
    )


class _Queries:
    """Words of texts drawn at random, without those that analysis removes."""

    def __init__(self, texts: pa.Array, rng: np.random.Generator) -> None:
        drawn = texts.take(pa.array(rng.integers(0, len(texts), 20_000))).to_pylist()
        pairs = [(text.split(), rng) for text in drawn]
        words = [[word for word in found if word.isalpha() and len(word) > 3] for found, _ in pairs]
        self._texts = [found for found in words if len(found) >= 3]
        self._rng = rng
        self.single: dict[str, list[str]] = {
            "1 word": self._of(1, SINGLE),
            "2 words": self._of(2, SINGLE),
            "3 words": self._of(3, SINGLE),
            "a phrase of 2": [f'"{query}"' for query in self._of(2, SINGLE, side_by_side=True)],
        }
        self.mixed = [query for count in (1, 2, 3) for query in self._of(count, MANY)][: 3 * MANY : 3]

    def _of(self, count: int, number: int, side_by_side: bool = False) -> list[str]:
        found: list[str] = []
        while len(found) < number:
            text = self._texts[self._rng.integers(len(self._texts))]
            at = self._rng.integers(len(text) - count + 1)
            words = text[at : at + count] if side_by_side else self._rng.choice(text, count, replace=False)
            found.append(" ".join(words))
        return found


class _Race:
    def __init__(self, table: pennon.Table, dataset: lance.LanceDataset, turns: int) -> None:
        self._table, self._dataset, self._turns = table, dataset, turns

    def singles(self, label: str, queries: Sequence[str]) -> tuple[object, ...]:
        contestants: dict[str, Callable[[int], object]] = {
            "pylance": lambda at: self._by_pylance(queries[at], ["id"]),
            "Pennon": lambda at: self._table.search_text("text", queries[at], K, columns=["id"]),
        }
        for ask in contestants.values():
            for at in range(len(queries)):
                ask(at)
        return _compared(label, medians_in_turns(contestants, range(len(queries)), self._turns), 1)

    def batch(self, label: str, queries: Sequence[str]) -> tuple[object, ...]:
        contestants: dict[str, Callable[[], object]] = {
            "pylance": lambda: [self._by_pylance(query, ["id"]) for query in queries],
            "Pennon": lambda: self._table.search_text_batch("text", queries, K, columns=["id"]),
        }
        return _compared(label, _warm(contestants, self._turns), len(queries))

    def hybrid(self, label: str, vectors: np.ndarray, queries: Sequence[str]) -> tuple[object, ...]:
        contestants: dict[str, Callable[[], object]] = {
            "pylance": lambda: [self._fused(*pair) for pair in zip(vectors, queries, strict=True)],
            "Pennon": lambda: self._table.search_hybrid_batch(
                ("vector", vectors), ("text", queries), K, columns=["id"], nprobes=NPROBES
            ),
        }
        return _compared(label, _warm(contestants, self._turns), len(queries))

    def _by_pylance(self, query: str, columns: list[str], with_row_id: bool = False) -> pa.Table:
        asked = lance.query.PhraseQuery(query[1:-1], "text") if query.startswith('"') else query
        if isinstance(asked, str):
            asked = lance.query.MatchQuery(asked, "text")
        return self._dataset.to_table(columns, full_text_query=asked, limit=K, with_row_id=with_row_id)

    def _fused(self, vector: np.ndarray, query: str) -> pa.Table:
        nearest = {"column": "vector", "q": vector, "k": CANDIDATES, "nprobes": NPROBES}
        by_vector = self._dataset.to_table([], nearest=nearest, with_row_id=True)["_rowid"].to_numpy()
        by_text = self._by_pylance(query, [], with_row_id=True)["_rowid"].to_numpy()
        score: dict[int, float] = {}
        for ids in (by_vector, by_text):
            for rank, row in enumerate(ids.tolist(), 1):
                score[row] = score.get(row, 0) + 1 / (60 + rank)
        best = sorted(score, key=lambda row: -score[row])[:K]
        return self._dataset._take_rows(best, columns=["id"])


def _warm(contestants: dict[str, Callable[[], object]], turns: int) -> dict[str, Timing]:
    for work in contestants.values():
        work()
    return interleaved(contestants, turns)


def _compared(label: str, taken: dict[str, Timing], count: int) -> tuple[object, ...]:
    theirs, ours = (taken[name].times(1000 / count) for name in ("pylance", "Pennon"))
    say(f"{label}: {theirs:.2f}, {ours:.2f}")
    return label, f"{theirs:.2f}", f"{ours:.2f}", f"{theirs.over(ours):.2f}"
