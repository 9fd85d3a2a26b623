"""The links that the kernel chooses are those of the rule, applied candidate by candidate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pennon.index.vector.hnsw import exact
from pennon.index.vector.hnsw.exact import Grid, Space, exact_levels
from pennon.index.vector.hnsw.exact_kernels import FAR_CANDIDATES, links
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.vectors import Floats
from tests.support.graphs import clusters

Lists = list[list[int]]


def chosen(table: Floats, node: int, candidates: list[int], keep: int) -> list[int]:
    """From near to far those nearer to the node than to any chosen one, then the nearest others."""
    diverse: list[int] = []
    for one in candidates:
        if len(diverse) < keep and all(table[node, one] < table[other, one] for other in diverse):
            diverse.append(one)
    others = [one for one in candidates if one not in diverse]
    return [*diverse, *others[: keep - len(diverse)]]


def linked(table: Floats, landmarks: list[int], m: int, limit: int, width: int) -> Lists:
    side = len(table)
    own: list[set[int]] = []
    for node in range(side):
        known = [n for n in np.lexsort((np.arange(side), table[node])).tolist() if np.isfinite(table[node, n])]
        far = [n for n in known if n in landmarks][:FAR_CANDIDATES]
        own.append(set(chosen(table, node, [*known[:width], *(n for n in far if n not in known[:width])], m)))
    both = [own[node] | {n for n in range(side) if node in own[n]} for node in range(side)]
    lists: Lists = []
    for node, found in enumerate(both):
        near = sorted((n for n in found if np.isfinite(table[node, n])), key=lambda n: (table[node, n], n))
        lists.append(sorted(found if len(found) <= limit else chosen(table, node, near[: max(width, limit)], limit)))
    return lists


@pytest.mark.parametrize("count", [1, 2, 40, 300])
@pytest.mark.parametrize("form", ["spread", "crowded", "equal", "overflow"])
def test_links_follow_the_rule(count: int, form: str) -> None:
    rng = np.random.default_rng(count)
    points = clusters(count, 6) if form != "equal" else rng.integers(0, 2, (count, 6)).astype(np.float32)
    # Almost all distances share their first bits, next to a few that are tiny.
    points[: count // 2] *= np.float32(1e-4) if form == "crowded" else np.float32(1)
    table = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    if form == "overflow":
        table[rng.random(table.shape) < 0.2] = np.inf
    np.fill_diagonal(table, np.inf)
    landmarks = np.flatnonzero(rng.random(count) < 0.2)
    offsets, others, bits = links(table.view(np.uint32), landmarks, 5, 8, 20)
    found = [others[a:b].tolist() for a, b in pairwise(offsets)]
    assert found == linked(table, landmarks.tolist(), 5, 8, 20)
    owners = np.repeat(np.arange(count), np.diff(offsets))
    assert np.array_equal(bits.view(np.float32), table[owners, others])


def whole_numbers(count: int, dim: int, values: int) -> Floats:
    """Distinct points around 0, whose distances float32 holds exactly."""
    rng = np.random.default_rng(count)
    centres = rng.integers(-values, values, (8, dim))
    half = centres[rng.integers(0, 8, count)] + rng.integers(-9, 10, (count, dim))
    points = np.unique(np.concatenate([half, -half]), axis=0)
    return points[rng.permutation(len(points))].astype(np.float32)


@pytest.mark.parametrize("grid", [None, Grid(-110.0, 1.0)], ids=["floats", "bytes"])
@pytest.mark.parametrize("by_l2", [True, False], ids=["l2", "dot"])
@pytest.mark.parametrize(("count", "dim", "values"), [(20, 6, 20), (150, 2, 40), (450, 17, 90)])
def test_blocks_of_distances_give_the_links_of_the_table(
    count: int, dim: int, values: int, by_l2: bool, grid: Grid | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, params = whole_numbers(count, dim, values), HnswParams(4, 5, 20)
    tops = np.minimum(np.random.default_rng(1).geometric(0.8, len(points)) - 1, 3)
    monkeypatch.setattr(exact, "BLOCK_DISTANCES", 4096)
    monkeypatch.setattr(exact, "MOST_TABLE_NODES", 0)
    by_blocks = exact_levels(points, tops, by_l2, params, grid)
    products = points.astype(np.float64) @ points.T
    lengths = np.diagonal(products)
    table = lengths[:, None] + lengths - 2 * products if by_l2 else products.max() - products
    np.fill_diagonal(table, np.inf)
    for number, level in enumerate(by_blocks):
        nodes = np.flatnonzero(tops >= number)
        own = np.ascontiguousarray(table[np.ix_(nodes, nodes)], dtype=np.float32)
        landmarks = np.flatnonzero(tops[nodes] > number)
        offsets, others, bits = links(own.view(np.uint32), landmarks, 5 if number else 6, 5 if number else 10, 20)
        assert np.array_equal(level.offsets, offsets)
        assert np.array_equal(level.neighbors, nodes[others])
        least = 0 if by_l2 else 1 - products.max()
        np.testing.assert_allclose(level.distances, bits.view(np.float32) + least, rtol=1e-6)


@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
@pytest.mark.parametrize("form", ["arc", "equal", "spread"])
def test_the_nearest_are_found_in_any_order(order: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an arc in order, a node meets its nearest first, or last: the share that it has met predicts nothing."""
    monkeypatch.setattr(exact, "BLOCK_DISTANCES", 1 << 14)
    nodes, width = 1500, 30
    points = np.random.default_rng(3).integers(-100, 100, (nodes, 8)).astype(np.float32)
    if form != "spread":
        # Points of a circle: those nearest by the angle have the greatest products.
        angles = np.arange(nodes) * (np.pi / nodes)
        points = np.zeros((nodes, 8), dtype=np.float32)
        points[:, 0], points[:, 1] = np.rint(1000 * np.cos(angles)), np.rint(1000 * np.sin(angles))
        points = points if form == "arc" else np.eye(8, dtype=np.float32)[np.arange(nodes) % 2]
    names = np.random.default_rng(4).permutation(nodes) if order == "random" else np.arange(nodes)
    names = names[::-1].copy() if order == "descending" else names
    lists, counts = exact.nearest_candidates(Space.of(points, False, None), names, width)
    table = (points.astype(np.float64) ** 2).sum(axis=1).max() - points.astype(np.float64) @ points.T
    np.fill_diagonal(table, np.inf)
    for place in range(0, nodes, 7):
        node, found = int(names[place]), np.sort(lists[place, : counts[place]])[:width]
        others = (found & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        assert len(np.unique(others)) == width
        assert np.array_equal(table[node, others], np.sort(table[node])[:width])
        assert np.array_equal((found >> np.uint64(32)).astype(np.uint32).view(np.float32), table[node, others])
