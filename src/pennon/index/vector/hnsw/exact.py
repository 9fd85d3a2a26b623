"""Exact graphs: every node chooses from its true nearest nodes.

A graph is usually grown node by node, each insertion a search of the graph so far. For up to some ten thousand nodes,
matrix products that give all distances, and kernels that choose from them, are many times faster, without loss of
recall.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pennon.index.arrays import Int64s, UInt32s
from pennon.index.vector.hnsw.graph import HnswParams, Level
from pennon.index.vector.metric import squared_lengths
from pennon.index.vector.vectors import Codes, Floats

# Beyond, growing a graph becomes faster.
EXACT_NODES = 16384
# Up to this many, and one more for each byte of a point, all distances are kept in a table; but never above 64 MiB.
# Beyond, distances that are measured again take less time than those that are read from a table outside of the
# processor's caches.
TABLE_NODES = 1280
MOST_TABLE_NODES = 4096
# From here on, nodes have more links.
LARGE_GRAPH = 4096
# Distances computed at once, beyond.
BLOCK_DISTANCES = 1 << 20
# Space in the list of a node, in units of the candidates that it needs.
LIST_FACTOR = 2
# Of the codes.
MIDDLE = 128


class Grid(NamedTuple):
    """Points that consist of low + step * code, with codes from 0 to 255."""

    low: float
    step: float


class Space(NamedTuple):
    """Points whose distance is the sum of their terms, and of the products of their items times the scale; never below
    zero. Times the unit and plus the least it is the distance of the index."""

    points: Floats
    terms: Floats
    scale: np.float32
    unit: np.float32
    least: np.float32
    measured: npt.NDArray[np.float32 | np.int8]  # the same points, where distances are measured one by one

    @classmethod
    def of(cls, points: Floats, by_l2: bool, grid: Grid | None) -> Space:
        one = np.float32(1)
        if grid is not None and np.float32(grid.step) > 0:
            return cls._of_codes(points, by_l2, grid)
        if by_l2:
            # Relative to the mean, the expanded square, |x|² + |y|² - 2x·y, loses fewer digits.
            points = points - points.mean(axis=0)
            return cls(points, squared_lengths(points), np.float32(-2), one, np.float32(0), points)
        # No product is greater than that of the longest vector with itself.
        most = squared_lengths(points).max()
        return cls(points, np.full(len(points), most / 2, np.float32), np.float32(-1), one, one - most, points)

    @classmethod
    def _of_codes(cls, points: Floats, by_l2: bool, grid: Grid) -> Space:
        """Codes relative to their middle: whole numbers, whose sums float32 holds exactly in 1,024 dimensions."""
        codes = np.rint((points - np.float32(grid.low)) / np.float32(grid.step)).clip(0, 255) - np.float32(MIDDLE)
        measured, lengths, unit = codes.astype(np.int8), squared_lengths(codes), np.float32(grid.step) ** 2
        if by_l2:
            return cls(codes, lengths, np.float32(-2), unit, np.float32(0), measured)
        middle, one = grid.low + grid.step * MIDDLE, np.float32(1)
        fixed, single = codes.shape[1] * middle**2, middle * grid.step * codes.sum(axis=1, dtype=np.float64)
        most = np.float32((fixed + 2 * single + lengths * float(unit)).max())
        return cls(codes, ((most - fixed) / 2 - single).astype(np.float32), -unit, one, one - most, measured)

    def take(self, nodes: npt.NDArray[Any]) -> Space:
        return self._replace(points=self.points[nodes], terms=self.terms[nodes], measured=self.measured[nodes])

    def factors(self) -> tuple[Floats, Floats]:
        """Two matrices whose product, one transposed, is the distances between all nodes."""
        terms, ones = self.terms[:, None], np.ones((len(self.points), 1), np.float32)
        return np.hstack([self.points, terms, ones]), np.hstack([self.scale * self.points, ones, terms])

    @property
    def table_nodes(self) -> int:
        return min(TABLE_NODES + self.measured.itemsize * self.measured.shape[1], MOST_TABLE_NODES)

    @property
    def for_kernels(self) -> tuple[Codes, int, Floats, np.float32]:
        """Points in bytes, the dimension, the terms and the scale."""
        return self.measured.view(np.uint8), self.points.shape[1], self.terms, self.scale


def exact_levels(
    points: Floats, tops: npt.NDArray[np.integer[Any]], by_l2: bool, params: HnswParams, grid: Grid | None = None
) -> list[Level]:
    """All levels of a graph in which node i reaches up to level tops[i]."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _levels(Space.of(points, by_l2, grid), tops, params)


