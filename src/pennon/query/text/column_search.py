"""Matches and phrases in one column: what the index finds, and what a scan finds in the rows that it does not cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.analysis.analyzer import analyze
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.query import CombinedFields, Match, Operator, Phrase
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.batch import match_all
from pennon.index.inverted.search.combined import Field, FieldTerm, RowLengths, joined_fields
from pennon.index.inverted.search.hits import Hits, joined
from pennon.index.inverted.search.leaves import Keep, Trace, expanded
from pennon.index.inverted.segment import Partition
from pennon.query.text.scanned import ScannedTexts
from pennon.query.text.source import TextSource
from pennon.query.text.wanted import Leaf, terms_of


@dataclass(eq=False)
class ColumnSearch:
    """Finds rows by their addresses. `chosen` are those that a filter selects of the covered ones, ascending; None for
    all. `scanned` are rows outside the index, if there are any."""

    snapshot: Snapshot
    source: TextSource
    chosen: Addresses | None = None
    scanned: ScannedTexts | None = None
    trace: Trace = field(default_factory=Trace)
    # For queries over several columns as one: how they analyze text, and all rows that the index does not cover.
    combined_params: TextParams | None = None
    combined: ScannedTexts | None = None

    def match(self, query: Match, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits:
        """Rows that have any or all terms, the k best or all of them, in no order."""
        index = self.source.index
        indexed = Hits.none()
        if index is not None and self.source.covered:
            with self.source.attributing_damage():
                indexed = self._located(index.match(query, k, self._allowed, self.trace))
        if self.scanned is None:
            return indexed
        groups = self.groups(query)
        statistics, weights = self._weights([term for group in groups for term in group])
        found = self.scanned.matches(groups, weights, statistics, query.operator is Operator.AND)
        return joined([indexed, found.scaled(query.boost)])

    def as_field(self, query: CombinedFields) -> Field:
        """The terms of a query that combines this column with others; a filter is not applied yet."""
        index, scanned = self.source.index, self.combined
        parts: list[Field] = []
        if index is not None:
            with self.source.attributing_damage():
                found = index.field_of(query, self.source.lengths, lambda part: self.source.allowed(part, None))
            terms = {term: self._located_term(own) for term, own in found.terms.items()}
            parts.append(Field(found.statistics, terms, found.lengths))
        if scanned is not None:
            terms = {term: scanned.field_term(term) for term in scanned.wanted.numbers}
            lengths = RowLengths.of(scanned.addresses, scanned.lengths)
            parts.append(Field(scanned.statistics, terms, lengths))
        asked = analyze(self.combined_params or self.source.params, query.text)
        found = joined_fields(parts, [term.text for term in asked])
        self.trace.frequencies |= {term: own.documents for term, own in found.terms.items()}
        return found

    @property
    def is_indexed(self) -> bool:
        """Whether the index alone answers."""
        return self.source.index is not None and bool(self.source.covered) and self.scanned is None

    def match_all(self, queries: Sequence[Match], k: int) -> list[Hits]:
        """The k best rows of each match, in no order, where the index alone answers and none is fuzzy."""
        assert self.source.index is not None
        with self.source.attributing_damage():
            given = self.source.index, queries, k, self._allowed, self.trace, self.source.cache.capacity_bytes
            return [self._located(hits) for hits in match_all(*given)]

    def phrase(self, query: Phrase, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits:
        """Rows that have the terms at the distances of the query; `InvalidArgument` where no positions are stored."""
        index = self.source.index
        self.check_positions()
        indexed = Hits.none()
        if index is not None and self.source.covered:
            with self.source.attributing_damage():
                indexed = self._located(index.phrase(query, k, self._allowed, self.trace))
        if self.scanned is None:
            return indexed
        terms = terms_of(self.source.params, query)
        places = [term.position for term in terms]
        gaps = np.diff(np.array(places[:1] + places, dtype=np.int64))
        texts = [term.text for term in terms]
        statistics, weights = self._weights(texts, with_positions=True)
        return joined([indexed, self.scanned.phrases(texts, gaps, query.slop, weights, statistics)])

    def check_positions(self) -> None:
        """Every segment of the index must have them, as pylance demands."""
        for segment in self.source.segments:
            if not segment.opened.metadata.params.with_position:
                raise InvalidArgument(
                    f"index {self.source.name!r} on column {self.source.column.path!r} has no positions, which a phrase"
                    " needs",
                    "Build it again with create_index(..., with_position=True)",
                )

    def groups(self, query: Match) -> list[list[str]]:
        """For each term of a match the terms that are looked for: itself, or those near to it."""
        asked = [term.text for term in terms_of(self.source.params, query)]
        if not query.fuzziness:
            return [[term] for term in asked]
        with self.source.attributing_damage():
            return expanded(asked, query, self._near)

    def load(self, leaves: Sequence[Leaf]) -> dict[str, int]:
        """Put what queries need into the cache; the documents that have each of their terms."""
        frequencies: dict[str, int] = {}
        for leaf in leaves:
            if isinstance(leaf, Phrase):
                self.check_positions()
                terms = [term.text for term in terms_of(self.source.params, leaf)]
            else:
                terms = [term for group in self.groups(leaf) for term in group]
            frequencies |= self._frequencies(terms, with_positions=isinstance(leaf, Phrase))
        return frequencies

    def _near(self, term: str, query: Match, most: int) -> set[str]:
        index, scanned = self.source.index, self.scanned
        known = index.near(term, query, most) if index is not None else set[str]()
        return known if scanned is None else known | scanned.wanted.near(term, query)

    def _weights(self, terms: Iterable[str], with_positions: bool = False) -> tuple[Statistics, dict[str, np.float32]]:
        """Of the documents of the index and the scanned rows together."""
        index, scanned = self.source.index, self.scanned
        parts = [part.statistics for part in (index, scanned) if part is not None]
        statistics = Statistics.summed(parts)
        frequencies = self._frequencies(terms, with_positions)
        self.trace.frequencies |= frequencies
        return statistics, {term: statistics.weight(count) for term, count in frequencies.items() if count}

    def _frequencies(self, terms: Iterable[str], with_positions: bool = False) -> dict[str, int]:
        distinct = list(dict.fromkeys(terms))
        index, scanned = self.source.index, self.scanned
        with self.source.attributing_damage():
            known = {} if index is None else index.frequencies(distinct, with_positions)
        return {term: known.get(term, 0) + (scanned.frequency(term) if scanned else 0) for term in distinct}

    def _allowed(self, partition: Partition) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        return self.source.allowed(partition, self.chosen)

    def _located_term(self, term: FieldTerm) -> FieldTerm:
        located = self._located(Hits(term.row_ids, term.freqs))
        return FieldTerm(term.documents, located.row_ids, located.scores)

    def _located(self, hits: Hits) -> Hits:
        """By address, where the index has stable row ids. All rows are alive: only those were allowed."""
        if not self.snapshot.manifest.has_stable_row_ids:
            return hits
        addresses, _ = self.snapshot.address_of_id.locate(hits.row_ids)
        return Hits(addresses, hits.scores)
