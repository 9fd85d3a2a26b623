"""Turns a recall that is asked for into an index and options: by what is stored with the table, or else by a
measurement that the handle makes once and keeps."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from pennon.errors import DoubtfulRecallWarning, InvalidArgument, RecallUnknown
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.expected import ExpectedRecall
from pennon.query.search.request import Question, SearchRequest, read_request
from pennon.query.search.source import Source, sources_of, usable_source
from pennon.query.search.tuning.doubts import doubts
from pennon.query.search.tuning.explore import Shape, exact_search, explore
from pennon.query.search.tuning.filters import filter_class
from pennon.query.search.tuning.measure import Bench
from pennon.query.search.tuning.record import FilterClass, IndexState, Tuning, stored_tunings
from pennon.query.search.tuning.settings import Measured, Setting, cheapest
from pennon.query.search.tuning.truth import Truth, check_one_vector, find_truth, sample_rows
from pennon.wording import human_bytes

# What a handle measures without being asked to: items of vectors to read, products with queries, queries, seconds.
MOST_ITEMS, MOST_PRODUCTS = 1 << 28, 3 * 10**10
LEAST_QUERIES, MOST_QUERIES = 100, 400
MOST_SECONDS = 20.0
# Requests and measurements that a handle remembers.
REMEMBERED, KEPT = 256, 32
# Turns of the timing.
FEW_TURNS, FINAL_TURNS = 15, 51
# Settings within this factor of the fastest are timed again.
CLOSE = 1.5
SET_BY_RECALL = ("nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef")

_measuring = Lock()


def with_recall(catalog: Catalog, request: SearchRequest) -> SearchRequest:
    """The request with the options that its recall takes, and what is expected of them; the same without a recall.

    Raises:
        InvalidArgument: the recall is not above 0 and at most 1, or options that follow from it are given as well.
        RecallUnknown: nothing is stored, and the table is too large to be measured for one search.
    """
    recall = request.recall
    if recall is None:
        return request
    check_recall(recall)
    given = [name for name in SET_BY_RECALL if getattr(request, name) is not None]
    if given:
        raise InvalidArgument(f"recall sets {given[0]}, which is given as well", f"Leave out recall, or {given[0]}")
    if request.k is None:
        problem = "recall has no meaning for all rows within a distance, which are all found"
        raise InvalidArgument(problem, "Leave out recall, or give k")
    # Measured for the nearest rows, from which bounds and groups then choose.
    plain = replace(request, k=request.reach, columns=None, distance_range=None, offset=0, distinct_by=None)
    while True:
        try:
            found = _remembered(catalog, plain)
            break
        except UnusableSegment as unusable:
            catalog.exclude(unusable)
    return replace(
        found,
        k=request.k,
        columns=request.columns,
        distance_range=request.distance_range,
        offset=request.offset,
        distinct_by=request.distinct_by,
    )


def check_recall(recall: object) -> None:
    """Whether it is a number above 0 and at most 1."""
    number = float(recall) if isinstance(recall, int | float | np.number) and not isinstance(recall, bool) else 0.0
    if not 0 < number <= 1:
        raise InvalidArgument(f"recall must be a number above 0 and at most 1, not {recall!r}", "Use 0.95")


def measure(
    catalog: Catalog, request: SearchRequest, truth: Truth, sources: Sequence[Source], deadline: float = math.inf
) -> Tuning:
    """Measure the settings of some indices for the recall of a request."""
    assert request.recall is not None
    points: list[Measured] = []
    for number, source in enumerate(sources if len(truth) else ()):
        # Each has an equal share of the time that is left.
        share = (deadline - time.monotonic()) / (len(sources) - number + 1)
        bench = Bench(catalog, request, truth, time.monotonic() + share)
        points += explore(bench, Shape.of(source), request.recall)
    points = _timed(Bench(catalog, request, truth, deadline), _distinct(points), request.recall)
    manifest = catalog.snapshot.manifest
    return Tuning(
        column=request.column,
        metric=str(request.metric),
        k=request.reach,
        recall=request.recall,
        filter=filter_class(catalog, request),
        points=tuple(points),
        indices=tuple(IndexState.of(source) for source in sources),
        rows=manifest.rows_in(manifest.live),
        version=catalog.snapshot.version,
        measured_at=time.time(),
    )


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What is asked for, with the metric and the indices that may answer it."""

    catalog: Catalog
    request: SearchRequest
    recall: float
    question: Question
    sources: tuple[Source, ...]
    filter: FilterClass | None

    @property
    def names(self) -> frozenset[str | None]:
        return frozenset([None, *(source.index for source in self.sources)])

    def fits(self, tuning: Tuning) -> bool:
        assert self.request.metric is not None
        return tuning.is_for(self.question.column.path, self.request.metric, self.request.reach, self.filter)

    def best(self, tuning: Tuning, without: frozenset[str | None] = frozenset()) -> Measured | None:
        """The setting to use. Measuring every row reaches any recall: it is taken only where nothing else did for the
        recall and the k that were measured, or where it is the fastest and no index is named."""
        points = tuning.points_of(self.names - without)
        found = None
        if self.request.index is not None:
            found = cheapest((p for p in points if p.setting.index is not None), self.recall, self.request.reach)
        found = found or cheapest(points, self.recall, self.request.reach)
        if found is None or found.setting.index is not None:
            return found
        measured = cheapest(points, self.recall, tuning.k)
        unmeasured = self.recall > tuning.recall or (measured is not None and measured.setting.index is not None)
        return None if unmeasured else found

    def answered(self, tuning: Tuning, point: Measured, reason: str) -> SearchRequest:
        recall = point.recall
        expected = ExpectedRecall(
            self.recall, recall.mean, recall.low, recall.high, recall.queries, str(point.setting), reason
        )
        return replace(point.setting.applied(self.request, tuning.k), expected=expected)


