"""Which rows an index rules out where all rows within a distance are asked for.

An index that stores the vectors themselves, for l2, bounds what it leaves out. Every row of a partition is within the
radius of the partition of its centroid, so a partition holds no answer if the query is farther from the centroid than
the radius and the distance asked for together. The rows of other partitions are compared by their stored vectors. Both
leave room for rounding; the rows that remain are measured on the vectors of the table, like any others.

Codes have no such bound: nothing is recorded of how far a vector is from its code, or from its centroid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.row_set import RowSet
from pennon.index.vector.metric import Metric
from pennon.index.vector.search.partition import SearchPartition
from pennon.index.vector.search.segment import FETCHING_THREADS
from pennon.index.vector.vectors import Floats, Mask, Positions
from pennon.query.catalog import attributing_errors
from pennon.query.search.live_rows import PartitionRows
from pennon.query.search.prefilter import Selection
from pennon.query.search.probe import SegmentTrace
from pennon.query.search.request import Question
from pennon.query.search.source import SearchSegment, Source

# Up to this many selected rows are measured without the index.
FEW_SELECTED = 1000
# Distances of a block of queries to the rows of a partition, at most.
DISTANCES_AT_ONCE = 1 << 22


def has_bounds(source: Source, question: Question) -> bool:
    """Whether the index rules out rows by their distance."""
    stored = all(segment.opened.files.quantizer.stores_vectors for segment in source.segments)
    return bool(source.segments) and stored and source.metric is Metric.L2 and question.starts is None


def rows_within(
    source: Source, question: Question, selection: Selection | None, traces: Sequence[SegmentTrace]
) -> RowSet:
    """The rows of the index that may be nearer to any of the queries than the upper bound."""
    found: list[Addresses] = []
    for segment, trace in zip(source.segments, traces, strict=True):
        search = _Within(segment, question, selection, trace)
        numbers = search.partitions().tolist()
        for start in range(0, len(numbers), FETCHING_THREADS):
            found += search.rows(numbers[start : start + FETCHING_THREADS])
    return RowSet.of_addresses(sorted_unique(np.concatenate([np.empty(0, dtype=np.uint64), *found])))


def partitions_within(segment: SearchSegment, question: Question) -> Positions:
    """The partitions that are not ruled out by what is known of them so far: the radius of a partition is known once it
    has been read."""
    return _Within(segment, question, None, SegmentTrace()).partitions()


class _Within:
    def __init__(
        self, segment: SearchSegment, question: Question, selection: Selection | None, trace: SegmentTrace
    ) -> None:
        self._segment, self._opened, self._trace = segment, segment.opened, trace
        self._flags = None if selection is None else segment.flags(selection)[0]
        upper = question.request.upper
        assert upper is not None
        self._upper = max(float(np.float32(upper)), 0.0)
        ivf = self._opened.files.ivf
        # What sums of as many squares as there are dimensions may lose to rounding.
        self._rounding = 2 * (ivf.dim + 16) * float(np.finfo(np.float32).eps)
        self._asked = self._opened.ask(question.queries)[1]
        self._centers = np.sqrt(ivf.metric.distances(question.queries, ivf.centroids).astype(np.float64))

    def partitions(self) -> Positions:
        numbers = np.flatnonzero(self._opened.lengths)
        return numbers[self._reach(self._opened.radii[numbers], numbers).any(axis=0)]

    def rows(self, numbers: list[int]) -> list[Addresses]:
        """The rows of some partitions that are not ruled out."""
        with attributing_errors(self._segment.usable):
            loaded, fetched = self._opened.partitions(numbers)
            rows = self._segment.rows(dict(zip(numbers, loaded, strict=True)))
        self._trace.partitions_loaded += fetched
        for number, partition in zip(numbers, loaded, strict=True):
            if not np.isfinite(self._opened.radii[number]):
                self._opened.radii[number] = partition.scorer.radius
        reached = self._reach(self._opened.radii[numbers], numbers)
        parts = zip(numbers, loaded, reached.T, strict=True)
        return [self._rows(number, part, rows[number], np.flatnonzero(asking)) for number, part, asking in parts]

    def _rows(self, number: int, partition: SearchPartition, rows: PartitionRows, asking: Positions) -> Addresses:
        if not len(asking):
            return rows.addresses[:0]
        allowed = rows.flagged(self._flags)
        near = np.zeros(len(partition), dtype=np.bool_)
        step = max(1, DISTANCES_AT_ONCE // len(partition))
        for start in range(0, len(asking), step):
            some = asking[start : start + step]
            near |= self._near(partition.scorer.distances(self._asked[some]), number, some).any(axis=0)
        self._trace.partitions += 1
        self._trace.rows += len(partition)
        self._trace.rows_scored += len(partition) if allowed is None else int(np.count_nonzero(allowed))
        return rows.addresses[near if allowed is None else near & allowed]

    def _reach(self, radii: Floats, numbers: Positions | list[int]) -> Mask:
        """By query and partition, whether any row may be near enough. A comparison with NaN rules out nothing."""
        bound = np.sqrt(self._upper) + radii
        centers = self._centers[:, numbers]
        with np.errstate(invalid="ignore"):
            return ~(centers - bound > self._rounding * (centers + bound))

    def _near(self, distances: Floats, number: int, queries: Positions) -> Mask:
        """Distances lose digits of the lengths that they are computed from."""
        lengths = self._centers[queries, number] + float(self._opened.radii[number])
        with np.errstate(invalid="ignore"):
            return ~(distances - self._upper > (self._rounding * (lengths + np.sqrt(self._upper)) ** 2)[:, None])
