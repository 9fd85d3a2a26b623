"""The nearest rows of many partitions, for one query or for many.

If few queries probe a partition, its codes are scanned query by query. Otherwise a partition is compared with all its
queries at once, by matrix products: worker threads take partitions from one queue, and their results are merged at the
end. Codes that are read by tables (`lists_searchable`) are searched in one call, several queries at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pennon.index.threads import one_thread
from pennon.index.vector.quantizers.base import Quantizer, Scorer
from pennon.index.vector.search.list_scanner import POSITION_BITS, POSITION_MASK
from pennon.index.vector.topk import Nearest
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors

# Distances of one product, and rows of a partition in it: bounds the memory in use.
DISTANCES_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class Found:
    """Per query the nearest rows, ascending by distance, then partition and position; if there are fewer, distances are
    infinite, partitions and positions -1."""

    distances: Floats
    partitions: Positions
    positions: Positions

    @classmethod
    def nearest(cls, distances: Floats, keys: Positions, k: int) -> Found:
        """The k nearest of candidates in any order; the key of a row is its partition << POSITION_BITS | position."""
        rows = np.arange(len(keys))[:, None]
        if distances.shape[1] > k:
            chosen = np.argpartition(distances, k - 1, axis=1)[:, :k]
            distances, keys = distances[rows, chosen], keys[rows, chosen]
        order = np.lexsort((keys, distances), axis=1)
        distances, keys = distances[rows, order], keys[rows, order]
        return cls(distances, keys >> POSITION_BITS, np.where(keys < 0, -1, keys & POSITION_MASK))

    @classmethod
    def merged(cls, parts: Sequence[Found], k: int) -> Found:
        """The k nearest that several searches of the same queries in different partitions found."""
        distances = np.concatenate([part.distances for part in parts], axis=1)
        return cls.nearest(distances, np.concatenate([part.keys for part in parts], axis=1), k)

    @property
    def keys(self) -> Positions:
        return self.partitions << POSITION_BITS | (self.positions & POSITION_MASK)


def search_partitions(
    quantizer: Quantizer,
    scorers: Mapping[int, Scorer],
    queries: Vectors,
    probes: Positions,
    k: int,
    *,
    allowed: Mapping[int, Mask] | None = None,
    threads: int = 1,
) -> Found:
    """The k nearest rows of each query in the partitions it probes; partitions without a scorer are skipped.

    Queries are prepared by `Quantizer.prepare`; `probes` has a row of partition numbers per query, -1 for none. Only
    rows of a partition's mask in `allowed` count; without a mask, all rows. Callers that cannot hold all partitions
    search them in groups and merge the results.
    """
    search = _Search(quantizer, scorers, queries, k, allowed or {})
    with one_thread():
        if len(queries) == 1:
            return search.scanned(probes)
        visits = search.visits(probes)
        if sum(len(queries) for _, queries in visits) <= quantizer.scanned_queries * len(visits):
            return search.scanned(probes)
        if quantizer.lists_searchable:
            return search.searched_in_lists(probes, [number for number, _ in visits], threads)
        return search.compared(visits, threads)


# A partition and the queries that probe it.
Visit = tuple[int, Positions]


@dataclass(frozen=True, eq=False)
class _Search:
    quantizer: Quantizer
    scorers: Mapping[int, Scorer]
    queries: Vectors
    k: int
    allowed: Mapping[int, Mask]

    def visits(self, probes: Positions) -> list[Visit]:
        """The visits of partitions that have rows."""
        visits = ((number, places // probes.shape[1]) for number, places in _by_partition(probes))
        return [(number, queries) for number, queries in visits if self._filled(number)]

    def scanned(self, probes: Positions) -> Found:
        """Scan query by query. Python threads would only block each other: no call is long enough."""
        shape = len(probes), self.k
        distances, keys = np.full(shape, np.inf, dtype=np.float32), np.full(shape, -1, dtype=np.int64)
        for query, probed in enumerate(probes.tolist()):
            numbers = [number for number in probed if self._filled(number)]
            if numbers:
                chosen, mask = [self.scorers[number] for number in numbers], self._mask(numbers)
                found = self.quantizer.scan(self.queries[query : query + 1], chosen, self.k, mask)
                distances[query], keys[query] = found[0], _in_partitions(numbers, found[1])
        return Found.nearest(distances, keys, self.k)

    def searched_in_lists(self, probes: Positions, numbers: Sequence[int], threads: int) -> Found:
        """Search in one call, in its own threads."""
        places = np.full(max(int(probes.max()), numbers[-1]) + 2, -1, dtype=np.int64)
        places[numbers] = np.arange(len(numbers))
        chosen = [self.scorers[number] for number in numbers]
        mask = self._mask(numbers)
        distances, keys = self.quantizer.search_lists(chosen, self.queries, places[probes], self.k, mask, threads)
        return Found.nearest(distances, _in_partitions(numbers, keys), self.k)

    def compared(self, visits: Sequence[Visit], threads: int) -> Found:
        """Compare partition by partition, the most expensive ones first."""
        jobs = deque(sorted(visits, key=lambda visit: len(visit[1]) * len(self.scorers[visit[0]]), reverse=True))
        threads = max(1, min(threads, len(jobs)))
        if threads == 1:
            found = [self._process_queue(jobs)]
        else:
            with ThreadPoolExecutor(threads) as workers:
                found = list(workers.map(self._process_queue, [jobs] * threads))
        distances, keys = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
        return self._measured(Found.nearest(distances, keys, self.k))

    def _process_queue(self, jobs: deque[Visit]) -> tuple[Floats, Positions]:
        nearest = Nearest(len(self.queries), self.k)
        with one_thread():
            while True:
                try:
                    number, queries = jobs.popleft()
                except IndexError:  # another worker took the last one
                    return nearest.ascending()
                self._compare(number, queries, nearest)

    def _compare(self, number: int, queries: Positions, nearest: Nearest) -> None:
        scorer, mask = self.scorers[number], self.allowed.get(number)
        rows = np.arange(len(scorer)) if mask is None else np.flatnonzero(mask)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            part = scorer if len(some) == len(scorer) else scorer.take(some)
            keys, step = some + (number << POSITION_BITS), max(1, DISTANCES_AT_ONCE // len(some))
            for first in range(0, len(queries), step):
                asking = queries[first : first + step]
                nearest.offer(asking, part.distances(self.queries[asking]), keys)

    def _measured(self, found: Found) -> Found:
        """The same rows with distances computed exactly, if products are less exact."""
        distances = found.distances.copy()
        for number, places in _by_partition(found.partitions):
            if number < 0:
                continue
            queries, columns = np.divmod(places, found.partitions.shape[1])
            exact = self.scorers[number].measure(self.queries, queries, found.positions[queries, columns])
            if exact is None:
                return found
            distances[queries, columns] = exact
        return Found.nearest(distances, found.keys, self.k)

    def _filled(self, number: int) -> bool:
        scorer = self.scorers.get(number)
        return scorer is not None and len(scorer) > 0

    def _mask(self, numbers: Sequence[int]) -> Mask | None:
        """The concatenated mask of the rows of several partitions."""
        if not any(number in self.allowed for number in numbers):
            return None
        masks = ((self.allowed.get(number), len(self.scorers[number])) for number in numbers)
        return np.concatenate([np.ones(rows, dtype=np.bool_) if mask is None else mask for mask, rows in masks])


def _in_partitions(numbers: Sequence[int], keys: Positions) -> Positions:
    """Keys with partition numbers instead of numbers of lists; -1 stays -1."""
    return np.array([*numbers, -1])[keys >> POSITION_BITS] << POSITION_BITS | (keys & POSITION_MASK)


def _by_partition(numbers: Positions) -> Iterator[tuple[int, Positions]]:
    """Each distinct partition number in a matrix, and its positions."""
    places = np.argsort(numbers, axis=None, kind="stable")
    ordered = numbers.reshape(-1)[places]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2)).tolist()
    for start, stop in pairwise([*starts, len(ordered)]):
        yield int(ordered[start]), places[start:stop]
