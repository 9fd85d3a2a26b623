"""The shipped folding table is the one of the installed pylance."""

from __future__ import annotations

import random

import pytest

from pennon.index.ngram.folding import CODES, folding
from tools.make_ngram_folding import learn_folding


def codes(text: str) -> list[int | None]:
    return [CODES.get(character) for character in text]


def test_a_sample_of_the_table_is_what_pylance_does() -> None:
    known, choose = folding(), random.Random(1)
    points = {*choose.sample(sorted(known), 500), *choose.sample(range(0x80, 0xD7FF), 2000)}
    assert learn_folding(points) == {point: known[point] for point in points if point in known}


@pytest.mark.heavy
def test_the_table_is_what_pylance_does() -> None:
    assert learn_folding(range(0x110000)) == folding()


def test_letters_that_differ_in_case_only_become_the_same() -> None:
    """So that a search in any case finds all."""
    known = folding()

    def folded(character: str) -> str:
        return known.get(ord(character), "") if ord(character) > 0x7F else character.lower()

    everything = (chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    pairs = ((c, other) for c in everything for other in {c.lower(), c.upper(), c.casefold()} if len(other) == 1)
    assert [pair for pair in pairs if codes(folded(pair[0])) != codes(folded(pair[1]))] == []
