"""One query against many partitions of plain vectors. The oracle measures every row in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.flat import MANY_LISTS, FlatQuantizer
from pennon.index.vector.search.partition_search import search_partitions

DIM, ROWS, K = 20, 15, 9


@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT, Metric.COSINE], ids=str)
@pytest.mark.parametrize("partitions", [MANY_LISTS - 1, MANY_LISTS, 3 * MANY_LISTS])
@pytest.mark.parametrize("share", [None, 0.2, 0.001])
def test_the_nearest_are_those_of_all_rows(metric: Metric, partitions: int, share: float | None) -> None:
    rng = np.random.default_rng(partitions)
    ivf = Ivf(metric, 3 * rng.standard_normal((partitions, DIM)).astype(np.float32))
    vectors = ivf.centroids[:, None] + rng.standard_normal((partitions, ROWS, DIM)).astype(np.float32)
    vectors[1] = vectors[0]  # equal vectors, in two partitions
    vectors = np.stack([metric.prepare(some) for some in vectors])
    quantizer = FlatQuantizer.train(vectors[0], ivf)
    scorers = {n: quantizer.scorer({"flat": vectors[n]}, ivf.centroids[n]) for n in range(partitions)}
    allowed = {} if share is None else {n: rng.random(ROWS) < share for n in range(1, partitions)}
    query = metric.prepare(rng.standard_normal((1, DIM)).astype(np.float32))
    probes = np.arange(partitions)[None]
    found = search_partitions(quantizer, scorers, quantizer.prepare(query), probes, K, allowed=allowed)
    wide, asked = vectors.astype(np.float64), query[0].astype(np.float64)
    every = ((wide - asked) ** 2).sum(axis=2) if quantizer.by_l2 else 1 - wide @ asked
    for n, mask in allowed.items():
        every[n][~mask] = np.inf
    expected = np.sort(every, axis=None)[:K]
    np.testing.assert_allclose(found.distances[0], expected, rtol=1e-5, atol=1e-5)
    for distance, n, row in zip(found.distances[0], found.partitions[0], found.positions[0], strict=True):
        assert (n < 0) == np.isinf(distance)
        if n >= 0:
            assert every[n, row] == pytest.approx(float(distance), rel=1e-5, abs=1e-5)
