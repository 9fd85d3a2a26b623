"""Completes level 0 of a new graph: adds copies of equal vectors, and a path to every node."""

from __future__ import annotations

import numpy as np

from pennon.index.vector.hnsw.graph import Level
from pennon.index.vector.vectors import Floats, Mask, Positions, row_chunks


def with_copies(bottom: Level, originals: Positions, points: Floats, by_l2: bool, m: int) -> Level:
    """Level 0 with the copies of its vectors.

    Among equal vectors all neighbors would be copies, and a search that reaches them could not leave. So the graph is
    built without copies; then equal nodes form a ring in which each is linked to the next ones, up to m, and to the
    neighbors of the original, nearest first, up to 2m in total.
    """
    count = len(points)
    ring = np.argsort(originals, kind="stable")
    sizes = np.bincount(originals, minlength=count)[originals]
    firsts = np.searchsorted(originals[ring], originals)
    ranks = np.empty(count, dtype=np.int64)
    ranks[ring] = np.arange(count)
    ranks -= firsts
    next_ones = np.minimum(sizes - 1, m)
    ring_owners, step = _spread(next_ones)
    siblings = ring[firsts[ring_owners] + (ranks[ring_owners] + step + 1) % sizes[ring_owners]]

    near_first = np.lexsort((bottom.distances, np.repeat(np.arange(len(bottom.nodes)), bottom.counts)))
    list_of = np.searchsorted(bottom.nodes, originals)
    taken = np.minimum(bottom.counts[list_of], 2 * m - next_ones)
    owners, rank = _spread(taken)
    links = near_first[bottom.offsets[list_of[owners]] + rank]

    all_owners = np.concatenate([ring_owners, owners])
    order = np.argsort(all_owners, kind="stable")
    neighbors = np.concatenate([siblings, bottom.neighbors[links]])[order]
    distances = np.concatenate([link_distances(points, ring_owners, siblings, by_l2), bottom.distances[links]])[order]
    return Level.of_lists(np.arange(count), all_owners[order], neighbors, distances)


def with_all_reached(bottom: Level, entry_point: int, points: Floats, by_l2: bool) -> Level:
    """Level 0 with a path from the entry point to every node.

    A node may be in no list: under dot, long vectors are neighbors of all nodes, short ones of none.
    """
    reached = np.zeros(len(bottom.nodes), dtype=np.bool_)
    new = np.array([entry_point])
    links: list[tuple[Positions, Positions]] = []
    while True:
        _reach(bottom, reached, new)
        if reached.all():
            break
        hosts, new = _hosted(bottom, reached)
        if not len(new):
            # A disconnected component: its first node is linked to the nearest reached node.
            new, mainland = np.flatnonzero(~reached)[:1], np.flatnonzero(reached)
            distances = link_distances(points, mainland, np.repeat(new, len(mainland)), by_l2)
            hosts = mainland[[distances.argmin()]]
        links.append((hosts, new))
    if not links:
        return bottom
    left, right = (np.concatenate(ends) for ends in zip(*links, strict=True))
    owners = np.concatenate([np.repeat(np.arange(len(bottom.nodes)), bottom.counts), left])
    neighbors = np.concatenate([bottom.neighbors, right.astype(np.uint32)])
    distances = np.concatenate([bottom.distances, link_distances(points, left, right, by_l2)])
    _, kept = np.unique(owners << 32 | neighbors, return_index=True)
    return Level.of_lists(bottom.nodes, owners[kept], neighbors[kept], distances[kept])


def _reach(bottom: Level, reached: Mask, nodes: Positions) -> None:
    """Mark the nodes and all nodes reachable from them."""
    while len(nodes):
        reached[nodes] = True
        owners, rank = _spread(bottom.counts[nodes])
        seen = bottom.neighbors[bottom.offsets[nodes[owners]] + rank]
        nodes = np.unique(seen[~reached[seen]]).astype(np.int64)


def _hosted(bottom: Level, reached: Mask) -> tuple[Positions, Positions]:
    """Links to all unreached nodes that have a reached neighbor; the nearest such neighbor is their host.

    A host with many guests does not link to all of them. It links to the nearest, and each guest, near ones first,
    links to two others, as in a heap: guest i to 2i + 1 and 2i + 2.
    """
    lost = np.flatnonzero(~reached)
    owners, rank = _spread(bottom.counts[lost])
    links = bottom.offsets[lost[owners]] + rank
    known = reached[bottom.neighbors[links]]
    owners, links = owners[known], links[known]
    order = np.lexsort((bottom.distances[links], owners))
    first = order[np.diff(owners[order], prepend=-1) > 0]
    hosts, guests = bottom.neighbors[links[first]].astype(np.int64), lost[owners[first]]
    order = np.lexsort((bottom.distances[links[first]], hosts))
    hosts, guests = hosts[order], guests[order]
    _, starts, counts = np.unique(hosts, return_index=True, return_counts=True)
    group, place = _spread(counts)
    return np.where(place == 0, hosts, guests[starts[group] + (place - 1) // 2]), guests


def link_distances(points: Floats, left: Positions, right: Positions, by_l2: bool) -> Floats:
    out = np.empty(len(left), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_chunks(len(left), points.shape[1]):
            a, b = points[left[rows]], points[right[rows]]
            if by_l2:
                a -= b
                b = a
            np.einsum("ij,ij->i", a, b, out=out[rows])
    return out if by_l2 else np.subtract(1, out, out=out)


def _spread(counts: Positions) -> tuple[Positions, Positions]:
    """0 0 0 1 1 ... and 0 1 2 0 1 ...: owner and rank of each item of lists of these lengths."""
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
