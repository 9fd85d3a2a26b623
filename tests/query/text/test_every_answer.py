"""Random queries of every kind have the same rows and scores five times: pylance on an index of Pennon and on its own,
Pennon on both, and the naive index; in every language, whatever happened to the table.

pylance is not compared where it is known to be wrong: near words in rows that no index covers, which it looks for as
they are, and phrases of three or more terms with slop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tables import LANGUAGES, stop_words
from pennon.text import Boolean, Boost, Match, MultiMatch, Occur, Phrase, Query
from tests.index.inverted.corpus import COLUMN, pylance_options, vocabulary
from tests.index.inverted.naive import NaiveColumns, NaiveIndex, Scores
from tests.index.inverted.queries import random_queries, to_pylance
from tests.query.text.checks import TOLERANCE, chosen, misread_by_pylance

pytestmark = pytest.mark.usefixtures("process_engine")

TITLE = "title"
ROWS, FRAGMENT, MORE = 240, 60, 80
K = 10
ROUNDS = 4


@dataclass
class Life:
    """A table whose indices one of the two builds and maintains, and the documents that count in their statistics."""

    uri: str
    maker: str
    texts: pa.Table
    params: TextParams
    built: set[int] = field(default_factory=set[int])
    written: int = 0

    def write(self, rows: int, **options: Any) -> None:
        lance.write_dataset(self.texts.slice(self.written, rows), self.uri, max_rows_per_file=FRAGMENT, **options)
        self.written += rows

    def build(self) -> None:
        for column in (COLUMN, TITLE):
            if self.maker == "pylance":
                lance.dataset(self.uri).create_scalar_index(column, "INVERTED", **pylance_options(self.params))
            else:
                pennon.open(self.uri).create_index(column, "INVERTED", **pylance_options(self.params))
        self.built |= self.live

    def extend(self) -> None:
        """Segments for new fragments beside those there are."""
        before = self.uncovered
        if self.maker == "pylance":
            lance.dataset(self.uri).optimize.optimize_indices(num_indices_to_merge=0)
        else:
            pennon.open(self.uri).optimize_indices(num_indices_to_merge=0)
        self.built |= before

    def compact(self) -> None:
        if self.maker == "pylance":
            lance.dataset(self.uri).optimize.compact_files(
                target_rows_per_fragment=4 * FRAGMENT, defer_index_remap=True, materialize_deletions_threshold=0.0
            )
        else:
            pennon.open(self.uri).compact(target_rows_per_fragment=4 * FRAGMENT, remap="deferred")
        assert pennon.open(self.uri).fragment_reuse() is not None

    def delete(self, condition: str) -> None:
        lance.dataset(self.uri).delete(condition)

    @property
    def live(self) -> set[int]:
        return set(lance.dataset(self.uri).to_table(columns=["id"])["id"].to_pylist())

    @property
    def uncovered(self) -> set[int]:
        return self.live - self.built

    def by_pennon(self, query: Query, k: int | None) -> Scores:
        table = pennon.open(self.uri)
        found = table.scan(full_text=query, columns=["id"], limit=k)
        return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))

    def by_pylance(self, query: Query, k: int | None) -> Scores:
        scanner = lance.dataset(self.uri).scanner(columns=["id", "_score"], full_text_query=to_pylance(query), limit=k)
        found = scanner.to_table()
        return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


def as_built(life: Life) -> None:
    life.write(ROWS)
    life.build()


def deleted(life: Life) -> None:
    as_built(life)
    life.delete("id % 5 = 2")


def appended(life: Life) -> None:
    deleted(life)
    life.write(MORE, mode="append")
    life.delete("id % 11 = 3")


def several_segments(life: Life) -> None:
    appended(life)
    life.extend()
    life.write(MORE, mode="append")
    life.extend()
    life.delete("id % 7 = 1")


def deferred(life: Life) -> None:
    several_segments(life)
    life.compact()
    life.delete("id % 13 = 4")


def stable_ids(life: Life) -> None:
    life.write(ROWS, enable_stable_row_ids=True)
    life.build()
    life.delete("id % 5 = 2")
    life.write(MORE, mode="append")
    life.extend()
    life.write(MORE, mode="append")


HISTORIES = (as_built, deleted, appended, several_segments, deferred, stable_ids)
CASES = [(language, HISTORIES[n % len(HISTORIES)]) for n, language in enumerate(LANGUAGES)]


def words_of(language: str) -> list[str]:
    """Made-up words, and some of the language with its endings and letters, the frequent ones first."""
    draw = random.Random(language)
    known = sorted(stop_words(language))
    made = [word for word in vocabulary(5, 200) if word.isascii()]
    mixed = made + draw.sample(known, min(60, len(known)))
    mixed += [a + b for a, b in zip(draw.choices(known, k=60), draw.choices(known, k=60), strict=True)]
    draw.shuffle(mixed)
    return list(dict.fromkeys(word for word in mixed if word))


def texts_of(words: list[str]) -> pa.Table:
    draw, weights = random.Random(1), [1 / (place + 1) for place in range(len(words))]

    def text(most: int) -> str | None:
        return None if draw.random() < 0.03 else " ".join(draw.choices(words, weights, k=draw.randint(0, most)))

    count = ROWS + 3 * MORE
    return pa.table(
        {
            "id": np.arange(count),
            COLUMN: pa.array([text(60) for _ in range(count)], pa.string()),
            TITLE: pa.array([text(6) for _ in range(count)], pa.string()),
        }
    )


def queries_of(words: list[str], rounds: int, covered: bool) -> Iterator[Query]:
    """Those of one column, and some over both."""
    draw = random.Random(rounds)
    for query in chosen(random_queries(words, rounds, 7), covered):
        yield query.within([COLUMN])
    for _ in range(rounds):
        some = " ".join(draw.choices(words[:100], k=2))
        yield MultiMatch(some, (COLUMN, TITLE), (1.0, 2.5), draw.choice(["or", "and"]))  # type: ignore[arg-type]
        yield Boost(Match(some, COLUMN), Match(draw.choice(words[:20]), TITLE), 0.7)
        yield Boolean(
            [
                (Occur.SHOULD, Phrase(" ".join(draw.choices(words[:10], k=2)), COLUMN, slop=draw.choice([0, 2]))),
                (Occur.SHOULD, Match(draw.choice(words[:30]), TITLE)),
                (Occur.MUST_NOT, Match(draw.choice(words[30:60]), COLUMN)),
            ]
        )


def naive_of(life: Life) -> Callable[[Query], Scores]:
    """Rows of the index are scored by its documents, dead ones included; others by those and all that is scanned."""
    rows, live, uncovered = life.texts.to_pylist(), life.live, life.uncovered

    def over(ids: set[int], found: set[int]) -> NaiveColumns:
        indices = {}
        for column in (COLUMN, TITLE):
            indices[column] = NaiveIndex(life.params, {row["id"]: row[column] for row in rows if row["id"] in ids})
            indices[column].live = found
        return NaiveColumns(indices)

    indexed, scanned = over(life.built, live & life.built), over(life.built | uncovered, uncovered)
    return lambda query: {**indexed.search(query), **(scanned.search(query) if uncovered else {})}


def judge(path: Path, language: str, history: Callable[[Life], None], rounds: int) -> int:
    """The number of queries."""
    words, params = words_of(language), TextParams(language=language, with_position=True)
    lives = [Life(str(path / maker), maker, texts_of(words), params) for maker in ("pennon", "pylance")]
    for life in lives:
        history(life)
    naive, matches, asked = naive_of(lives[0]), 0, 0
    assert (lives[0].live, lives[0].built) == (lives[1].live, lives[1].built)
    for query in queries_of(words, rounds, covered=not lives[0].uncovered):
        if misread_by_pylance(query, params):
            continue
        expected, asked = naive(query), asked + 1
        best = sorted(expected.values(), reverse=True)[:K]
        for life in lives:
            for answer in (life.by_pennon, life.by_pylance):
                where = f"{answer.__name__} on the index of {life.maker}: {query}"
                assert answer(query, None) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), where
                scores = sorted(answer(query, K).values(), reverse=True)
                assert scores == pytest.approx(best, rel=TOLERANCE, abs=TOLERANCE), where
        matches += len(expected)
    assert matches > 10 * asked
    return asked


@pytest.mark.parametrize(("language", "history"), [("English", appended), ("French", deferred)])
def test_all_give_the_same(tmp_path: Path, language: str, history: Callable[[Life], None]) -> None:
    assert judge(tmp_path, language, history, 1) > 12


@pytest.mark.heavy
@pytest.mark.parametrize(("language", "history"), CASES)
def test_a_thousand_queries_in_every_language(tmp_path: Path, language: str, history: Callable[[Life], None]) -> None:
    assert judge(tmp_path, language, history, ROUNDS) * len(CASES) > 1000
