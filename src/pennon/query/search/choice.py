"""Whether the rows that a filter selects are measured one and all, or looked for in partitions of the index.

Measured rows are read from the table, which costs much more for a row than comparing its code in a cached partition;
but there is nothing else to read, and the answer is exact. Where a filter is asked again and again, its vectors are
read once searches in partitions have cost as much as that, and kept.

Costs are nanoseconds, as measured on vectors of 100 float32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pennon.query.search.kept import MOST_BYTES, KeptFilter, KeptVectors
from pennon.query.search.prefilter import Selection
from pennon.query.search.probe import Probing
from pennon.query.search.request import Question
from pennon.query.search.source import SearchSegment, Source

# Up to this many selected rows are measured in any case: a few at once are read as fast as one. More of them if codes
# are so short that they lose neighbors.
VERY_FEW, FEW_SELECTED = 50, 1000
# To read a row of the table by its address, to start a scan of all rows, to test a row of a partition against the
# selection, to find and pass a partition, to read and decode a byte from storage, and to compare a byte of a vector in
# memory.
TAKEN, STARTED, TESTED, PASSED, READ, COMPARED = 15_000, 5_000_000, 8, 10_000, 1, 0.1
# Codes of at least this many bytes a dimension lose few neighbors.
FINE_CODES = 1.0
# Candidates for each answer that are measured again under a filter, where codes lose more of them: 3 give a recall of
# 0.96 where codes alone have 0.72, 5 one of 0.98.
FILTERED_REFINE_FACTOR = 5


def worth_measuring(
    asked: KeptFilter, vectors: KeptVectors | None, question: Question, how: Probing, source: Source, rows: int
) -> bool:
    """By cost; with coarse codes, a few rows more. `rows` are those that the index covers. Vectors are kept only if
    `vectors` is given: then what the search costs counts for the next one."""
    selection = asked.selection
    if vectors is not None and vectors.known:
        return True
    if selection.count <= max(VERY_FEW, question.wanted):
        return True
    if not _fine(source) and selection.count <= FEW_SELECTED:
        return True
    size = question.queries.itemsize * question.queries.shape[1]
    measuring = min(selection.count * TAKEN, STARTED + rows * size * READ)
    probing = sum(_probing(segment, how, measuring) for segment in source.segments)
    if vectors is None or not _worth_keeping(selection, size, probing):
        return measuring <= probing
    asked.spent += probing
    return measuring <= asked.spent


def refined(question: Question, source: Source) -> Question:
    """With more candidates than asked for, to be measured again, where a filter is given, no options are, and codes are
    coarse: the recall of filtered searches is not to depend on the kind of index."""
    request = question.request
    coarse = bool(source.segments) and not _fine(source) and question.starts is None
    if not coarse or request.k is None or request.filter is None or not request.prefilter or not request.is_plain:
        return question
    return replace(question, refine=FILTERED_REFINE_FACTOR)


def _worth_keeping(selection: Selection, size: int, probing: float) -> bool:
    held = selection.count * size
    return held <= MOST_BYTES and held * COMPARED < probing


def _probing(segment: SearchSegment, how: Probing, limit: float) -> float:
    """What probing costs, of which the comparison with codes is the smaller part. What has to be read is looked up only
    if it may come to the limit."""
    partitions = segment.opened.files.ivf.num_partitions
    share = how.first_of(segment) / partitions
    rows = share * segment.opened.files.layout.rows
    cost, whole = share * partitions * PASSED + rows * TESTED, rows * segment.opened.row_bytes * READ
    reading = whole + share * partitions * TAKEN
    return cost + _unread(segment, share) if cost + reading >= limit else cost


def _unread(segment: SearchSegment, share: float) -> float:
    """Of the partitions that are not in the cache, the share that would be read."""
    opened = segment.opened
    filled = np.flatnonzero(opened.lengths)
    missing = filled[~opened.cached(filled)] if len(filled) else filled
    return share * float(opened.lengths[missing].sum()) * opened.row_bytes * READ + share * len(missing) * TAKEN


def _fine(source: Source) -> bool:
    opened = [segment.opened for segment in source.segments]
    return all(each.code_bytes >= FINE_CODES * each.files.ivf.dim for each in opened)
