"""Exact graphs of small partitions: the neighbors of every node from the distances between all nodes.

A graph is usually grown node by node, each insertion a search of the graph so far. A partition of a few thousand nodes
fits into one matrix product instead, and then every node chooses from its true nearest nodes, all at once in numpy:
several times faster, without loss of recall.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.hnsw.graph import HnswParams, Level
from pennon.index.vector.vectors import Floats, Mask, Positions

# The matrix of all distances then takes 64 MiB. Twice the nodes would take four times as much, with a smaller gain.
EXACT_NODES = 4096

# Rows worked on at once: their candidates stay in the processor's second-level cache.
BLOCK_ROWS = 256

FAR_CANDIDATES = 32

# A candidate is its distance, as the bits of a float32 that is not negative, above its number: such integers sort like
# the distances. A missing candidate is infinitely far, as every node is from itself.
Candidates = npt.NDArray[np.uint64]
NUMBER_BITS = np.uint64(32)
MISSING = np.uint64(int(np.float32(np.inf).view(np.uint32)) << 32)


def exact_levels(points: Floats, tops: npt.NDArray[np.integer[Any]], by_l2: bool, params: HnswParams) -> list[Level]:
    """All levels of a graph in which node i reaches up to level tops[i]."""
    table, least = _distance_table(points, by_l2)
    levels: list[Level] = []
    for number in range(int(tops.max()) + 1):
        nodes = np.flatnonzero(tops >= number)
        own = table if number == 0 else table[np.ix_(nodes, nodes)]
        limit = params.m if number else 2 * params.m
        owners, others = _links(own, np.flatnonzero(tops[nodes] > number), params.m, limit, params.ef_construction)
        levels.append(Level.of_lists(nodes, owners, nodes[others], own[owners, others] + least))
    return levels


def _distance_table(points: Floats, by_l2: bool) -> tuple[Floats, np.float32]:
    """Distances between all nodes minus the smallest of them, and that smallest: choices only compare distances."""
    with np.errstate(over="ignore", invalid="ignore"):
        if by_l2:
            # Relative to the mean, the expanded square, x·(-2y) + |x|² + |y|², loses fewer digits.
            points = points - points.mean(axis=0)
            lengths = np.einsum("ij,ij->i", points, points)[:, None]
            ones = np.ones_like(lengths)
            table = np.hstack([points, lengths, ones]) @ np.hstack([-2 * points, ones, lengths]).T
            # Rounding may make a small one negative.
            np.abs(table, out=table)
            least = np.float32(0)
        else:
            table = points @ points.T
            most = table.max()
            np.subtract(most, table, out=table)
            least = 1 - most
    np.fill_diagonal(table, np.inf)
    return table, least


def _links(table: Floats, landmarks: Positions, m: int, limit: int, width: int) -> tuple[Positions, Positions]:
    """The links by ascending owner: the m choices of each node, and the reverse links; at most `limit` per node."""
    side = len(table)
    chosen = [_choose(_nearest(table[rows], width, landmarks), table, m) + rows.start * side for rows in _blocks(side)]
    links = np.concatenate(chosen)
    links = np.sort(np.concatenate([links, links % side * side + links // side]))
    links = links[np.diff(links, prepend=-1) > 0]
    counts = np.bincount(links // side, minlength=side)
    crowded = counts[links // side] > limit
    kept = [links[~crowded], *_pruned(links[crowded], table, max(width, limit), limit)]
    owners, others = np.divmod(np.sort(np.concatenate(kept)), side)
    return owners, others


def _pruned(links: Positions, table: Floats, width: int, limit: int) -> Iterator[Positions]:
    """The links of nodes above the limit, selected again. Lists of similar length are processed together."""
    side = len(table)
    owners, counts = np.unique(links // side, return_counts=True)
    starts = np.cumsum(counts) - counts
    by_length = np.argsort(counts, kind="stable")
    packed = _packed(table.reshape(-1)[links], links % side)
    for rows in _blocks(len(by_length)):
        lists = by_length[rows]
        longest = counts[lists].max()
        places = np.minimum(starts[lists][:, None] + np.arange(longest), len(links) - 1)
        candidates = np.where(np.arange(longest) < counts[lists][:, None], packed[places], MISSING)
        candidates.sort(axis=1)
        picked = _choose(candidates[:, :width], table, limit)
        yield owners[lists][picked // side] * side + picked % side


def _nearest(distances: Floats, width: int, landmarks: Positions) -> Candidates:
    """The nearest nodes of each row, ascending.

    A cluster larger than that list would have no link to the outside. So each node also considers the nearest of the
    next level's nodes that are farther away.
    """
    packed = _packed(distances, np.arange(distances.shape[1]))
    far = packed[:, landmarks]
    near = _smallest(packed, width)
    if len(landmarks):
        far = _smallest(far, FAR_CANDIDATES)
        far[far <= near.max(axis=1)[:, None]] = MISSING
        near = np.concatenate([near, far], axis=1)
    near.sort(axis=1)
    return near


def _smallest(packed: Candidates, count: int) -> Candidates:
    if count < packed.shape[1]:
        packed.partition(count, axis=1)
    return packed[:, :count].copy()


def _packed(distances: Floats, numbers: Positions) -> Candidates:
    packed = distances.view(np.uint32).astype(np.uint64)
    packed <<= NUMBER_BITS
    packed |= numbers.astype(np.uint64)
    return packed


def _choose(candidates: Candidates, table: Floats, keep: int) -> Positions:
    """For each row up to `keep` candidates, as row * number of nodes + node.

    First, from near to far, those that are nearer to the row's node than to any chosen node: links in all directions.
    The rest of the list is filled with the nearest of the rejected ones; without them dot loses 2 points of recall.
    """
    distances = (candidates >> NUMBER_BITS).astype(np.uint32).view(np.float32)
    numbers = candidates.astype(np.uint32).astype(np.int64)
    chosen = _diverse(numbers, distances, table, keep)
    passed = np.isfinite(distances) & ~chosen
    chosen |= passed & (np.cumsum(passed, axis=1, dtype=np.int32) <= keep - chosen.sum(axis=1)[:, None])
    return np.nonzero(chosen)[0] * len(table) + numbers[chosen]


def _diverse(numbers: Positions, distances: Floats, table: Floats, keep: int) -> Mask:
    """One choice per row and round: the nearest remaining candidate, which excludes those nearer to it than to the
    node."""
    chosen = np.zeros(numbers.shape, dtype=np.bool_)
    flat, side = table.reshape(-1), len(table)
    rows, left = np.arange(len(numbers)), np.isfinite(distances)
    each = np.arange(len(rows))
    for _ in range(keep):
        best = left.argmax(axis=1)
        going = left[each, best]
        chosen[rows, best] |= going
        if np.count_nonzero(going) < 0.75 * len(rows):
            rows, best, left, numbers, distances = (
                rows[going],
                best[going],
                left[going],
                numbers[going],
                distances[going],
            )
            each = np.arange(len(rows))
            if not len(rows):
                break
        left &= distances < flat.take(numbers + (numbers[each, best] * side)[:, None])
        left[each, best] = False
    return chosen


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, start + BLOCK_ROWS)
