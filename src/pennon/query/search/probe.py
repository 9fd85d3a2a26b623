"""The indexed part of a search: the partitions nearest to each query, each visited once for all queries of a block."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.threads import one_thread
from pennon.index.vector.search.partition_search import Found
from pennon.index.vector.vectors import Mask, Positions, Vectors
from pennon.query.search.joined import Unit, units_of
from pennon.query.search.live_rows import PartitionRows, flagged_of
from pennon.query.search.neighbors import NOWHERE, Neighbors
from pennon.query.search.prefilter import Selection
from pennon.query.search.source import Loaded, Source

# Queries that one thread compares with the centroids at a time.
RANKED_QUERIES = 256
# Up to this many addresses are looked up one by one.
FEW_FOUND = 64
# Partitions scored together, which the cache need not hold.
LOADED_BYTES = 256 << 20
# Partitions of the first step under a filter, in units of those that hold enough selected rows on average.
FIRST_STEP = 1.1
# Twice the root of the partitions is probed by default, within these bounds: at 220 partitions of real vectors that
# finds 97 of 100 neighbors, 20 of them 96, less what codes lose.
PROBED_BY_DEFAULT = 20, 100


@dataclass(frozen=True)
class Probing:
    """How partitions are searched: the `least` nearest (None: the default of a segment), then more, up to `most`, while
    there are fewer than k answers or too few of the selected rows were compared; `wanted` candidates."""

    k: int
    wanted: int
    least: int | None
    most: int | None
    ef: int | None
    selection: Selection | None
    threads: int

    def least_of(self, segment: Unit) -> int:
        """Partitions that are probed in any case."""
        partitions = segment.opened.files.ivf.num_partitions
        return min(self.least or default_probes(partitions), self.most or partitions, partitions)

    def first_of(self, segment: Unit) -> int:
        """Partitions of the first step. Where a filter selects few rows, the nearest of those are in more partitions;
        how many more depends on where they are, which only probing shows."""
        least, partitions = self.least_of(segment), segment.opened.files.ivf.num_partitions
        if self.selection is None or not self.goes_on(least):
            return least
        spread = FIRST_STEP * least / math.sqrt(max(self.share_of(segment), 1e-9))
        return min(math.ceil(spread), self.most or partitions, partitions)

    def rows_of(self, segment: Unit) -> float:
        """Selected rows of a segment that are compared with a query; 0 without a filter. An index of nothing but these
        rows would have fewer partitions, by the root of their share, and the same number of them would be probed."""
        if self.selection is None or not self.goes_on(self.least_of(segment)):
            return 0.0
        average = segment.num_rows / max(1, segment.opened.files.ivf.num_partitions)
        return self.least_of(segment) * average * math.sqrt(self.share_of(segment))

    def share_of(self, segment: Unit) -> float:
        """The share of its rows that the filter selects."""
        assert self.selection is not None
        return min(1.0, segment.flags(self.selection)[1] / max(1, segment.num_rows))

    def goes_on(self, probed: int) -> bool:
        return self.most is None or probed < self.most


def default_probes(partitions: int) -> int:
    """Partitions of a segment that are probed if no number is given."""
    least, most = PROBED_BY_DEFAULT
    return max(least, min(most, round(2 * math.sqrt(partitions))))


@dataclass
class SegmentTrace:
    """What a search did in one segment; rows and partitions count once per block of queries."""

    partitions: int = 0
    partitions_loaded: int = 0
    rows: int = 0
    rows_scored: int = 0


def nearest_indexed(source: Source, queries: Vectors, how: Probing, traces: Sequence[SegmentTrace]) -> Neighbors:
    """The nearest rows in the probed partitions of all segments, by the estimates of the index."""
    own = dict(zip(source.segments, traces, strict=True))
    segments = [SegmentSearch(unit, queries, how, [own[each] for each in unit.members]) for unit in units_of(source)]
    # Segments that were built alike share their model: partitions are ranked once for all of them.
    ranked: dict[Hashable, Positions] | None = {} if len(segments) > 1 else None
    best = Neighbors.merged([segment.first(ranked) for segment in segments], how.wanted)
    while True:
        short = best.counts < how.k
        further = [found for segment in segments if (found := segment.further(short)) is not None]
        if not further:
            return best
        for asking, found in further:
            best = best.replaced(asking, Neighbors.merged([best.of(asking), found], how.wanted))


def completed(
    source: Source, queries: Vectors, found: Neighbors, how: Probing, traces: Sequence[SegmentTrace]
) -> Neighbors:
    """What others found in the partitions of the first step, with more where that is too little."""
    goes_on = any(how.goes_on(how.first_of(segment)) for segment in source.segments)
    short = np.flatnonzero(found.counts < how.k) if goes_on else ()
    if not len(short):
        return found
    return found.replaced(np.asarray(short), nearest_indexed(source, queries[short], how, traces))


class SegmentSearch:
    """A block of queries on its way through a segment. Every step goes on to partitions that are farther away, for the
    queries that need them; those that stopped stay behind.

    Under a filter, a query goes on until as many selected rows were compared with it as in an index of these rows alone
    (`Probing.rows_of`).
    """

    def __init__(self, segment: Unit, queries: Vectors, how: Probing, traces: Sequence[SegmentTrace]) -> None:
        """There is a trace for each member of the segment."""
        self._segment, self._opened, self._how, self._traces = segment, segment.opened, how, traces
        self._prepared, self._asked = segment.opened.ask(queries)
        self._flags = None if how.selection is None else segment.flags(how.selection)[0]
        self._active = np.arange(len(queries))
        self._first = np.empty((len(queries), 0), dtype=np.int64)
        self._rest: Positions | None = None
        self._probed = 0
        self.target = how.rows_of(segment)
        self._scored = np.zeros(len(queries), dtype=np.int64)
        self._counts = np.zeros(segment.opened.files.ivf.num_partitions, dtype=np.int64)

    def first(self, ranked: dict[Hashable, Positions] | None) -> Neighbors:
        self._probed = self._how.first_of(self._segment)
        if ranked is None:
            self._first = self.rank(self._probed)
        else:
            key = self._opened.files.ivf.fingerprint, self._probed
            if key not in ranked:
                ranked[key] = self.rank(self._probed)
            self._first = ranked[key]
        return self._step(self._first)

    def further(self, short: Mask) -> tuple[Positions, Neighbors] | None:
        """The next partitions for the queries that need them: those that have too few answers, and those that were
        compared with too few selected rows. None when there are none, or no partitions."""
        partitions = self._opened.files.ivf.num_partitions
        most = partitions if self._how.most is None else min(partitions, self._how.most)
        kept = np.flatnonzero(short[self._active] | (self._scored < self.target))
        if self._probed >= most or not len(kept):
            return None
        self._active, self._scored = self._active[kept], self._scored[kept]
        self._prepared, self._asked = self._prepared[kept], self._asked[kept]
        rest = self._ranked_rest(kept) if self._rest is None else self._rest[kept]
        count = min(self._step_size(), most - self._probed)
        self._rest = rest[:, count:]
        self._probed += count
        return self._active, self._step(rest[:, :count])

    def _step(self, probes: Positions) -> Neighbors:
        found = self.probe(probes)
        if self.target:
            self._scored += self._counts[probes].sum(axis=1)
        return found

    def _step_size(self) -> int:
        """Twice as many as before, or as few as the queries that need more seem to need."""
        if not self.target:
            return self._probed
        missing = np.maximum(self.target - self._scored, 0) / np.maximum(self._scored, 1) * self._probed
        return int(min(max(missing.mean(), self._probed / 2), 4.0 * self._probed)) + 1

    def _ranked_rest(self, kept: Positions) -> Positions:
        """All partitions but those of the first step, which are given by number: equal centroids may change ranks."""
        order = self.rank(self._opened.files.ivf.num_partitions)
        seen = np.zeros(order.shape, dtype=np.bool_)
        np.put_along_axis(seen, self._first[kept], True, axis=1)
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
        lengths = self._segment.lengths
        numbers = np.sort(probes[0]) if len(probes) == 1 else np.flatnonzero(np.bincount(probes[probes >= 0]))
        numbers = numbers[np.searchsorted(numbers, 0) :]
        if within is not None:
            numbers = numbers[(numbers >= within.start) & (numbers < within.stop)]
        parts = [self._search(load, probes) for load in self._loads(numbers[lengths[numbers] > 0])]
        found = Neighbors.merged(parts or [Neighbors.none(len(probes))], self._how.wanted)
        scale = self._opened.scale
        return found if scale == 1 else Neighbors(found.distances * np.float32(scale), found.addresses)

    def _loads(self, numbers: Positions) -> list[list[int]]:
        """As many partitions at a time as may be in memory at once."""
        sizes = np.cumsum(self._segment.lengths[numbers] * self._opened.row_bytes)
        if not len(sizes) or sizes[-1] <= LOADED_BYTES:
            return [numbers.tolist()] if len(sizes) else []
        cuts = np.flatnonzero(np.diff(sizes // LOADED_BYTES)) + 1
        return [load.tolist() for load in np.split(numbers, cuts)]

    def _search(self, numbers: list[int], probes: Positions) -> Neighbors:
        how, loaded = self._how, self._segment.load(numbers)
        partitions, rows = loaded.partitions, loaded.rows
        allowed, kept = self._allowed(rows)
        self._counts[numbers] = kept
        count = int(kept.sum())
        self._record(numbers, loaded, allowed, count)
        filled = partitions
        if not kept.all():
            filled = {
                number: part for (number, part), own in zip(partitions.items(), kept.tolist(), strict=True) if own
            }
        if not filled:
            return Neighbors.none(len(probes))
        asking = _asking(probes, list(filled))
        found = self._opened.nearest(
            filled,
            self._asked[asking],
            probes[asking],
            min(how.wanted, count),
            ef=how.ef,
            allowed=allowed,
            threads=how.threads,
        )
        nearest = Neighbors.nearest(found.distances, _addresses(found, rows), how.wanted)
        return nearest if len(asking) == len(probes) else Neighbors.none(len(probes)).replaced(asking, nearest)

    def _record(self, numbers: list[int], loaded: Loaded, allowed: Mapping[int, Mask], count: int) -> None:
        lengths = np.array([member.lengths[numbers] for member in self._segment.members])
        scored = lengths.sum(axis=1)
        if len(self._traces) == 1:
            scored = np.array([count])
        elif allowed:
            parts = [allowed.get(number) for number in numbers]
            masks = [
                np.ones(int(all_.sum()), dtype=np.bool_) if mask is None else mask
                for all_, mask in zip(lengths.T, parts, strict=True)
            ]
            sums = np.concatenate([[0], np.cumsum(np.concatenate(masks))])
            ends = np.cumsum(lengths.T.reshape(-1))
            scored = np.diff(sums[np.append(0, ends)]).reshape(lengths.T.shape).sum(axis=0)
        for trace, own, read, kept in zip(self._traces, lengths, loaded.fetched, scored.tolist(), strict=True):
            trace.partitions_loaded += read
            trace.partitions += int(np.count_nonzero(own))
            trace.rows += int(own.sum())
            trace.rows_scored += kept

    def _allowed(self, rows: Mapping[int, PartitionRows]) -> tuple[dict[int, Mask], Positions]:
        """The rows of some partitions that may be answered, where these are not all, and how many they are."""
        if self._flags is None:
            allowed = {number: part.allowed for number, part in rows.items() if part.allowed is not None}
            lengths = self._segment.lengths[list(rows)]
            for place, number in enumerate(rows):
                if number in allowed:
                    lengths[place] = np.count_nonzero(allowed[number])
            return allowed, lengths
        mask, counts = flagged_of(list(rows.values()), self._flags)
        ends = np.cumsum(self._segment.lengths[list(rows)]).tolist()
        return {number: mask[a:b] for number, a, b in zip(rows, [0, *ends], ends, strict=False)}, counts


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