def _levels(whole: Space, tops: npt.NDArray[np.integer[Any]], params: HnswParams) -> list[Level]:
    levels = list[Level]()
    for number in range(int(tops.max()) + 1):
        nodes = np.flatnonzero(tops >= number)
        space = whole.take(nodes) if number else whole
        landmarks = np.flatnonzero(tops[nodes] > number)
        find = _links_by_table if len(nodes) <= space.table_nodes else _links_by_blocks
        own, limit = (params.m, params.m) if number else (_links_on_level_0(params.m, len(nodes)), 2 * params.m)
        offsets, others, bits = find(space, landmarks, own, limit, params.ef_construction)
        distances = bits.view(np.float32) * whole.unit + whole.least
        levels.append(Level(nodes.astype(np.uint32), offsets, nodes[others].astype(np.uint32), distances))
    return levels


def _links_on_level_0(m: int, nodes: int) -> int:
    """More than m, for one to three points of recall in walks of 15 nodes; most in large graphs."""
    return m * 5 // 4 if nodes <= LARGE_GRAPH else m * 3 // 2


def _links_by_table(
    space: Space, landmarks: Int64s, own: int, limit: int, width: int
) -> tuple[Int64s, Int64s, UInt32s]:
    # Kernels are compiled when they are imported, and a process that only searches graphs needs none.
    from pennon.index.vector.hnsw.exact_kernels import links  # noqa: PLC0415

    left, right = space.factors()
    table = left @ right.T
    # Rounding may make a small one negative.
    np.abs(table, out=table)
    np.fill_diagonal(table, np.inf)
    return links(table.view(np.uint32), landmarks, own, limit, width)


def _links_by_blocks(
    space: Space, landmarks: Int64s, own: int, limit: int, width: int
) -> tuple[Int64s, Int64s, UInt32s]:
    from pennon.index.vector.hnsw.exact_kernels import both_ways  # noqa: PLC0415
    from pennon.index.vector.hnsw.near_kernels import choose_from_lists  # noqa: PLC0415

    nodes = len(space.points)
    names = np.random.default_rng(0).permutation(nodes)
    lists, found = nearest_candidates(space, names, width)
    places = np.empty(nodes, dtype=np.int64)
    places[names] = np.arange(nodes)
    left, right = space.factors()
    right = right[landmarks].T
    chosen, counts = np.empty((nodes, own), dtype=np.int64), np.empty(nodes, dtype=np.int64)
    step = max(1, BLOCK_DISTANCES // max(1, len(landmarks)))
    for start in range(0, nodes, step):
        far = np.abs(left[start : start + step] @ right)
        choose_from_lists(
            start, far.view(np.uint32), landmarks, *space.for_kernels, width, places, lists, found, chosen, counts
        )
    return both_ways(np.empty((0, 0), np.uint32), *space.for_kernels, chosen, counts, limit, width)


def nearest_candidates(space: Space, names: Int64s, width: int) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Candidates of each node in the order of `names`, among them its nearest `width`, and their number."""
    from pennon.index.vector.hnsw.exact_kernels import INFINITE  # noqa: PLC0415
    from pennon.index.vector.hnsw.near_kernels import fill_again, gather  # noqa: PLC0415

    nodes = len(names)
    lists = np.empty((nodes, LIST_FACTOR * width), dtype=np.uint64)
    counts, limits = np.zeros(nodes, dtype=np.int64), np.full(nodes, INFINITE - 1, dtype=np.uint32)
    left, right = space.take(names).factors()
    step = max(16, BLOCK_DISTANCES // nodes)
    memory = np.empty(step * nodes, dtype=np.float32)
    for start in range(0, nodes, step):
        rows, columns = len(left[start : start + step]), nodes - start
        block = memory[: rows * columns].reshape(rows, columns)
        np.matmul(left[start : start + step], right[start:].T, out=block)
        gather(block.view(np.uint32), start, names, width, lists, counts, limits)
    # Nodes that dropped too many.
    short = np.flatnonzero((counts < width) & (limits < INFINITE - 1))
    for start in range(0, len(short), step):
        some = short[start : start + step]
        fill_again(np.abs(left[some] @ right.T).view(np.uint32), some, names, width, lists, counts)
    return lists, counts
