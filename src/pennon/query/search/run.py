"""A search from the request to its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.choice import refined, worth_measuring
from pennon.query.search.exact import ExactSearch
from pennon.query.search.kept import KeptVectors, filter_of
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.prefilter import Prefilter, ScanPart, Selection, selected_of
from pennon.query.search.probe import Probing, SegmentTrace, completed, nearest_indexed
from pennon.query.search.query_vectors import VectorLike
from pennon.query.search.radius import FEW_SELECTED, has_bounds, rows_within
from pennon.query.search.request import Question, SearchRequest, check_length, read_request
from pennon.query.search.result_table import check_columns, to_table
from pennon.query.search.several import SeveralSearch
from pennon.query.search.shapes import MeasuredShapes, from_nearest, needs_more
from pennon.query.search.source import Source, find_source

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
    filter_known: bool = False  # from a search before
    rows_selected: int | None = None  # by the filter, in covered fragments
    rows_measured: int = 0


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be done: whether to ask the index, and there for selected rows only; and which rows to measure one and
    all."""

    indexed: bool
    selection: Selection | None
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
            question = refined(question, trace.source)
            task = plan_task(catalog, question, trace)
            return run_task(catalog, question, task, trace), trace
        except UnusableSegment as unusable:
            catalog.exclude(unusable)


def plan_task(catalog: Catalog, question: Question, trace: SearchTrace) -> Task:
    """Finds out what the filter selects."""
    source = trace.source
    if question.request.k is None and not has_bounds(source, question):
        return Task(False, None, _every_row(catalog, question, trace))
    if question.request.filter is None or not question.request.prefilter:
        return Task(bool(source.segments), None, [ScanPart(source.exact)] if source.exact else [])
    if not source.segments:
        trace.prefilter = Prefilter.of(catalog, question.request.filter)
        return Task(False, None, trace.prefilter.parts(source.exact))
    asked, trace.filter_known = filter_of(catalog, source, question.request.filter)
    trace.prefilter, selection = asked.prefilter, asked.selection
    trace.rows_selected = selection.count
    exact, vectors = asked.prefilter.parts(source.exact), None
    if question.request.k is None:
        few = selection.count <= FEW_SELECTED
    else:
        if question.request.is_plain and not question.request.measuring:
            vectors = KeptVectors.of(catalog, source, question.request.filter)
        rows = catalog.snapshot.manifest.rows_in(source.covered)
        few = worth_measuring(asked, vectors, question, probing(question, selection), source, rows)
    if not few:
        return Task(True, selection, exact)
    return Task(False, None, [ScanPart(source.covered, selection.rows, kept=vectors), *exact])


def run_task(
    catalog: Catalog, question: Question, task: Task, trace: SearchTrace, candidates: Neighbors | None = None
) -> Neighbors:
    """`candidates` are what others found in the index for these queries, if they did."""
    request = question.request
    exact = ExactSearch(catalog.snapshot, question.column, trace.source.metric, question.threads)

    def nearest(asked: Question) -> Neighbors:
        return _nearest(asked, task, exact, trace, candidates)

    def measured(asked: Question) -> Neighbors:
        selected = None if task.selection is None else task.selection.rows
        if task.indexed and request.k is None:
            trace.segments = trace.segments or [SegmentTrace() for _ in trace.source.segments]
            selected = rows_within(trace.source, asked, task.selection, trace.segments)
        covered = [ScanPart(trace.source.covered, selected)] if task.indexed else []
        found, rows = MeasuredShapes(exact, [*covered, *task.exact], request).answer(asked)
        trace.rows_measured += rows
        return found

    if not needs_more(request):
        found = nearest(question)
    elif task.indexed and request.k is not None:
        found = from_nearest(question, catalog.snapshot, nearest, measured)
    else:
        found = measured(question)
    if request.filter is not None and not request.prefilter:
        found = found.among(selected_of(catalog, request.filter, found.addresses[found.found]))
    return found.within(request.lower, request.upper).after(request.offset)


def _nearest(
    question: Question, task: Task, exact: ExactSearch, trace: SearchTrace, candidates: Neighbors | None
) -> Neighbors:
    several = None if question.starts is None else SeveralSearch.of(exact, question)
    found: list[Neighbors] = []
    if task.indexed and several is not None:
        trace.segments = [SegmentTrace() for _ in trace.source.segments]
        found.append(several.indexed(trace.source, probing(question, task.selection), trace.segments))
    elif task.indexed:
        found.append(_indexed(question, task, exact, trace, candidates))
    if task.exact:
        if several is not None:
            measured, rows = several.nearest(task.exact, question.k)
        else:
            measured, rows = exact.nearest(task.exact, question.queries, question.k)
        trace.rows_measured += rows
        found.append(measured)
    return Neighbors.merged(found or [Neighbors.none(question.count)], question.k)


def _every_row(catalog: Catalog, question: Question, trace: SearchTrace) -> list[ScanPart]:
    """All rows that may be answered, where the index has no bound on what it leaves out."""
    live, request = catalog.snapshot.manifest.live, question.request
    if request.filter is None or not request.prefilter:
        return [ScanPart(live)] if live else []
    trace.prefilter = prefilter = Prefilter.of(catalog, request.filter)
    return prefilter.parts(live)


def probing(question: Question, selection: Selection | None) -> Probing:
    request = question.request
    least = request.minimum_nprobes or request.nprobes
    ef = None if request.ef is None else max(request.ef, question.wanted)
    return Probing(question.k, question.wanted, least, request.most_probes, ef, selection, question.threads)


def _indexed(
    question: Question, task: Task, exact: ExactSearch, trace: SearchTrace, candidates: Neighbors | None
) -> Neighbors:
    source, how = trace.source, probing(question, task.selection)
    again = measured_again(question, source)
    trace.segments = trace.segments or [SegmentTrace() for _ in source.segments]
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
    again = question.starts is not None or question.request.refine_factor is not None or question.refine is not None
    return again or bool(source.exact)


def _block(question: Question, source: Source, again: bool) -> int:
    """How many queries are searched at a time. Only where their number is open may all partitions be ranked."""
    partitions = max(segment.opened.files.ivf.num_partitions for segment in source.segments)
    centroids = min(partitions, question.request.most_probes or partitions) * CENTROID_BYTES
    rows = sum(segment.opened.files.layout.rows for segment in source.segments)
    candidate = CANDIDATE_BYTES * question.threads + (question.queries[:1].nbytes if again else 0)
    return max(1, BLOCK_BYTES // max(centroids, min(question.wanted, rows) * candidate, 1))
