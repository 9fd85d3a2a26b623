"""Many queries against partitions of RaBitQ codes of one bit. The oracle measures every row."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.rabitq.quantizer import RabitQuantizer
from pennon.index.vector.search.partition_search import search_partitions

PARTITIONS, ROWS, QUERIES, K = 5, 400, 60, 8


@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT], ids=str)
@pytest.mark.parametrize("dim", [8, 72, 128])
@pytest.mark.parametrize("filtered", [False, True])
def test_the_nearest_are_those_of_all_distances(metric: Metric, dim: int, filtered: bool) -> None:
    rng = np.random.default_rng(dim)
    ivf = Ivf(metric, rng.standard_normal((PARTITIONS, dim)).astype(np.float32))
    quantizer = RabitQuantizer.train(ivf.centroids, ivf, num_bits=1)
    assert quantizer.lists_searchable
    vectors = (np.repeat(ivf.centroids, ROWS, axis=0) + rng.standard_normal((PARTITIONS * ROWS, dim))).astype(
        np.float32
    )
    numbers = np.repeat(np.arange(PARTITIONS, dtype=np.uint32), ROWS)
    columns = quantizer.encode(vectors, ivf.centroids, numbers)
    scorers = {
        n: quantizer.scorer({name: column[numbers == n] for name, column in columns.items()}, ivf.centroids[n])
        for n in range(PARTITIONS)
    }
    queries = quantizer.prepare(rng.standard_normal((QUERIES, dim)).astype(np.float32))
    probes = np.stack([rng.permutation(PARTITIONS)[:3] for _ in range(QUERIES)])
    allowed = {n: rng.random(ROWS) < 0.3 for n in range(2)} if filtered else {}
    found = search_partitions(quantizer, scorers, queries, probes, K, allowed=allowed, threads=2)
    for query in range(QUERIES):
        each = [scorers[n].distances(queries[query : query + 1])[0] for n in probes[query].tolist()]
        for at, n in enumerate(probes[query].tolist()):
            each[at] = np.where(allowed.get(n, True), each[at], np.inf)
        np.testing.assert_allclose(found.distances[query], np.sort(np.concatenate(each))[:K], rtol=1e-4, atol=1e-3)
        for distance, n, row in zip(
            found.distances[query], found.partitions[query], found.positions[query], strict=True
        ):
            own = each[probes[query].tolist().index(n)]
            assert own[row] == pytest.approx(float(distance), rel=1e-4, abs=1e-3)
