"""The links that the kernel chooses are those of the rule, applied candidate by candidate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pennon.index.vector.hnsw.exact_kernels import FAR_CANDIDATES, links
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
