"""Many queries against lists of PQ codes. The oracle adds up the numbers of every code."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector.quantizers.pq.group_kernels import scan_groups
from pennon.index.vector.vectors import Positions

LISTS, K = 9, 7


def grouped(places: Positions) -> tuple[Positions, Positions, Positions]:
    """Queries by list, and the order of pairs."""
    order = np.argsort(places, axis=None, kind="stable")
    order = order[places.reshape(-1)[order] >= 0]
    return np.searchsorted(places.reshape(-1)[order], np.arange(LISTS + 1)), order // places.shape[1], order


@pytest.mark.parametrize("queries", [1, 7, 40])
@pytest.mark.parametrize("form", ["plain", "lists", "filtered", "offset", "equal", "infinite"])
@pytest.mark.parametrize("width", [3, 16])
def test_the_smallest_sums_are_found(width: int, form: str, queries: int) -> None:
    rng = np.random.default_rng(queries)
    counts = rng.integers(0, 300, LISTS)
    codes = [rng.integers(0, 256, (count, width)).astype(np.uint8) for count in counts]
    starts, size = np.cumsum(counts) - counts, width * 256
    of_queries = rng.standard_normal((queries, size)).astype(np.float32)
    of_lists = rng.standard_normal((0 if form == "plain" else LISTS, size)).astype(np.float32)
    if form == "offset":
        of_lists += np.float32(1e4)
    if form == "equal":
        of_queries[:], of_lists[:] = 1, 2
    if form == "infinite":
        of_queries[0, :50] = np.inf
    places = np.stack([rng.permutation(LISTS)[:5] for _ in range(queries)])
    places[rng.random(places.shape) < 0.1] = -1
    nearby = rng.random(places.shape).astype(np.float32)
    allowed = rng.random(counts.sum()) < 0.5 if form == "filtered" else np.empty(0, dtype=np.bool_)
    values, found = np.full((queries, K), np.inf, dtype=np.float32), np.full((queries, K), -1)
    visits, asking, order = grouped(places)
    addresses = np.array([each.ctypes.data for each in codes])
    near = nearby.reshape(-1)[order]
    scan_groups(of_queries, of_lists, visits, asking, near, addresses, counts, starts, allowed, values, found)
    for query in range(queries):
        sums, numbers = [np.full(K, np.inf)], [np.full(K, -1)]
        for place, distance in zip(places[query].tolist(), nearby[query], strict=True):
            if place >= 0:
                table = of_queries[query] + (of_lists[place] if len(of_lists) else 0)
                sums.append(distance + table[codes[place] + np.arange(width) * 256].sum(axis=1, dtype=np.float64))
                numbers.append(starts[place] + np.arange(len(codes[place])))
        every, rows = np.concatenate(sums), np.concatenate(numbers)
        if len(allowed):
            every[(rows >= 0) & ~allowed[rows]] = np.inf
        np.testing.assert_allclose(np.sort(values[query]), np.sort(every)[:K], rtol=1e-5)
        known = found[query] >= 0
        assert np.array_equal(known, np.isfinite(values[query]))
        assert len(set(found[query][known])) == known.sum()
        own = {int(row): float(sum_) for row, sum_ in zip(rows, every, strict=True)}
        for row, value in zip(found[query][known], values[query][known], strict=True):
            assert own[int(row)] == pytest.approx(float(value), rel=1e-5)
