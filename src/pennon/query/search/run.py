"""A search from the request to its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.row_set import RowSet
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.exact import ExactSearch
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.prefilter import Prefilter, ScanPart, selected_of
from pennon.query.search.probe import Probing, SegmentTrace, completed, nearest_indexed
from pennon.query.search.request import Question, SearchRequest, VectorLike, check_length, read_request
from pennon.query.search.result_table import check_columns, to_table
from pennon.query.search.several import SeveralSearch
from pennon.query.search.source import Source, find_source

# Up to this many rows that a filter selects are all measured, instead of looking for them in partitions.
FEW_SELECTED = 1000
# What a block of queries may take: for each, its distances to all centroids, or the candidates that every thread keeps
# and the vectors of those that are measured again.
BLOCK_BYTES = 64 << 20
CENTROID_BYTES, CANDIDATE_BYTES = 16, 24


@dataclass
class SearchTrace:
    """What a search did."""

    source: Source
    prefilter: Prefilter | None = None
    segments: list[SegmentTrace] = field(default_factory=list)
    rows_selected: int | None = None  # by the filter, in covered fragments
    rows_measured: int = 0


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be done: whether to probe the index, and there for chosen (ascending) addresses only; and which rows
    to measure one and all."""

    indexed: bool
    chosen: Addresses | None
    exact: list[ScanPart]


def search(catalog: Catalog, request: SearchRequest, queries: VectorLike, *, many: bool = False) -> pa.Table:
    """The nearest rows of one query, or of many."""
    check_columns(catalog.snapshot, request)
    question = read_request(catalog.snapshot, request, queries, many=many)
    found, _ = find_neighbors(catalog, question)
    return to_table(catalog.snapshot, request, found, many=many)


def find_neighbors(catalog: Catalog, question: Question) -> tuple[Neighbors, SearchTrace]:
    """Segments that turn out unusable are left out, and the search starts over."""
    while True:
        try:
            trace = SearchTrace(find_source(catalog, question))
            check_length(question, trace.source.metric)
            task = plan_task(catalog, question, trace)
            return run_task(catalog, question, task, trace), trace
        except UnusableSegment as unusable:
            catalog.exclude(unusable)


def plan_task(catalog: Catalog, question: Question, trace: SearchTrace) -> Task:
    """Finds out what the filter selects."""
    source = trace.source
    if question.request.filter is None or not question.request.prefilter:
        return Task(bool(source.segments), None, [ScanPart(source.exact)] if source.exact else [])
    trace.prefilter = prefilter = Prefilter.of(catalog, question.request.filter)
    exact = prefilter.parts(source.exact)
    if not source.segments:
        return Task(False, None, exact)
    chosen = prefilter.addresses(source.covered)
    trace.rows_selected = len(chosen)
    if len(chosen) > max(FEW_SELECTED, question.wanted):
        return Task(True, chosen, exact)
    return Task(False, None, [ScanPart(source.covered, RowSet.of_addresses(chosen)), *exact])


def run_task(
    catalog: Catalog, question: Question, task: Task, trace: SearchTrace, candidates: Neighbors | None = None
) -> Neighbors:
    """`candidates` are what others found in the index for these queries, if they did."""
    exact = ExactSearch(catalog.snapshot, question.column, trace.source.metric, question.threads)
    several = None if question.starts is None else SeveralSearch.of(exact, question)
    found: list[Neighbors] = []
    if task.indexed and several is not None:
        trace.segments = [SegmentTrace() for _ in trace.source.segments]
        found.append(several.indexed(trace.source, probing(question, task), trace.segments))
    elif task.indexed:
        found.append(_indexed(question, task, exact, trace, candidates))
    if task.exact:
        if several is not None:
            measured, trace.rows_measured = several.nearest(task.exact, question.k)
        else:
            measured, trace.rows_measured = exact.nearest(task.exact, question.queries, question.k)
        found.append(measured)
    nearest = Neighbors.merged(found or [Neighbors.none(question.count)], question.k)
    if question.request.filter is None or question.request.prefilter:
        return nearest
    return nearest.among(selected_of(catalog, question.request.filter, nearest.addresses[nearest.found]))


def probing(question: Question, task: Task) -> Probing:
    request = question.request
    least, most = request.least_probes, request.most_probes
    return Probing(question.k, question.wanted, least, most, request.ef, task.chosen, question.threads)


def _indexed(
    question: Question, task: Task, exact: ExactSearch, trace: SearchTrace, candidates: Neighbors | None
) -> Neighbors:
    source, how = trace.source, probing(question, task)
    again = measured_again(question, source)
    trace.segments = [SegmentTrace() for _ in source.segments]
    blocks: list[Neighbors] = []
    step = _block(question, source, again)
    for start in range(0, len(question.queries), step):
        block = slice(start, start + step)
        queries = question.queries[block]
        if candidates is None:
            found = nearest_indexed(source, queries, how, trace.segments)
        else:
            found = completed(source, queries, candidates.of(block), how, trace.segments)
        blocks.append(exact.remeasured(queries, found, question.k) if again else found)
    return Neighbors.stacked(blocks or [Neighbors.none(0)])


def measured_again(question: Question, source: Source) -> bool:
    """Whether candidates of the index are measured on the table's vectors: to refine them, or because its estimates do
    not compare with the exact distances of scanned rows."""
    return question.starts is not None or question.request.refine_factor is not None or bool(source.exact)


def _block(question: Question, source: Source, again: bool) -> int:
    """How many queries are searched at a time. Only where their number is open may all partitions be ranked."""
    partitions = max(segment.opened.files.ivf.num_partitions for segment in source.segments)
    centroids = min(partitions, question.request.most_probes or partitions) * CENTROID_BYTES
    rows = sum(segment.opened.files.layout.rows for segment in source.segments)
    candidate = CANDIDATE_BYTES * question.threads + (question.queries[:1].nbytes if again else 0)
    return max(1, BLOCK_BYTES // max(centroids, min(question.wanted, rows) * candidate, 1))
