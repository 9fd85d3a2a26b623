"""Searches for another shape of answer than the k nearest rows: within bounds of the distance, all rows within them,
or the nearest row of each value of a column.

An index finds the nearest rows only. Those that are out of bounds or repeat a value leave too few of them, so it is
asked for more and more; beyond MOST_GROWTH times the number, and where no index is used, every row is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.rows import ADDRESS
from pennon.format.snapshot import Snapshot
from pennon.index.vector.several import starts_of
from pennon.index.vector.vectors import Floats, Mask, Vectors
from pennon.query.scan.execute import filter_errors
from pennon.query.search.exact import ExactSearch
from pennon.query.search.neighbors import NOWHERE, Neighbors
from pennon.query.search.prefilter import ScanPart
from pennon.query.search.request import Question, SearchRequest
from pennon.query.search.result_table import fetch_columns
from pennon.query.search.several import SeveralSearch

# How often the rows asked for are taken as candidates: at first where values may repeat, in each step, and at most.
FIRST_GROWTH, STEP, MOST_GROWTH = 4, 4, 64
# Queries whose distances to a batch of rows are held at once.
QUERIES_AT_ONCE = 64

Groups = npt.NDArray[np.int64]


def needs_more(request: SearchRequest) -> bool:
    """Whether the nearest rows need not be the answer, even if there are enough of them."""
    return request.k is None or request.lower is not None or request.distinct_by is not None


def from_nearest(
    question: Question,
    snapshot: Snapshot,
    nearest: Callable[[Question], Neighbors],
    measured: Callable[[Question], Neighbors],
) -> Neighbors:
    """The answer from the nearest rows of growing numbers, or of every row (`measured`) for the queries that have still
    too few."""
    request, reach = question.request, question.request.reach
    growth = FIRST_GROWTH if request.distinct_by is not None else 1
    best, active = Neighbors.none(question.count), np.arange(question.count)
    while len(active):
        asked = replace(question.of_queries(active), growth=growth)
        if growth > MOST_GROWTH:
            return best.replaced(active, measured(asked))
        found = nearest(asked)
        kept = Neighbors.merged([shaped(found, request, snapshot)], reach)
        best = best.replaced(active, kept)
        last = found.distances[:, -1] if found.distances.shape[1] else np.empty(0, dtype=np.float32)
        more = (found.counts >= asked.k) & (kept.counts < reach)
        if request.upper is not None and len(last):
            more &= last < np.float32(request.upper)
        active = active[more]
        growth *= STEP
    return best


def shaped(found: Neighbors, request: SearchRequest, snapshot: Snapshot) -> Neighbors:
    """Only neighbors within the bounds, and of each value the nearest."""
    found = found.within(request.lower, request.upper)
    if request.distinct_by is None or not found.found.any():
        return found
    values = fetch_columns(snapshot, found.addresses[found.found], [request.distinct_by]).column(0)
    groups = np.full(found.addresses.shape, -1, dtype=np.int64)
    groups[found.found] = group_numbers(values)
    return first_of_groups(found, groups)


def first_of_groups(found: Neighbors, groups: Groups) -> Neighbors:
    """The first neighbor of each group, query by query."""
    kept = np.zeros(groups.shape, dtype=np.bool_)
    for row, numbers in zip(kept, groups, strict=True):
        row[np.unique(numbers, return_index=True)[1]] = True
    return found.only(kept & found.found)


def group_numbers(values: pa.ChunkedArray) -> Groups:
    """A number for each value, NULL included."""
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    [chunk] = chunks or [pa.array([], pa.string()).dictionary_encode()]
    return chunk.indices.to_numpy(zero_copy_only=False).astype(np.int64)


@dataclass(frozen=True, eq=False)
class MeasuredShapes:
    """Answers from the distances of every row of some scans."""

    exact: ExactSearch
    parts: Sequence[ScanPart]
    request: SearchRequest

    def answer(self, question: Question) -> tuple[Neighbors, int]:
        """The neighbors of each query, and how many rows were measured."""
        groups = None if self.request.distinct_by is None else self._groups(self.request.distinct_by)
        best, rows = Neighbors.none(question.count), 0
        blocks = np.split(np.arange(question.count), range(QUERIES_AT_ONCE, question.count, QUERIES_AT_ONCE))
        asked = [question.of_queries(block) for block in blocks if len(block)]
        found: list[Neighbors] = []
        for vectors, owners in self.exact.batches(self.parts):
            rows += len(owners) if question.starts is None else len(starts_of(owners))
            near = [self._near(block, vectors, owners, groups) for block in asked]
            found.append(Neighbors.stacked(near or [Neighbors.none(0)]))
            if self.request.k is not None or groups is not None:
                best, found = self._merged([best, *found], groups), []
        return self._merged([best, *found], groups) if found else best, rows

    def _near(self, asked: Question, vectors: Vectors, owners: Addresses, groups: _GroupsByAddress | None) -> Neighbors:
        if asked.starts is None:
            distances, addresses = self.exact.metric.distances(asked.queries, vectors), owners
        else:
            distances, addresses = SeveralSearch.of(self.exact, asked).measure(vectors, owners)
        out = _out_of_bounds(distances, self.request)
        distances[out] = np.inf
        width = int((~out).sum(axis=1).max(initial=0))
        if self.request.k is not None and groups is None:
            width = min(width, self.request.reach)
        found = Neighbors.nearest(distances, np.broadcast_to(addresses, distances.shape), max(width, 1))
        return found if groups is None else self._merged([found], groups)

    def _merged(self, parts: Sequence[Neighbors], groups: _GroupsByAddress | None) -> Neighbors:
        width = sum(part.distances.shape[1] for part in parts)
        found = Neighbors.merged(parts, width if self.request.k is None or groups is not None else self.request.reach)
        if groups is not None and found.addresses.size:
            found = first_of_groups(found, groups.of(found.addresses))
        return found if self.request.k is None else Neighbors.merged([found], self.request.reach)

    def _groups(self, column: str) -> _GroupsByAddress:
        addresses: list[Addresses] = []
        values: list[pa.Array] = []
        for part in self.parts:
            scanner = self.exact.snapshot.scanner(
                part.rows, columns=[column], filter=part.filter, with_row_address=True
            )
            with filter_errors(part.filter):
                for batch in scanner.to_batches():
                    addresses.append(batch.column(ADDRESS).to_numpy())
                    values.append(batch.column(0))
        if not values:
            return _GroupsByAddress(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64))
        joined = np.concatenate(addresses)
        order = np.argsort(joined, kind="stable")
        return _GroupsByAddress(joined[order], group_numbers(pa.chunked_array(values))[order])


@dataclass(frozen=True, eq=False)
class _GroupsByAddress:
    addresses: Addresses
    groups: Groups

    def of(self, addresses: Addresses) -> Groups:
        """Of rows that are all known, or NOWHERE."""
        if not len(self.addresses):
            return np.full(addresses.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        return np.where(addresses == NOWHERE, -1, self.groups[at])


def _out_of_bounds(distances: Floats, request: SearchRequest) -> Mask:
    out: npt.NDArray[Any] = np.isnan(distances) | np.isinf(distances)
    if request.lower is not None:
        out |= distances < np.float32(request.lower)
    if request.upper is not None:
        out |= distances >= np.float32(request.upper)
    return out
