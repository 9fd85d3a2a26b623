"""Plans a filter: rows that indices find, and fragments that must be scanned.

Live fragments are grouped by the indices that cover them. In a group every condition is answered exactly by one index,
or by the intersection of all that find a superset of its rows; conditions that no index answers are checked on the rows
found.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce

from pyroaring import BitMap

from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.format.row_set import RowSet
from pennon.index.conditions import Condition
from pennon.index.kind import Estimate, Precision
from pennon.query.catalog import Catalog, Skipped, UnusableSegment, UsableIndex, UsableSegment, attributing_errors
from pennon.query.filter.predicate import And, Node, Opaque, Or, conditions

# Reading a run of rows in the middle of a fragment costs about as much as this many more rows of a scan.
RUN_COST = 19
# Below this many rows both ways are fast, and the index saves reading the column.
SMALL_RESULT = 10_000
# A condition that would read this many times the rows of the most selective one is checked on the rows instead.
WORTHWHILE = 20


@dataclass(frozen=True)
class IndexedPart:
    """Rows of covered fragments found by indices. When not exact, the filter must be checked on them."""

    fragments: BitMap
    rows: RowSet
    exact: bool


@dataclass(frozen=True)
class Answer:
    """The answer to a filter: rows found by indices (at most `expected`), fragments to scan, and the indices used."""

    indexed: IndexedPart
    scanned: BitMap
    expected: Estimate
    used: tuple[UsedIndex, ...]
    skipped: tuple[Skipped, ...]
    reads: ReadCounter

    def within(self, fragments: BitMap) -> Answer:
        """The part of the answer in some fragments."""
        part = self.indexed
        indexed = IndexedPart(part.fragments & fragments, part.rows.within(fragments), part.exact)
        return replace(self, indexed=indexed, scanned=self.scanned & fragments)


@dataclass(frozen=True)
class UsedIndex:
    """An index in use: its condition, and an upper bound on the reads of the search."""

    name: str
    condition: Condition
    segments: int
    coverage: BitMap
    estimate: Estimate
    precision: Precision


@dataclass(frozen=True, eq=False)
class _Candidate:
    """The segments of an index that answer a condition."""

    index: UsableIndex
    condition: Condition
    segments: tuple[UsableSegment, ...]
    coverage: BitMap
    precision: Precision


_Choices = dict[Condition, tuple[_Candidate, ...]]


@dataclass
class Planner:
    """Plans one filter over one catalog. If a segment proves to be damaged, it is excluded and planning starts
    again."""

    catalog: Catalog
    node: Node
    need_rows: bool = True  # False: only their number, which indices can return without reading the table
    by_key: bool = False  # the rows of single values: exact indices are searched, however many rows they may find
    reads: ReadCounter = field(default_factory=ReadCounter)
    _estimates: dict[_Candidate, Estimate] = field(default_factory=dict)
    _found: dict[_Candidate, RowSet] = field(default_factory=dict)

    def answer(self, search: bool = True) -> Answer:
        """`search=False` plans from data that is read when segments are opened, and finds no rows."""
        with counting_reads(self.reads):
            while True:
                try:
                    return self._answer(search)
                except UnusableSegment as unusable:
                    self.catalog.exclude(unusable)
                    self._estimates.clear()
                    self._found.clear()

    def covered(self) -> BitMap | None:
        """The fragments that indices cover for every condition of the filter that they can answer, regardless of cost;
        None if no index helps."""
        choices = {condition: tuple(self._candidates(condition)) for condition in conditions(self.node)}
        question = answerable(self.node, {condition: found for condition, found in choices.items() if found})
        if question is None or not list(conditions(question)):
            return None
        coverage = [BitMap.union(*(each.coverage for each in choices[condition])) for condition in conditions(question)]
        return BitMap.intersection(BitMap(self.catalog.snapshot.manifest.live), *coverage)

    def _answer(self, search: bool) -> Answer:
        scanned, covered, exact, expected = BitMap(), BitMap(), True, Estimate(0, 0)
        found, used = RowSet.none(), dict[_Candidate, None]()
        for fragments, candidates in self._groups():
            choices = self._chosen(fragments, candidates)
            question = answerable(self.node, choices)
            if question is None:
                scanned |= fragments
                continue
            is_exact = self.node.exact and question == self.node and all(map(_is_exact, choices.values()))
            cost = self._expected(question, choices)
            worth = self.by_key and all(_is_exact(choices[atom]) for atom in conditions(question))
            if not worth and self._reads_rows(is_exact) and self._too_costly(cost, fragments, 2):
                scanned |= fragments
                continue
            narrowed = self._worthwhile(question, choices)
            covered |= fragments
            exact = exact and is_exact and narrowed is question
            expected += self._expected(narrowed, choices)
            used |= dict.fromkeys(candidate for atom in conditions(question) for candidate in choices[atom])
            if search:
                found = found | self._evaluate(narrowed, choices, fragments)
        actual = Estimate(0, len(found), min(len(found), expected.row_runs))
        if search and not self.by_key and self._reads_rows(exact) and self._too_costly(actual, covered, 1):
            return self._result(IndexedPart(BitMap(), RowSet.none(), True), scanned | covered, Estimate(0, 0), {})
        return self._result(IndexedPart(covered, found, exact), scanned, expected, used)

    def _result(self, part: IndexedPart, scanned: BitMap, expected: Estimate, used: dict[_Candidate, None]) -> Answer:
        uses = tuple(self._used(candidate) for candidate in used)
        return Answer(part, scanned, expected, uses, tuple(self.catalog.skipped), self.reads)

    def _used(self, candidate: _Candidate) -> UsedIndex:
        index, estimate = candidate.index, self._estimate(candidate)
        return UsedIndex(
            index.name, candidate.condition, len(candidate.segments), candidate.coverage, estimate, candidate.precision
        )

    def _reads_rows(self, exact: bool) -> bool:
        return self.need_rows or not exact

    def _too_costly(self, cost: Estimate, fragments: BitMap, times: int) -> bool:
        """Whether several scans of some fragments are cheaper than fetching the rows that indices find. Rows of
        fragments are counted only if that decides: there may be many fragments."""
        if cost.rows <= SMALL_RESULT:
            return False
        return _fetching(cost) > times * self.catalog.snapshot.manifest.rows_in(fragments)

    def _groups(self) -> list[tuple[BitMap, list[_Candidate]]]:
        """Groups of live fragments that the same candidates cover, with the candidates."""
        groups: list[tuple[BitMap, list[_Candidate]]] = [(BitMap(self.catalog.snapshot.manifest.live), [])]
        for condition in dict.fromkeys(conditions(self.node)):
            for candidate in self._candidates(condition):
                split: list[tuple[BitMap, list[_Candidate]]] = []
                for fragments, candidates in groups:
                    inside, outside = fragments & candidate.coverage, fragments - candidate.coverage
                    split += [(inside, [*candidates, candidate])] if inside else []
                    split += [(outside, candidates)] if outside else []
                groups = split
        return groups

    def _candidates(self, condition: Condition) -> list[_Candidate]:
        found: list[_Candidate] = []
        for index in self.catalog.indices.get(condition.column, ()):
            precisions = [(usable, index.kind.answers(usable.segment, condition)) for usable in index.segments]
            answering = tuple(usable for usable, precision in precisions if precision is not None)
            if answering:
                exact = all(precision in (Precision.EXACT, None) for _, precision in precisions)
                coverage = BitMap.union(*(usable.coverage for usable in answering))
                precision = Precision.EXACT if exact else Precision.SUPERSET
                found.append(_Candidate(index, condition, answering, coverage, precision))
        return found

    def _chosen(self, fragments: BitMap, candidates: list[_Candidate]) -> _Choices:
        """For each condition the cheapest exact index, else all that find supersets. If fetching the rows of the exact
        one costs more than a scan, supersets that are read sequentially may still be cheaper."""
        choices: _Choices = {}
        for condition in dict.fromkeys(candidate.condition for candidate in candidates):
            own = [candidate for candidate in candidates if candidate.condition is condition]
            exact = [candidate for candidate in own if candidate.precision is Precision.EXACT]
            rough = tuple(candidate for candidate in own if candidate.precision is not Precision.EXACT)
            if len(exact) > 1:
                exact.sort(key=self._preference)
            if not exact:
                choices[condition] = rough
                continue
            choices[condition] = (exact[0],)
            weighed = rough and self.need_rows and not self.by_key
            if weighed and self._too_costly(self._estimate(exact[0]), fragments, 2):
                least = min(_fetching(self._estimate(candidate)) for candidate in rough)
                if least < _fetching(self._estimate(exact[0])):
                    choices[condition] = rough
        return choices

    def _preference(self, candidate: _Candidate) -> tuple[int, int]:
        estimate = self._estimate(candidate)
        return (estimate.pages, -len(candidate.coverage))

    def _estimate(self, candidate: _Candidate) -> Estimate:
        if candidate not in self._estimates:
            total = Estimate(0, 0)
            for usable in candidate.segments:
                with attributing_errors(usable):
                    estimate = self.catalog.open_filter(usable).estimate(candidate.condition)
                if estimate.pages or estimate.rows:
                    total += estimate
            self._estimates[candidate] = total
        return self._estimates[candidate]

    def _expected(self, node: Node, choices: _Choices) -> Estimate:
        """An upper bound on the rows found: the minimum of an intersection, the sum of a union."""
        if isinstance(node, And):
            parts = [self._expected(child, choices) for child in node.children]
            return min(parts, key=_fetching, default=Estimate(0, 0))
        if isinstance(node, Or):
            return sum((self._expected(child, choices) for child in node.children), Estimate(0, 0))
        if isinstance(node, Opaque):
            return Estimate(0, 0)
        return min((self._estimate(candidate) for candidate in choices[node]), key=_fetching)

    def _worthwhile(self, node: Node, choices: _Choices) -> Node:
        """The node without conditions that cost much more than they gain; the filter is checked on the rows instead."""
        if not isinstance(node, And) or not self.need_rows:
            return node
        costs = [self._expected(child, choices).rows for child in node.children]
        limit = max(SMALL_RESULT, WORTHWHILE * min(costs, default=0))
        kept = tuple(child for child, cost in zip(node.children, costs, strict=True) if cost <= limit)
        if len(kept) == len(node.children):
            return node
        return And(kept) if len(kept) != 1 else kept[0]

    def _evaluate(self, node: Node, choices: _Choices, fragments: BitMap) -> RowSet:
        """The rows of these fragments that the indices find for a node."""
        if isinstance(node, And):
            parts = [self._evaluate(child, choices, fragments) for child in node.children]
            return reduce(RowSet.__and__, sorted(parts, key=len))
        if isinstance(node, Or):
            parts = [self._evaluate(child, choices, fragments) for child in node.children]
            return reduce(RowSet.__or__, parts, RowSet.none())
        assert not isinstance(node, Opaque)
        return reduce(RowSet.__and__, [self._search(candidate).within(fragments) for candidate in choices[node]])

    def _search(self, candidate: _Candidate) -> RowSet:
        if candidate not in self._found:
            found = RowSet.none()
            for usable in candidate.segments:
                with attributing_errors(usable):
                    more = self.catalog.search(usable, candidate.condition)
                if more.by_fragment:
                    found = found | more
            self._found[candidate] = found
        return self._found[candidate]


def answerable(node: Node, choices: _Choices) -> Node | None:
    """The part of a filter that the chosen indices answer; its rows are a superset of those of the filter."""
    if isinstance(node, Or):
        children = [answerable(child, choices) for child in node.children]
        kept = tuple(child for child in children if child is not None)
        return Or(kept) if len(kept) == len(children) else None
    if isinstance(node, And):
        kept = tuple(child for c in node.children if (child := answerable(c, choices)) is not None)
        if not kept:
            return None
        if kept == node.children:
            return node
        return kept[0] if len(kept) == 1 else And(kept)
    return node if not isinstance(node, Opaque) and node in choices else None


def _is_exact(candidates: tuple[_Candidate, ...]) -> bool:
    return all(candidate.precision is Precision.EXACT for candidate in candidates)


def _fetching(cost: Estimate) -> int:
    """The cost of fetching rows, in rows of a scan."""
    return cost.rows + RUN_COST * cost.row_runs
