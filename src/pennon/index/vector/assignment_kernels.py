"""Kernels of the assignment to many centroids."""

from __future__ import annotations

import numpy as np
from numba.types import float32, int32, int64, void

from pennon.index.arrays import Float32s, Int32s, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I64, MADE_F32, MADE_I64, compiled, given

# Sums of products may be added in any order, several at once.
SUMS = frozenset({"reassoc", "contract", "nsz", "arcp", "nnan"})


@compiled(void(given(float32, 2), int64, MADE_I64, MADE_I64))
def deal_out(scores: Float32s, probes: int, starts: Int64s, rows: Int64s) -> None:
    """Pairs of a row and one of its `probes` groups with the lowest scores, by group: the rows of group g are
    rows[starts[g]:starts[g + 1]], ascending."""
    count, groups = scores.shape
    chosen = np.empty((count, probes), dtype=np.int32)
    lowest = np.empty(probes, dtype=np.float32)
    starts[:] = 0
    for row in range(count):
        held = 0
        for group in range(groups):
            score = scores[row, group]
            if held == probes and not score < lowest[probes - 1]:
                continue
            at = held if held < probes else probes - 1
            while at > 0 and lowest[at - 1] > score:
                lowest[at] = lowest[at - 1]
                chosen[row, at] = chosen[row, at - 1]
                at -= 1
            lowest[at] = score
            chosen[row, at] = group
            held = min(held + 1, probes)
        for at in range(probes):
            starts[chosen[row, at] + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    ends = starts[:-1].copy()
    for row in range(count):
        for at in range(probes):
            group = chosen[row, at]
            rows[ends[group]] = row
            ends[group] += 1


@compiled(void(given(float32, 2), GIVEN_I64, GIVEN_I64, MADE_F32, MADE_I64), fastmath=frozenset({"nnan", "nsz"}))
def keep_lowest(scores: Float32s, rows: Int64s, members: Int64s, best: Float32s, ids: Int64s) -> None:
    """Score j of line i is that of row rows[i] and centroid members[j]."""
    width = len(members)
    for line in range(len(rows)):
        lowest = scores[line, 0]
        for at in range(1, width):
            lowest = min(lowest, scores[line, at])
        row = rows[line]
        if lowest < best[row]:
            at = 0
            while scores[line, at] != lowest:
                at += 1
            best[row] = lowest
            ids[row] = members[at]


@compiled(
    void(given(float32, 2), GIVEN_I64, given(float32, 2), GIVEN_F32, float32, given(int32, 2), MADE_F32, MADE_I64),
    fastmath=SUMS,
)
def walk(
    points: Float32s,
    order: Int64s,
    centroids: Float32s,
    terms: Float32s,
    scale: np.float32,
    neighbors: Int32s,
    best: Float32s,
    ids: Int64s,
) -> None:
    """From the centroid of each row on to the neighbor with the lowest score, until none has a lower one. The score of
    centroid c is terms[c] + scale * x c."""
    dim, width = centroids.shape[1], neighbors.shape[1]
    for row in order:
        here = ids[row]
        lowest = best[row]
        while True:
            next_ = here
            for at in range(width):
                there = neighbors[here, at]
                if there < 0:
                    break
                product = np.float32(0)
                for i in range(dim):
                    product += points[row, i] * centroids[there, i]
                score = terms[there] + scale * product
                if score < lowest:
                    lowest = score
                    next_ = np.int64(there)
            if next_ == here:
                break
            here = next_
        best[row] = lowest
        ids[row] = here
