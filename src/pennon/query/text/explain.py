"""What a text search would do, or did."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any

from pyroaring import BitMap

from pennon.display import Displayed
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.index.cache import CacheUse, counting_cache
from pennon.index.inverted.query import Boolean, Match, Query
from pennon.query.catalog import Catalog, Skipped, UnusableSegment
from pennon.query.scan.explain import some_ids
from pennon.query.search.explain import FilterUse, filter_use
from pennon.query.search.prefilter import Prefilter
from pennon.query.text.column_search import ColumnSearch
from pennon.query.text.request import TextColumnsLike, TextLike, TextQuestion, TextRequest, read_question
from pennon.query.text.run import find_texts, text_table, usable_columns
from pennon.query.text.scanned import ScannedTexts
from pennon.query.text.source import exclude
from pennon.query.text.wanted import WantedTerms, combined_with, leaves_on
from pennon.wording import in_lines, plural


@dataclass(frozen=True)
class TextSegmentUse:
    """One segment's part in a text search. `documents` are all in its files, dead ones included."""

    uuid: str
    fragments: int
    partitions: int
    documents: int

    def __str__(self) -> str:
        covered = plural(self.fragments, "fragment") if self.fragments else "no live fragment, counted in scores only"
        documents = f"{plural(self.documents, 'document')} in {plural(self.partitions, 'partition')}"
        return f"{self.uuid}: {documents}; covers {covered}"


@dataclass(frozen=True)
class TextColumnUse:
    """What is searched for in one column: the terms, and how many documents of the index and of scanned rows have each.
    The last four figures are there when the search was run."""

    column: str
    index: str | None
    segments: tuple[TextSegmentUse, ...]
    terms: Mapping[str, int]
    scanned_fragments: tuple[int, ...]
    scanned_rows: int
    blocks_read: int | None = None
    blocks_skipped: int | None = None
    rows_read: int | None = None

    def lines(self) -> list[str]:
        index = f"index {self.index}" if self.index else "no index; words are compared as they are written"
        terms = ", ".join(f"{term} ({count:,})" for term, count in self.terms.items()) or "none"
        lines = [f"  column   {self.column}; {index}", f"  terms    {terms}"]
        lines += [f"  segment  {segment}" for segment in self.segments]
        if self.scanned_fragments:
            scanned = f"{plural(len(self.scanned_fragments), 'fragment')} ({plural(self.scanned_rows, 'row')})"
            lines.append(f"  scan     {scanned}: {some_ids(self.scanned_fragments)}")
        if self.blocks_read is not None and self.segments:
            lines.append(f"  blocks   {self.blocks_read:,} read, {self.blocks_skipped:,} skipped")
        return lines


@dataclass(frozen=True)
class TextExplanation(Displayed):
    """The plan of a text search. The last three figures are there when it was run (`analyze=True`)."""

    table: str
    version: int
    query: str
    k: int | None
    columns: tuple[TextColumnUse, ...]
    filter: FilterUse | None
    total_rows: int
    skipped: tuple[Skipped, ...]
    rows_returned: int | None = None
    reads: int | None = None
    seconds: float | None = None
    cache: CacheUse | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        wanted = "all matches" if self.k is None else f"the best {self.k} matches"
        lines = [f"text search of {self.table}, version {self.version}", f"  query    {self.query}; {wanted}"]
        for column in self.columns:
            lines += column.lines()
        if self.filter is not None:
            lines += [f"  filter   {self.filter}", *(f"           {use}" for use in self.filter.indices)]
        lines += [f"  skipped  {s.index}, segment {s.uuid}: {s.reason}" for s in self.skipped]
        if self.seconds is not None:
            cost = f"{plural(self.reads or 0, 'index read')}, {self.seconds * 1000:.1f} ms"
            lines.append(f"  ran      {self.rows_returned} rows returned, {cost}")
        if self.cache is not None:
            lines.append(f"  cache    {self.cache}")
        return in_lines(lines)


