"""Answers of `Table.search_text` compared with pylance and with the naive index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lance
import numpy as np
import pytest

import pennon
from pennon.index.inverted.analysis.analyzer import analyze
from pennon.index.inverted.analysis.params import TextParams
from pennon.text import Match, Phrase, Query
from tests.index.inverted.corpus import COLUMN
from tests.index.inverted.naive import NaiveIndex
from tests.index.inverted.queries import random_queries, to_pylance

TOLERANCE = 1e-5
K = 7


def everything(uri: str | pennon.Table, query: Any, **options: Any) -> dict[int, float]:
    """All matches by row id, the best first."""
    opened = pennon.open(uri) if isinstance(uri, str) else uri
    table = opened.scan(full_text=query, columns=["id"], with_row_id=True, **options)
    scores = table["_score"].to_numpy()
    assert (np.diff(scores) <= 0).all()
    return dict(zip(table["_rowid"].to_pylist(), scores.tolist(), strict=True))


def by_pylance(uri: str | lance.LanceDataset, query: Any, limit: int | None = None, **options: Any) -> dict[int, float]:
    """What pylance finds. A stored column is read: without one it returns deleted rows of tables with stable ids."""
    dataset = lance.dataset(uri) if isinstance(uri, str) else uri
    scanner = dataset.scanner(columns=["id", "_score"], full_text_query=query, limit=limit, with_row_id=True, **options)
    found = scanner.to_table()
    return dict(zip(found["_rowid"].to_pylist(), found["_score"].to_pylist(), strict=True))


def live_texts(uri: str, filter: str | None = None) -> dict[int, str | None]:
    """The texts of all rows by row id."""
    rows = lance.dataset(uri).to_table(columns=[COLUMN], filter=filter, with_row_id=True)
    return dict(zip(rows["_rowid"].to_pylist(), rows[COLUMN].to_pylist(), strict=True))


def is_fuzzy(query: Query) -> bool:
    return isinstance(query, Match) and query.fuzziness > 0


def misread_by_pylance(query: Query, params: TextParams) -> bool:
    """Whether a query has a phrase of three or more terms with slop, some rows of which pylance misses. Two words may
    have three terms: 3.14 has two."""
    phrases = [leaf for leaf in query.leaves() if isinstance(leaf, Phrase)]
    return any(phrase.slop and len(analyze(params, phrase.text)) > 2 for phrase in phrases)


def compare(
    uri: str, params: TextParams, words: list[str], *, seed: int = 0, covered: bool, filter: str | None = None
) -> None:
    """Rows are those of the naive index, scores those of pylance, and the best are the first of all.

    Args:
        uri: The table.
        params: Of the index.
        words: What queries are made of, the frequent ones first.
        seed: For other queries.
        covered: Whether the index covers all rows. pylance looks for the words of fuzzy queries as they are elsewhere.
        filter: Of the searches.
    """
    naive, selected = NaiveIndex(params, live_texts(uri)), set(live_texts(uri, filter))
    scanner = {} if filter is None else {"filter": filter, "prefilter": True}
    matches, table, dataset = 0, pennon.open(uri), lance.dataset(uri)
    for query in chosen(random_queries(words, 1, seed, phrases=params.with_position), covered):
        bound = query.within([COLUMN])
        found = everything(table, bound, filter=filter)
        assert set(found) == set(naive.search(query)) & selected, query
        expected = by_pylance(dataset, to_pylance(query), **scanner)
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), query
        best = table.search_text(COLUMN, bound, K, columns=["_score"], filter=filter, with_row_id=True)
        scores = sorted(found.values(), reverse=True)[:K]
        np.testing.assert_allclose(best["_score"].to_numpy(), scores, rtol=TOLERANCE, atol=TOLERANCE)
        assert len(set(best["_rowid"].to_pylist())) == min(K, len(found)), query
        matches += len(found)
    assert matches > 100


def chosen(queries: Iterable[Query], covered: bool) -> list[Query]:
    return [query for query in queries if covered or not is_fuzzy(query)]
