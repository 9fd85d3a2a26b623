"""Kernels of the assignment to many centroids."""

from __future__ import annotations

import numpy as np
from numba.types import float32, int32, void

from pennon.index.arrays import Float32s, Int32s, Int64s
from pennon.index.compiled import GIVEN_F32, GIVEN_I32, GIVEN_I64, MADE_I32, MADE_I64, compiled, given

# Sums of products may be added in any order, several at once.
SUMS = frozenset({"reassoc", "contract", "nsz", "arcp", "nnan"})
LOWEST = frozenset({"nnan", "nsz"})
LANES = 32
MADE_F32_ROWS, MADE_I32_ROWS = float32[:, ::1], int32[:, ::1]


@compiled(void(GIVEN_I32, given(int32, 2), MADE_I64, MADE_I32))
def fill_groups(order: Int32s, choices: Int32s, left: Int64s, groups: Int32s) -> None:
    """Every point, in the given order, joins the first of its choices with a place left, or any group with one."""
    some = 0
    for point in order:
        chosen = -1
        for at in range(choices.shape[1]):
            group = choices[point, at]
            if left[group] > 0:
                chosen = group
                break
        if chosen < 0:
            while left[some] <= 0:
                some += 1
            chosen = some
        left[chosen] -= 1
        groups[point] = chosen


@compiled(void(given(float32, 2), GIVEN_F32, given(int32, 2), MADE_F32_ROWS, MADE_I32_ROWS), fastmath=LOWEST)
def near_groups(scores: Float32s, limits: Float32s, known: Int32s, lowest: Float32s, groups: Int32s) -> None:
    """Per row the groups with the lowest scores up to its limit, ascending and as far as the lists are long, without
    the known ones of the row. Infinite scores follow the last one."""
    most, count = lowest.shape[1], scores.shape[1]
    whole = count - count % LANES
    lanes = np.empty(LANES, dtype=np.float32)
    for row in range(len(scores)):
        # The groups of a lane are looked at only if the lowest of them is low enough.
        lanes[:] = np.inf
        for start in range(0, whole, LANES):
            for lane in range(LANES):
                lanes[lane] = min(lanes[lane], scores[row, start + lane])
        for lane in range(count - whole):
            lanes[lane] = min(lanes[lane], scores[row, whole + lane])
        limit, held = limits[row], 0
        for lane in range(LANES):
            if lanes[lane] > limit or (held == most and not lanes[lane] < lowest[row, held - 1]):
                continue
            for group in range(lane, count, LANES):
                score = scores[row, group]
                if score > limit or (held == most and not score < lowest[row, held - 1]):
                    continue
                is_known = False
                for at in range(known.shape[1]):
                    is_known |= known[row, at] == group
                if is_known:
                    continue
                at = held if held < most else most - 1
                while at > 0 and lowest[row, at - 1] > score:
                    lowest[row, at] = lowest[row, at - 1]
                    groups[row, at] = groups[row, at - 1]
                    at -= 1
                lowest[row, at] = score
                groups[row, at] = group
                held = min(held + 1, most)
        for at in range(held, most):
            lowest[row, at] = np.inf
            groups[row, at] = -1


@compiled(void(given(int32, 2), MADE_I64, MADE_I64))
def deal_out(groups: Int32s, starts: Int64s, rows: Int64s) -> None:
    """The pairs of a row and a group of its list, which ends with -1, by group: the rows of group g are
    rows[starts[g]:starts[g + 1]], ascending."""
    starts[:] = 0
    for row in range(len(groups)):
        for at in range(groups.shape[1]):
            if groups[row, at] < 0:
                break
            starts[groups[row, at] + 1] += 1
    for group in range(len(starts) - 1):
        starts[group + 1] += starts[group]
    ends = starts[:-1].copy()
    for row in range(len(groups)):
        for at in range(groups.shape[1]):
            group = groups[row, at]
            if group < 0:
                break
            rows[ends[group]] = row
            ends[group] += 1


@compiled(
    void(
        given(float32, 2),
        GIVEN_I64,
        given(float32, 2),
        GIVEN_F32,
        float32,
        given(int32, 2),
        MADE_F32_ROWS,
        MADE_I32_ROWS,
    ),
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
    ids: Int32s,
) -> None:
    """From the centroids of each row on to their neighbors, until the lists of the row hold none whose neighbors were
    not compared. The lists are ascending and end with id -1 if they are shorter. The score of centroid c is
    terms[c] + scale * x c; if that of a given one is infinite, it is computed."""
    dim, width, most = centroids.shape[1], neighbors.shape[1], best.shape[1]
    compared = np.full(len(centroids), -1, dtype=np.int64)
    expanded = np.empty(most, dtype=np.bool_)
    for row in order:
        held = 0
        while held < most and ids[row, held] >= 0:
            compared[ids[row, held]] = row
            expanded[held] = False
            held += 1
        if held and best[row, 0] == np.inf:
            product = np.float32(0)
            for i in range(dim):
                product += points[row, i] * centroids[ids[row, 0], i]
            best[row, 0] = terms[ids[row, 0]] + scale * product
        while True:
            next_ = 0
            while next_ < held and expanded[next_]:
                next_ += 1
            if next_ == held:
                break
            expanded[next_] = True
            here = ids[row, next_]
            for nth in range(width):
                there = neighbors[here, nth]
                if there < 0:
                    break
                if compared[there] == row:
                    continue
                compared[there] = row
                product = np.float32(0)
                for i in range(dim):
                    product += points[row, i] * centroids[there, i]
                score = terms[there] + scale * product
                if held == most and not score < best[row, most - 1]:
                    continue
                at = held if held < most else most - 1
                while at > 0 and best[row, at - 1] > score:
                    best[row, at] = best[row, at - 1]
                    ids[row, at] = ids[row, at - 1]
                    expanded[at] = expanded[at - 1]
                    at -= 1
                best[row, at] = score
                ids[row, at] = there
                expanded[at] = False
                held = min(held + 1, most)
