"""What a search would do, or did."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from pennon.display import Displayed, DisplayedFields
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.index.cache import CacheUse, counting_cache
from pennon.query.catalog import Catalog, Skipped
from pennon.query.scan.execute import parse
from pennon.query.scan.explain import IndexUse, index_uses, some_ids
from pennon.query.search.choice import refined
from pennon.query.search.expected import ExpectedRecall
from pennon.query.search.prefilter import Prefilter
from pennon.query.search.probe import SegmentTrace
from pennon.query.search.query_vectors import VectorLike
from pennon.query.search.radius import has_bounds, partitions_within
from pennon.query.search.request import Question, SearchRequest, check_length, read_request
from pennon.query.search.result_table import check_columns, to_table
from pennon.query.search.run import find_neighbors, measured_again, probing
from pennon.query.search.source import SearchSegment, Source, usable_source
from pennon.wording import in_lines, plural


@dataclass(frozen=True)
class SegmentUse(DisplayedFields):
    """One segment's part in a search. `rows` are those of the probed partitions; the last two figures are there when
    the search was run."""

    uuid: str
    kind: str
    fragments: int
    partitions: int
    probed: int
    rows: int
    loaded: int | None = None
    rows_scored: int | None = None

    def __str__(self) -> str:
        text = f"{self.uuid}: {self.probed} of {self.partitions} partitions of {self.kind}, {self.rows:,} rows"
        if self.loaded is not None:
            text += f"; {self.loaded} read, {self.probed - self.loaded} cached; {self.rows_scored:,} rows scored"
        return text


@dataclass(frozen=True)
class FilterUse(DisplayedFields):
    """How the filter of a search is answered."""

    understood_as: str
    indices: tuple[IndexUse, ...]
    scanned_fragments: int
    rows_selected: int | None = None  # in fragments that the vector index covers
    few: bool = False  # all of the rows are measured, without the vector index
    after: bool = False  # checked on the rows that the search found (prefilter=False)

    def __str__(self) -> str:
        if self.after:
            return f"{self.understood_as}; checked on the rows found"
        text = f"{self.understood_as}; {plural(self.scanned_fragments, 'fragment')} scanned for it"
        if self.rows_selected is not None:
            text += f"; {self.rows_selected:,} covered rows selected{', all of them measured' * self.few}"
        return text


@dataclass(frozen=True)
class SearchExplanation(Displayed):
    """The plan of a search. The last six figures are there when it was run (`analyze=True`)."""

    table: str
    version: int
    column: str
    metric: str
    k: int | None
    nprobes: int | None
    minimum_nprobes: int
    maximum_nprobes: int | None
    index: str | None
    segments: tuple[SegmentUse, ...]
    filter: FilterUse | None
    measured_fragments: tuple[int, ...]  # those that no segment covers
    measured_rows: int
    total_rows: int
    remeasured: int  # candidates of the index that are measured again on the table's vectors
    skipped: tuple[Skipped, ...]
    distance_range: tuple[float | None, float | None] | None = None
    offset: int = 0
    distinct_by: str | None = None
    choice: str | None = None  # why this index, where there are several
    expected: ExpectedRecall | None = None  # where a recall was asked for
    rows_scored: int | None = None
    rows_measured: int | None = None
    rows_returned: int | None = None
    reads: int | None = None
    seconds: float | None = None
    cache: CacheUse | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"search of {self.table}, version {self.version}",
            f"  nearest  {self._shape()} by {self.metric} of column {self.column}",
        ]
        if self.index is not None:
            lines.append(f"  index    {self.index}; {self._probes()}")
        if self.choice is not None:
            lines.append(f"  choice   {self.choice}")
        if self.expected is not None:
            lines.append(f"  recall   {self.expected}")
        lines += [f"  segment  {segment}" for segment in self.segments]
        if self.filter is not None:
            lines += [f"  filter   {self.filter}", *(f"           {use}" for use in self.filter.indices)]
        if self.measured_fragments:
            share = f"{self.measured_rows:,} of {self.total_rows:,} rows"
            ids = some_ids(self.measured_fragments)
            lines.append(f"  measure  {plural(len(self.measured_fragments), 'fragment')} ({share}): {ids}")
        if self.remeasured:
            lines.append(f"  refine   {self.remeasured} candidates of the index, by the vectors of the table")
        lines += [f"  skipped  {s.index}, segment {s.uuid}: {s.reason}" for s in self.skipped]
        if self.seconds is not None:
            cost = f"{plural(self.reads or 0, 'index read')}, {self.seconds * 1000:.1f} ms"
            work = f"{self.rows_scored:,} rows scored, {self.rows_measured:,} measured"
            lines.append(f"  ran      {work}, {self.rows_returned} rows returned, {cost}")
        if self.cache is not None:
            lines.append(f"  cache    {self.cache}")
        return in_lines(lines)

    def _shape(self) -> str:
        shape = SearchRequest(
            self.column, self.k, distance_range=self.distance_range, offset=self.offset, distinct_by=self.distinct_by
        )
        return shape.shape_text

    def _probes(self) -> str:
        if self.k is None:
            if not self.segments:
                return "not used: it has no bound on what is within a distance, so every row is measured"
            return "partitions whose radius does not rule out rows within the distance; rows that may be are measured"
        first = f"{plural(self.minimum_nprobes, 'partition')} of each segment"
        if self.maximum_nprobes == self.minimum_nprobes:
            return first
        most = "more" if self.maximum_nprobes is None else f"up to {self.maximum_nprobes:,}"
        selected = " or too few selected rows were compared" if self.filter and not self.filter.after else ""
        return f"{first}, {most} while there are fewer than {self.k} results{selected}"


def explain_search(
    catalog: Catalog, request: SearchRequest, query: VectorLike, analyze: bool = False
) -> SearchExplanation:
    """Plan a search from centroids and lookups alone; with `analyze`, run it too and report what it read."""
    check_columns(catalog.snapshot, request)
    question = read_request(catalog.snapshot, request, query, many=False)
    if analyze:
        return _ran(catalog, question)
    source = usable_source(catalog, question)
    check_length(question, source.metric)
    question = refined(question, source)
    probed = source.segments if _asked(source, question) else ()
    uses = tuple(_planned_use(segment, question) for segment in probed)
    filter = request.filter if request.prefilter else None
    prefilter = None if filter is None else Prefilter.of(catalog, filter, search=False)
    return _explanation(catalog, question, source, uses, _use_of_filter(catalog, request, prefilter))


def _ran(catalog: Catalog, question: Question) -> SearchExplanation:
    reads, start = ReadCounter(), time.perf_counter()
    with counting_reads(reads), counting_cache() as cache:
        found, trace = find_neighbors(catalog, question)
        returned = to_table(catalog.snapshot, question.request, found, many=False).num_rows
    seconds = time.perf_counter() - start
    if trace.prefilter is not None and not trace.filter_known:
        reads.reads += trace.prefilter.answer.reads.reads
    question = refined(question, trace.source)
    segments = trace.source.segments if _asked(trace.source, question) else ()
    traces = trace.segments or [SegmentTrace() for _ in segments]
    uses = tuple(_actual_use(s, t) for s, t in zip(segments, traces, strict=True))
    used = _use_of_filter(catalog, question.request, trace.prefilter)
    if used is not None and not used.after:
        few = trace.rows_selected is not None and not trace.segments
        used = replace(used, rows_selected=trace.rows_selected, few=few)
    return replace(
        _explanation(catalog, question, trace.source, uses, used),
        rows_scored=sum(t.rows_scored for t in traces),
        rows_measured=trace.rows_measured,
        rows_returned=returned,
        reads=reads.reads,
        seconds=seconds,
        cache=cache,
    )


def _explanation(
    catalog: Catalog, question: Question, source: Source, segments: tuple[SegmentUse, ...], filter: FilterUse | None
) -> SearchExplanation:
    snapshot, manifest = catalog.snapshot, catalog.snapshot.manifest
    least, radius = question.request.least_probes, question.request.k is None
    again = bool(source.segments) and measured_again(question, source) and not radius
    measured = manifest.live if filter is None and not _asked(source, question) else source.exact
    return SearchExplanation(
        table=snapshot.uri,
        version=snapshot.version,
        column=question.column.path,
        metric=source.metric.value,
        k=question.request.k,
        nprobes=question.request.nprobes,
        minimum_nprobes=max((probing(question, None).least_of(s) for s in source.segments), default=least),
        maximum_nprobes=question.request.most_probes,
        index=source.index,
        segments=segments,
        filter=filter,
        measured_fragments=tuple(measured),
        measured_rows=manifest.rows_in(measured),
        total_rows=manifest.rows_in(manifest.live),
        remeasured=question.wanted if again else 0,
        skipped=(*catalog.skipped, *source.passed_over),
        distance_range=question.request.distance_range,
        offset=question.request.offset,
        distinct_by=question.request.distinct_by,
        choice=source.reason,
        expected=question.request.expected,
    )


def _asked(source: Source, question: Question) -> bool:
    """Whether the index is asked at all."""
    return question.request.k is not None or has_bounds(source, question)


def _planned_use(segment: SearchSegment, question: Question) -> SegmentUse:
    opened = segment.opened
    if question.request.k is None:
        probes = partitions_within(segment, question)
    else:
        least = probing(question, None).least_of(segment)
        probes = opened.files.ivf.rank(opened.ask(question.queries)[0], least)[0][0]
    trace = SegmentTrace(len(probes), rows=int(opened.lengths[probes].sum()))
    return replace(_actual_use(segment, trace), loaded=None, rows_scored=None)


def _actual_use(segment: SearchSegment, trace: SegmentTrace) -> SegmentUse:
    files = segment.opened.files
    return SegmentUse(
        uuid=segment.usable.segment.uuid,
        kind=files.kind.name,
        fragments=len(segment.coverage),
        partitions=files.ivf.num_partitions,
        probed=trace.partitions,
        rows=trace.rows,
        loaded=trace.partitions_loaded,
        rows_scored=trace.rows_scored,
    )


def _use_of_filter(catalog: Catalog, request: SearchRequest, prefilter: Prefilter | None) -> FilterUse | None:
    """Also of a filter that is applied after the search."""
    if prefilter is None and request.filter:
        return FilterUse(str(parse(catalog.snapshot, request.filter)), (), 0, after=True)
    return filter_use(catalog, prefilter)


def filter_use(catalog: Catalog, prefilter: Prefilter | None) -> FilterUse | None:
    """How a filter is answered, as far as it is planned."""
    if prefilter is None:
        return None
    understood, answer = str(parse(catalog.snapshot, prefilter.filter)), prefilter.answer
    return FilterUse(understood, index_uses(answer), len(answer.scanned))
