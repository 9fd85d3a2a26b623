"""Text searches through the life of a table: rows of the naive index, scores of pylance, whoever built the index."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.index.inverted.analysis.analyzer import FUZZY_PARAMS
from pennon.index.inverted.analysis.params import TextParams
from pennon.text import Boolean, Match, MultiMatch, Occur, Phrase
from tests.index.inverted.corpus import COLUMN, NAME, documents, pylance_options, vocabulary
from tests.index.inverted.naive import NaiveIndex
from tests.index.inverted.queries import to_pylance
from tests.query.text.checks import TOLERANCE, by_pylance, compare, everything, live_texts

pytestmark = pytest.mark.usefixtures("process_engine")

PARAMS = TextParams(with_position=True)
TEXTS = documents(900, seed=3, words=250)
WORDS = [word for word in vocabulary(3, 250) if word.isascii()]
ROWS, FRAGMENT = 500, 100


def rows(start: int, count: int, type_: pa.DataType | None = None) -> pa.Table:
    texts = pa.array(TEXTS[start : start + count], pa.string())
    return pa.table({"id": np.arange(start, start + count), COLUMN: texts.cast(type_ or pa.string())})


def write(path: Path, *, stable: bool = False) -> str:
    lance.write_dataset(rows(0, ROWS), str(path), max_rows_per_file=FRAGMENT, enable_stable_row_ids=stable)
    return str(path)


def build(uri: str, maker: str, params: TextParams = PARAMS, **options: Any) -> None:
    if maker == "pylance":
        lance.dataset(uri).create_scalar_index(
            COLUMN, "INVERTED", name=NAME, replace=True, **pylance_options(params), **options
        )
    else:
        pennon.open(uri).create_index(COLUMN, "INVERTED", NAME, **pylance_options(params), **options)


@pytest.mark.parametrize("maker", ["pylance", "pennon"])
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_appends_deletions_deltas_and_compactions(tmp_path: Path, maker: str, stable: bool) -> None:
    uri = write(tmp_path / "t", stable=stable)
    build(uri, maker)
    compare(uri, PARAMS, WORDS, covered=True)
    lance.dataset(uri).delete("id % 9 = 4")
    compare(uri, PARAMS, WORDS, covered=True, filter="id < 340")
    lance.write_dataset(rows(ROWS, 150), uri, mode="append")
    compare(uri, PARAMS, WORDS, covered=False, seed=1)
    compare(uri, PARAMS, WORDS, covered=False, seed=2, filter="id % 3 = 0")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 7 = 5")
    compare(uri, PARAMS, WORDS, covered=True, seed=3)
    pennon.open(uri).compact(target_rows_per_fragment=400)
    compare(uri, PARAMS, WORDS, covered=True, seed=4)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    compare(uri, PARAMS, WORDS, covered=True, seed=5)


def test_deferred_compactions(tmp_path: Path) -> None:
    uri = write(tmp_path / "t")
    build(uri, "pennon")
    lance.dataset(uri).delete("id % 9 = 4")
    pennon.open(uri).compact(target_rows_per_fragment=250, remap="deferred")
    assert pennon.open(uri).fragment_reuse() is not None
    compare(uri, PARAMS, WORDS, covered=True)
    lance.write_dataset(rows(ROWS, 90), uri, mode="append")
    lance.dataset(uri).delete("id % 5 = 1")
    compare(uri, PARAMS, WORDS, covered=False, filter="id > 100")


def test_rows_whose_text_changed_in_place(tmp_path: Path) -> None:
    uri = write(tmp_path / "t")
    build(uri, "pennon")
    pennon.open(uri).update_column(COLUMN, f"concat({COLUMN}, ' {WORDS[0]} {WORDS[5]}')", where="id < 150")
    compare(uri, PARAMS, WORDS, covered=False)


def test_several_segments_with_uncovered_rows_between(tmp_path: Path) -> None:
    uri = write(tmp_path / "t")
    for fragments in ([0], [3, 4]):
        pennon.open(uri).create_index(
            COLUMN, "INVERTED", NAME, fragment_ids=fragments, rows_per_task=60, **pylance_options(PARAMS)
        )
    compare(uri, PARAMS, WORDS, covered=False)
    # A segment without a live row is still in the statistics, as long as the manifest lists it.
    lance.dataset(uri).delete("id < 100 or id >= 300")
    compare(uri, PARAMS, WORDS, covered=False)


@pytest.mark.parametrize("language", ["German", "French", "Russian", "Turkish"])
def test_other_languages(tmp_path: Path, language: str) -> None:
    params = TextParams(language=language)
    uri = write(tmp_path / "t")
    build(uri, "pennon", params, fragment_ids=[0, 1])
    compare(uri, params, WORDS, covered=False)


@pytest.mark.parametrize("tokenizer", ["whitespace", "ngram"])
def test_other_tokenizers(tmp_path: Path, tokenizer: str) -> None:
    params = TextParams(base_tokenizer=tokenizer, stem=False, remove_stop_words=False)
    uri = write(tmp_path / "t")
    build(uri, "pennon", params, fragment_ids=[0, 1])
    for word in ("xxx", WORDS[0], f"{WORDS[1]} {WORDS[9]}"):
        query = Match(word)
        expected = by_pylance(uri, to_pylance(query))
        assert everything(uri, query) == pytest.approx(expected, rel=TOLERANCE), word
        assert set(expected) == set(NaiveIndex(params, live_texts(uri)).search(query))


@pytest.mark.parametrize("type_", ["string", "large_string", "string_view", "list", "large_list"])
def test_every_type_of_column(tmp_path: Path, type_: str) -> None:
    path, texts = str(tmp_path / "t"), TEXTS[:200]
    lists = [None if text is None else [text[:9], None, text[9:]] for text in texts]
    column = {
        "string": lambda: pa.array(texts, pa.string()),
        "large_string": lambda: pa.array(texts, pa.large_string()),
        "string_view": lambda: pa.array(texts, pa.string_view()),
        "list": lambda: pa.array(lists, pa.list_(pa.string())),
        "large_list": lambda: pa.array(lists, pa.large_list(pa.large_string())),
    }[type_]()
    lance.write_dataset(pa.table({"id": range(200), COLUMN: column}), path, max_rows_per_file=100)
    for query in (Match(f"{WORDS[0]} {WORDS[7]}"), Match(WORDS[3])):
        assert everything(path, query.within([COLUMN])) == pytest.approx(
            by_pylance(path, to_pylance(query)), rel=TOLERANCE
        )
    build(path, "pennon", fragment_ids=[0])
    found = 0
    for query in (Match(f"{WORDS[0]} {WORDS[7]}"), Match(WORDS[3]), Phrase(f"{WORDS[0]} {WORDS[1]}", slop=3)):
        expected = by_pylance(path, to_pylance(query))
        assert everything(path, query.within([COLUMN])) == pytest.approx(expected, rel=TOLERANCE)
        found += len(expected)
    assert found > 50


def test_the_best_are_complete_where_pylance_returns_fewer(tmp_path: Path) -> None:
    uri = write(tmp_path / "t", stable=True)
    build(uri, "pylance")
    lance.dataset(uri).delete("id % 4 = 1")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000, materialize_deletions_threshold=0)
    short = 0
    for word in WORDS[:12]:
        best = pennon.open(uri).search_text(COLUMN, word, 10)["_score"].to_numpy()
        scores = list(by_pylance(uri, word).values())
        np.testing.assert_allclose(best, sorted(scores, reverse=True)[:10], rtol=TOLERANCE)
        short += len(best) - len(by_pylance(uri, word, limit=10))
    assert short > 0, "pylance's answers are complete now: compare with them"


def test_fuzzy_words_are_found_in_uncovered_rows_too(tmp_path: Path) -> None:
    uri = write(tmp_path / "t")
    build(uri, "pennon", fragment_ids=[0, 1])
    naive, missed = NaiveIndex(PARAMS, live_texts(uri)), 0
    for word in [word for word in WORDS if len(word) > 5][:12]:
        query = Match(f"{word[:2]}q{word[2:]}", fuzziness=1)
        found = everything(uri, query)
        assert set(found) == set(naive.search(query))
        of_uncovered = {row: score for row, score in naive.search(query).items() if row >> 32 > 1}
        assert {row: score for row, score in found.items() if row >> 32 > 1} == pytest.approx(of_uncovered, rel=1e-5)
        missed += len(found) - len(by_pylance(uri, to_pylance(query)))
    assert missed > 0, "pylance finds them all now: compare with it"


def test_a_column_without_an_index_is_scanned_as_it_is_written(tmp_path: Path) -> None:
    uri = write(tmp_path / "t")
    plain = replace(FUZZY_PARAMS, with_position=True)
    compare(uri, plain, WORDS, covered=False)
    compare(uri, plain, WORDS, covered=False, filter="id < 200")


def test_queries_over_several_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = rows(0, ROWS).append_column("title", pa.array([text and text[:30] for text in TEXTS[1 : ROWS + 1]]))
    lance.write_dataset(table, path, max_rows_per_file=FRAGMENT)
    build(path, "pennon", fragment_ids=[0, 1, 2])
    pennon.open(path).create_index("title", "INVERTED", fragment_ids=[2, 3])
    for number in range(6):
        words = f"{WORDS[number]} {WORDS[number + 20]}"
        queries = (
            MultiMatch(words, (COLUMN, "title"), (1.0, 3.0)),
            Match(WORDS[number], "title") & Match(WORDS[number + 1], COLUMN),
            Boolean(
                [
                    (Occur.MUST, Match(words, COLUMN)),
                    (Occur.SHOULD, Match(WORDS[2], "title", boost=2.0)),
                    (Occur.MUST_NOT, Match(WORDS[3], "title")),
                ]
            ),
        )
        for query in queries:
            expected = by_pylance(path, to_pylance(query))
            assert everything(path, query) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), query
        # A string without columns is for all that have an index.
        assert everything(path, words) == pytest.approx(by_pylance(path, words), rel=TOLERANCE)
        both = {"query": words, "columns": [COLUMN, "title"]}
        assert everything(path, both) == pytest.approx(by_pylance(path, both), rel=TOLERANCE)


def test_an_index_of_pylance_and_one_of_pennon_give_the_same(tmp_path: Path) -> None:
    own = write(tmp_path / "own")
    lance.dataset(own).delete("id % 9 = 4")
    shutil.copytree(own, tmp_path / "other")
    other = str(tmp_path / "other")
    build(own, "pennon", rows_per_task=150)
    build(other, "pylance")
    for number in range(8):
        query = Match(f"{WORDS[number]} {WORDS[3 * number]}", COLUMN)
        answers = [everything(uri, query) for uri in (own, other)]
        answers += [by_pylance(uri, to_pylance(query)) for uri in (own, other)]
        for answer in answers[1:]:
            assert answer == pytest.approx(answers[0], rel=TOLERANCE)
