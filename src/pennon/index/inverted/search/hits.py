"""What a query has found: rows and their scores, and how sets of them combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.arrays import Flags, Float32s, Int64s


@dataclass(frozen=True, eq=False)
class Hits:
    """Rows, each once, with their scores."""

    row_ids: Addresses
    scores: Float32s

    def __len__(self) -> int:
        return len(self.row_ids)

    @classmethod
    def none(cls) -> Hits:
        return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32))

    def best(self, k: int | None) -> Hits:
        """The k with the highest scores, the highest first; of equal ones the lowest row id first."""
        order = np.lexsort((self.row_ids, -self.scores))[:k]
        return Hits(self.row_ids[order], self.scores[order])

    def after(self, offset: int) -> Hits:
        """Without the first ones."""
        return Hits(self.row_ids[offset:], self.scores[offset:]) if offset else self

    def scaled(self, factor: float) -> Hits:
        return self if factor == 1 else Hits(self.row_ids, self.scores * np.float32(factor))

    def where(self, kept: Flags) -> Hits:
        return Hits(self.row_ids[kept], self.scores[kept])

    def found_in(self, other: Hits) -> Flags:
        """Which rows the other has too."""
        return self._places_in(other) >= 0

    def plus(self, other: Hits, factor: float = 1.0) -> Hits:
        """These rows, with what the other has for them added to their scores."""
        places = self._places_in(other)
        scores = self.scores.copy()
        scores[places >= 0] += np.float32(factor) * other.scores[places[places >= 0]]
        return Hits(self.row_ids, scores)

    def _places_in(self, other: Hits) -> Int64s:
        if not len(other):
            return np.full(len(self), -1, dtype=np.int64)
        order = np.argsort(other.row_ids, kind="stable")
        places = np.minimum(np.searchsorted(other.row_ids[order], self.row_ids), len(other) - 1)
        return np.where(other.row_ids[order[places]] == self.row_ids, order[places], -1)


def joined(parts: Sequence[Hits]) -> Hits:
    """The rows of parts that have none in common."""
    return Hits(np.concatenate([p.row_ids for p in parts]), np.concatenate([p.scores for p in parts]))


def summed(parts: Sequence[Hits]) -> Hits:
    """The rows of any part, with the sum of their scores."""
    return _joined(parts, np.add)


def common(parts: Sequence[Hits]) -> Hits:
    """The rows of all parts, with the sum of their scores."""
    found = parts[0] if parts else Hits.none()
    for part in parts[1:]:
        found = found.where(found.found_in(part)).plus(part)
    return found


def highest(parts: Sequence[Hits]) -> Hits:
    """The rows of any part, with the highest of their scores."""
    return _joined(parts, np.maximum)


def _joined(parts: Sequence[Hits], combine: np.ufunc) -> Hits:
    if len(parts) == 1:
        return parts[0]
    row_ids = np.concatenate([part.row_ids for part in parts]) if parts else np.empty(0, dtype=np.uint64)
    if not len(row_ids):
        return Hits.none()
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(row_ids, kind="stable")
    ascending = row_ids[order]
    firsts = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    return Hits(ascending[firsts], combine.reduceat(scores[order], firsts))
