"""Searches of rows that have several vectors each, by queries that have several.

Every vector of a query is looked up in the index on its own, for more rows than are asked for. A row that one of the
lookups did not find is taken to be as far from that vector as the last row found: the estimate of pylance. The rows
with the best estimates are measured on the vectors of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyroaring import BitMap

from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet
from pennon.index.vector.several import gathered, row_distances, starts_of
from pennon.index.vector.vectors import Floats, Positions, Vectors
from pennon.query.search.exact import ExactSearch
from pennon.query.search.neighbors import NOWHERE, Neighbors
from pennon.query.search.prefilter import ScanPart
from pennon.query.search.probe import Probing, SegmentTrace, nearest_indexed
from pennon.query.search.request import Question
from pennon.query.search.source import Source

# Vectors that a lookup finds for each answer, as in pylance; more if more rows are measured, or too few are found.
VECTORS_PER_ANSWER = 10
DEEPER = 4
# What the lookups of a block of queries may find.
BLOCK_BYTES, CANDIDATE_BYTES = 64 << 20, 24


@dataclass(frozen=True)
class SeveralSearch:
    """A block of queries; `starts` are the first vectors of each."""

    exact: ExactSearch
    queries: Vectors
    starts: Positions

    @classmethod
    def of(cls, exact: ExactSearch, question: Question) -> SeveralSearch:
        assert question.starts is not None
        return cls(exact, question.queries, question.starts)

    def of_queries(self, chosen: Positions) -> SeveralSearch:
        """Some of the queries."""
        vectors, starts = gathered(self.starts, len(self.queries), chosen)
        return replace(self, queries=self.queries[vectors], starts=starts)

    def nearest(self, parts: Sequence[ScanPart], k: int) -> tuple[Neighbors, int]:
        """The k nearest rows of some scans, and how many were measured."""
        best, measured = Neighbors.none(len(self.starts)), 0
        for part in parts:
            for vectors, addresses in self.exact.read(part):
                found, rows = self.measure(vectors, addresses)
                measured += len(rows)
                if len(rows):
                    every = np.broadcast_to(rows, found.shape)
                    best = Neighbors.merged([best, Neighbors.nearest(found, every, k)], k)
        return best, measured

    def indexed(self, source: Source, how: Probing, traces: Sequence[SegmentTrace]) -> Neighbors:
        """The nearest rows that the index covers."""
        depth = max(how.k * VECTORS_PER_ANSWER, how.wanted)
        most = max(1, BLOCK_BYTES // (CANDIDATE_BYTES * depth))
        cuts = np.flatnonzero(np.diff(self.starts // most)) + 1
        blocks: list[Neighbors] = []
        for chosen in np.split(np.arange(len(self.starts)), cuts):
            block = self.of_queries(chosen)
            blocks.append(block._remeasured(block._candidates(source, how, traces, depth), how.k))
        return Neighbors.stacked(blocks)

    def _candidates(self, source: Source, how: Probing, traces: Sequence[SegmentTrace], depth: int) -> Neighbors:
        """The rows with the best estimates."""
        breadth = None if how.ef is None else max(how.ef, depth)
        found = nearest_indexed(source, self.queries, replace(how, k=depth, wanted=depth, ef=breadth), traces)
        rows = estimated(found, self.starts, how.wanted)
        cut_off = np.logical_or.reduceat(found.counts >= depth, self.starts)
        short = np.flatnonzero(cut_off & (rows.counts < how.k))
        if not len(short):
            return rows
        deeper = self.of_queries(short)._candidates(source, how, traces, depth * DEEPER)
        return rows.replaced(short, deeper)

    def _remeasured(self, candidates: Neighbors, k: int) -> Neighbors:
        addresses = sorted_unique(candidates.addresses[candidates.found])
        read = list(self.exact.read(ScanPart(BitMap(), RowSet.of_addresses(addresses))))
        if not read:
            return Neighbors.none(len(self.starts))
        vectors = np.concatenate([vectors for vectors, _ in read])
        owners = np.concatenate([owners for _, owners in read])
        # A scan need not come in the order of addresses.
        order = np.argsort(owners, kind="stable")
        vectors, owners = vectors[order], owners[order]
        row_starts = starts_of(owners)
        rows = owners[row_starts]
        distances = np.full(candidates.addresses.shape, np.inf, dtype=np.float32)
        for number, own in enumerate(candidates.addresses):
            which, _ = gathered(row_starts, len(owners), np.flatnonzero(np.isin(rows, own)))
            found, held = self.of_queries(np.array([number])).measure(vectors[which], owners[which])
            if len(held):
                at = np.minimum(np.searchsorted(held, own), len(held) - 1)
                distances[number] = np.where(held[at] == own, found[0, at], np.inf)
        return Neighbors.nearest(distances, candidates.addresses, k)

    def measure(self, vectors: Vectors, owners: Addresses) -> tuple[Floats, Addresses]:
        """The distances of all queries to some rows, and their addresses. A vector that has no distance to anything is
        left out, and a row that has no other."""
        valid = self.exact.metric.indexable(vectors)
        if not valid.all():
            vectors, owners = vectors[valid], owners[valid]
        starts = starts_of(owners)
        return row_distances(self.exact.metric, self.queries, self.starts, vectors, starts), owners[starts]


def estimated(found: Neighbors, starts: Positions, k: int) -> Neighbors:
    """The k best rows of each query by the rows that its vectors found, which may find a row several times."""
    vector, place = np.nonzero(found.found)
    addresses, distances = found.addresses[vector, place], found.distances[vector, place]
    last = np.where(found.found, found.distances, -np.inf).max(axis=1, initial=-np.inf)
    last = np.where(np.isfinite(last), last, np.float32(0))
    # The nearest vector of a row for each vector of a query: rows of `found` are ascending.
    order = np.lexsort((place, addresses, vector))
    order = order[_changes(vector[order], addresses[order])]
    query = np.searchsorted(starts, vector[order], side="right") - 1
    without = np.add.reduceat(last, starts)
    return _best_sums(query, addresses[order], (distances - last[vector])[order], without, k)


def _best_sums(query: Positions, addresses: Addresses, gains: Floats, without: Floats, k: int) -> Neighbors:
    """The k best rows of each query, by what its vectors gain from a row; `without` is the distance without a gain."""
    order = np.lexsort((addresses, query))
    query, addresses, gains = query[order], addresses[order], gains[order]
    firsts = _changes(query, addresses)
    if not len(firsts):
        return Neighbors.none(len(without))
    query, addresses = query[firsts], addresses[firsts]
    scores = np.add.reduceat(gains, firsts) + without[query]
    order = np.lexsort((addresses, scores, query))
    query, addresses, scores = query[order], addresses[order], scores[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    kept = rank < k
    shape = len(without), int(rank[kept].max()) + 1
    result = Neighbors(np.full(shape, np.inf, dtype=np.float32), np.full(shape, NOWHERE))
    result.distances[query[kept], rank[kept]] = scores[kept]
    result.addresses[query[kept], rank[kept]] = addresses[kept]
    return result


def _changes(first: Positions, second: Addresses) -> Positions:
    """The positions at which either of two columns has another value than before."""
    changed = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return np.flatnonzero(np.append(True, changed)) if len(first) else np.empty(0, dtype=np.int64)