def _remembered(catalog: Catalog, request: SearchRequest) -> SearchRequest:
    known: dict[SearchRequest, SearchRequest] = catalog.memory.setdefault("chosen by recall", {})
    found = known.get(request)
    if found is None:
        assert request.recall is not None
        found = _chosen(catalog, request, float(request.recall))
        if len(known) < REMEMBERED:
            known[request] = found
    return found


def _chosen(catalog: Catalog, request: SearchRequest, recall: float) -> SearchRequest:
    question = read_request(catalog.snapshot, request, (), many=True)
    check_one_vector(question.column)
    sources = tuple(each for each in sources_of(catalog, question) if each.segments) if request.use_index else ()
    metric = sources[0].metric if sources else usable_source(catalog, question).metric
    request = replace(request, metric=metric.value)
    if not sources:
        expected = ExpectedRecall(recall, 1.0, 1.0, 1.0, 0, str(Setting(None)), "every row is measured")
        return replace(request, expected=expected)
    wanted = _Wanted(catalog, request, recall, question, sources, filter_class(catalog, request))
    stored, doubtful = _stored(wanted)
    if stored is not None:
        return stored
    measurable = _queries_for(wanted) >= LEAST_QUERIES
    if doubtful is not None:
        _warn(wanted, doubtful[1], measurable)
        if not measurable:
            return doubtful[0]
    if not measurable:
        rows = catalog.snapshot.manifest.rows_in(catalog.snapshot.manifest.live)
        size = human_bytes(rows * question.queries.shape[1] * question.queries.itemsize)
        k = request.reach
        raise RecallUnknown(
            f"no setting for a recall of {recall:.4g} at k={k} is stored for column {request.column!r} of "
            f"{catalog.snapshot.uri}, and to measure one takes more than a pass over {size} of vectors",
            f"Run table.tune({request.column!r}, recall={recall:.4g}, k={k}, store=True) once, or give nprobes",
        )
    return _measured_here(wanted)


def _stored(wanted: _Wanted) -> tuple[SearchRequest | None, tuple[SearchRequest, list[str]] | None]:
    """By a measurement that still holds; else by one that is doubtful, with the doubts."""
    doubtful: tuple[SearchRequest, list[str]] | None = None
    for tuning in stored_tunings(wanted.catalog):
        if not wanted.fits(tuning):
            continue
        found, invalid = doubts(wanted.catalog, tuning, _all_sources(wanted, tuning))
        point = wanted.best(tuning, invalid)
        if point is None:
            continue
        reason = f"stored, measured at version {tuning.version}"
        # What others are like does not matter for the index that is used.
        own = [doubt for doubt in found if f"index {point.setting.index!r}" in doubt]
        if not own:
            return wanted.answered(tuning, point, reason), None
        answered = wanted.answered(tuning, point, f"{reason}, which is doubtful: {'; '.join(own)}")
        doubtful = doubtful or (answered, own)
    return None, doubtful


