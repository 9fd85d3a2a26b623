"""Character classes, lower-casing, folding and stop words as pylance has them.

No class of Python or Arrow equals pylance's, and Python's own follow the version of its Unicode. `text_tables.json` is
made out of an installed pylance by `tools/make_text_tables.py`; a test compares it with the one installed.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from pennon.index.arrays import Flags

CODE_POINTS: Final = 0x110000
WHITESPACE: Final = "\t\n\f\r "
LANGUAGES: Final = (
    "Arabic",
    "Danish",
    "Dutch",
    "English",
    "Finnish",
    "French",
    "German",
    "Greek",
    "Hungarian",
    "Italian",
    "Norwegian",
    "Portuguese",
    "Romanian",
    "Russian",
    "Spanish",
    "Swedish",
    "Tamil",
    "Turkish",
)


@cache
def alphanumeric() -> Flags:
    """Which code points the simple tokenizer has in its words."""
    flags = np.zeros(CODE_POINTS, dtype=np.bool_)
    for first, last in _tables()["alphanumeric"]:
        flags[first : last + 1] = True
    return flags


@cache
def not_whitespace() -> Flags:
    """Which code points the whitespace tokenizer has in its words."""
    flags = np.ones(CODE_POINTS, dtype=np.bool_)
    flags[[ord(character) for character in WHITESPACE]] = False
    return flags


@cache
def lower() -> dict[int, str]:
    """What each code point becomes in lower case, where it changes; a table for `str.translate`."""
    return _translation("lower")


@cache
def folding() -> dict[int, str]:
    """What each code point becomes in ASCII, where it changes; a table for `str.translate`."""
    return _translation("folding")


@cache
def stop_words(language: str) -> frozenset[str]:
    """The words of a language that are left out."""
    return frozenset(_tables()["stop_words"][language])


def _translation(name: str) -> dict[int, str]:
    return {ord(character): replaced for character, replaced in _tables()[name].items()}


@cache
def _tables() -> dict[str, Any]:
    return json.loads(files("pennon.index.inverted.analysis").joinpath("text_tables.json").read_text("utf-8"))
