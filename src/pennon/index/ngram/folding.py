"""What pylance makes of texts before it cuts them into trigrams: lower case, then ASCII letters and digits.

Every code point by itself becomes letters and digits, and `SEPARATOR` for anything else; no trigram goes across one.
The texts must be pylance's own: it takes a trigram that an index does not have for a proof that no row has it.
`folding.json` has what code points beyond ASCII become, made by `tools/make_ngram_folding.py` from pylance itself.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

SEPARATOR = "\u00b7"
FOLDING_FILE = Path(__file__).with_name("folding.json")
NULL_TOKEN = 0

# Capitals are what some characters become after letters were lowered. pylance computes (byte - 97 + 11) in eight bits.
CODES = {
    **{character: number + 1 for number, character in enumerate("0123456789abcdefghijklmnopqrstuvwxyz")},
    **{chr(byte): (byte - 97 + 11) % 256 for byte in range(ord("A"), ord("Z") + 1)},
}
WEIGHTS = 37 * 37, 37, 1
# Above every token.
TOKEN_LIMIT = sum(255 * weight for weight in WEIGHTS) + 1


def token(first: str, second: str, third: str) -> int | None:
    """The number of a trigram of prepared text; None where a character is neither letter nor digit."""
    codes = [CODES.get(character) for character in (first, second, third)]
    known = [code * weight for code, weight in zip(codes, WEIGHTS, strict=True) if code is not None]
    return sum(known) if len(known) == 3 else None


def prepared(text: str) -> str:
    """Lower case, ASCII letters and digits; other characters may be in it as they are."""
    return text.translate(_translation())


@cache
def folding() -> dict[int, str]:
    """What code points beyond ASCII become, those that become any letter or digit."""
    read: dict[str, str] = json.loads(FOLDING_FILE.read_text(encoding="utf-8"))
    return {ord(character): text for text, characters in read.items() for character in characters}


@cache
def fold_tables() -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16], npt.NDArray[np.int32]]:
    """For the kernels. By code point the number of a text, -1 for a separator and beyond the end; the codes of all
    texts, -1 for separators; and where the codes of each text begin."""
    known = {**{ord(c): c for c in CODES}, **_translation()}
    texts = sorted(set(known.values()))
    number_of = np.full(max(known) + 1, -1, dtype=np.int16)
    for point, text in known.items():
        number_of[point] = texts.index(text)
    codes = [CODES.get(character, -1) for text in texts for character in text]
    bounds = np.cumsum([0, *map(len, texts)])
    return number_of, np.array(codes, dtype=np.int16), bounds.astype(np.int32)


@cache
def _translation() -> dict[int, str]:
    return {**{ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, **folding()}
