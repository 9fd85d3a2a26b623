"""Inverted indices in random histories: searches by Pennon and by pylance compared with the words of every row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import pennon
from pennon.testing.cases import Column, IndexCase
from pennon.testing.writers import Writers
from pennon.text import Match, Operator, Phrase, Query

WORDS = tuple(f"w{number}" for number in range(30))
# Words are compared as they are.
PLAIN: dict[str, Any] = {"stem": False, "remove_stop_words": False}


def words(name: str) -> Column:
    """A column of up to eight words, `w0` to `w29`, the lower ones more often; some are NULL or empty."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        drawn = [rng.integers(0, rng.integers(1, len(WORDS) + 1), rng.integers(0, 9)) for _ in range(count)]
        return pa.array([" ".join(WORDS[number] for number in row) if len(row) else None for row in drawn], pa.string())

    return Column(values, f"concat({name}, ' w7')", lambda number: f"{name} like '%w{number} %'")


def inverted_index(column: str, *, name: str | None = None) -> IndexCase:
    """An inverted index, built by one task or by several, with positions."""
    index_name = name or f"{column}_idx"

    def pylance_build(dataset: lance.LanceDataset, _: int) -> None:
        dataset.create_scalar_index(column, "INVERTED", name=index_name, replace=True, with_position=True, **PLAIN)

    options = st.fixed_dictionaries({"rows_per_task": st.sampled_from([None, 50])})
    return IndexCase(
        column,
        options.map(lambda chosen: ("INVERTED", {"with_position": True, **PLAIN, **chosen})),
        index_name,
        delta_options=lambda _: {"with_position": True, **PLAIN},
        pylance_build=pylance_build,
        check=WordCheck(column, index_name),
    )


@dataclass(frozen=True)
class WordCheck:
    """The rows that `Table.search_text` and pylance find are those that have the words, and the best are complete."""

    column: str
    index_name: str
    k: int = 8

    def __call__(self, history: Writers) -> None:
        """Compare a few words that are rare, frequent and absent, alone, together and one after another."""
        dataset = history.dataset()
        rows = dataset.to_table(columns=["id", self.column])
        words_of = {
            id: re.findall(r"\w+", text or "")
            for id, text in zip(rows["id"].to_pylist(), rows[self.column].to_pylist(), strict=True)
        }
        self.compare_pennon(pennon.open(history.uri), words_of)
        if not any(index.name == self.index_name for index in dataset.describe_indices()):
            return
        for word in ("w0", "w7", "w29", "none"):
            query = lance.query.MatchQuery(word, self.column)
            found = dataset.scanner(columns=["id", "_score"], full_text_query=query).to_table()["id"].to_pylist()
            expected = sorted(id for id, known in words_of.items() if word in known)
            assert sorted(found) == expected, f"{word}: {sorted(found)} are not {expected}"

    def compare_pennon(self, table: pennon.Table, words_of: Mapping[int, Sequence[str]]) -> None:
        """Rows of a naive scan, with and without a filter; the k best, one query at a time and all at once."""
        asked: dict[Query, Callable[[Sequence[str]], bool]] = {
            Match("w0"): lambda known: "w0" in known,
            Match("w7 w29 none"): lambda known: "w7" in known or "w29" in known,
            Match("w1 w3", operator=Operator.AND): lambda known: "w1" in known and "w3" in known,
            Phrase("w1 w0"): lambda known: ("w1", "w0") in pairwise(known),
            Match("none"): lambda _: False,
        }
        queries = [query.within([self.column]) for query in asked]
        batch = table.search_text_batch(self.column, queries, self.k, columns=["id"])
        for number, (query, holds) in enumerate(zip(queries, asked.values(), strict=True)):
            expected = sorted(id for id, known in words_of.items() if holds(known))
            everything = table.scan(full_text=query, columns=["id"])
            assert sorted(everything["id"].to_pylist()) == expected, query
            some = table.scan("id % 3 = 0", ["id"], full_text=query)["id"].to_pylist()
            assert sorted(some) == [id for id in expected if id % 3 == 0], query
            scores = everything["_score"].to_numpy()[: self.k]
            own = batch.take(np.flatnonzero(batch["query_index"].to_numpy() == number))
            for best in (table.search_text(self.column, query, self.k, columns=["id"]), own):
                assert len(set(best["id"].to_pylist()) & set(expected)) == min(self.k, len(expected)), query
                np.testing.assert_allclose(best["_score"].to_numpy(), scores, rtol=1e-5)
