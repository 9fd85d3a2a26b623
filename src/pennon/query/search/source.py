"""Where a search finds its vectors: the segments of one index, and the fragments that none of them covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.errors import DamagedFile, IndexNotFound, InvalidArgument, PennonError
from pennon.format.schema import Column
from pennon.index.cache import ByteCache
from pennon.index.kind import Query
from pennon.index.registry import kind_of
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.metric import Metric
from pennon.index.vector.search.partition import SearchPartition
from pennon.index.vector.search.segment import VectorSegment
from pennon.index.vector.vectors import Mask, Positions, VectorType
from pennon.query.catalog import Catalog, Skipped, UnusableSegment, UsableIndex, UsableSegment, attributing_errors
from pennon.query.search.live_rows import LiveRows, PartitionRows
from pennon.query.search.prefilter import Selection
from pennon.query.search.request import Question
from pennon.query.search.tuning.preference import preferred


@dataclass(frozen=True, eq=False)
class Loaded:
    """Partitions with their rows in the table, and how many of each member's were not in the cache."""

    partitions: dict[int, SearchPartition]
    rows: dict[int, PartitionRows]
    fetched: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SearchSegment:
    """An open segment, the live fragments it is asked about, and its rows there."""

    usable: UsableSegment
    opened: VectorSegment
    coverage: BitMap
    live: LiveRows
    cache: ByteCache

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Rows of each partition."""
        return self.opened.lengths

    @property
    def num_rows(self) -> int:
        return self.opened.files.layout.rows

    @property
    def members(self) -> tuple[SearchSegment, ...]:
        return (self,)

    def flags(self, selection: Selection) -> tuple[Mask, int]:
        """Whether rows are selected, by their places, and how many are."""
        return selection.flags(self.live.token, lambda: self.live.flags(selection.rows))

    def load(self, numbers: Sequence[int]) -> Loaded:
        """May raise UnusableSegment."""
        with attributing_errors(self.usable):
            found, fetched = self.opened.partitions(numbers)
            partitions = dict(zip(numbers, found, strict=True))
            return Loaded(partitions, self.rows(partitions), (fetched,))

    def rows(self, partitions: Mapping[int, SearchPartition]) -> dict[int, PartitionRows]:
        """Worked out once per handle on a version, and cached with the partitions."""
        known = self.cache.get_all([(self.live.token, number) for number in partitions])
        found: dict[int, PartitionRows] = {}
        for (number, partition), rows in zip(partitions.items(), known, strict=True):
            if rows is None:
                rows = self.live.of(partition.row_ids, partition.alive)
                self.cache.put((self.live.token, number), rows, rows.nbytes)
            found[number] = rows
        return found

    def flagged(self, flags: Mask) -> Positions:
        """How many rows of each partition may be answered and are flagged. The ids of all rows are read for it, not
        their codes, and nothing is cached."""
        ends = np.cumsum(self.opened.lengths)
        counts, start = np.zeros(len(ends), dtype=np.int64), 0
        with attributing_errors(self.usable):
            for row_ids, alive in self.opened.current_ids():
                mask = self.live.of(row_ids, alive).flagged(flags)
                chosen = start + (np.arange(len(row_ids)) if mask is None else np.flatnonzero(mask))
                counts += np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=len(ends))
                start += len(row_ids)
        return counts


@dataclass(frozen=True, eq=False)
class Source:
    """`exact` are the live fragments to be measured row by row. Segments of another metric are passed over."""

    metric: Metric
    index: str | None
    segments: tuple[SearchSegment, ...]
    covered: BitMap
    exact: BitMap
    passed_over: tuple[Skipped, ...] = ()
    reason: str | None = None  # why this index, where there are several
    memory: dict[str, Any] = field(default_factory=dict, repr=False)  # of what is worked out once for all searches


def find_source(catalog: Catalog, question: Question) -> Source:
    """May raise UnusableSegment. Remembered, since most searches of a column have the same."""
    request, memory = question.request, catalog.memory
    asked = ("asked", question.column.path, question.metric, request.index, request.use_index)
    found = memory.get(asked)
    if found is None:
        index, metric, reason = _choose(catalog, question)
        chosen = ("chosen", question.column.path, metric, index.name if index else None)
        found = memory.get(chosen) or memory.setdefault(chosen, _source(catalog, index, metric))
        found = memory[asked] = replace(found, reason=reason)
    return found


def usable_source(catalog: Catalog, question: Question) -> Source:
    """Without the segments that turn out unusable when they are opened."""
    while True:
        try:
            return find_source(catalog, question)
        except UnusableSegment as unusable:
            catalog.exclude(unusable)


def sources_of(catalog: Catalog, question: Question) -> list[Source]:
    """Every index that the question may be answered with, the one named or all of its metric. May raise
    UnusableSegment."""
    index, metric, _ = _choose(catalog, question)
    if question.request.index is not None or index is None:
        found = [index] if index is not None else []
    else:
        found = [usable for usable, _ in _of_metric(catalog, question.column, metric)]
    request = question.request
    return [find_source(catalog, replace(question, request=replace(request, index=each.name))) for each in found]


def _choose(catalog: Catalog, question: Question) -> tuple[UsableIndex | None, Metric, str | None]:
    """The index to use, if any, the metric, and the reason where there are several indices."""
    column, request, metric = question.column, question.request, question.metric
    reason = None
    if request.index is not None:
        index, metric = _named(catalog, column, request.index, metric)
    else:
        metric = metric or _metric_of_column(catalog, column)
        index, reason = preferred(catalog, column.path, metric, _of_metric(catalog, column, metric))
    return (index, metric, reason) if request.use_index else (None, metric, None)


def _of_metric(catalog: Catalog, column: Column, metric: Metric) -> list[tuple[UsableIndex, VectorSegment]]:
    """The indices that measure so, each with its first segment, the one that covers most rows first."""
    opened = [(index, _open(catalog, index.segments[0])) for index in _by_coverage(catalog, column)]
    return [(index, first) for index, first in opened if first.metric is metric]


def _source(catalog: Catalog, index: UsableIndex | None, metric: Metric) -> Source:
    snapshot, covered = catalog.snapshot, BitMap()
    segments: list[SearchSegment] = []
    passed_over: list[Skipped] = []
    for usable in index.segments if index else ():
        opened = _open(catalog, usable)
        if opened.metric is not metric:
            passed_over.append(Skipped(usable.segment.name, usable.segment.uuid, f"is for the metric {opened.metric}"))
            continue
        # No writer lets segments overlap; if one did, a row would come back twice.
        own = usable.coverage - covered
        addresses = usable.kind.stores_addresses(usable.segment.index_version, snapshot.manifest.has_stable_row_ids)
        segments.append(
            SearchSegment(usable, opened, own, LiveRows(snapshot, own, addresses, placed=True), catalog.cache)
        )
        covered |= own
    name = index.name if index else None
    return Source(metric, name, tuple(segments), covered, snapshot.manifest.live - covered, tuple(passed_over))


def _named(catalog: Catalog, column: Column, name: str, metric: Metric | None) -> tuple[UsableIndex | None, Metric]:
    """The index of that name, None when no segment of it can be used."""
    segments = [s for s in catalog.snapshot.manifest.user_segments if s.name == name]
    if not segments:
        known = (s.name for s in catalog.snapshot.manifest.user_segments)
        raise IndexNotFound.among(known, name, catalog.snapshot.uri)
    kind = kind_of(segments[0])
    if segments[0].fields != (column.field_id,) or (kind is not None and Query.NEAREST not in kind.queries):
        problem = f"index {name!r} is not a vector index on column {column.path!r}"
        raise InvalidArgument(problem, "Name an index on this column, or omit index to have one chosen")
    index = next((i for i in catalog.serving(Query.NEAREST, column.path) if i.name == name), None)
    own = _recorded_metric(catalog, name, column) if index is None else _metric(catalog, index)
    if metric is not None and own is not None and metric is not own:
        raise InvalidArgument(f"index {name!r} is for the metric {own}, not {metric}", "Leave out index, or metric")
    return index, own or metric or _default_metric(column)


def _metric_of_column(catalog: Catalog, column: Column) -> Metric:
    """What distances mean on a column by default: what its index means by them, also while that is
    damaged and answers nothing."""
    known, key = catalog.lasting, ("metric", column.path)
    if key not in known:
        indices = _by_coverage(catalog, column)
        recorded: Metric | None = None
        for index in indices:
            try:
                recorded = _metric(catalog, index)
            except UnusableSegment as unusable:
                if not isinstance(unusable.error, DamagedFile):
                    raise
                recorded = _recorded_metric(catalog, index.name, column)
            if recorded is not None:
                break
        known[key] = recorded or _recorded_metric(catalog, None, column) or _default_metric(column)
    return known[key]


def _default_metric(column: Column) -> Metric:
    return Metric.default(VectorType.of(column.type).element)


def _recorded_metric(catalog: Catalog, name: str | None, column: Column) -> Metric | None:
    """What the manifest records of an index, or of any vector index on the column."""
    for segment in catalog.snapshot.manifest.user_segments:
        kind = kind_of(segment)
        if name not in (None, segment.name) or segment.fields != (column.field_id,):
            continue
        if kind is None or Query.NEAREST not in kind.queries:
            continue
        try:
            details = VectorDetails.from_bytes(segment.details)
        except PennonError:
            continue
        if details is not None:
            return details.metric
    return None


def _by_coverage(catalog: Catalog, column: Column) -> list[UsableIndex]:
    """Vector indices on the column, the one that covers most rows first."""
    indices = catalog.serving(Query.NEAREST, column.path)
    manifest = catalog.snapshot.manifest
    return sorted(indices, key=lambda index: -manifest.rows_in(index.coverage))


def _metric(catalog: Catalog, index: UsableIndex) -> Metric:
    """Of its first segment, read from the files: the manifest may be wrong without harm to any search."""
    return _open(catalog, index.segments[0]).metric


def _open(catalog: Catalog, usable: UsableSegment) -> VectorSegment:
    with attributing_errors(usable):
        return cast(VectorSegment, catalog.open(usable))
