"""Ranges of tokens, for tasks that share the posting lists of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pennon.index.ngram.folding import TOKEN_LIMIT
from pennon.index.ngram.postings import Postings


@dataclass(frozen=True)
class TokenRanges:
    """Consecutive half-open ranges that cover all tokens from 0."""

    edges: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return pairwise(self.edges)

    def cut(self, postings: Postings) -> Iterator[tuple[int, Postings]]:
        """Non-empty pieces by the number of their range."""
        for number, (low, high) in enumerate(self):
            part = postings.between(low, high)
            if len(part):
                yield number, part


def ranges_of(tokens: npt.NDArray[np.uint32], count: int) -> TokenRanges:
    """At most `count` ranges with about equally many of these tokens."""
    ascending = np.sort(tokens)
    places = [len(tokens) * number // count for number in range(1, count)] if len(tokens) else []
    return TokenRanges((0, *sorted({int(ascending[place]) for place in places} - {0}), TOKEN_LIMIT))
