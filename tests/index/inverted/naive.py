"""BM25 by the book over all documents, without files, blocks or bounds: what every search must equal."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pennon.index.inverted.analysis.analyzer import FUZZY_PARAMS, QueryTerm, analyze, analyze_all
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.query import Boolean, Boost, Match, MultiMatch, Occur, Operator, Phrase, Query

Scores = dict[int, float]


class NaiveIndex:
    """`texts` are documents by row id, `live` those that may be found."""

    def __init__(self, params: TextParams, texts: Mapping[int, str | None]) -> None:
        self.params, self.live = params, set(texts)
        self._positions: defaultdict[str, dict[int, list[int]]] = defaultdict(dict)
        self._lengths: dict[int, int] = {}
        analyzed = analyze_all(params, [text or "" for text in texts.values()])
        for row, terms in zip(texts, analyzed, strict=True):
            if terms:
                self._lengths[row] = len(terms)
            for term in terms:
                self._positions[term.text].setdefault(row, []).append(term.position)
        self._average = sum(self._lengths.values()) / max(1, len(self._lengths))

    def search(self, query: Query) -> Scores:
        match query:
            case Match():
                return self._match(query)
            case Phrase():
                return self._phrase(query)
            case Boost():
                positive, negative = self.search(query.positive), self.search(query.negative)
                return {row: s - query.negative_boost * negative.get(row, 0) for row, s in positive.items()}
            case MultiMatch():
                found = [self.search(part) for part in query.parts()]
                return {row: max(part.get(row, 0) for part in found) for row in set().union(*found)}
            case Boolean():
                return self._boolean(query)
            case _:
                raise TypeError(query)

    def _boolean(self, query: Boolean) -> Scores:
        must, should = ([self.search(part) for part in query.of(kind)] for kind in (Occur.MUST, Occur.SHOULD))
        rows = set.intersection(*map(set, must)) if must else set().union(*should)
        for part in query.of(Occur.MUST_NOT):
            rows -= set(self.search(part))
        return {row: sum(part.get(row, 0) for part in (*must, *should)) for row in rows}

    def _match(self, query: Match) -> Scores:
        params = FUZZY_PARAMS if query.fuzziness else self.params
        asked = [term.text for term in analyze(params, query.text)]
        groups = self._near(asked, query) if query.fuzziness else [[term] for term in asked]
        found = self._sum([term for group in groups for term in group])
        if query.operator is Operator.AND:
            holds = [set().union(*(self._positions.get(term, {}) for term in group)) for group in groups]
            found = {row: score for row, score in found.items() if all(row in rows for rows in holds)}
        return {row: score * query.boost for row, score in found.items()}

    def _phrase(self, query: Phrase) -> Scores:
        terms = analyze(self.params, query.text)
        found = self._sum([term.text for term in terms])
        return {row: score for row, score in found.items() if self._is_phrase(row, terms, query.slop)}

    def _is_phrase(self, row: int, terms: Sequence[QueryTerm], slop: int) -> bool:
        kept: set[int] = set()
        for number, term in enumerate(terms):
            places = set(self._positions.get(term.text, {}).get(row, []))
            if number:
                gap = term.position - terms[number - 1].position
                places = {place for place in places if any(a + gap <= place <= a + gap + slop for a in kept)}
            kept = places
        return bool(kept)

    def _near(self, asked: Sequence[str], query: Match) -> list[list[str]]:
        groups, left = [], query.max_expansions
        for term in asked:
            start = term[: query.prefix_length]
            near = [
                known
                for known in sorted(self._positions, key=str.encode)
                if known.startswith(start)
                and len(known) >= query.prefix_length
                and _edits(term, known) <= query.fuzziness
            ]
            groups.append(near[:left])
            left -= len(groups[-1])
        return groups

    def _sum(self, terms: Sequence[str]) -> Scores:
        scores: defaultdict[int, float] = defaultdict(float)
        for term, times in Counter(terms).items():
            docs = self._positions.get(term, {})
            idf = math.log((len(self._lengths) - len(docs) + 0.5) / (len(docs) + 0.5) + 1)
            for row, places in docs.items():
                norm = 1.2 * (0.25 + 0.75 * self._lengths[row] / self._average)
                scores[row] += times * idf * 2.2 * len(places) / (len(places) + norm)
        return {row: score for row, score in scores.items() if row in self.live}


class NaiveColumns(NaiveIndex):
    """One index for each column; every match and phrase names its own."""

    def __init__(self, columns: Mapping[str, NaiveIndex]) -> None:
        self._columns = columns

    def _match(self, query: Match) -> Scores:
        assert query.column is not None
        return self._columns[query.column]._match(query)

    def _phrase(self, query: Phrase) -> Scores:
        assert query.column is not None
        return self._columns[query.column]._phrase(query)


def _edits(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]
