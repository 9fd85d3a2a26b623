"""Queries that are composed of others, over the indices of one or several columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses, contains
from pennon.index.inverted.query import Boolean, Boost, CombinedFields, Match, MultiMatch, Occur, Phrase, Query
from pennon.index.inverted.search.combined import Field, combined
from pennon.index.inverted.search.hits import Hits, common, highest, summed
from pennon.index.inverted.search.leaves import Keep, Trace


class Searchable(Protocol):
    """What finds matches and phrases in one column: an index, or an index and the rows that it does not cover."""

    def match(self, query: Match, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits: ...

    def phrase(self, query: Phrase, k: int | None, keep: Keep | None = None, trace: Trace | None = None) -> Hits: ...

    def as_field(self, query: CombinedFields) -> Field: ...


@dataclass(frozen=True)
class TextSearch:
    """What queries may use, by column; `column` is that of queries without one. `selected` are the rows, ascending,
    that queries over combined columns may find; None for all."""

    indices: Mapping[str, Searchable]
    column: str
    keep: Keep | None = None
    trace: Trace = field(default_factory=Trace)
    selected: Addresses | None = None

    def best(self, query: Query, k: int | None) -> Hits:
        """The k rows with the highest scores, the highest first; all of them for None."""
        return self._find(query, k).best(k)

    def _find(self, query: Query, k: int | None) -> Hits:
        """Rows in no order: all, or at least the k best if posting lists suffice."""
        match query:
            case Match():
                return self._index(query.column).match(query, k, self.keep, self.trace)
            case Phrase():
                return self._index(query.column).phrase(query, k, self.keep, self.trace)
            case Boost():
                return self._all(query.positive).plus(self._all(query.negative), -query.negative_boost)
            case MultiMatch():
                return highest([self._find(part, None) for part in query.parts()])
            case CombinedFields():
                return self._kept(combined([self._index(column).as_field(query) for column in query.columns], query))
            case Boolean():
                return self._boolean(query)
            case _:
                raise InvalidArgument(f"unknown query {type(query).__name__}")

    def _boolean(self, query: Boolean) -> Hits:
        must, should = query.of(Occur.MUST), query.of(Occur.SHOULD)
        found = common([self._all(part) for part in must]) if must else summed([self._all(part) for part in should])
        if must:
            for part in should:
                found = found.plus(self._all(part))
        for part in query.of(Occur.MUST_NOT):
            found = found.where(~found.found_in(self._all(part)))
        return found

    def _kept(self, hits: Hits) -> Hits:
        """Those among the selected rows."""
        if self.selected is None:
            return hits
        return hits.where(contains(self.selected, hits.row_ids))

    def _all(self, query: Query) -> Hits:
        return self._find(query, None)

    def _index(self, column: str | None) -> Searchable:
        name = self.column if column is None else column
        if name not in self.indices:
            raise InvalidArgument(f"column {name!r} has no inverted index to search", "Create one, or name another")
        return self.indices[name]
