"""Many queries against partitions of RaBitQ codes. The oracle measures every row."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.rabitq.quantizer import RabitQuantizer
from pennon.index.vector.search.partition_search import search_partitions

PARTITIONS, ROWS, QUERIES, K = 5, 400, 60, 8


@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT], ids=str)
@pytest.mark.parametrize("bits", [1, 2, 5, 9])
@pytest.mark.parametrize("dim", [8, 72, 128])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_nearest_are_those_of_all_distances(
    metric: Metric, bits: int, dim: int, filtered: bool, threads: int
) -> None:
    rng = np.random.default_rng(dim)
    ivf = Ivf(metric, rng.standard_normal((PARTITIONS, dim)).astype(np.float32))
    quantizer = RabitQuantizer.train(ivf.centroids, ivf, num_bits=bits)
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
    found = search_partitions(quantizer, scorers, queries, probes, K, allowed=allowed, threads=threads)
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


@pytest.mark.parametrize("bits", [1, 5])
def test_every_batch_finds_what_matrix_products_find(bits: int) -> None:
    """Real vectors have neighbors at many distances, of which signs tell few apart."""
    rng = np.random.default_rng(bits)
    spread = np.linspace(3, 0.1, 64)
    vectors = (rng.standard_normal((6000, 64)) * spread).astype(np.float32)
    ivf = Ivf.train(vectors, Metric.L2, 12, max_iters=3)
    quantizer = RabitQuantizer.train(vectors, ivf, num_bits=bits)
    numbers, _ = ivf.assign(vectors)
    columns = quantizer.encode(vectors, ivf.centroids, numbers)
    scorers = {
        n: quantizer.scorer({name: column[numbers == n] for name, column in columns.items()}, ivf.centroids[n])
        for n in range(12)
    }
    plain = (rng.standard_normal((300, 64)) * spread).astype(np.float32)
    queries, probes = quantizer.prepare(plain), ivf.rank(plain, 8)[0]
    found = search_partitions(quantizer, scorers, queries, probes, 20, threads=2)
    every = {n: scorer.distances(queries) for n, scorer in scorers.items()}
    for query in range(len(queries)):
        true = np.sort(np.concatenate([every[n][query] for n in probes[query].tolist()]))[:20]
        np.testing.assert_allclose(found.distances[query], true, rtol=1e-4, atol=1e-3)


def test_queries_of_zeros_and_without_a_probe() -> None:
    rng = np.random.default_rng(0)
    ivf = Ivf(Metric.L2, rng.standard_normal((2, 16)).astype(np.float32))
    quantizer = RabitQuantizer.train(ivf.centroids, ivf, num_bits=4)
    vectors = rng.standard_normal((50, 16)).astype(np.float32)
    columns = quantizer.encode(vectors, ivf.centroids, np.zeros(50, dtype=np.uint32))
    scorers = {0: quantizer.scorer(columns, ivf.centroids[0])}
    queries = np.concatenate([np.zeros((10, 16)), rng.standard_normal((10, 16))]).astype(np.float32)
    probes = np.zeros((20, 2), dtype=np.int64)
    probes[:, 1] = probes[5] = -1
    found = search_partitions(quantizer, scorers, quantizer.prepare(queries), probes, 60, threads=2)
    assert np.isinf(found.distances[5]).all()
    assert (found.positions[5] == -1).all()
    for query in range(20):
        if query != 5:
            own = np.sort(scorers[0].distances(quantizer.prepare(queries[query : query + 1]))[0])
            np.testing.assert_allclose(found.distances[query, :50], own, rtol=1e-4, atol=1e-3)
            assert (found.positions[query, 50:] == -1).all()
