"""A text search from the request to its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import InvalidArgument
from pennon.format.addresses import Addresses
from pennon.index.inverted.query import Match, Query
from pennon.index.inverted.search.compound import TextSearch
from pennon.index.inverted.search.hits import Hits
from pennon.index.threads import cores
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.prefilter import Prefilter, ScanPart
from pennon.query.search.result_table import rows_table
from pennon.query.text.column_search import ColumnSearch
from pennon.query.text.request import SCORE, TextColumnsLike, TextLike, TextQuestion, TextRequest, read_question
from pennon.query.text.scanned import ScannedTexts
from pennon.query.text.source import TextSource, combined_params, exclude, find_source
from pennon.query.text.wanted import WantedTerms, combined_with, leaves_on

# Rows of a batch, where the scan does not name another number: pylance's.
SCANNED_ROWS = 1 << 13


@dataclass
class TextTrace:
    """What a search did."""

    columns: dict[str, ColumnSearch] = field(default_factory=dict[str, ColumnSearch])
    prefilter: Prefilter | None = None
    rows_selected: int | None = None  # by the filter, in covered fragments
    selected: Addresses | None = None  # by the filter, in all fragments, where columns are searched as one


def search_text(
    catalog: Catalog, request: TextRequest, column: TextColumnsLike, query: TextLike, options: Mapping[str, Any]
) -> pa.Table:
    """The rows that match a query best, the best first."""
    question = read_question(catalog.snapshot, request, column, [query], options)
    [found], _ = find_texts(catalog, question)
    return text_table(catalog, request, [found], many=False)


def search_text_batch(
    catalog: Catalog,
    request: TextRequest,
    column: TextColumnsLike,
    queries: Any,
    options: Mapping[str, Any],
) -> pa.Table:
    """The best rows of many queries at once, numbered by the column `query_index`."""
    if isinstance(queries, str | Mapping) or not hasattr(queries, "__iter__"):
        raise InvalidArgument(f"search_text_batch takes a list of queries, not {queries!r}", "For one use search_text")
    given = queries.to_pylist() if isinstance(queries, pa.Array | pa.ChunkedArray) else list(queries)
    question = read_question(catalog.snapshot, request, column, given, options)
    found, _ = find_texts(catalog, question)
    return text_table(catalog, request, found, many=True)


def scan_text(
    catalog: Catalog, request: TextRequest, query: TextLike, batch_size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that match a query, the best first, in batches; columns are read as batches are asked for."""
    [found], _ = find_texts(catalog, read_question(catalog.snapshot, request, None, [query]))
    step = batch_size or SCANNED_ROWS
    for first in range(0, max(1, len(found)), step):
        some = Hits(found.row_ids[first : first + step], found.scores[first : first + step])
        yield from text_table(catalog, request, [some], many=False).combine_chunks().to_batches()


def count_text(catalog: Catalog, request: TextRequest, query: TextLike) -> int:
    """How many rows match a query."""
    [found], _ = find_texts(catalog, read_question(catalog.snapshot, request, None, [query]))
    return len(found)


def text_table(catalog: Catalog, request: TextRequest, found: Sequence[Hits], *, many: bool) -> pa.Table:
    """The rows of all queries one after another, each query's by rank."""
    addresses = np.concatenate([np.empty(0, dtype=np.uint64), *(hits.row_ids for hits in found)])
    scores = np.concatenate([np.empty(0, dtype=np.float32), *(hits.scores for hits in found)])
    counts = np.array([len(hits) for hits in found], dtype=np.int64) if many else None
    return rows_table(catalog.snapshot, request, addresses, {SCORE: pa.array(scores, pa.float32())}, counts)


def find_texts(
    catalog: Catalog, question: TextQuestion, prefilter: Prefilter | None = None
) -> tuple[list[Hits], TextTrace]:
    """Rows by address, the best first, of each query. Segments that turn out unusable are left out, and the search
    starts over. `prefilter` is what the filter selects, if that is known."""
    while True:
        try:
            trace = plan_columns(catalog, question, prefilter)
            return _search(question, trace), trace
        except UnusableSegment as unusable:
            exclude(catalog, unusable)


