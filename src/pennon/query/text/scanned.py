"""Rows that no index covers: their texts are analyzed as the index does, and only the terms of the queries are kept.

pylance scores such rows by the documents of the index and the scanned rows together, and rows of the index by the index
alone. It looks for the words of a fuzzy query there as they are; Pennon finds what is near to them in these rows, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.rows import ADDRESS
from pennon.format.schema import Column, stored_values
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Flags, Float32s, Int64s, UInt32s
from pennon.index.inverted.analysis.documents import BY_PLACE, BY_TERM, position_rule, tokenizer_of
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.token_table import MOST_BYTES
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.combined import FieldTerm
from pennon.index.inverted.search.hits import Hits
from pennon.query.scan.execute import filter_errors
from pennon.query.search.prefilter import ScanPart
from pennon.query.text.wanted import WantedTerms

BATCH_ROWS = 1 << 13
_POSITION_BITS = np.int64(32)


@dataclass(frozen=True, eq=False)
class _Occurrences:
    """Of wanted terms in a batch: the term, the document and the place of each, in the order of documents."""

    terms: Int64s
    docs: Int64s
    places: Int64s


@dataclass(frozen=True, eq=False)
class _Postings:
    """Of one term: documents, ascending, how often each has it, and all places as `document << 32 | place`."""

    docs: Int64s
    freqs: Float32s
    places: Int64s


@dataclass(eq=False)
class ScannedTexts:
    """The documents of a scan that have a wanted term, and the statistics of all."""

    wanted: WantedTerms
    statistics: Statistics = field(default_factory=lambda: Statistics(0, 0))
    rows: int = 0
    addresses: Addresses = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    lengths: UInt32s = field(default_factory=lambda: np.empty(0, dtype=np.uint32))
    _postings: dict[int, _Postings] = field(default_factory=dict[int, _Postings])

    @classmethod
    def read(
        cls,
        snapshot: Snapshot,
        column: Column,
        params: TextParams,
        parts: Sequence[ScanPart],
        wanted: WantedTerms,
        *,
        every_length: bool = False,
    ) -> ScannedTexts:
        """Read a column of some rows, batch by batch. With `every_length`, rows without a wanted term are kept too."""
        found = cls(wanted)
        reader = _BatchReader(params, wanted)
        addresses, lengths, occurrences = list[Addresses](), list[UInt32s](), list[_Occurrences]()
        known = 0
        for texts, where in _batches(snapshot, column, parts):
            sizes, here = reader.read(texts)
            found.rows += len(sizes)
            documents = int((sizes > 0).sum())
            more = Statistics(documents, int(sizes.sum(dtype=np.int64)))
            found.statistics = Statistics.summed([found.statistics, more])
            kept, numbered = np.unique(here.docs, return_inverse=True)
            if every_length:
                kept, numbered = np.arange(len(sizes)), here.docs
            addresses.append(where[kept])
            lengths.append(sizes[kept])
            occurrences.append(_Occurrences(here.terms, numbered.astype(np.int64) + known, here.places))
            known += len(kept)
        if addresses:
            found.addresses, found.lengths = np.concatenate(addresses), np.concatenate(lengths)
            found._postings = _grouped(occurrences)
        return found

    def frequency(self, term: str) -> int:
        """Scanned documents that have a term."""
        found = self._of(term)
        return 0 if found is None else len(found.docs)

    def field_term(self, term: str) -> FieldTerm:
        """The documents of a term, for a search of several columns as one."""
        found = self._of(term)
        if found is None:
            return FieldTerm.joined([])
        return FieldTerm(len(found.docs), self.addresses[found.docs], found.freqs)

    def matches(
        self, groups: Sequence[Sequence[str]], weights: Mapping[str, np.float32], average: Statistics, all_: bool
    ) -> Hits:
        """Documents with a term of any group, or of every group."""
        scores, counts = self._scores([term for group in groups for term in group], weights, average)
        chosen = counts > 0
        if all_:
            for group in groups:
                chosen &= self._with_any(group)
        return Hits(self.addresses[chosen], scores[chosen])

    def phrases(
        self, terms: Sequence[str], gaps: Int64s, slop: int, weights: Mapping[str, np.float32], average: Statistics
    ) -> Hits:
        """Documents that have the terms in their order, each `gaps` after the one before, or up to `slop` more."""
        kept = np.empty(0, dtype=np.int64)
        for number, term in enumerate(terms):
            found = self._of(term)
            places = np.empty(0, dtype=np.int64) if found is None else found.places
            kept = places if number == 0 else _following(kept, places, int(gaps[number]), slop)
        scores, _ = self._scores(terms, weights, average)
        chosen = np.unique(kept >> _POSITION_BITS)
        return Hits(self.addresses[chosen], scores[chosen])

    def _scores(
        self, terms: Iterable[str], weights: Mapping[str, np.float32], average: Statistics
    ) -> tuple[Float32s, Int64s]:
        """Of all documents, and how many of the distinct terms each has."""
        scores = np.zeros(len(self.addresses), dtype=np.float32)
        counts = np.zeros(len(self.addresses), dtype=np.int64)
        norms = average.norms(self.lengths)
        for term, times in Counter(terms).items():
            found = self._of(term)
            if found is not None:
                weight = weights[term] * np.float32(times)
                scores[found.docs] += weight * (found.freqs / (found.freqs + norms[found.docs]))
                counts[found.docs] += 1
        return scores, counts

    def _with_any(self, terms: Iterable[str]) -> Flags:
        flags = np.zeros(len(self.addresses), dtype=np.bool_)
        for term in terms:
            found = self._of(term)
            if found is not None:
                flags[found.docs] = True
        return flags

    def _of(self, term: str) -> _Postings | None:
        number = self.wanted.numbers.get(term)
        return None if number is None else self._postings.get(number)


class _BatchReader:
    """Analyzes one batch of texts after another; every distinct token is filtered once."""

    def __init__(self, params: TextParams, wanted: WantedTerms) -> None:
        self._params, self._wanted, self._filters = params, wanted, Filters(params)
        self._rule = position_rule(params)
        self._start_again()

    def read(self, texts: pa.Array) -> tuple[UInt32s, _Occurrences]:
        """The tokens that each text has after all filters, and where wanted ones are."""
        if self._tokenizer.nbytes > MOST_BYTES:
            self._start_again()
        tokens = self._tokenizer.encode_column(texts)
        known = len(self._kept)
        if self._tokenizer.uniques > known:
            terms = self._tokenizer.terms(self._filters, known)
            self._kept = np.concatenate([self._kept, terms.is_valid().to_numpy(zero_copy_only=False)])
            self._numbers = np.concatenate([self._numbers, self._wanted.number(terms)])
        reached = np.zeros(len(tokens.numbers) + 1, dtype=np.int64)
        np.cumsum(self._kept[tokens.numbers], out=reached[1:])
        sizes = np.diff(reached[tokens.documents]).astype(np.uint32)
        numbers = self._numbers[tokens.numbers]
        at = np.flatnonzero(numbers >= 0)
        docs = np.searchsorted(tokens.documents, at, side="right") - 1
        return sizes, _Occurrences(numbers[at], docs, self._positions(at, tokens.documents[docs], reached))

    def _positions(self, at: Int64s, starts: Int64s, reached: Int64s) -> Int64s:
        """Of tokens in their documents, which begin at `starts`; `reached` counts kept tokens before each."""
        if self._rule == BY_PLACE:
            return at - starts
        return reached[at] - reached[starts] if self._rule == BY_TERM else np.zeros(len(at), dtype=np.int64)

    def _start_again(self) -> None:
        self._tokenizer = tokenizer_of(self._params)
        self._kept: Flags = np.empty(0, dtype=np.bool_)
        self._numbers: Int64s = np.empty(0, dtype=np.int64)


def _batches(snapshot: Snapshot, column: Column, parts: Sequence[ScanPart]) -> Iterator[tuple[pa.Array, Addresses]]:
    for part in parts:
        scanner = snapshot.scanner(
            part.rows, columns=[column.path], batch_size=BATCH_ROWS, filter=part.filter, with_row_address=True
        )
        with filter_errors(part.filter):
            for batch in scanner.to_batches():
                yield stored_values(batch.column(0)), batch.column(ADDRESS).to_numpy()


def _grouped(found: Sequence[_Occurrences]) -> dict[int, _Postings]:
    """Occurrences by term."""
    terms = np.concatenate([part.terms for part in found])
    keys = np.concatenate([part.docs << _POSITION_BITS | part.places for part in found])
    order = np.argsort(terms, kind="stable")  # documents stay ascending
    terms, keys = terms[order], keys[order]
    postings: dict[int, _Postings] = {}
    numbers, firsts = np.unique(terms, return_index=True)
    for number, own in zip(numbers.tolist(), np.split(keys, firsts)[1:], strict=True):
        docs, freqs = np.unique(own >> _POSITION_BITS, return_counts=True)
        postings[number] = _Postings(docs, freqs.astype(np.float32), own)
    return postings


def _following(before: Int64s, places: Int64s, gap: int, slop: int) -> Int64s:
    """The places that are `gap` after one of those before, in the same document, or up to `slop` more."""
    if not len(before) or not len(places):
        return np.empty(0, dtype=np.int64)
    first = places >> _POSITION_BITS << _POSITION_BITS
    lowest = np.maximum(places - gap - slop, first)
    at = np.searchsorted(before, lowest)
    there = at < len(before)
    at = np.minimum(at, len(before) - 1)
    return places[there & (before[at] <= places - gap)]
