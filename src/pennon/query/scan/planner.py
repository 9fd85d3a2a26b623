"""Turning a filter into parts: rows that indices name, and fragments that must be scanned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from pyroaring import BitMap

from pennon.format.addresses import Addresses, in_fragments, sorted_unique
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.index.kind import Estimate
from pennon.query.catalog import Catalog, Skipped, UnusableSegment, naming
from pennon.query.filter.predicate import And, ColumnRanges, Node, Or

# Fetching rows by address costs about twenty times a sequential read of a row: past this share, scan.
SCAN_SHARE = 0.05
# Below this many rows either way is instant and the index saves reading the column.
SMALL_RESULT = 10_000
# A condition that would read this many times the rows of the most selective one is left to the check of the rows.
WORTHWHILE = 20


@dataclass(frozen=True)
class IndexedPart:
    """Rows of covered fragments found by indices. When not exact, the filter must be checked on them."""

    fragments: BitMap
    addresses: Addresses
    exact: bool


@dataclass(frozen=True)
class Answer:
    """What a filter needs: rows named by indices (at most as many as `expected`), fragments to scan, and how that was
    found out."""

    indexed: IndexedPart
    scanned: BitMap
    expected: int
    used: tuple[UsedIndex, ...]
    skipped: tuple[Skipped, ...]
    reads: ReadCounter


@dataclass(frozen=True)
class UsedIndex:
    """An index that took part: its condition, and what the search reads at most."""

    name: str
    condition: ColumnRanges
    segments: int
    coverage: BitMap
    estimate: Estimate


@dataclass
class _Group:
    """Live fragments covered by the same set of indices, and the part of the filter those can answer."""

    fragments: BitMap
    question: Node | None
    exact: bool = False


@dataclass
class Planner:
    """Plans one filter over one catalog; damaged segments are left out with a warning and planning starts again."""

    catalog: Catalog
    node: Node
    need_rows: bool = True  # False: only their number, which indices can give without touching the table
    reads: ReadCounter = field(default_factory=ReadCounter)
    _found: dict[ColumnRanges, Addresses] = field(default_factory=dict)

    def answer(self, search: bool = True) -> Answer:
        """`search=False` plans from lookups alone and finds no addresses."""
        with counting_reads(self.reads):
            while True:
                try:
                    return self._answer(search)
                except UnusableSegment as unusable:
                    self.catalog.leave_out(unusable)
                    self._found.clear()

    def _answer(self, search: bool) -> Answer:
        groups = self._groups()
        estimates = self._estimates(groups)
        scanned, covered, exact, expected = BitMap(), BitMap(), True, 0
        addresses: list[Addresses] = []
        for group in groups:
            if group.question is None or self._prefers_scan(group, estimates):
                scanned |= group.fragments
                continue
            question = self._worthwhile(group.question, estimates)
            covered |= group.fragments
            exact = exact and group.exact and question is group.question
            expected += _expected_rows(question, estimates)
            if search:
                addresses.append(self._evaluate(question, group.fragments))
        found = _joined(addresses)
        manifest = self.catalog.snapshot.manifest
        if self.need_rows and len(found) > SMALL_RESULT and len(found) > SCAN_SHARE * manifest.rows_in(covered):
            return self._result(np.empty(0, dtype=np.uint64), BitMap(), scanned | covered, True, 0, estimates)
        return self._result(found, covered, scanned, exact, expected, estimates)

    def _result(
        self,
        found: Addresses,
        covered: BitMap,
        scanned: BitMap,
        exact: bool,
        expected: int,
        estimates: dict[ColumnRanges, Estimate],
    ) -> Answer:
        used: list[UsedIndex] = []
        if covered:
            for atom, estimate in estimates.items():
                index = self.catalog.by_column[atom.column]
                used.append(UsedIndex(index.name, atom, len(index.segments), index.coverage, estimate))
        part = IndexedPart(covered, found, exact)
        return Answer(part, scanned, expected, tuple(used), tuple(self.catalog.skipped), self.reads)

    def _groups(self) -> list[_Group]:
        split: list[tuple[frozenset[str], BitMap]] = [(frozenset(), BitMap(self.catalog.snapshot.manifest.live))]
        for column in sorted(self.node.columns & self.catalog.by_column.keys()):
            coverage = self.catalog.by_column[column].coverage
            split = [
                piece
                for columns, fragments in split
                for piece in ((columns | {column}, fragments & coverage), (columns, fragments - coverage))
                if piece[1]
            ]
        groups: list[_Group] = []
        for columns, fragments in split:
            question = answerable(self.node, columns)
            exact = question is not None and question == self.node and self.node.exact
            groups.append(_Group(fragments, question, exact))
        return groups

    def _estimates(self, groups: list[_Group]) -> dict[ColumnRanges, Estimate]:
        estimates: dict[ColumnRanges, Estimate] = {}
        for group in groups:
            for atom in _atoms(group.question):
                if atom not in estimates:
                    total = Estimate(0, 0)
                    for segment in self.catalog.by_column[atom.column].segments:
                        with naming(segment):
                            part = self.catalog.open(segment).estimate(atom.intervals, atom.nulls)
                        total = Estimate(total.pages + part.pages, total.rows + part.rows)
                    estimates[atom] = total
        return estimates

    def _prefers_scan(self, group: _Group, estimates: dict[ColumnRanges, Estimate]) -> bool:
        if not self.need_rows:
            return False
        expected = _expected_rows(group.question, estimates)
        if expected <= SMALL_RESULT:
            return False
        return expected > 2 * SCAN_SHARE * self.catalog.snapshot.manifest.rows_in(group.fragments)

    def _worthwhile(self, node: Node, estimates: dict[ColumnRanges, Estimate]) -> Node:
        """Without conditions that cost far more than they narrow down; the filter is checked on the rows instead."""
        if not isinstance(node, And) or not self.need_rows:
            return node
        costs = [_expected_rows(child, estimates) for child in node.children]
        limit = max(SMALL_RESULT, WORTHWHILE * min(costs))
        kept = tuple(child for child, cost in zip(node.children, costs, strict=True) if cost <= limit)
        if len(kept) == len(node.children):
            return node
        return And(kept) if len(kept) != 1 else kept[0]

    def _evaluate(self, node: Node, fragments: BitMap) -> Addresses:
        """Ascending addresses of the rows of these fragments for which the node is TRUE."""
        if isinstance(node, ColumnRanges):
            found = self._search(node)
            return in_fragments(found, fragments)
        parts = [self._evaluate(child, fragments) for child in node.children]  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(node, And):
            return reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), sorted(parts, key=len))
        return sorted_unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.uint64)

    def _search(self, atom: ColumnRanges) -> Addresses:
        if atom not in self._found:
            parts: list[Addresses] = []
            for segment in self.catalog.by_column[atom.column].segments:
                with naming(segment):
                    parts.append(self.catalog.search(segment, atom.intervals, atom.nulls))
            self._found[atom] = parts[0] if len(parts) == 1 else sorted_unique(np.concatenate(parts))
        return self._found[atom]


def answerable(node: Node, columns: frozenset[str]) -> Node | None:
    """The part of a filter that indices on these columns can answer; its rows hold all rows of the filter."""
    if isinstance(node, ColumnRanges):
        return node if node.column in columns else None
    if isinstance(node, Or):
        children = [answerable(child, columns) for child in node.children]
        kept = tuple(child for child in children if child is not None)
        return Or(kept) if len(kept) == len(children) else None
    if isinstance(node, And):
        kept = tuple(child for c in node.children if (child := answerable(c, columns)) is not None)
        if not kept:
            return None
        if kept == node.children:
            return node
        return kept[0] if len(kept) == 1 else And(kept)
    return None


def _joined(parts: list[Addresses]) -> Addresses:
    """Addresses of disjoint fragments, ascending."""
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.uint64)


def _atoms(node: Node | None) -> Iterator[ColumnRanges]:
    if isinstance(node, ColumnRanges):
        yield node
    elif isinstance(node, And | Or):
        for child in node.children:
            yield from _atoms(child)


def _expected_rows(node: Node | None, estimates: dict[ColumnRanges, Estimate]) -> int:
    """At most this many rows come back: the smallest of what is intersected, the sum of what is joined."""
    if isinstance(node, ColumnRanges):
        return estimates[node].rows
    if isinstance(node, And):
        return min((_expected_rows(child, estimates) for child in node.children), default=0)
    return sum(_expected_rows(child, estimates) for child in node.children) if isinstance(node, Or) else 0
