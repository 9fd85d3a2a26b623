"""Several columns as one field (BM25F), as pylance scores it.

Frequencies and lengths of a row are sums over the columns, each times its weight. Of the columns' numbers of documents,
and of those that have a term, the highest counts; the average length is that of all weighted tokens over this number.
A term that a query repeats counts once. All rows are scored by the same statistics: those of the index and of the rows
that it does not cover together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.arrays import Float32s, UInt32s
from pennon.index.inverted.query import CombinedFields, Operator
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.hits import Hits


@dataclass(frozen=True, eq=False)
class FieldTerm:
    """A term in one column: documents that have it, dead ones included; the rows that may be found, and how often each
    has it."""

    documents: int
    row_ids: Addresses
    freqs: Float32s

    @classmethod
    def joined(cls, parts: Sequence[FieldTerm]) -> FieldTerm:
        """Of parts that have no row in common."""
        row_ids = np.concatenate([np.empty(0, dtype=np.uint64), *(part.row_ids for part in parts)])
        freqs = np.concatenate([np.empty(0, dtype=np.float32), *(part.freqs for part in parts)])
        return cls(sum(part.documents for part in parts), row_ids, freqs)


@dataclass(frozen=True, eq=False)
class Field:
    """The terms of a query in one column, in the order of the query. `lengths` are the tokens of rows, 0 for rows
    without a document."""

    statistics: Statistics
    terms: Mapping[str, FieldTerm]
    lengths: Callable[[Addresses], UInt32s]


@dataclass(frozen=True, eq=False)
class RowLengths:
    """The tokens of rows, by ascending row id."""

    row_ids: Addresses
    tokens: UInt32s

    @classmethod
    def of(cls, row_ids: Addresses, tokens: UInt32s) -> RowLengths:
        if len(row_ids) and not (row_ids[1:] > row_ids[:-1]).all():
            order = np.argsort(row_ids, kind="stable")
            row_ids, tokens = row_ids[order], tokens[order]
        return cls(row_ids, tokens)

    @property
    def nbytes(self) -> int:
        return self.row_ids.nbytes + self.tokens.nbytes

    def __call__(self, wanted: Addresses) -> UInt32s:
        if not len(self.row_ids):
            return np.zeros(len(wanted), dtype=np.uint32)
        places = np.minimum(np.searchsorted(self.row_ids, wanted), len(self.row_ids) - 1)
        return np.where(self.row_ids[places] == wanted, self.tokens[places], 0).astype(np.uint32)


def joined_fields(parts: Sequence[Field], terms: Sequence[str]) -> Field:
    """One column, of parts that have no row in common."""
    none = FieldTerm.joined([])
    joined = {term: FieldTerm.joined([part.terms.get(term, none) for part in parts]) for term in dict.fromkeys(terms)}

    def lengths(rows: Addresses) -> UInt32s:
        return sum((part.lengths(rows) for part in parts), np.zeros(len(rows), dtype=np.uint32))

    return Field(Statistics.summed(part.statistics for part in parts), joined, lengths)


def combined(fields: Sequence[Field], query: CombinedFields) -> Hits:
    """All rows that have any or all of the terms in the columns together, in no order."""
    terms = list(fields[0].terms)
    found = [field.terms[term].row_ids for field in fields for term in terms]
    rows = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *found]))
    if not len(rows):
        return Hits.none()
    pairs = list(zip(fields, map(np.float32, query.weights), strict=True))
    documents = max(field.statistics.num_docs for field in fields)
    tokens = sum(float(weight) * field.statistics.total_tokens for field, weight in pairs)
    statistics = Statistics(documents, 1)  # for the weights of terms only
    average = np.float32(tokens / documents)
    lengths = sum((weight * field.lengths(rows) for field, weight in pairs), np.zeros(len(rows), dtype=np.float32))
    norms = Statistics.norms_for(lengths.astype(np.float32), average)
    scores, having = np.zeros(len(rows), dtype=np.float32), np.zeros(len(rows), dtype=np.int64)
    for term in terms:
        freqs = np.zeros(len(rows), dtype=np.float32)
        for field, weight in pairs:
            own = field.terms[term]
            freqs[np.searchsorted(rows, own.row_ids)] += weight * own.freqs
        weight = statistics.weight(max(field.terms[term].documents for field in fields))
        scores += weight * (freqs / (freqs + norms))
        having += freqs > 0
    kept = having == len(terms) if query.operator is Operator.AND else having > 0
    return Hits(rows, scores).where(kept)
