"""Plan the merge of B-tree segments: choose the cuts from their lookups alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.btree.boundaries import boundaries_from_sample
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import PageFile
from pennon.index.btree.pages import take
from pennon.index.btree.row_sequence import Border, Stretch
from pennon.index.btree.row_sequence import Sequence as RowSequence
from pennon.index.value_order import SortedValues, argsort, same_value
from pennon.jobs.btree.plan import MAX_ROWS_PER_RANGE, RANGES_PER_CORE, SAMPLES_PER_RANGE, copies_of, weight_of
from pennon.jobs.shared.placement import Effort, Placed
from pennon.jobs.shared.plan_display import merge_fields, merge_text
from pennon.jobs.shared.remap import MergeSource, RemapPlan
from pennon.jobs.shared.tasks import ROWS_PER_TASK, whole_waves
from pennon.wording import plural

# A range of more than this many times the target rows is split; neighbors below this share of the target are joined.
SPLIT_BEYOND = 1.5
# Rows of a merge task, in units of those of a build task.
MERGED_PER_BUILT = 2
JOIN_BELOW = 0.25


@dataclass(frozen=True)
class MergeRange:
    """One task: the stretches of the sources that reach into a range, by the source's number.

    `whole` names a page file (and its source) that can be copied as the range if the other stretches have no rows.
    """

    stretches: dict[int, Stretch]
    rows: int
    whole: tuple[int, PageFile] | None = None

    @property
    def is_untouched(self) -> bool:
        return self.whole is not None and len(self.stretches) == 1


@dataclass(frozen=True)
class BTreeMerge(Placed):
    """The plan of a merge. Rows are estimates, rather too high."""

    remap_plan: RemapPlan
    field_id: int
    value_type: pa.DataType
    name: str
    ranges: tuple[MergeRange, ...] = field(repr=False)
    row_bytes: int
    batch_size: int
    storage_version: str
    index_version: int
    delta_rows: int | None = None  # rows of a segment that is built before the merge and not in the ranges yet

    @property
    def is_estimate(self) -> bool:
        return self.delta_rows is not None

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.ranges) + (self.delta_rows or 0)

    @property
    def tasks(self) -> int:
        return max(1, len(self.ranges))

    @property
    def index_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def copied_ranges(self) -> int:
        """The minimum number of copied ranges."""
        return sum(part.is_untouched for part in self.ranges)

    @property
    def work(self) -> Effort:
        return Effort(self.remap_plan.pin.location, weight_of(self.value_type) * self.index_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task; the rows of a single source are streamed."""
        merged = max((part.rows for part in self.ranges if len(part.stretches) > 1 or self.is_estimate), default=0)
        merged += -(-(self.delta_rows or 0) // self.tasks)
        return merged * self.row_bytes * copies_of(self.value_type)

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.remap_plan.sources), copied_ranges=self.copied_ranges)

    def __str__(self) -> str:
        copied = f", {self.copied_ranges} copied" if self.copied_ranges else ""
        return merge_text(self, f"{plural(self.tasks, 'range')}{copied}")


