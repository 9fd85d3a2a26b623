"""Matches and phrases in one index: their terms, the posting lists of those, and the kernels that go through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.arrays import Flags, Float32s, Int64s, UInt32s
from pennon.index.inverted.analysis.analyzer import FUZZY_PARAMS, analyze
from pennon.index.inverted.query import CombinedFields, Match, Operator, Phrase
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.all_kernels import search_all
from pennon.index.inverted.search.any_kernels import search_any
from pennon.index.inverted.search.combined import Field, FieldTerm, RowLengths
from pennon.index.inverted.search.cursor_kernels import OFFERED, READ, SKIPPED
from pennon.index.inverted.search.hits import Hits, common
from pennon.index.inverted.segment import InvertedSegment, Partition, PreparedList, TermList

# Which documents of a partition may be found; None for all.
Keep = Callable[[Partition], Flags | None]

# Keys of documents: the number of the partition, then that of the document.
DOC_BITS = 32
_ALL = np.empty(0, dtype=np.bool_)
_NOWHERE = np.empty(0, dtype=np.int64)


@dataclass
class Trace:
    """What a search has looked at."""

    frequencies: dict[str, int] = field(default_factory=dict[str, int])  # documents of each term
    blocks_read: int = 0
    blocks_skipped: int = 0


@dataclass(frozen=True, eq=False)
class _Found:
    """A partition, and the posting lists of those of the terms that it has."""

    partition: Partition
    lists: Mapping[str, TermList]


class TextIndex:
    """All segments of an index on one column."""

    def __init__(self, segments: Sequence[InvertedSegment]) -> None:
        self.segments = segments
        self.partitions = [partition for segment in segments for partition in segment.partitions]
        self.params = segments[0].metadata.params
        self.statistics = Statistics.summed(segment.statistics for segment in segments)

    def match(self, query: Match, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits:
        """Rows that have any or all terms, the k best or all of them, in no order."""
        params = FUZZY_PARAMS if query.fuzziness else self.params
        asked = [term.text for term in analyze(params, query.text)]
        if not query.fuzziness:
            search = self._search(asked, k, keep, trace)
            found = search.of_all() if query.operator is Operator.AND else search.of_any()
            return found.scaled(query.boost)
        groups = expanded(asked, query, self.near)
        if query.operator is Operator.OR:
            spread = [near for group in groups for near in group]
            return self._search(spread, k, keep, trace).of_any().scaled(query.boost)
        # One term near to each of those asked for is enough.
        parts = [self._search(group, None, keep, trace).of_any() for group in groups]
        return common(parts).best(k).scaled(query.boost)

    def phrase(self, query: Phrase, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits:
        """Rows that have the terms at the distances of the query; `InvalidArgument` without positions."""
        found = analyze(self.params, query.text)
        places = [term.position for term in found]
        distances = np.diff(np.array(places[:1] + places, dtype=np.int64))
        search = self._search([term.text for term in found], k, keep, trace, with_positions=True)
        return search.of_all(distances, query.slop)

    def as_field(self, query: CombinedFields) -> Field:
        """The terms of a query as one of several columns has them, in documents that are not known to be dead."""
        return self.field_of(query, lambda partition: RowLengths.of(*_live(partition)), None)

    def field_of(self, query: CombinedFields, lengths: Callable[[Partition], RowLengths], keep: Keep | None) -> Field:
        """With the lengths of rows as the caller has them for a partition, and the documents that it may find."""
        asked = list(dict.fromkeys(term.text for term in analyze(self.params, query.text)))
        terms: dict[str, list[FieldTerm]] = {term: [] for term in asked}
        for part in self.partitions:
            kept = keep(part) if keep else None
            for term, found in part.find_terms(asked).items():
                lists = found.encoded.decode(part.num_docs)
                chosen = np.ones(len(lists.docs), dtype=np.bool_)
                for allowed in (part.docs.alive, kept):
                    chosen &= True if allowed is None else allowed[lists.docs]
                row_ids = part.docs.docs.row_ids[lists.docs[chosen]]
                terms[term].append(FieldTerm(found.size, row_ids, lists.freqs[chosen].astype(np.float32)))

        def tokens(rows: Addresses) -> UInt32s:
            return sum((lengths(part)(rows) for part in self.partitions), np.zeros(len(rows), dtype=np.uint32))

        return Field(self.statistics, {term: FieldTerm.joined(parts) for term, parts in terms.items()}, tokens)

    def near(self, term: str, query: Match, most: int) -> set[str]:
        """Terms within the fuzziness of a query, of each partition the first in byte order."""
        given = query.fuzziness, query.prefix_length, most
        return {near for part in self.partitions for near, _ in part.dictionary.find_near(term, *given)}

    def frequencies(self, terms: Iterable[str], with_positions: bool = False) -> dict[str, int]:
        """Documents that have each of the terms, dead ones included. Their posting lists are then in the cache."""
        distinct = list(dict.fromkeys(terms))
        parts = [part.find_terms(distinct, with_positions) for part in self.partitions]
        return {term: sum(found[term].size for found in parts if term in found) for term in distinct}

    def _search(
        self,
        terms: Sequence[str],
        k: int | None,
        keep: Keep | None,
        trace: Trace | None,
        with_positions: bool = False,
    ) -> _Search:
        distinct = list(dict.fromkeys(terms))
        parts = [_Found(part, part.find_terms(distinct, with_positions)) for part in self.partitions] if terms else []
        frequencies = {term: sum(part.lists[term].size for part in parts if term in part.lists) for term in distinct}
        trace = trace or Trace()
        trace.frequencies |= frequencies
        weights = {term: self.statistics.weight(count) for term, count in frequencies.items() if count}
        return _Search(self.statistics, terms, weights, parts, k, keep, trace)


def _live(partition: Partition) -> tuple[Addresses, UInt32s]:
    """Row ids and lengths of documents that are not known to be dead."""
    docs, alive = partition.docs.docs, partition.docs.alive
    return (docs.row_ids, docs.lengths) if alive is None else (docs.row_ids[alive], docs.lengths[alive])


def expanded(asked: Sequence[str], query: Match, near: Callable[[str, Match, int], set[str]]) -> list[list[str]]:
    """For each term the first terms in byte order that are near to it; the first terms that are asked for may use up
    all expansions."""
    left, groups = query.max_expansions, list[list[str]]()
    for term in asked:
        groups.append(sorted(near(term, query, left), key=str.encode)[:left] if left else [])
        left -= len(groups[-1])
    return groups


class _Search:
    """One pass over all partitions, with the best so far."""

    def __init__(
        self,
        statistics: Statistics,
        terms: Sequence[str],
        weights: Mapping[str, np.float32],
        parts: Sequence[_Found],
        k: int | None,
        keep: Keep | None,
        trace: Trace,
    ) -> None:
        self._statistics, self._terms, self._weights = statistics, terms, weights
        self._parts, self._keep, self._trace = parts, keep, trace
        self._counts = Counter(terms)
        self._held: list[PreparedList] = []
        most = sum(min(sum(found.size for found in part.lists.values()), part.partition.num_docs) for part in parts)
        room = most if k is None else min(k, most)
        self._scores = np.full(room, -np.inf, dtype=np.float32)
        self._keys = np.full(room, np.iinfo(np.int64).max, dtype=np.int64)
        self._counters = np.zeros(3, dtype=np.int64)
        self._counters[OFFERED] = 0 if k is None else -1

    def of_any(self) -> Hits:
        """Documents that have any of the terms."""
        for number, part in enumerate(self._parts):
            if part.lists and len(self._keys):
                self._check(part, search_any(*self._given(part), number << DOC_BITS, *self._best))
        return self._hits()

    def of_all(self, distances: Int64s = _NOWHERE, slop: int = 0) -> Hits:
        """Documents that have all of the terms, at given distances if there are several."""
        for number, part in enumerate(self._parts):
            if len(part.lists) == len(self._counts) and len(self._keys):
                places = {term: place for place, term in enumerate(self._ordered(part))}
                order = np.array([places[term] for term in self._terms], dtype=np.int64)
                phrase = (order, distances) if len(distances) > 1 else (_NOWHERE, _NOWHERE)
                given = self._given(part)
                self._check(part, search_all(*given, *phrase, slop, number << DOC_BITS, *self._best))
        return self._hits()

    @property
    def _best(self) -> tuple[Float32s, Int64s, Int64s]:
        return self._scores, self._keys, self._counters

    def _ordered(self, part: _Found) -> list[str]:
        """The rarest term first."""
        return sorted(part.lists, key=lambda term: part.lists[term].size)

    def _given(self, part: _Found) -> tuple[Int64s, Float32s, Float32s, Flags]:
        """Lists, weights, norms and allowed documents of a partition. The lists hold what their addresses point to."""
        ordered, average = self._ordered(part), self._statistics.average
        prepared = [part.lists[term].prepare(average) for term in ordered]
        self._held = prepared
        weights = [self._weights[term] * np.float32(self._counts[term]) for term in ordered]
        alive, kept = part.partition.docs.alive, self._keep(part.partition) if self._keep else None
        allowed = alive if kept is None else kept if alive is None else alive & kept
        return (
            np.array([item.row for item in prepared], dtype=np.int64),
            np.array(weights, dtype=np.float32),
            part.partition.norms(self._statistics),
            _ALL if allowed is None else np.ascontiguousarray(allowed),
        )

    def _check(self, part: _Found, valid: bool) -> None:
        if not valid:
            raise part.partition.damaged()

    def _hits(self) -> Hits:
        self._trace.blocks_read += int(self._counters[READ])
        self._trace.blocks_skipped += int(self._counters[SKIPPED])
        keys, scores = self._keys, self._scores
        if self._counters[OFFERED] >= 0:
            keys, scores = keys[: self._counters[OFFERED]], scores[: self._counters[OFFERED]]
        else:
            keys, scores = keys[scores > -np.inf], scores[scores > -np.inf]
        row_ids = np.empty(len(keys), dtype=np.uint64)
        numbers, docs = keys >> DOC_BITS, keys & ((1 << DOC_BITS) - 1)
        for number, part in enumerate(self._parts):
            here = numbers == number
            if here.any():
                row_ids[here] = part.partition.docs.docs.row_ids[docs[here]]
        return Hits(row_ids, scores)
