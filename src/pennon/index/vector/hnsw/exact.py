"""Exact graphs of small partitions: the neighbors of every node from the distances between all nodes.

A graph is usually grown node by node, each insertion a search of the graph so far. A partition of a few thousand nodes
fits into one matrix product instead, and then every node chooses from its true nearest nodes, in a kernel: many times
faster, without loss of recall.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.index.vector.hnsw.graph import HnswParams, Level
from pennon.index.vector.vectors import Floats

# The matrix of all distances then takes 64 MiB. Twice the nodes would take four times as much, with a smaller gain.
EXACT_NODES = 4096


def exact_levels(points: Floats, tops: npt.NDArray[np.integer[Any]], by_l2: bool, params: HnswParams) -> list[Level]:
    """All levels of a graph in which node i reaches up to level tops[i]."""
    # Kernels are compiled when they are imported, and a process that only searches graphs needs none.
    from pennon.index.vector.hnsw.exact_kernels import links  # noqa: PLC0415

    table, least = _distance_table(points, by_l2)
    levels: list[Level] = []
    for number in range(int(tops.max()) + 1):
        nodes = np.flatnonzero(tops >= number)
        own = table if number == 0 else table[np.ix_(nodes, nodes)]
        limit = params.m if number else 2 * params.m
        landmarks = np.flatnonzero(tops[nodes] > number)
        offsets, others, bits = links(own.view(np.uint32), landmarks, params.m, limit, params.ef_construction)
        levels.append(
            Level(nodes.astype(np.uint32), offsets, nodes[others].astype(np.uint32), bits.view(np.float32) + least)
        )
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
