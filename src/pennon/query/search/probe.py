"""The indexed part of a search: the partitions nearest to each query, each visited once for all queries of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.threads import one_thread
from pennon.index.vector.search.partition_search import Found
from pennon.index.vector.vectors import Positions, Vectors
from pennon.query.catalog import attributing_errors
from pennon.query.search.live_rows import PartitionRows
from pennon.query.search.neighbors import NOWHERE, Neighbors
from pennon.query.search.source import SearchSegment, Source

# Queries that one thread compares with the centroids at a time.
RANKED_QUERIES = 256
# Up to this many addresses are looked up one by one.
FEW_FOUND = 64
# Partitions scored together, which the cache need not hold.
LOADED_BYTES = 256 << 20


@dataclass(frozen=True)
class Probing:
    """How partitions are searched: the `least` nearest, and up to `most` while there are fewer than k answers; `wanted`
    candidates, and only chosen (ascending) addresses."""

    k: int
    wanted: int
    least: int
    most: int | None
    ef: int | None
    chosen: Addresses | None
    threads: int


@dataclass
class SegmentTrace:
    """What a search did in one segment; rows and partitions count once per block of queries."""

    partitions: int = 0
    partitions_loaded: int = 0
    rows: int = 0
    rows_scored: int = 0


def nearest_indexed(source: Source, queries: Vectors, how: Probing, traces: Sequence[SegmentTrace]) -> Neighbors:
    """The nearest rows in the probed partitions of all segments, by the estimates of the index."""
    segments = [
        _SegmentSearch(segment, queries, how, trace) for segment, trace in zip(source.segments, traces, strict=True)
    ]
    count = probed = how.least
    best = Neighbors.merged([segment.first(count) for segment in segments], how.wanted)
    active = np.arange(len(queries))
    while how.most is None or probed < how.most:
        count = count if how.most is None else min(count, how.most - probed)
        short = np.flatnonzero(best.counts[active] < how.k)
        further = [found for s in segments if (found := s.further(short, count)) is not None] if len(short) else []
        if not further:
            break
        active = active[short]
        best = best.replaced(active, Neighbors.merged([best.of(active), *further], how.wanted))
        probed += count
        count *= 2
    return best


def completed(
    source: Source, queries: Vectors, found: Neighbors, how: Probing, traces: Sequence[SegmentTrace]
) -> Neighbors:
    """What others found in the partitions of the first step, with more where that is too little."""
    goes_on = how.most is None or how.most > how.least
    short = np.flatnonzero(found.counts < how.k) if goes_on else ()
    if not len(short):
        return found
    return found.replaced(np.asarray(short), nearest_indexed(source, queries[short], how, traces))


def first_partitions(segment: SearchSegment, queries: Vectors, how: Probing) -> Positions:
    """Per query the partitions of the first step, nearest first."""
    return _SegmentSearch(segment, queries, how, SegmentTrace()).rank(how.least)


def nearest_within(
    segment: SearchSegment, queries: Vectors, probes: Positions, within: range, how: Probing
) -> Neighbors:
    """The nearest rows in probed partitions, as far as those are within a stretch of them."""
    return _SegmentSearch(segment, queries, how, SegmentTrace()).probe(probes, within)


class _SegmentSearch:
    """A block of queries on its way through a segment. Every step goes on to partitions that are farther away."""

    def __init__(self, segment: SearchSegment, queries: Vectors, how: Probing, trace: SegmentTrace) -> None:
        self._segment, self._opened, self._how, self._trace = segment, segment.opened, how, trace
        self._prepared, self._asked = segment.opened.ask(queries)
        self._probed = np.empty((len(queries), 0), dtype=np.int64)
        self._rest: Positions | None = None

    def first(self, nprobes: int) -> Neighbors:
        self._probed = self.rank(nprobes)
        return self.probe(self._probed)

    def further(self, kept: Positions, count: int) -> Neighbors | None:
        """The next partitions for some of the queries of the step before; None when none are left."""
        self._prepared, self._asked = self._prepared[kept], self._asked[kept]
        rest = self._ranked_rest(kept) if self._rest is None else self._rest[kept]
        self._rest = rest[:, count:]
        return self.probe(rest[:, :count]) if rest.shape[1] else None

    def _ranked_rest(self, kept: Positions) -> Positions:
        """All partitions but those of the first step, which are given by number: equal centroids may change ranks."""
        order = self.rank(self._opened.files.ivf.num_partitions)
        seen = np.zeros(order.shape, dtype=np.bool_)
        np.put_along_axis(seen, self._probed[kept], True, axis=1)
        return order[~np.take_along_axis(seen, order, axis=1)].reshape(len(kept), -1)

    def rank(self, count: int) -> Positions:
        ivf, queries = self._opened.files.ivf, self._prepared
        with one_thread():
            if len(queries) <= RANKED_QUERIES:
                return ivf.rank(queries, count)[0]
            cuts = np.split(queries, range(RANKED_QUERIES, len(queries), RANKED_QUERIES))
            with ThreadPoolExecutor(self._how.threads) as threads:
                return np.concatenate(list(threads.map(lambda some: ivf.rank(some, count)[0], cuts)))

    def probe(self, probes: Positions, within: range | None = None) -> Neighbors:
        lengths = self._opened.lengths
        numbers = np.sort(probes[0]) if len(probes) == 1 else np.flatnonzero(np.bincount(probes.reshape(-1)))
        if within is not None:
            numbers = numbers[(numbers >= within.start) & (numbers < within.stop)]
        parts = [self._search(load, probes) for load in self._loads(numbers[lengths[numbers] > 0])]
        found = Neighbors.merged(parts or [Neighbors.none(len(probes))], self._how.wanted)
        scale = self._opened.scale
        return found if scale == 1 else Neighbors(found.distances * np.float32(scale), found.addresses)

    def _loads(self, numbers: Positions) -> list[list[int]]:
        """As many partitions at a time as may be in memory at once."""
        sizes = np.cumsum(self._opened.lengths[numbers] * self._opened.row_bytes)
        if not len(sizes) or sizes[-1] <= LOADED_BYTES:
            return [numbers.tolist()] if len(sizes) else []
        cuts = np.flatnonzero(np.diff(sizes // LOADED_BYTES)) + 1
        return [load.tolist() for load in np.split(numbers, cuts)]

    def _search(self, numbers: list[int], probes: Positions) -> Neighbors:
        how, trace = self._how, self._trace
        with attributing_errors(self._segment.usable):
            loaded, fetched = self._opened.partitions(numbers)
            partitions = dict(zip(numbers, loaded, strict=True))
            rows = self._segment.rows(partitions)
        allowed = {number: mask for number in numbers if (mask := rows[number].among(how.chosen)) is not None}
        count = sum(map(len, loaded))
        trace.partitions += len(numbers)
        trace.partitions_loaded += fetched
        trace.rows += count
        trace.rows_scored += count - sum(len(mask) - int(np.count_nonzero(mask)) for mask in allowed.values())
        asking = _asking(probes, numbers)
        found = self._opened.nearest(
            partitions,
            self._asked[asking],
            probes[asking],
            min(how.wanted, count),
            ef=how.ef,
            allowed=allowed,
            threads=how.threads,
        )
        nearest = Neighbors.nearest(found.distances, _addresses(found, rows), how.wanted)
        return nearest if len(asking) == len(probes) else Neighbors.none(len(probes)).replaced(asking, nearest)


def _asking(probes: Positions, numbers: list[int]) -> Positions:
    """The queries that probe any of some partitions; others have all of theirs elsewhere, or empty ones."""
    return np.flatnonzero(np.isin(probes, numbers).any(axis=1)) if len(probes) > 1 else np.zeros(1, dtype=np.int64)


def _addresses(found: Found, rows: Mapping[int, PartitionRows]) -> Addresses:
    """Of rows that are known by partition and position."""
    numbers, positions = found.partitions.reshape(-1), found.positions.reshape(-1)
    addresses = np.full(len(numbers), NOWHERE)
    if len(numbers) <= FEW_FOUND:
        pairs = zip(numbers.tolist(), positions.tolist(), strict=True)
        addresses[:] = [rows[number].addresses[position] if number >= 0 else NOWHERE for number, position in pairs]
        return addresses.reshape(found.partitions.shape)
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order], prepend=-2)).tolist()
    for start, stop in pairwise([*bounds, len(order)]):
        some = order[start:stop]
        number = int(numbers[some[0]])
        if number >= 0:
            addresses[some] = rows[number].addresses[positions[some]]
    return addresses.reshape(found.partitions.shape)
