"""Random texts full of characters that n-gram indices treat in a way of their own."""

from __future__ import annotations

import random

from pennon.index.ngram.folding import folding

PLAIN = "abcXYZ019 _-"
OTHERS = range(0x80, 0x2FFF), range(0x3000, 0xD7FF), range(0x10000, 0x1FFFF)
WORDS = (
    "range",
    "partition",
    "Index",
    "LANCE",
    "straße",
    "ﬁle",
    "naïve",
    "Ångström",
    "日本語",
    "x9y",
    "ab",
    "100%",
    "a_b",
)


def sentences(count: int, seed: int) -> list[str | None]:
    """A few words each; every 17th is NULL."""
    choose = random.Random(seed)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(0, 4))) for _ in range(count)]
    return [None if number % 17 == 3 else text for number, text in enumerate(texts)]


def random_texts(count: int, seed: int, longest: int = 14) -> list[str | None]:
    """Letters, characters that become letters, and others; every 41st text is NULL."""
    choose = random.Random(seed)
    folded = sorted(folding())

    def character() -> str:
        draw = choose.random()
        if draw < 0.45:
            return choose.choice(PLAIN)
        return chr(choose.choice(folded) if draw < 0.8 else choose.choice(choose.choice(OTHERS)))

    def text() -> str:
        return "".join(character() for _ in range(choose.randint(0, longest)))

    return [None if number % 41 == 40 else text() for number in range(count)]
