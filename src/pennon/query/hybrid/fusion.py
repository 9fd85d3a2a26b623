"""How two lists of results become one.

    rrf     score = sum over lists of weight / (60 + rank), rank from 1; a list that lacks the row adds nothing
    linear  score = sum over lists of weight * s, s from 1 for the best of a list to 0 for its worst; absent: 0

Reciprocal rank fusion is that of LanceDB's RRFReranker, whose K is 60 and whose ranks start at 1. Of equal scores the
row comes first that the vector search ranks higher, then the one that the text search does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses

RANK_CONSTANT = 60
ABSENT = np.iinfo(np.int32).max

Floats = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int32]


class Fusion(Enum):
    """How lists of results are fused."""

    RRF = "rrf"
    LINEAR = "linear"

    @classmethod
    def named(cls, name: object) -> Fusion:
        """By name, in any case."""
        try:
            return cls(str(name).lower())
        except ValueError:
            raise InvalidArgument(f"unknown fusion {name!r}", "Use 'rrf' or 'linear'") from None

    @property
    def default_weights(self) -> tuple[float, float]:
        """Of vectors and of text."""
        return (1.0, 1.0) if self is Fusion.RRF else (0.7, 0.3)


@dataclass(frozen=True, eq=False)
class Ranked:
    """One list of results, the best first; `scores` are higher for better ones."""

    addresses: Addresses
    scores: npt.NDArray[np.float32]

    def ranks_of(self, rows: Addresses) -> Ranks:
        """From 1; ABSENT for rows that are not in the list."""
        if not len(self.addresses):
            return np.full(len(rows), ABSENT, dtype=np.int32)
        order = np.argsort(self.addresses, kind="stable")
        places = np.minimum(np.searchsorted(self.addresses[order], rows), len(order) - 1)
        found = self.addresses[order[places]] == rows
        return np.where(found, order[places] + 1, ABSENT).astype(np.int32)

    def spread(self) -> Floats:
        """Its scores, from 0 for the worst to 1 for the best; 1 for all where they are equal."""
        if not len(self.scores):
            return np.empty(0)
        scores = self.scores.astype(np.float64)
        least, most = scores.min(), scores.max()
        return (scores - least) / (most - least) if most > least else np.ones(len(scores))


@dataclass(frozen=True, eq=False)
class Fused:
    """Rows of any list, the best first, with their ranks in each and their fused scores."""

    addresses: Addresses
    ranks: tuple[Ranks, ...]
    scores: npt.NDArray[np.float32]


def fuse(lists: tuple[Ranked, ...], how: Fusion, weights: tuple[float, ...], k: int) -> Fused:
    """The k rows with the highest fused scores."""
    rows = np.unique(np.concatenate([each.addresses for each in lists]))
    ranks = tuple(each.ranks_of(rows) for each in lists)
    total = np.zeros(len(rows))
    for each, rank, weight in zip(lists, ranks, weights, strict=True):
        there = rank != ABSENT
        if how is Fusion.RRF:
            total[there] += weight / (RANK_CONSTANT + rank[there])
        else:
            total[there] += weight * each.spread()[rank[there] - 1]
    scores = total.astype(np.float32)
    order = np.lexsort((rows, *reversed(ranks), -scores))[:k]
    return Fused(rows[order], tuple(rank[order] for rank in ranks), scores[order])


def checked_weights(how: Fusion, given: object) -> tuple[float, float]:
    """The weights of vectors and text.

    Raises:
        InvalidArgument: not two finite numbers, a negative one, or none above 0.
    """
    if given is None:
        return how.default_weights
    remedy = "Give two numbers: weights=(0.7, 0.3)"
    try:
        vector, text = (float(item) for item in given)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    except (TypeError, ValueError):
        raise InvalidArgument(f"weights are one for vectors and one for text, not {given!r}", remedy) from None
    if not (0 <= vector < np.inf and 0 <= text < np.inf and vector + text > 0):
        raise InvalidArgument(f"weights are {given!r}", remedy)
    return vector, text
