"""Whether the rows that a filter selects are measured one and all, or looked for in partitions of the index.

Measured rows are read from the table, which costs much more for a row than comparing its code in a cached partition;
but there is nothing else to read, and the answer is exact.
"""

from __future__ import annotations

import numpy as np

from pennon.query.search.prefilter import Selection
from pennon.query.search.probe import Probing
from pennon.query.search.request import Question
from pennon.query.search.source import SearchSegment, Source

# Up to this many selected rows are measured in any case: a few at once are read as fast as one. More of them if codes
# are so short that they lose neighbors.
VERY_FEW, FEW_SELECTED = 50, 1000
# Nanoseconds: to read a row of the table by its address, to test a row of a partition against the selection, to find
# and pass a partition, and to read and decode a byte of it from storage.
TAKEN, TESTED, PASSED, READ = 20_000, 8, 6_000, 1
# Codes of at least this many bytes a dimension lose few neighbors.
FINE_CODES = 1.0


def worth_measuring(selection: Selection, question: Question, how: Probing, source: Source) -> bool:
    """By cost; with coarse codes, a few rows more."""
    if selection.count <= max(VERY_FEW, question.wanted):
        return True
    fine = all(_bytes_a_dimension(segment) >= FINE_CODES for segment in source.segments)
    if not fine and selection.count <= FEW_SELECTED:
        return True
    return selection.count * TAKEN <= sum(_probing(segment, how) for segment in source.segments)


def _probing(segment: SearchSegment, how: Probing) -> float:
    """What probing costs, of which the comparison with codes is the smaller part."""
    partitions = segment.opened.files.ivf.num_partitions
    share = how.all_of(segment) / partitions
    rows = share * int(segment.opened.lengths.sum())
    return share * partitions * PASSED + rows * TESTED + _unread(segment, share)


def _unread(segment: SearchSegment, share: float) -> float:
    """Of the partitions that are not in the cache, the share that would be read."""
    opened = segment.opened
    filled = np.flatnonzero(opened.lengths)
    missing = filled[~opened.cached(filled)] if len(filled) else filled
    return share * float(opened.lengths[missing].sum()) * opened.row_bytes * READ + share * len(missing) * TAKEN


def _bytes_a_dimension(segment: SearchSegment) -> float:
    return segment.opened.code_bytes / segment.opened.files.ivf.dim
