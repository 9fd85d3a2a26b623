"""Many matches in one index: each distinct term is looked up once, and kernels go from query to query by themselves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pennon.index.arrays import Flags, Float32s, Int64s
from pennon.index.inverted.analysis.analyzer import analyze_all
from pennon.index.inverted.query import Match, Operator
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.batch_kernels import search_each
from pennon.index.inverted.search.cursor_kernels import COLUMNS, OFFERED, READ, SKIPPED
from pennon.index.inverted.search.hits import Hits
from pennon.index.inverted.search.leaves import DOC_BITS, Keep, TextIndex, Trace
from pennon.index.inverted.segment import Partition, PreparedList
from pennon.index.threads import cores

# Queries that a thread takes at once, and results that are kept at once.
_AT_ONCE = 32
_MOST_RESULTS = 1 << 22
_ALL = np.empty(0, dtype=np.bool_)


# Lists, weights, ends of queries, which of them demand every term, norms, allowed documents.
_Given = tuple[Int64s, Float32s, Int64s, Flags, Float32s, Flags]


@dataclass(frozen=True, eq=False)
class _Terms:
    """The distinct terms of each query, one after another: query, number of the term, how often it is asked for."""

    texts: list[str]
    queries: Int64s
    numbers: Int64s
    counts: Float32s

    @classmethod
    def of(cls, index: TextIndex, queries: Sequence[Match]) -> _Terms:
        known: dict[str, int] = {}
        analyzed = analyze_all(index.params, [query.text for query in queries])
        numbers = [known.setdefault(term.text, len(known)) for terms in analyzed for term in terms]
        asking = np.repeat(np.arange(len(queries)), [len(terms) for terms in analyzed])
        pairs, counts = np.unique(asking * len(known) + np.array(numbers, dtype=np.int64), return_counts=True)
        asking, asked = np.divmod(pairs, max(len(known), 1))
        return cls(list(known), asking, asked, counts.astype(np.float32))


@dataclass(frozen=True, eq=False)
class _Lists:
    """The posting lists of the terms that a partition has, a row for each term; the size of the others is 0."""

    partition: Partition
    rows: Int64s
    sizes: Int64s
    held: list[PreparedList]  # what the addresses in `rows` point to
    nbytes: int

    @classmethod
    def of(cls, partition: Partition, terms: list[str], average: np.float32, most_bytes: int) -> _Lists:
        """Without all lists, once those that are loaded take more than `most_bytes`."""
        rows, sizes = np.zeros((len(terms), COLUMNS), dtype=np.int64), np.zeros(len(terms), dtype=np.int64)
        held: list[PreparedList] = []
        nbytes = 0
        for number, term in enumerate(terms):
            for found in partition.find_terms([term]).values():
                held.append(found.prepare(average))
                rows[number], sizes[number] = held[-1].row, found.size
                nbytes += found.nbytes
            if nbytes > most_bytes:
                break
        return cls(partition, rows, sizes, held, nbytes)


def match_all(
    index: TextIndex, queries: Sequence[Match], k: int, keep: Keep, trace: Trace, most_bytes: int
) -> list[Hits]:
    """The k best rows of each match, in no order, as `TextIndex.match` finds them. None of them may be fuzzy. Queries
    whose posting lists take more than `most_bytes` together are not answered together."""
    if not queries:
        return []
    room = max(1, min(k, index.statistics.num_docs))
    at_once = max(1, _MOST_RESULTS // room)
    found: list[Hits] = []
    for first in range(0, len(queries), at_once):
        found += _match(index, queries[first : first + at_once], room, keep, trace, most_bytes)
    return found


def _match(
    index: TextIndex, queries: Sequence[Match], room: int, keep: Keep, trace: Trace, most_bytes: int
) -> list[Hits]:
    terms = _Terms.of(index, queries)
    parts: list[_Lists] = []
    left = most_bytes if len(queries) > 1 else sys.maxsize
    for partition in index.partitions:
        parts.append(_Lists.of(partition, terms.texts, index.statistics.average, left))
        left -= parts[-1].nbytes
        if left < 0:
            del parts
            half = len(queries) // 2
            halves = queries[:half], queries[half:]
            return [hits for some in halves for hits in _match(index, some, room, keep, trace, most_bytes)]
    frequencies: Int64s = sum((part.sizes for part in parts), np.zeros(len(terms.texts), dtype=np.int64))
    trace.frequencies |= dict(zip(terms.texts, frequencies.tolist(), strict=True))
    weights = np.array([index.statistics.weight(count) if count else 0 for count in frequencies.tolist()], np.float32)
    every = np.array([query.operator is Operator.AND for query in queries])
    scores = np.full((len(queries), room), -np.inf, dtype=np.float32)
    keys = np.full((len(queries), room), np.iinfo(np.int64).max, dtype=np.int64)
    counters = np.zeros((len(queries), 3), dtype=np.int64)
    counters[:, OFFERED] = -1
    row_ids = np.zeros((len(queries), room), dtype=np.uint64)
    best = scores, keys, counters
    with ThreadPoolExecutor(cores()) as pool:
        for number, part in enumerate(parts):
            given = _given(part, index.statistics, terms, weights, every, keep)

            def search(low: int, given: _Given = given, key: int = number) -> int:
                return int(search_each(*given, key << DOC_BITS, *best, low, min(low + _AT_ONCE, len(queries))))

            if any(damaged >= 0 for damaged in pool.map(search, range(0, len(queries), _AT_ONCE))):
                raise part.partition.damaged()
    trace.blocks_read += int(counters[:, READ].sum())
    trace.blocks_skipped += int(counters[:, SKIPPED].sum())
    present = scores > -np.inf
    numbers, docs = keys >> DOC_BITS, keys & ((1 << DOC_BITS) - 1)
    for number, part in enumerate(parts):
        here = present & (numbers == number)
        row_ids[here] = part.partition.docs.docs.row_ids[docs[here]]
    return [
        Hits(ids[kept], found[kept]).scaled(query.boost)
        for query, ids, found, kept in zip(queries, row_ids, scores, present, strict=True)
    ]


def _given(part: _Lists, statistics: Statistics, terms: _Terms, weights: Float32s, every: Flags, keep: Keep) -> _Given:
    """What kernels take of a partition; of each query the list of the rarest term comes first."""
    asked = part.sizes[terms.numbers] > 0
    # A query that demands every term finds nothing where one is missing.
    lacking = np.bincount(terms.queries[~asked], minlength=len(every)) > 0
    asked &= ~(lacking & every)[terms.queries]
    queries, numbers, counts = terms.queries[asked], terms.numbers[asked], terms.counts[asked]
    order = np.lexsort((part.sizes[numbers], queries))
    ends = np.concatenate([[0], np.cumsum(np.bincount(queries, minlength=len(every)))])
    partition = part.partition
    alive, kept = partition.docs.alive, keep(partition)
    allowed = alive if kept is None else kept if alive is None else alive & kept
    return (
        np.ascontiguousarray(part.rows[numbers[order]]),
        weights[numbers[order]] * counts[order],
        ends.astype(np.int64),
        every,
        partition.norms(statistics),
        _ALL if allowed is None else np.ascontiguousarray(allowed),
    )
