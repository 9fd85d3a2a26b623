"""Some of all combinations of parameters for `make test`; the others are `heavy`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def covering(*axes: Collection[Any], strength: int) -> list[Any]:
    """All combinations of the values of some parameters. Those that `make test` runs have every value of each parameter
    (`strength=1`), or every pair of values of two parameters (`strength=2`); all others are marked `heavy`."""
    places = [tuple(enumerate(axis)) for axis in axes]
    every = list(product(*places))
    wanted = {part for case in every for part in _parts(case, strength)}
    chosen, used = set[tuple[int, ...]](), Counter[tuple[int, int]]()

    def gain(case: tuple[tuple[int, Any], ...]) -> tuple[int, int]:
        return len(wanted & _parts(case, strength)), -sum(used[place] for place in enumerate(_key(case)))

    while wanted:
        # The first of those that add most, with values that were used least: the same in every process.
        best = max(every, key=gain)
        chosen.add(_key(best))
        used.update(enumerate(_key(best)))
        wanted -= _parts(best, strength)
    return [
        pytest.param(
            *(value for _, value in case),
            id="-".join(str(value) for _, value in case),
            marks=() if _key(case) in chosen else (pytest.mark.heavy,),
        )
        for case in every
    ]


def amounts(few: int, many: int) -> list[Any]:
    """How many random examples a test tries: `few` in `make test`, `many` where it is `heavy`."""
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.heavy)]


def _key(case: tuple[tuple[int, Any], ...]) -> tuple[int, ...]:
    return tuple(number for number, _ in case)


def _parts(case: tuple[tuple[int, Any], ...], strength: int) -> set[tuple[tuple[int, int], ...]]:
    """What a combination has of each choice of parameters: their numbers and those of their values."""
    return set(combinations(enumerate(_key(case)), strength))