def explain_text(
    catalog: Catalog,
    request: TextRequest,
    column: TextColumnsLike,
    query: TextLike,
    options: Mapping[str, Any],
    analyze: bool = False,
) -> TextExplanation:
    """Plan a text search from dictionaries and the sizes of posting lists; with `analyze`, run it and report what it
    touched. Rows that no index covers are read only then: until then their documents count in no term."""
    question = read_question(catalog.snapshot, request, column, [query], options)
    if analyze:
        return _ran(catalog, question)
    while True:
        try:
            columns = _planned(catalog, question)
            break
        except UnusableSegment as unusable:
            exclude(catalog, unusable)
    prefilter = None if request.filter is None else Prefilter.of(catalog, request.filter, search=False)
    return _explanation(catalog, question, columns, prefilter)


def _planned(catalog: Catalog, question: TextQuestion) -> tuple[TextColumnUse, ...]:
    uses: list[TextColumnUse] = []
    for name, source in usable_columns(catalog, question).items():
        leaves = leaves_on(name, question.queries)
        leaves += [Match(query.text, name) for query in combined_with(name, question.queries)]
        search = ColumnSearch(catalog.snapshot, source, scanned=ScannedTexts(WantedTerms(source.params, leaves)))
        uses.append(_use(catalog, question, name, search, search.load(leaves)))
    return tuple(uses)


def _ran(catalog: Catalog, question: TextQuestion) -> TextExplanation:
    reads, start = ReadCounter(), time.perf_counter()
    with counting_reads(reads), counting_cache() as cache:
        [found], trace = find_texts(catalog, question)
        returned = text_table(catalog, question.request, [found], many=False).num_rows
    seconds = time.perf_counter() - start
    if trace.prefilter is not None:
        reads.reads += trace.prefilter.answer.reads.reads
    uses = tuple(
        replace(
            _use(catalog, question, name, search, search.trace.frequencies),
            blocks_read=search.trace.blocks_read,
            blocks_skipped=search.trace.blocks_skipped,
            rows_read=search.scanned.rows if search.scanned else 0,
        )
        for name, search in trace.columns.items()
    )
    explanation = _explanation(catalog, question, uses, trace.prefilter)
    if explanation.filter is not None:
        explanation = replace(explanation, filter=replace(explanation.filter, rows_selected=trace.rows_selected))
    return replace(explanation, rows_returned=returned, reads=reads.reads, seconds=seconds, cache=cache)


def _use(
    catalog: Catalog, question: TextQuestion, name: str, search: ColumnSearch, terms: Mapping[str, int]
) -> TextColumnUse:
    source = search.source
    segments = tuple(
        TextSegmentUse(
            segment.usable.segment.uuid,
            len(segment.coverage),
            len(segment.opened.partitions),
            segment.opened.statistics.num_docs,
        )
        for segment in source.segments
    )
    scanned = BitMap() if question.request.fast_search else source.scanned
    rows = catalog.snapshot.manifest.rows_in(scanned)
    return TextColumnUse(name, source.name, segments, dict(terms), tuple(scanned), rows)


def _explanation(
    catalog: Catalog, question: TextQuestion, columns: tuple[TextColumnUse, ...], prefilter: Prefilter | None
) -> TextExplanation:
    snapshot, manifest = catalog.snapshot, catalog.snapshot.manifest
    passed_over = [skipped for source in usable_columns(catalog, question).values() for skipped in source.passed_over]
    return TextExplanation(
        table=snapshot.uri,
        version=snapshot.version,
        query=shown(question.queries[0]),
        k=question.request.k,
        columns=columns,
        filter=filter_use(catalog, prefilter),
        total_rows=manifest.rows_in(manifest.live),
        skipped=(*catalog.skipped, *passed_over),
    )


def shown(query: Query) -> str:
    """A query as it is written in Python, without what is left at its default."""
    if isinstance(query, Boolean):
        clauses = ", ".join(f"{occur.value} {shown(part)}" for occur, part in query.clauses)
        return f"Boolean({clauses})"
    given: list[str] = []
    for place, each in enumerate(fields(query)):
        value = getattr(query, each.name)
        if value == each.default:
            continue
        text = shown(value) if isinstance(value, Query) else repr(value.value if isinstance(value, Enum) else value)
        given.append(text if place < 2 else f"{each.name}={text}")
    return f"{type(query).__name__}({', '.join(given)})"
