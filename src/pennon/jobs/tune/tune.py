"""Measure what settings of searches give a recall, and store the choice with the table."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pennon.engine import Engine
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.format.table_config import commit_config
from pennon.jobs.shared.retry import attempts
from pennon.jobs.tune.exact import exact_neighbors
from pennon.jobs.tune.result import TuningResult, result_of
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.query_vectors import VectorLike
from pennon.query.search.request import SearchRequest, check_length, read_request
from pennon.query.search.source import Source, sources_of, usable_source
from pennon.query.search.tuning.record import Tuning, read_tunings
from pennon.query.search.tuning.resolve import check_recall, measure
from pennon.query.search.tuning.truth import Queries, check_one_vector, sample_rows

LEAST_QUERIES = 10


def tune(
    engine: Engine, catalog: Catalog, request: SearchRequest, queries: VectorLike | None, sample: int, *, store: bool
) -> tuple[Snapshot, TuningResult]:
    """Measure the settings for the recall of a request, by given queries or a sample of rows.

    Raises:
        InvalidArgument: the recall is out of its range, or there are too few queries with neighbors.
        CommitConflict: the choice cannot be stored.
    """
    check_recall(request.recall)
    started, snapshot = time.monotonic(), catalog.snapshot
    question = read_request(snapshot, request, () if queries is None else queries, many=True)
    check_one_vector(question.column)
    sources = _sources(catalog, request)
    metric = sources[0].metric if sources else usable_source(catalog, question).metric
    request = replace(request, metric=metric.value)
    if queries is None:
        asked = sample_rows(snapshot, question.column, metric, sample, seed=snapshot.version)
    else:
        check_length(question, metric)
        asked = Queries(question.queries)
    truth = exact_neighbors(engine, catalog, request, metric, asked)
    if len(truth) < LEAST_QUERIES:
        raise InvalidArgument(
            f"{len(truth)} queries have neighbors in column {request.column!r} of {snapshot.uri}, which is too few to "
            "measure recall",
            f"Give at least {LEAST_QUERIES} queries, or a filter that selects more rows",
        )
    with engine.stage("settings"):
        tuning = measure(catalog, request, truth, sources)
    newest = _store(snapshot, tuning) if store else snapshot
    figures: dict[str, Any] = {"stored": store, "seconds": time.monotonic() - started}
    return newest, result_of(snapshot.uri, tuning, request.filter, len(truth), queries is None, **figures)


def _sources(catalog: Catalog, request: SearchRequest) -> list[Source]:
    """The indices to measure, without segments that turn out unusable."""
    while True:
        try:
            question = read_request(catalog.snapshot, request, (), many=True)
            return [source for source in sources_of(catalog, question) if source.segments]
        except UnusableSegment as unusable:
            catalog.exclude(unusable)


def _store(snapshot: Snapshot, tuning: Tuning) -> Snapshot:
    """In place of what was stored for the same searches, and of what holds for no index any more."""
    for attempt in attempts(snapshot, f"store the tuning of {tuning.column}"):
        with attempt as base:
            entries: dict[str, str | None] = dict.fromkeys(_void(base, tuning.column))
            return commit_config(base, {**entries, tuning.key: tuning.shortened().to_json()})
    raise AssertionError("the last attempt raises")


def _void(base: Snapshot, column: str) -> list[str]:
    names = {segment.name for segment in base.manifest.user_segments}
    return [
        tuning.key
        for tuning in read_tunings(base)
        if tuning.column == column and not names.intersection(state.name for state in tuning.indices)
    ]
