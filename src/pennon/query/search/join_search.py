"""The searches of a kNN join in one process: block after block of queries, on one handle with a cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import DamagedFile, InvalidArgument, UnsupportedTable
from pennon.format.schema import Column
from pennon.index.kind import Query
from pennon.index.vector.metric import Metric
from pennon.index.vector.several import starts_of
from pennon.index.vector.vectors import Mask, Positions, Vectors, VectorType, in_type
from pennon.query.catalog import Catalog, UnusableSegment
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.probe import Probing
from pennon.query.search.request import Question, SearchRequest, read_request
from pennon.query.search.result_table import to_table
from pennon.query.search.routing import all_partitions, nearest_within
from pennon.query.search.run import SearchTrace, Task, plan_task, probing, run_task
from pennon.query.search.shapes import needs_more
from pennon.query.search.source import Source, usable_source

# Some partitions of a segment: its number among those of the source, the first, and the end.
Stretch = tuple[int, int, int]


class JoinSearch:
    """What the filter selects is found out once and kept, unlike that of a single search."""

    def __init__(self, catalog: Catalog, request: SearchRequest, left_out: Sequence[str] = ()) -> None:
        """`left_out` are segments that the planner of the join could not use."""
        self._catalog = catalog
        self._question = read_request(catalog.snapshot, request, (), many=True)
        for index in [*catalog.serving(Query.NEAREST, self._question.column.path)]:
            for usable in index.segments:
                if usable.segment.uuid in left_out:
                    catalog.exclude(UnusableSegment(usable, UnsupportedTable("left out by the plan of the join")))

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(segment.usable.segment.uuid for segment in self._source().segments)

    def read(self, lists: pa.Array) -> tuple[Vectors, Mask]:
        """The queries among some lists that have distances, and which lists those are."""
        return read_lists(lists, self._question.column, self._source().metric)

    def ask(self, lists: pa.Array) -> tuple[Question, Mask]:
        """As `read`, where a query may have several vectors."""
        if self._question.starts is None:
            queries, valid = self.read(lists)
            return replace(self._question, queries=queries), valid
        return read_several(lists, self._question, self._source().metric)

    def nearest(self, queries: Vectors, candidates: Neighbors | None = None) -> Neighbors:
        """The neighbors of some queries of one vector each."""
        return self.answer(replace(self._question, queries=queries), candidates)

    def answer(self, question: Question, candidates: Neighbors | None = None) -> Neighbors:
        """The neighbors of some queries. `candidates` are what others found for them in the partitions they probe;
        without them, a segment that turns out damaged is left out and its fragments are measured."""
        if needs_more(question.request):
            candidates = None  # which are the nearest, and need not be among the answers
        while True:
            try:
                trace = SearchTrace(self._source())
                return run_task(self._catalog, question, self._task(), trace, candidates)
            except UnusableSegment as unusable:
                if candidates is not None:
                    raise self._unreadable(unusable) from unusable
                self._catalog.exclude(unusable)

    def probes(self, queries: Vectors) -> list[Positions]:
        """The partitions each query probes, -1 for none, segment by segment; none if the filter selects few enough rows
        to measure all."""
        if not self._task().indexed or needs_more(self._question.request):
            return []
        how = self._how
        try:
            return [all_partitions(segment, queries, how) for segment in self._source().segments]
        except UnusableSegment as unusable:
            raise self._unreadable(unusable) from unusable

    def within(self, stretch: Stretch, queries: Vectors, probes: Positions) -> Neighbors:
        """Candidates from some partitions of a segment."""
        segment, first, end = stretch
        try:
            return nearest_within(self._source().segments[segment], queries, probes, range(first, end), self._how)
        except UnusableSegment as unusable:
            raise self._unreadable(unusable) from unusable

    def rows(self, found: Neighbors) -> pa.Table:
        """The columns asked for and the distances of all neighbors, query by query."""
        return to_table(self._catalog.snapshot, self._question.request, found, many=False)

    @property
    def _how(self) -> Probing:
        return probing(self._question, self._task().selection)

    def _source(self) -> Source:
        return usable_source(self._catalog, self._question)

    def _task(self) -> Task:
        # Not beyond the segments it was made for: the catalog forgets it when one leaves.
        memory, key = self._catalog.memory, ("task", self._question.request)
        task = cast(Task | None, memory.get(key))
        if task is None:
            task = memory[key] = plan_task(self._catalog, self._question, SearchTrace(self._source()))
        return task

    def _unreadable(self, unusable: UnusableSegment) -> DamagedFile:
        """Other tasks rely on the segment; no one of them can decide to do without it."""
        return DamagedFile(
            f"a kNN join over {self._catalog.snapshot.uri} cannot use a segment of index "
            f"{unusable.usable.segment.name!r}: {unusable.error.problem}",
            "Rebuild the index, or pass use_index=False",
        )


def read_lists(lists: pa.Array, column: Column, metric: Metric) -> tuple[Vectors, Mask]:
    """Lists of numbers as queries of the column's type. NULLs, and vectors that have no distance to anything, are left
    out: NULL, NaN or infinite items, length 0 under cosine."""
    held = VectorType.of(column.type)
    dim = held.dim
    kept = lists.is_valid().to_numpy(zero_copy_only=False)
    given = lists.drop_null() if lists.null_count else lists
    lengths = pc.list_value_length(given).to_numpy(zero_copy_only=False)
    if (lengths != dim).any():
        raise InvalidArgument(
            f"a query vector has {lengths[lengths != dim][0]} items, vectors of column {column.path!r} have {dim}",
            "Embed the queries with the model that made the column",
        )
    items = _items(given.flatten())
    with np.errstate(over="ignore"):
        try:
            vectors = in_type(items, held.element).reshape(len(given), dim)
        except ValueError as error:
            raise InvalidArgument(f"a query vector of column {column.path!r} cannot be read: {error}") from error
    valid = metric.indexable(vectors)
    if valid.all():
        return vectors, kept
    kept[kept] = valid
    return vectors[valid], kept


def read_several(lists: pa.Array, question: Question, metric: Metric) -> tuple[Question, Mask]:
    """Lists of vectors as queries; vectors without a distance to anything are left out, and queries of no others."""
    vectors, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    queries, valid = read_lists(vectors, question.column, metric)
    rows = rows[valid].astype(np.int64)
    kept = np.zeros(len(lists), dtype=np.bool_)
    kept[rows] = True
    return replace(question, queries=queries, starts=starts_of(rows)), kept


def _items(values: pa.Array) -> npt.NDArray[Any]:
    return (pc.fill_null(values, np.nan) if values.null_count else values).to_numpy(zero_copy_only=False)
