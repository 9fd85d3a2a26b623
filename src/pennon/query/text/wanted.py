"""The terms that queries ask for in one column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.arrays import Int64s
from pennon.index.inverted.analysis.analyzer import FUZZY_PARAMS, QueryTerm, analyze
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.dictionary.dictionary import Dictionary, Terms, encode_dictionary
from pennon.index.inverted.query import CombinedFields, Match, Phrase, Query

Leaf = Match | Phrase


def terms_of(params: TextParams, leaf: Leaf) -> list[QueryTerm]:
    """The terms of a match or a phrase, in the order of its text. Fuzzy ones are not analyzed further."""
    fuzzy = isinstance(leaf, Match) and leaf.fuzziness
    return analyze(FUZZY_PARAMS if fuzzy else params, leaf.text)


def leaves_on(column: str, queries: Iterable[Query]) -> list[Leaf]:
    """The matches and phrases of queries that are about a column."""
    found = [leaf for query in queries for leaf in query.leaves()]
    return [leaf for leaf in found if isinstance(leaf, Match | Phrase) and leaf.column == column]


def combined_with(column: str, queries: Iterable[Query]) -> list[CombinedFields]:
    """The queries that combine a column with others."""
    found = [leaf for query in queries for leaf in query.leaves()]
    return [leaf for leaf in found if isinstance(leaf, CombinedFields) and column in leaf.columns]


@dataclass(frozen=True)
class _Near:
    """What a term is near to."""

    term: str
    fuzziness: int
    prefix_length: int


class WantedTerms:
    """The terms that matches and phrases ask for, by number. Those near to fuzzy ones get theirs as they are met."""

    def __init__(self, params: TextParams, leaves: Sequence[Leaf]) -> None:
        self.numbers: dict[str, int] = {}
        self._near: dict[_Near, set[str]] = {}
        for leaf in leaves:
            for term in terms_of(params, leaf):
                if isinstance(leaf, Match) and leaf.fuzziness:
                    self._near[_Near(term.text, leaf.fuzziness, leaf.prefix_length)] = set()
                else:
                    self.numbers.setdefault(term.text, len(self.numbers))

    def near(self, term: str, query: Match) -> set[str]:
        """The terms met so far that are near to one of a query."""
        return self._near[_Near(term, query.fuzziness, query.prefix_length)]

    def number(self, terms: pa.Array) -> Int64s:
        """The number of each of some terms, -1 where it is not wanted."""
        if self._near:
            self._meet(terms)
        wanted = pa.array(list(self.numbers), terms.type)
        return pc.fill_null(pc.index_in(terms, wanted, skip_nulls=True), -1).to_numpy().astype(np.int64)

    def _meet(self, terms: pa.Array) -> None:
        distinct = pc.unique(terms).drop_null()
        if not len(distinct):
            return
        ordered = Terms.of(distinct.take(pc.sort_indices(distinct)))
        encoded = encode_dictionary(ordered, np.arange(len(ordered), dtype=np.int64))
        dictionary = Dictionary(encoded, "the scanned rows")
        for asked, known in self._near.items():
            found = dictionary.find_near(asked.term, asked.fuzziness, asked.prefix_length, len(ordered))
            known |= {near for near, _ in found}
            for near, _ in found:
                self.numbers.setdefault(near, len(self.numbers))
