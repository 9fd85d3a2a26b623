"""Inverted indices in random histories: pylance's searches compared with the words of every row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from pennon.testing.cases import Column, IndexCase
from pennon.testing.writers import Writers

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
    """The rows that pylance finds for a word are those that have it."""

    column: str
    index_name: str

    def __call__(self, history: Writers) -> None:
        """Compare a few words that are rare, frequent and absent."""
        dataset = history.dataset()
        if not any(index.name == self.index_name for index in dataset.describe_indices()):
            return
        rows = dataset.to_table(columns=["id", self.column])
        words_of = {
            id: set(re.findall(r"\w+", text or ""))
            for id, text in zip(rows["id"].to_pylist(), rows[self.column].to_pylist(), strict=True)
        }
        for word in ("w0", "w7", "w29", "none"):
            query = lance.query.MatchQuery(word, self.column)
            found = dataset.scanner(columns=["id", "_score"], full_text_query=query).to_table()["id"].to_pylist()
            expected = sorted(id for id, known in words_of.items() if word in known)
            assert sorted(found) == expected, f"{word}: {sorted(found)} are not {expected}"
