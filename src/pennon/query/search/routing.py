"""Which partitions others search for a block of queries, where no step can follow what the first ones found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pennon.index.vector.vectors import Positions, Vectors
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.probe import Probing, SegmentSearch, SegmentTrace
from pennon.query.search.source import SearchSegment

# Selected rows that are compared where partitions are chosen at once, in units of those that steps would go on to: they
# end with whole steps, mostly after some more than are needed.
WHOLE_STEPS = 1.25
# All partitions are ranked for as many queries at a time as this holds, by bytes of a rank.
RANKED_BYTES, RANK_BYTES = 64 << 20, 40


def all_partitions(segment: SearchSegment, queries: Vectors, how: Probing) -> Positions:
    """Per query all partitions that others search for it, nearest first; -1 for none. Under a filter these are as many
    as a search goes through step by step: the selected rows of each partition are counted first."""
    selection, least = how.selection, how.least_of(segment)
    if selection is None or not how.goes_on(least) or not len(queries):
        return SegmentSearch(segment, queries, how, [SegmentTrace()]).rank(least)
    counts = selection.counts(segment.live, segment.flagged)
    most = min(how.most or len(counts), len(counts))
    step = max(1, RANKED_BYTES // (RANK_BYTES * len(counts)))
    blocks: list[Positions] = []
    for start in range(0, len(queries), step):
        search = SegmentSearch(segment, queries[start : start + step], how, [SegmentTrace()])
        probes = search.rank(most)
        compared = np.cumsum(counts[probes], axis=1)
        before = np.concatenate([np.zeros((len(probes), 1), dtype=np.int64), compared[:, :-1]], axis=1)
        blocks.append(to_front(np.where((before < WHOLE_STEPS * search.target) & (counts[probes] > 0), probes, -1)))
    return stacked_probes(blocks)


def to_front(probes: Positions) -> Positions:
    """The same, with each row's -1 at its end, and as few columns as that leaves, but one."""
    order = np.argsort(probes < 0, axis=1, kind="stable")
    width = int((probes >= 0).sum(axis=1).max(initial=1))
    return np.take_along_axis(probes, order[:, :width], axis=1)


def stacked_probes(blocks: Sequence[Positions]) -> Positions:
    """The partitions of several blocks of queries, one below the other."""
    if len(blocks) == 1:
        return blocks[0]
    found = np.full((sum(map(len, blocks)), max(block.shape[1] for block in blocks)), -1, dtype=np.int64)
    start = 0
    for block in blocks:
        found[start : start + len(block), : block.shape[1]] = block
        start += len(block)
    return found


def nearest_within(
    segment: SearchSegment, queries: Vectors, probes: Positions, within: range, how: Probing
) -> Neighbors:
    """The nearest rows in probed partitions, as far as those are within a stretch of them."""
    return SegmentSearch(segment, queries, how, [SegmentTrace()]).probe(probes, within)
