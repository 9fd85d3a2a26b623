"""The texts that must occur in what a pattern matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.query.filter.text_pieces import like_pieces, regex_pieces

SIGNS = "abc.^$+?*|()[]{}\\\\,12d-"


@given(st.text(SIGNS, max_size=12), st.lists(st.text("abcd12,-.", max_size=12), min_size=20, max_size=20))
def test_whatever_a_regular_expression_matches_holds_its_pieces(pattern: str, texts: list[str]) -> None:
    if re.search(r"\[[^\]]*\[|--|&&|~~|\|\|", pattern):
        return  # Lance nests classes and has operators in them
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError):
        return
    pieces = regex_pieces(pattern)
    for text in (*texts, pattern, "".join(pieces)):
        assert not compiled.search(text) or all(piece in text for piece in pieces)


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("hello (foo|bar) baz", ("hello ", " baz")),
        (r"\bword\b foo\.bar", ("word", " foo.bar")),
        (r"of \<word\>", ("of ", "word")),
        ("colou?r", ("colo", "r")),
        ("a|b", ()),
        ("(?i)abc", ()),
        ("[]a]bcd", ("bcd",)),
        ("ab{2,3}cd", ("a", "cd")),
        ("(unclosed", ()),
        (r"\x41bc", ()),
    ],
)
def test_pieces_of_regular_expressions(pattern: str, pieces: tuple[str, ...]) -> None:
    assert regex_pieces(pattern) == pieces


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [("%abc%", ("abc",)), (r"a\%b%cd_e", ("a%b", "cd", "e")), ("%", ()), ("abc\\", ("abc\\",)), (r"\_x", ("_x",))],
)
def test_pieces_of_like_patterns(pattern: str, pieces: tuple[str, ...]) -> None:
    assert like_pieces(pattern) == pieces