def plan_btree_merge(
    snapshot: Snapshot,
    column: Column,
    remap_plan: RemapPlan,
    *,
    name: str,
    parallelism: int,
    memory_bytes: int,
    may_copy: bool,
    delta_rows: int | None = None,
) -> BTreeMerge:
    """`may_copy`: the ids in the sources' files are current and no value was updated in place, so that files are valid
    as they are, except for rows that no longer exist."""
    planner = _Planner(snapshot, remap_plan, column.type, may_copy, delta_rows or 0)
    row_bytes = max(sequence.row_bytes for sequence in planner.sequences)
    most = max(1, min(MAX_ROWS_PER_RANGE, memory_bytes // (row_bytes * copies_of(column.type))))
    stable = snapshot.manifest.has_stable_row_ids
    return BTreeMerge(
        remap_plan=remap_plan,
        field_id=column.field_id,
        value_type=column.type,
        name=name,
        ranges=tuple(planner.ranges(most, parallelism)),
        row_bytes=row_bytes,
        batch_size=planner.batch_size,
        storage_version=snapshot.storage_version,
        # Ids keep their form: version 0 has stable ids.
        index_version=BTREE.version_for(stable) if remap_plan.stores_addresses else 0,
        delta_rows=delta_rows,
    )


@dataclass(frozen=True)
class _Between:
    """A range during planning, with its borders."""

    low: Border | None
    high: Border | None
    part: MergeRange


class _Planner:
    """Chooses cuts from the lookups of all sources."""

    def __init__(
        self, snapshot: Snapshot, remap_plan: RemapPlan, value_type: pa.DataType, may_copy: bool, delta_rows: int
    ) -> None:
        self.sequences = [open_sequence(remap_plan.pin, source.segment, value_type) for source in remap_plan.sources]
        rows = [_rows_in(snapshot, *pair) for pair in zip(remap_plan.sources, self.sequences, strict=True)]
        self._rows, self._survivors = sum(rows), sum(rows)
        if remap_plan.coverage <= snapshot.manifest.live:
            self._survivors = min(self._rows, snapshot.manifest.rows_in(remap_plan.coverage))
        self._rows, self._survivors = self._rows + delta_rows, self._survivors + delta_rows
        self._page_rows = [r / max(1, s.lookup.pages) for r, s in zip(rows, self.sequences, strict=True)]
        self._largest = max(range(len(rows)), key=rows.__getitem__)
        self._may_copy, self._delta_rows = may_copy, delta_rows
        self.batch_size = self.sequences[self._largest].lookup.batch_size

    def ranges(self, most: int, parallelism: int) -> list[MergeRange]:
        """One range if a task can merge everything, else those of the largest source if they have the right size."""
        if self._survivors <= min(ROWS_PER_TASK, most) and not self._is_copyable(self._largest):
            return [replace(between.part, rows=self._survivors - self._delta_rows) for between in self._between([])]
        target = self._target_rows(most, parallelism)
        borders: list[Border] = []
        for between in self._between(_in_order(self._file_borders(target))):
            borders += [between.low] if between.low is not None else []
            part = between.part
            limit = most if part.whole is not None else min(most, target * SPLIT_BEYOND)
            if part.rows > limit and not part.is_untouched:
                borders += self._split(between, target)
        return self._joined([between.part for between in self._between(borders)], target * JOIN_BELOW)

    def _target_rows(self, most: int, parallelism: int) -> int:
        """The target rows of a range. Merging is cheaper than building: tasks are larger, as long as every core has
        one."""
        if self._rows <= min(ROWS_PER_TASK, most):
            return min(ROWS_PER_TASK, most)
        wanted = max(parallelism, -(-self._rows // (MERGED_PER_BUILT * ROWS_PER_TASK)))
        ranges = max(-(-self._rows // most), min(RANGES_PER_CORE * parallelism, wanted))
        return -(-self._rows // whole_waves(ranges, parallelism))

    def _file_borders(self, target: int) -> Iterator[Border]:
        """The borders at page files of the largest source, and around files that can be copied."""
        for number, sequence in enumerate(self.sequences):
            for file in sequence.lookup.files:
                begin, end = sequence.border_before(file.first_page), file.first_page + file.pages
                if number == self._largest and file.first_page:
                    yield begin
                worthwhile = number == self._largest or file.pages * self._page_rows[number] >= target * JOIN_BELOW
                if sequence.lookup.maxs[end - 1].is_valid and worthwhile and self._is_copyable(number):
                    after = sequence.border_after(end - 1)
                    if self._is_alone(number, begin, after):
                        yield from (begin, after)

    def _is_copyable(self, number: int) -> bool:
        """Whether page files of a source may become part of the new tree: pages must have the same number of rows."""
        sequence = self.sequences[number]
        return self._may_copy and sequence.is_ranged and sequence.lookup.batch_size == self.batch_size

    def _is_alone(self, number: int, begin: Border, after: Border) -> bool:
        others = (sequence for other, sequence in enumerate(self.sequences) if other != number)
        return all(Stretch(other.cut(begin), other.cut(after)).is_empty for other in others)

    def _between(self, borders: Sequence[Border]) -> list[_Between]:
        """The ranges between the borders in which any source has rows."""
        cuts = [sequence.cuts(borders) for sequence in self.sequences]
        found: list[_Between] = []
        for at, (low, high) in enumerate(pairwise([None, *borders, None])):
            stretches = {
                number: stretch
                for number, places in enumerate(cuts)
                if not (stretch := Stretch(places[at], places[at + 1])).is_empty
            }
            if stretches:
                found.append(_Between(low, high, self._range(stretches)))
        return found

    def _range(self, stretches: dict[int, Stretch]) -> MergeRange:
        rows = round(sum(stretch.pages * self._page_rows[number] for number, stretch in stretches.items()))
        sure = [number for number, stretch in stretches.items() if not stretch.is_inside_page]
        if len(sure) != 1 or not self._is_copyable(sure[0]):
            return MergeRange(stretches, rows)
        file = self.sequences[sure[0]].whole_file(stretches[sure[0]])
        return MergeRange(stretches, rows, None if file is None else (sure[0], file))

    def _split(self, between: _Between, target: int) -> list[Border]:
        """Borders inside a range, by the first values of its pages; a page counts by its rows."""
        unit = max(1, target // SAMPLES_PER_RANGE)
        minima: list[pa.Array] = []
        for number, stretch in between.part.stretches.items():
            first = stretch.start.page + (stretch.start.value is not None)
            step = unit / max(1e-9, self._page_rows[number])
            # One of many pages, or one page many times.
            picks = np.arange(first + step / 2, stretch.last_page, step).astype(np.int64)
            minima.append(self.sequences[number].lookup.mins.take(pa.array(picks)))
        pieces = -(-between.part.rows // target)
        found = boundaries_from_sample(pa.concat_arrays(minima), pieces)
        inner = [Border(None, share) for share in found.null_shares]
        inner += [Border(take(found.values, np.array([i])), share) for i, share in enumerate(found.shares)]
        return [_within(border, between) for border in inner]

    def _joined(self, parts: Sequence[MergeRange], below: float) -> list[MergeRange]:
        joined: list[MergeRange] = []
        for part in parts:
            last = joined[-1] if joined else None
            small = last is not None and last.rows + part.rows < below
            if last is None or not small or last.whole is not None or part.whole is not None:
                joined.append(part)
                continue
            stretches = dict(last.stretches)
            for number, stretch in part.stretches.items():
                stretches[number] = Stretch(stretches.get(number, stretch).start, stretch.stop)
            joined[-1] = MergeRange(stretches, last.rows + part.rows)
        return joined


def _rows_in(snapshot: Snapshot, source: MergeSource, sequence: RowSequence) -> int:
    """An upper bound on the rows of a source; a single page is rarely full."""
    rows = sequence.lookup.pages * sequence.lookup.batch_size
    known = [snapshot.manifest.fragments.get(fragment) for fragment in source.coverage]
    if sequence.lookup.pages > 1 or None in known:
        return rows
    return min(rows, sum(fragment.physical_rows for fragment in known if fragment is not None))


def _in_order(borders: Iterator[Border]) -> list[Border]:
    found = list(borders)
    arrays = [border.value for border in found if border.value is not None]
    if not arrays:
        return sorted(found, key=lambda border: border.share)
    values = pa.concat_arrays(arrays)
    ascending = SortedValues(take(values, argsort(values)))

    def place(border: Border) -> tuple[int, float]:
        return (-1 if border.value is None else ascending.position(border.value[0], "left"), border.share)

    return sorted(found, key=place)


def _within(border: Border, between: _Between) -> Border:
    """Convert a share of the rows of a value within a range to a share of all rows of that value."""
    low = between.low.share if between.low is not None and _at_same_value(between.low, border) else 0.0
    high = between.high.share if between.high is not None and _at_same_value(between.high, border) else 1.0
    return Border(border.value, low + border.share * (high - low))


def _at_same_value(left: Border, right: Border) -> bool:
    if left.value is None or right.value is None:
        return left.value is right.value
    return same_value(left.value[0], right.value[0])


@lru_cache(maxsize=256)
def open_sequence(pin: Pin, segment: IndexSegment, value_type: pa.DataType) -> RowSequence:
    """Opened once per process: every range needs most sources."""
    return RowSequence(pin.open().store, segment, value_type)
