"""Plan a kNN join: whether one task holds the index, or how its partitions are distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from pennon.format.snapshot import Pin
from pennon.index.cache import ByteCache
from pennon.jobs.shared.tasks import whole_waves
from pennon.jobs.vector.build import cut_by_weight
from pennon.query.catalog import Catalog
from pennon.query.scan.execute import parse
from pennon.query.search.choice import refined
from pennon.query.search.join_search import JoinSearch, Stretch
from pennon.query.search.probe import PROBED_BY_DEFAULT
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.result_table import check_columns
from pennon.query.search.source import Source, usable_source
from pennon.wording import human_bytes, in_lines, plural

# Fractions of a task's memory: for partitions of the index, and for a block of queries with its results.
INDEX_SHARE, BLOCK_SHARE = 2, 8
# A loaded row also has an entry in the live rows: an address, or a flag.
ALIVE_BYTES = 9
# Bytes of the distance and address of a candidate, twice during a merge.
CANDIDATE_BYTES = 24
MOST_BLOCK_ROWS = 1 << 15
# Tasks per core that merge and finish: short waves, so that no core waits long for the last.
GATHERER_WAVES = 2


@dataclass(frozen=True)
class KnnJoinPlan:
    """The plan of a join. Small: tasks open models and partitions from the table's files.

    Without `groups`, every task searches the whole index for its own queries. Otherwise a group is some partitions of
    the index that one task loads and answers for; `gatherers` tasks merge the answers.
    """

    pin: Pin
    request: SearchRequest
    query_column: str
    segments: tuple[str, ...] = field(repr=False)
    left_out: tuple[str, ...] = field(repr=False)
    index_rows: int
    index_bytes: int  # of all partitions when loaded
    measured_rows: int  # in fragments that no segment covers
    block_rows: int
    memory_bytes: int
    groups: tuple[tuple[Stretch, ...], ...] = field(default=(), repr=False)
    gatherers: int = 0

    def open(self) -> JoinSearch:
        """The searches of this join, shared by its tasks in one worker process."""
        return _open(self)

    def __str__(self) -> str:
        request = self.request
        held = f"{plural(self.index_rows, 'row')} in {plural(len(self.segments), 'segment')}"
        lines = [
            f"kNN join with {self.pin.location.shown}, version {self.pin.version}",
            f"  nearest  {request.shape_text} by {request.metric} of column {request.column}",
            f"  index    {request.index or 'none'}: {held}, {human_bytes(self.index_bytes)} when loaded",
        ]
        if self.measured_rows:
            lines.append(f"  measure  {plural(self.measured_rows, 'row')}, once for every block of queries")
        grouped = f"{plural(len(self.groups), 'group')} of partitions, then {plural(self.gatherers, 'task')} that merge"
        lines.append(f"  tasks    {grouped if self.groups else 'as many as the frame has partitions'}")
        lines.append(
            f"  memory   {human_bytes(self.memory_bytes)} a task, {plural(self.block_rows, 'query', 'queries')} at once"
        )
        return in_lines(lines)


def plan_knn_join(
    catalog: Catalog, request: SearchRequest, query_column: str, memory_bytes: int, parallelism: Callable[[], int]
) -> KnnJoinPlan:
    """Reads the centroids of segments and the lengths of their partitions. `parallelism` is called only if needed."""
    snapshot = catalog.snapshot
    check_columns(snapshot, request)
    question = read_request(snapshot, request, (), many=True)
    if request.filter is not None:
        parse(snapshot, request.filter)
    source = usable_source(catalog, question)
    question = refined(question, source)
    left_out = tuple(skipped.uuid for skipped in catalog.skipped)
    sizes = _sizes(source)
    index_bytes = int(sum(size.sum() for size in sizes))
    # Lookups of several vectors are combined where all of them are made.
    fits = index_bytes <= memory_bytes // INDEX_SHARE or question.starts is not None
    groups = () if fits else _groups(sizes, memory_bytes // INDEX_SHARE, parallelism())
    per_segment = max(request.least_probes, PROBED_BY_DEFAULT[1])
    answers = max(1, len(groups))
    if request.filter is None:
        answers = min(answers, max(1, per_segment * len(source.segments)))
    query_bytes = (
        2 * question.queries.itemsize * question.queries.shape[1] + answers * question.wanted * CANDIDATE_BYTES
    )
    return KnnJoinPlan(
        pin=snapshot.pin(),
        # Decided here, so that all tasks use the same values.
        request=replace(
            request,
            metric=source.metric.value,
            index=source.index,
            use_index=source.index is not None,
            refine_factor=request.refine_factor or question.refine,
            threads=1,
        ),
        query_column=query_column,
        segments=tuple(segment.usable.segment.uuid for segment in source.segments),
        left_out=left_out,
        index_rows=sum(int(segment.opened.lengths.sum()) for segment in source.segments),
        index_bytes=index_bytes,
        measured_rows=snapshot.manifest.rows_in(source.exact),
        block_rows=int(min(MOST_BLOCK_ROWS, max(64, memory_bytes // BLOCK_SHARE // query_bytes))),
        memory_bytes=memory_bytes,
        groups=groups,
        gatherers=0 if fits else GATHERER_WAVES * parallelism(),
    )


def _sizes(source: Source) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Bytes of each partition of each segment, when loaded."""
    return [segment.opened.lengths * (segment.opened.row_bytes + ALIVE_BYTES) for segment in source.segments]


def _groups(
    sizes: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]], budget: int, parallelism: int
) -> tuple[tuple[Stretch, ...], ...]:
    """Ranges of partitions, one segment after another, in groups of about equal size within the budget."""
    # Half of the budget, since a cut is after the partition that crosses the limit.
    wanted = whole_waves(max(1, -(-int(sum(map(np.sum, sizes))) // max(1, budget // 2))), parallelism)
    segments = np.repeat(np.arange(len(sizes)), [len(size) for size in sizes])
    numbers = np.concatenate([np.arange(len(size)) for size in sizes])
    groups: list[tuple[Stretch, ...]] = []
    for start, end in pairwise(cut_by_weight(np.concatenate(sizes) + 1.0, wanted)):
        edges = [start, *(np.flatnonzero(np.diff(segments[start:end])) + start + 1).tolist(), end]
        groups.append(tuple((int(segments[a]), int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in pairwise(edges)))
    return tuple(groups)


@lru_cache(maxsize=1)
def _open(plan: KnnJoinPlan) -> JoinSearch:
    """Keeps only one: a worker that runs another join frees the memory of the previous one."""
    return JoinSearch(
        Catalog.read(plan.pin.open(), ByteCache(plan.memory_bytes // INDEX_SHARE)), plan.request, plan.left_out
    )