def _all_sources(wanted: _Wanted, tuning: Tuning) -> Sequence[Source]:
    """Of an index that is named, only its own state is looked at."""
    named = wanted.request.index
    return wanted.sources if named is None else [each for each in wanted.sources if each.index == named]


def _warn(wanted: _Wanted, found: list[str], measurable: bool) -> None:
    known, key = wanted.catalog.lasting, ("doubted", wanted.question.column.path)
    if key in known:
        return
    known[key] = True
    what = "it is measured again for this handle" if measurable else "it is used nevertheless"
    warnings.warn(
        f"the stored setting for searches of {wanted.question.column.path!r} of {wanted.catalog.snapshot.uri} is "
        f"doubtful, {what}: {'; '.join(found)}. Run table.tune(..., store=True) again",
        DoubtfulRecallWarning,
        stacklevel=5,
    )


def _measured_here(wanted: _Wanted) -> SearchRequest:
    """By a measurement of this handle."""
    catalog = wanted.catalog
    with _measuring:
        made: list[Tuning] = catalog.memory.setdefault("tunings measured here", [])
        for tuning in made:
            known = {state.name for state in tuning.indices}
            if not wanted.fits(tuning) or tuning.recall < wanted.recall or not known >= wanted.names - {None}:
                continue
            point = wanted.best(tuning)
            # There may have been too little time for each of several indices.
            hurried = wanted.request.index is not None and len(known) > 1
            if point is not None and not (hurried and point.setting.index is None):
                return wanted.answered(tuning, point, "measured by this handle")
        started = time.monotonic()
        metric = wanted.sources[0].metric
        count = _queries_for(wanted)
        queries = sample_rows(catalog.snapshot, wanted.question.column, metric, count, seed=catalog.snapshot.version)
        truth = find_truth(catalog, wanted.request, queries)
        tuning = measure(catalog, wanted.request, truth, wanted.sources, started + MOST_SECONDS)
        made.insert(0, tuning)
        del made[KEPT:]
        point = wanted.best(tuning)
        assert point is not None  # every row can be measured
        taken = time.monotonic() - started
        return wanted.answered(tuning, point, f"measured by this handle in {taken:.1f} s; tune(store=True) keeps it")


def _queries_for(wanted: _Wanted) -> int:
    """Queries that this table may be measured with for one search."""
    manifest, queries = wanted.catalog.snapshot.manifest, wanted.question.queries
    items = manifest.rows_in(manifest.live) * queries.shape[1]
    return 0 if items > MOST_ITEMS else min(MOST_QUERIES, MOST_PRODUCTS // max(1, items))


def _timed(bench: Bench, points: Sequence[Measured], target: float) -> list[Measured]:
    """All of them roughly, then again those that may be the fastest to reach the target. To measure every row takes
    long, and is one of them."""
    if not len(bench.truth):
        return [*points, exact_search()]
    left = max(1.0, min(5.0, bench.deadline - time.monotonic()))
    timed = [*bench.timed(points, FEW_TURNS, left), *bench.timed([exact_search()], 3, left)]
    reached = [point for point in timed if point.recall.low >= target]
    limit = CLOSE * min((point.milliseconds for point in reached), default=0.0)
    close = [point for point in reached if point.milliseconds <= limit]
    again = {point.setting: point for point in bench.timed(close, FINAL_TURNS, left)} if len(close) > 1 else {}
    return [again.get(point.setting, point) for point in timed]


def _distinct(points: Sequence[Measured]) -> list[Measured]:
    """Each setting once, as most queries measured it."""
    found: dict[Setting, Measured] = {}
    for point in points:
        other = found.get(point.setting)
        if other is None or other.recall.queries <= point.recall.queries:
            found[point.setting] = point
    return list(found.values())
