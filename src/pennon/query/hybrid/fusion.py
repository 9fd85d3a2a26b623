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

Int64s = npt.NDArray[np.int64]
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
    """The results of one search for every query, one query after another, the best first; `scores` are higher for
    better ones."""

    counts: Int64s  # results of each query
    addresses: Addresses
    scores: npt.NDArray[np.float32]

    @property
    def queries(self) -> Int64s:
        """The number of the query of each result."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def ranks(self) -> Ranks:
        """Of each result, from 1."""
        starts = np.cumsum(self.counts) - self.counts
        return (np.arange(len(self.addresses)) - np.repeat(starts, self.counts) + 1).astype(np.int32)

    def spread(self) -> Floats:
        """Scores from 0 for the worst of a query to 1 for its best; 1 for all of a query where they are equal."""
        scores = self.scores.astype(np.float64)
        if not len(scores):
            return scores
        filled = self.counts[self.counts > 0]
        starts = np.cumsum(filled) - filled
        least, most = (np.repeat(of.reduceat(scores, starts), filled) for of in (np.minimum, np.maximum))
        width = np.where(most > least, most - least, 1)
        return np.where(most > least, (scores - least) / width, 1.0)


@dataclass(frozen=True, eq=False)
class Fused:
    """The rows of every query, one query after another, the best first: ranks in each list, where in the list they are
    (-1: nowhere), and fused scores."""

    counts: Int64s
    addresses: Addresses
    ranks: tuple[Ranks, ...]
    places: tuple[Int64s, ...]
    scores: npt.NDArray[np.float32]


def fuse(lists: tuple[Ranked, ...], how: Fusion, weights: tuple[float, ...], k: int) -> Fused:
    """The k rows of each query with the highest fused scores."""
    queries = np.concatenate([each.queries for each in lists])
    addresses = np.concatenate([each.addresses for each in lists])
    order = np.lexsort((addresses, queries))
    changes = (np.diff(queries[order]) != 0) | (np.diff(addresses[order]) != 0)
    first = np.concatenate([np.ones(min(1, len(order)), dtype=np.bool_), changes])
    # The number of the row, over all queries, that each result is.
    rows = np.empty(len(order), dtype=np.int64)
    rows[order] = np.cumsum(first) - 1
    queries, addresses = queries[order[first]], addresses[order[first]]
    total, ranks, places, at = np.zeros(len(queries)), list[Ranks](), list[Int64s](), 0
    for each, weight in zip(lists, weights, strict=True):
        own, at = rows[at : at + len(each.addresses)], at + len(each.addresses)
        rank = np.full(len(queries), ABSENT, dtype=np.int32)
        place = np.full(len(queries), -1, dtype=np.int64)
        rank[own], place[own] = each.ranks, np.arange(len(own))
        total[own] += weight / (RANK_CONSTANT + each.ranks) if how is Fusion.RRF else weight * each.spread()
        ranks.append(rank)
        places.append(place)
    scores = total.astype(np.float32)
    best = np.lexsort((addresses, *reversed(ranks), -scores, queries))
    found = np.bincount(queries, minlength=len(lists[0].counts))
    best = best[np.arange(len(best)) - np.repeat(np.cumsum(found) - found, found) < k]
    counts = np.minimum(found, k)
    kept_ranks, kept_places = tuple(rank[best] for rank in ranks), tuple(place[best] for place in places)
    return Fused(counts, addresses[best], kept_ranks, kept_places, scores[best])


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
        raise InvalidArgument(f"weights must be two numbers, for vectors and for text, not {given!r}", remedy) from None
    if not (0 <= vector < np.inf and 0 <= text < np.inf and vector + text > 0):
        raise InvalidArgument(f"weights must be finite, not negative, and not both 0, but are {given!r}", remedy)
    return vector, text
