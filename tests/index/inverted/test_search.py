"""Searching: every kind of query finds the rows and scores that pylance and a naive index find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pytest

from pennon.errors import InvalidArgument
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.query import Boolean, Match, Occur, Operator, Phrase, Query, parse
from pennon.index.inverted.search.compound import TextSearch
from pennon.index.inverted.search.leaves import TextIndex
from tests.index.inverted.corpus import (
    COLUMN,
    documents,
    open_index,
    pennon_index,
    pylance_index,
    pylance_search,
    vocabulary,
    write_table,
)
from tests.index.inverted.naive import NaiveIndex
from tests.index.inverted.queries import random_queries, to_pylance

ROWS = 2400
WORDS = [word for word in vocabulary() if word.isascii()]
TOLERANCE = 1e-5


def agree(found: dict[int, float], expected: dict[int, float], query: Query) -> None:
    assert set(found) == set(expected), query
    worst = max((abs(found[row] - expected[row]) / max(1.0, abs(expected[row])) for row in found), default=0.0)
    assert worst < TOLERANCE, query


def search_all(index: TextIndex, query: Query) -> dict[int, float]:
    hits = TextSearch({COLUMN: index}, COLUMN).best(query, None)
    assert (np.diff(hits.scores) <= 0).all()
    return dict(zip(hits.row_ids.tolist(), hits.scores.tolist(), strict=True))


def check_best(index: TextIndex, query: Query, everything: dict[int, float], k: int) -> None:
    """The k best are k of those with the highest scores, with these scores."""
    hits = TextSearch({COLUMN: index}, COLUMN).best(query, k)
    highest = sorted(everything.values(), reverse=True)[:k]
    assert len(set(hits.row_ids.tolist())) == len(highest), query
    np.testing.assert_allclose(hits.scores, highest, rtol=TOLERANCE, atol=TOLERANCE, err_msg=repr(query))
    for row, score in zip(hits.row_ids.tolist(), hits.scores.tolist(), strict=True):
        assert abs(everything[row] - score) <= TOLERANCE * max(1.0, abs(score)), query


@pytest.mark.parametrize(("maker", "partitions"), [("pylance", 1), ("pennon", 1), ("pennon", 4)])
def test_every_kind_of_query_agrees_with_pylance_and_the_naive_index(
    tmp_path: Path, maker: str, partitions: int
) -> None:
    texts = documents(ROWS)
    uri, params = write_table(tmp_path / "t", texts), TextParams(with_position=True)
    if maker == "pylance":
        pylance_index(uri, with_position=True)
    else:
        pennon_index(uri, params, partitions)
    dataset = lance.dataset(uri)
    rows = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    naive, index = NaiveIndex(params, dict(zip(rows, texts, strict=True))), open_index(uri)
    for query in random_queries(WORDS, rounds=8, seed=partitions):
        found = search_all(index, query)
        agree(found, pylance_search(dataset, to_pylance(query)), query)
        agree(found, naive.search(query), query)
        for k in (1, 10):
            check_best(index, query, found, k)


def test_several_segments_are_scored_as_one_index(tmp_path: Path) -> None:
    texts = documents(ROWS, seed=2)
    uri, params = write_table(tmp_path / "t", texts), TextParams()
    pennon_index(uri, params, 2, fragments=[0])
    pennon_index(uri, params, 1, fragments=[1])
    pennon_index(uri, params, 3, fragments=[2])
    dataset = lance.dataset(uri)
    rows = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    naive, index = NaiveIndex(params, dict(zip(rows, texts, strict=True))), open_index(uri)
    assert len(index.partitions) == 6
    for query in random_queries([w for w in vocabulary(2) if w.isascii()], rounds=4, phrases=False):
        found = search_all(index, query)
        agree(found, pylance_search(dataset, to_pylance(query)), query)
        agree(found, naive.search(query), query)


def test_only_allowed_documents_are_found_with_unchanged_scores(tmp_path: Path) -> None:
    texts = documents(ROWS)
    uri = write_table(tmp_path / "t", texts)
    pennon_index(uri, TextParams(with_position=True), 2)
    index = open_index(uri)
    chosen = set(range(0, ROWS, 3))
    for query in random_queries(WORDS, rounds=3):
        everything = search_all(index, query)
        kept = {row: score for row, score in everything.items() if row & 0xFFFF_FFFF in chosen}
        search = TextSearch(
            {COLUMN: index}, COLUMN, lambda part: np.isin(part.docs.docs.row_ids & 0xFFFF_FFFF, list(chosen))
        )
        hits = search.best(query, 7)
        highest = sorted(kept.values(), reverse=True)[:7]
        np.testing.assert_allclose(hits.scores, highest, rtol=TOLERANCE, atol=TOLERANCE, err_msg=repr(query))
        assert set(hits.row_ids.tolist()) <= set(kept)


def test_longer_phrases_with_slop_are_found_where_pylance_misses_some(tmp_path: Path) -> None:
    # pylance misses even documents that have the phrase as it is, such as the first, as soon as slop is given.
    texts = ["zet wet que zet", *(text or "" for text in documents(900, words=60))]
    uri, params = write_table(tmp_path / "t", texts), TextParams(with_position=True)
    pennon_index(uri, params, 2)
    dataset = lance.dataset(uri)
    rows = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    naive, index = NaiveIndex(params, dict(zip(rows, texts, strict=True))), open_index(uri)
    words = [word for word in vocabulary(words=60) if word.isascii()]
    missed = 0
    for query in [Phrase("wet que zet", slop=1), *(Phrase(" ".join(words[n : n + 3]), slop=n + 1) for n in range(9))]:
        found = search_all(index, query)
        agree(found, naive.search(query), query)
        by_pylance = pylance_search(dataset, to_pylance(query))
        assert set(by_pylance) <= set(found), query
        missed += len(found) - len(by_pylance)
    assert missed, "pylance finds them all now: compare with it"


def test_blocks_that_cannot_have_a_good_document_are_skipped(tmp_path: Path) -> None:
    # One short document early, then long ones that cannot reach its score.
    texts = ["needle"] * 20 + ["needle " + "hay stack straw " * 40] * 5000
    uri = write_table(tmp_path / "t", texts, fragments=1)
    pennon_index(uri, TextParams())
    search = TextSearch({COLUMN: open_index(uri)}, COLUMN)
    hits = search.best(Match("needle"), 10)
    assert hits.row_ids.tolist() == list(range(10))
    assert search.trace.frequencies == {"needl": 5020}
    assert search.trace.blocks_read == 1
    assert search.trace.blocks_skipped == 39


def test_queries_without_terms_find_nothing(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t", ["the cat", "a dog"])
    pennon_index(uri, TextParams(with_position=True))
    search = TextSearch({COLUMN: open_index(uri)}, COLUMN)
    for query in (
        Match("the"),
        Match(""),
        Phrase("the"),
        Match("unknown"),
        Match("cat unknown", operator=Operator.AND),
    ):
        assert len(search.best(query, 10)) == 0


def test_a_phrase_needs_positions(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t", ["one two", "two one"])
    pennon_index(uri, TextParams())
    with pytest.raises(InvalidArgument, match="no positions"):
        TextSearch({COLUMN: open_index(uri)}, COLUMN).best(Phrase("one two"), 10)


def test_a_quoted_string_is_a_phrase() -> None:
    assert parse('"one two"', "c") == Phrase("one two", "c")
    assert parse('one "two') == Match('one "two')
    assert parse('""') == Match('""')


@pytest.mark.parametrize(
    "make",
    [
        lambda: Match("x", fuzziness=-1),
        lambda: Match("x", fuzziness=1000),
        lambda: Match("x", max_expansions=0),
        lambda: Match("x", boost=float("nan")),
        lambda: Match("x", boost=-1.0),
        lambda: Match("x", operator=Operator.of("xor")),
        lambda: Phrase("x", slop=-1),
        lambda: Boolean(((Occur.MUST_NOT, Match("x")),)),
        lambda: Boolean(()),
    ],
)
def test_absurd_queries_are_refused(make: Callable[[], Query]) -> None:
    with pytest.raises(InvalidArgument):
        make()
