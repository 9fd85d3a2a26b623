"""Analysis: the terms of texts and their positions are those of pylance, for every parameter and language."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.index.inverted.analysis import tables
from pennon.index.inverted.analysis.analyzer import analyze
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tokenizers import Tokenizer, texts_of
from tests.index.inverted.contents import partition_files, tokens_by_row
from tests.index.inverted.corpus import pennon_index, pylance_index, pylance_options, write_table
from tools import make_text_tables

PLAIN: dict[str, Any] = {"stem": False, "remove_stop_words": False, "with_position": True}
# Endings that stemmers of many languages know, on stems of the scripts they are for.
STEMS = ["schön", "parl", "kniv", "olvas", "kitap", "книг", "λόγ", "كتاب", "படி", "carr", "flick", "hous", "jou"]
ENDINGS = ["", "s", "en", "ing", "ed", "er", "ation", "ment", "lerimiz", "ok", "ban", "ами", "ость", "ους", "ات", "கள்"]
PARAMS = [
    TextParams(**PLAIN),
    TextParams(with_position=True, max_token_length=6),
    TextParams(with_position=True, lower_case=False, ascii_folding=False),
    TextParams(with_position=True, custom_stop_words=("becaus", "cafe", "zebra")),
    TextParams(with_position=True, base_tokenizer="whitespace"),
    TextParams(base_tokenizer="whitespace", max_token_length=None, lower_case=False, **PLAIN),
    TextParams(base_tokenizer="raw", max_token_length=None, **PLAIN),
    TextParams(base_tokenizer="raw", with_position=True),
    TextParams(base_tokenizer="ngram", **PLAIN),
    TextParams(base_tokenizer="ngram", min_ngram_length=1, max_ngram_length=4, **PLAIN),
    TextParams(base_tokenizer="ngram", min_ngram_length=2, max_ngram_length=5, prefix_only=True, **PLAIN),
    TextParams(base_tokenizer="ngram", min_ngram_length=2, max_ngram_length=2, with_position=True),
]


def mixed_texts(count: int, seed: int) -> list[str]:
    """Words and characters of many scripts, with separators of all kinds between them."""
    draw = random.Random(seed)
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x600, 0x6FF), (0x1E00, 0x1EFF)]
    ranges += [(0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x4E80), (0xFB00, 0xFB10), (0x1F600, 0x1F610)]
    made: list[str] = []
    for _ in range(count):
        words = [draw.choice(STEMS) + draw.choice(ENDINGS) for _ in range(draw.randint(0, 6))]
        words += ["because", "The", "Café", "İ"][: draw.randint(0, 4)]
        words += ["".join(chr(draw.randint(*draw.choice(ranges))) for _ in range(draw.randint(1, 9))) for _ in range(4)]
        draw.shuffle(words)
        made.append(draw.choice([" ", ", ", "\u00a0", "\t", "\n"]).join(words))
    return [*made, "", " ", "a", "ab", "abc", "日本", "x" * 39, "x" * 40, "ß" * 20]


@pytest.mark.parametrize("language", tables.LANGUAGES)
def test_few_tokens_are_filtered_as_many_are(language: str) -> None:
    tokens = sorted({token.encode() for text in mixed_texts(60, seed=11) for token in text.split()})
    stop_words = sorted(word.encode() for word in tables.stop_words(language))
    given = pa.array([*tokens, *stop_words, b"\xff\xfe", b"A\xff"], pa.large_binary())
    for params in (TextParams(language=language), TextParams(language=language, lower_case=False, ascii_folding=False)):
        filters = Filters(params)
        assert filters.apply_to_few(given.to_pylist()) == filters.apply(given).to_pylist()


@pytest.mark.parametrize("params", PARAMS, ids=repr)
def test_tokens_and_positions_equal_those_of_pylance(tmp_path: Path, params: TextParams) -> None:
    check_tokens(tmp_path, params, mixed_texts(250, seed=3))


@pytest.mark.parametrize("language", tables.LANGUAGES)
def test_every_language_is_analyzed_as_pylance_does(tmp_path: Path, language: str) -> None:
    words = sorted(tables.stop_words(language))
    texts = mixed_texts(120, seed=5) + [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]
    check_tokens(tmp_path, TextParams(language=language, with_position=True), texts)


def check_tokens(path: Path, params: TextParams, texts: list[str]) -> None:
    ours, theirs = write_table(path / "ours", texts), write_table(path / "theirs", texts)
    (by_pennon,) = partition_files(ours, pennon_index(ours, params))
    (by_pylance,) = partition_files(theirs, pylance_index(theirs, **pylance_options(params)))
    assert tokens_by_row(by_pennon) == tokens_by_row(by_pylance)


def test_changes_of_characters_are_those_of_the_installed_pylance() -> None:
    """Where a class begins or ends, and every character that becomes another one; the heavy test has all of Unicode."""
    flags, changed = tables.alphanumeric(), sorted({*tables.lower(), *tables.folding()})
    edges = np.flatnonzero(np.diff(flags))
    asked = sorted({*edges.tolist(), *(edges + 1).tolist(), *changed, *range(1, 0x300)} - set(range(0xD800, 0xE000)))
    assert make_text_tables.kept_in_words(asked, "simple") == [code for code in asked if flags[code]]
    spaces = set(asked) - set(make_text_tables.kept_in_words(asked, "whitespace"))
    assert spaces == {ord(character) for character in tables.WHITESPACE}
    for made, table in (
        (make_text_tables.translation(asked, lower_case=True), tables.lower()),
        (make_text_tables.translation(asked, ascii_folding=True), tables.folding()),
    ):
        assert {ord(character): became for character, became in made.items()} == table


@pytest.mark.heavy
def test_character_tables_are_those_of_the_installed_pylance() -> None:
    expected = np.zeros(tables.CODE_POINTS, dtype=np.bool_)
    for first, last in make_text_tables.alphanumeric():
        expected[first : last + 1] = True
    assert (tables.alphanumeric() == expected).all()
    assert make_text_tables.whitespace() == tables.WHITESPACE
    for made, table in (
        (make_text_tables.translation(lower_case=True), tables.lower()),
        (make_text_tables.translation(ascii_folding=True), tables.folding()),
    ):
        assert {ord(character): became for character, became in made.items()} == table


def test_known_stop_words_are_those_of_the_installed_pylance() -> None:
    found = make_text_tables.stop_words(make_text_tables.known_words())
    assert {language: frozenset(words) for language, words in found.items()} == {
        language: tables.stop_words(language) for language in tables.LANGUAGES
    }


@pytest.mark.heavy
def test_no_stop_word_of_the_installed_pylance_is_missing() -> None:
    found = make_text_tables.stop_words([*make_text_tables.candidates(), *make_text_tables.known_words()])
    for language, words in found.items():
        assert frozenset(words) == tables.stop_words(language), language


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=8))
def test_words_are_maximal_runs_of_alphanumeric_characters(texts: list[str]) -> None:
    flags = tables.alphanumeric()
    tokenizer = Tokenizer(TextParams())
    tokens = tokenizer.encode(texts_of(pa.array(texts, pa.string())))
    names = [name.decode() for name in tokenizer.strings().to_pylist()]
    bounds = zip(tokens.documents[:-1], tokens.documents[1:], strict=True)
    found = [[names[number] for number in tokens.numbers[first:last]] for first, last in bounds]
    blanked = ["".join(c if flags[ord(c)] else "\0" for c in text).split("\0") for text in texts]
    assert found == [[word for word in words if word] for words in blanked]


def test_many_distinct_tokens_keep_their_numbers() -> None:
    texts = [" ".join(f"w{n}x" for n in range(start, start + 5000)) for start in range(0, 60_000, 2500)]
    tokenizer = Tokenizer(TextParams())
    numbers = np.concatenate([tokenizer.encode(texts_of(pa.array([text]))).numbers for text in texts])
    names = tokenizer.strings().to_pylist()
    assert [names[number].decode() for number in numbers] == [word for text in texts for word in text.split()]
    assert tokenizer.uniques == len(set(names)) == 62_500


def test_left_out_tokens_take_a_place() -> None:
    terms = analyze(TextParams(), "running the Geologists and Cafés")
    assert [(term.text, term.position) for term in terms] == [("run", 0), ("geolog", 2), ("cafe", 4)]