def usable_columns(catalog: Catalog, question: TextQuestion) -> dict[str, TextSource]:
    """Where each column's words are found, without the segments that turn out unusable when they are opened."""
    while True:
        try:
            index = question.request.index
            return {name: find_source(catalog, column, index) for name, column in question.columns.items()}
        except UnusableSegment as unusable:
            exclude(catalog, unusable)


def plan_columns(catalog: Catalog, question: TextQuestion, prefilter: Prefilter | None = None) -> TextTrace:
    """Finds out what the filter selects, unless it is known, and reads the rows that no index covers."""
    request, snapshot = question.request, catalog.snapshot
    trace = TextTrace(prefilter=prefilter)
    if request.filter is not None and prefilter is None:
        prefilter = trace.prefilter = Prefilter.of(catalog, request.filter)
    for name, column in question.columns.items():
        source = find_source(catalog, column, request.index)
        found = trace.columns[name] = ColumnSearch(snapshot, source)
        leaves = leaves_on(name, question.queries)
        if prefilter is not None and source.covered:
            found.chosen = prefilter.addresses(source.covered)
            trace.rows_selected = max(trace.rows_selected or 0, len(found.chosen))
        if source.scanned and leaves and not request.fast_search:
            parts = [ScanPart(source.scanned)] if prefilter is None else prefilter.parts(source.scanned)
            wanted = WantedTerms(source.params, leaves)
            found.scanned = ScannedTexts.read(snapshot, column, source.params, parts, wanted)
    _plan_combined(catalog, question, trace)
    return trace


def _plan_combined(catalog: Catalog, question: TextQuestion, trace: TextTrace) -> None:
    """For columns that are searched as one. All rows outside an index count in their statistics, whichever a filter
    selects, as pylance has it."""
    queries = {name: combined_with(name, question.queries) for name in trace.columns}
    for query in dict.fromkeys(query for some in queries.values() for query in some):
        params = combined_params([trace.columns[name].source for name in query.columns])
        for name in query.columns:
            search = trace.columns[name]
            if search.combined_params not in (None, params):
                raise InvalidArgument(f"column {name!r} is combined with columns that analyze text in different ways")
            search.combined_params = params
    for name, some in queries.items():
        search = trace.columns[name]
        if some and search.source.scanned and not question.request.fast_search:
            params, column = search.combined_params or search.source.params, question.columns[name]
            wanted = WantedTerms(params, [Match(query.text, name) for query in some])
            parts = [ScanPart(search.source.scanned)]
            search.combined = ScannedTexts.read(catalog.snapshot, column, params, parts, wanted, every_length=True)
    if trace.prefilter is not None and any(queries.values()):
        trace.selected = trace.prefilter.addresses(BitMap(catalog.snapshot.manifest.live))


def _search(question: TextQuestion, trace: TextTrace) -> list[Hits]:
    """Plain matches of a batch are found together; kernels release the interpreter, so others are divided among the
    cores."""
    first, k = next(iter(trace.columns), ""), question.request.k
    found: dict[int, Hits] = {}
    if k is not None and len(question.queries) > 1:
        found = _matched_together(question.queries, trace.columns, k)
    left = [number for number in range(len(question.queries)) if number not in found]

    def best(number: int) -> Hits:
        return TextSearch(trace.columns, first, selected=trace.selected).best(question.queries[number], k)

    if len(left) > 1:
        for name, column in trace.columns.items():
            column.load(leaves_on(name, [question.queries[number] for number in left]))
        with ThreadPoolExecutor(cores()) as pool:
            found |= zip(left, pool.map(best, left), strict=True)
    else:
        found |= {number: best(number) for number in left}
    return [found[number].after(question.request.offset) for number in range(len(question.queries))]


def _matched_together(queries: Sequence[Query], columns: Mapping[str, ColumnSearch], k: int) -> dict[int, Hits]:
    """What plain matches in columns with nothing to scan find, by the number of the query."""
    found: dict[int, Hits] = {}
    for name, column in columns.items():
        if column.is_indexed:
            pairs = [(n, q) for n, q in enumerate(queries) if isinstance(q, Match) and q.column == name]
            plain = {number: query for number, query in pairs if not query.fuzziness}
            hits = column.match_all(list(plain.values()), k)
            found |= {number: its.best(k) for number, its in zip(plain, hits, strict=True)}
    return found
