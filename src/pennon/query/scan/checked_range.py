"""Few rows side by side of which an index of zones finds too many: read as one range, and checked here.

To plan a scan with a filter takes pylance longer than to read some thousand rows. Only comparisons whose meaning leaves
no doubt are checked here: of integers, dates and timestamps with constants.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.format.rows import ScannedRows, ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.conditions import ColumnRanges, Interval
from pennon.query.filter.predicate import Node
from pennon.query.scan.planner import Answer
from pennon.query.scan.request import ScanRequest, is_plain

MOST_ROWS, MOST_SPANS = 1 << 16, 4


def checked_range(snapshot: Snapshot, node: Node, answer: Answer, request: ScanRequest) -> pa.Table | None:
    """The answer, or None where only a scan with the filter can find it."""
    rows, columns = answer.indexed.rows, request.columns
    if answer.scanned or columns is None or not request.is_plain or not 0 < len(rows) <= MOST_ROWS:
        return None
    if not isinstance(node, ColumnRanges) or not _is_checkable(node):
        return None
    part = _as_slice(snapshot, rows.by_fragment)
    if part is None:
        return None
    read = list(dict.fromkeys([*columns, node.column]))
    table = snapshot.read_slice(part, read)
    within = reduce(pc.or_, (_within(table[node.column], interval) for interval in node.intervals))
    found = table.filter(within).select(list(columns))
    return found.slice(0, request.limit) if request.limit is not None else found


def _is_checkable(node: ColumnRanges) -> bool:
    known = pa.types.is_integer(node.type) or pa.types.is_date(node.type) or pa.types.is_timestamp(node.type)
    return known and node.exact and not node.nulls and 0 < len(node.spans) <= MOST_SPANS and is_plain((node.column,))


def _within(values: pa.ChunkedArray, interval: Interval) -> pa.ChunkedArray:
    """NULL for NULL, which a filter drops."""
    above = below = None
    if interval.low is not None:
        above = (pc.greater_equal if interval.low_inclusive else pc.greater)(values, interval.low)
    if interval.high is not None:
        below = (pc.less_equal if interval.high_inclusive else pc.less)(values, interval.high)
    if above is not None and below is not None:
        return pc.and_(above, below)
    return above if above is not None else below if below is not None else pc.is_valid(values)


def _as_slice(snapshot: Snapshot, rows: ScannedRows) -> ScanSlice | None:
    """The rows as one slice of their fragments, none of which may have deleted rows."""
    live, chosen = snapshot.manifest.fragments, sorted(rows)
    if any(live[fragment].deletion_file is not None for fragment in chosen):
        return None
    spans = [_span(rows[fragment], live[fragment].physical_rows) for fragment in chosen]
    if any(span is None for span in spans):
        return None
    ranges = [span for span in spans if span is not None]
    sizes = [live[fragment].physical_rows for fragment in chosen]
    for (before, after), size in zip(pairwise(ranges), sizes, strict=False):
        if before.stop != size or after.start != 0:
            return None
    return ScanSlice(tuple(chosen), ranges[0].start, sum(map(len, ranges)))


def _span(offsets: BitMap | None, rows: int) -> range | None:
    """Offsets without a gap, as a range; None of them are all rows."""
    if offsets is None:
        return range(rows)
    first, last = offsets.min(), offsets.max()
    return range(first, last + 1) if last - first + 1 == len(offsets) else None
