"""Many partitions searched at once: whatever kernel a query meets, it finds what the formulae of the format say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import faiss
import numpy as np
import psutil
import pytest

from pennon.index.threads import one_thread
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.quantizers.base import Columns, Quantizer, Scorer, take_columns
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq import inverted_lists as pq_lists
from pennon.index.vector.quantizers.rabitq.quantizer import RESIDUAL_QUERY, RabitQuantizer
from pennon.index.vector.quantizers.rabitq.rotation import FastRotation
from pennon.index.vector.search import partition_search as probing
from pennon.index.vector.search.partition_search import Found, search_partitions
from tests.index.vector.search.formulae import distances_by_definition
from tests.support.quantizers import train
from tests.support.vectors import clustered

NAMES = ["FLAT", "SQ", "PQ", "PQ4", "RQ1", "RQ5", "RQ9", "RQ1-residual"]
PARTITIONS, NPROBES = 7, 4
EMPTY = 5  # a partition without rows
QUERIES = [1, 3, 40]


@dataclass(frozen=True, eq=False)
class Index:
    quantizer: Quantizer
    ivf: Ivf
    columns: dict[int, Columns]
    queries: np.ndarray  # prepared by the metric

    @property
    def scorers(self) -> dict[int, Scorer]:
        return {p: self.quantizer.scorer(c, self.ivf.centroids[p]) for p, c in self.columns.items()}

    def search(self, queries: int, k: int, **options: Any) -> Found:
        asked = self.queries[:queries]
        return search_partitions(
            self.quantizer, self.scorers, self.quantizer.prepare(asked), self.probes(queries), k, **options
        )

    def probes(self, queries: int) -> np.ndarray:
        return self.ivf.rank(self.queries[:queries], NPROBES)[0]

    def expected(
        self, queries: int, allowed: dict[int, np.ndarray] | None = None
    ) -> list[dict[tuple[int, int], float]]:
        """Per query the distance of every row it should see, by partition and position."""
        found: list[dict[tuple[int, int], float]] = []
        for query, numbers in zip(self.queries[:queries], self.probes(queries).tolist(), strict=True):
            distances: dict[tuple[int, int], float] = {}
            for p in numbers:
                all_ = distances_by_definition(self.quantizer, self.columns[p], self.ivf.centroids[p], query[None])[0]
                mask = (allowed or {}).get(p, np.ones(len(all_), dtype=np.bool_))
                distances |= {(p, at): float(all_[at]) for at in np.flatnonzero(mask).tolist()}
            found.append(distances)
        return found


@cache
def index(name: str, metric: Metric, rows: int = 700, dim: int = 40, element: Any = np.float32) -> Index:
    vectors = metric.prepare(clustered(rows + 50, dim).astype(element))
    rng = np.random.default_rng(0)
    centroids = vectors[rng.choice(rows, PARTITIONS, replace=False)].copy()
    centroids[EMPTY] = vectors.mean(axis=0) * 0.01
    ivf = Ivf(metric, centroids)
    if name == "RQ1-residual":
        quantizer: Quantizer = RabitQuantizer(metric, FastRotation.random(dim, 0), 1, RESIDUAL_QUERY)
    else:
        quantizer = train(name, vectors[:rows], ivf)
    ids = ivf.assign(vectors[:rows])[0]
    ids[ids == EMPTY] = EMPTY + 1
    columns = quantizer.encode(vectors[:rows], centroids, ids)
    parts = {p: take_columns(columns, np.flatnonzero(ids == p)) for p in range(PARTITIONS)}
    return Index(quantizer, ivf, parts, vectors[rows:])


def check(found: Found, expected: list[dict[tuple[int, int], float]], k: int) -> None:
    """The distances are the smallest there are, each is that of its row, and no row comes twice."""
    spread = max(abs(value) for distances in expected for value in distances.values())
    for row, distances in enumerate(expected):
        count = min(k, len(distances))
        pairs = list(zip(found.partitions[row].tolist(), found.positions[row].tolist(), strict=True))
        assert pairs[count:] == [(-1, -1)] * (k - count)
        assert np.isinf(found.distances[row, count:]).all()
        assert len(set(pairs[:count])) == count
        np.testing.assert_allclose(
            found.distances[row, :count], sorted(distances.values())[:count], atol=1e-5 * spread, rtol=0
        )
        told = [distances[pair] for pair in pairs[:count]]
        np.testing.assert_allclose(found.distances[row, :count], told, atol=1e-5 * spread, rtol=0)


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", NAMES)
def test_the_nearest_rows_of_the_probed_partitions(name: str, metric: Metric, queries: int) -> None:
    known = index(name, metric)
    assert EMPTY in known.probes(40)
    check(known.search(queries, 10), known.expected(queries), 10)


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", NAMES)
def test_only_allowed_rows_count(name: str, metric: Metric, queries: int) -> None:
    known = index(name, metric)
    rng = np.random.default_rng(1)
    lengths = {p: len(next(iter(columns.values()))) for p, columns in known.columns.items()}
    allowed = {p: rng.random(count) < 0.4 for p, count in lengths.items() if p != 2}
    allowed[0][:] = False
    check(known.search(queries, 10, allowed=allowed), known.expected(queries, allowed), 10)


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("name", NAMES)
def test_more_neighbors_than_rows(name: str, queries: int) -> None:
    known = index(name, Metric.L2)
    check(known.search(queries, 900), known.expected(queries), 900)
    allowed = {p: np.zeros(len(next(iter(c.values()))), dtype=np.bool_) for p, c in known.columns.items()}
    for mask in allowed.values():
        mask[:1] = True
    check(known.search(queries, 10, allowed=allowed), known.expected(queries, allowed), 10)


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("element", [np.float16, np.float64])
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "RQ1", "RQ5"])
def test_columns_of_other_floats(name: str, metric: Metric, element: Any, queries: int) -> None:
    known = index(name, metric, element=element)
    check(known.search(queries, 10), known.expected(queries), 10)


@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "RQ1", "RQ5"])
@pytest.mark.parametrize("dim", [16, 24, 72, 136])
def test_every_width(name: str, dim: int) -> None:
    known = index(name, Metric.L2, dim=dim)
    for queries in QUERIES:
        check(known.search(queries, 10), known.expected(queries), 10)


@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "RQ5"])
def test_partitions_larger_than_what_is_compared_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ROWS_AT_ONCE", 30)
    monkeypatch.setattr(probing, "DISTANCES_AT_ONCE", 200)
    known = index(name, Metric.L2)
    check(known.search(40, 10), known.expected(40), 10)


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_lists_of_codes_without_tables(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pq_lists, "TABLE_BYTES", 0)
    known = index("PQ", metric)
    check(known.search(40, 10), known.expected(40), 10)


@pytest.mark.parametrize("element", [np.float32, np.float64])
def test_a_common_offset_costs_lists_of_codes_no_digits(element: Any) -> None:
    """One query is compared with residuals, many by tables over all centroids."""
    vectors = (clustered(2000, 32) + 3000).astype(element)
    ivf = Ivf(Metric.L2, vectors[::400].copy())
    quantizer = train("PQ", vectors, ivf)
    ids = ivf.assign(vectors)[0]
    columns = quantizer.encode(vectors, ivf.centroids, ids)
    parts = {p: take_columns(columns, np.flatnonzero(ids == p)) for p in range(5)}
    known = Index(quantizer, ivf, parts, vectors[:60])
    together = known.search(60, 10)
    for row in range(60):
        one = quantizer.prepare(vectors[row : row + 1])
        alone = search_partitions(quantizer, known.scorers, one, known.probes(60)[row : row + 1], 10)
        np.testing.assert_allclose(together.distances[row], alone.distances[0], rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_nothing(name: str) -> None:
    known = index(name, Metric.L2)
    alone = known.search(40, 10)
    for threads in (2, 5):
        together = known.search(40, 10, threads=threads)
        np.testing.assert_array_equal(together.distances, alone.distances)
        np.testing.assert_array_equal(together.partitions, alone.partitions)
        np.testing.assert_array_equal(together.positions, alone.positions)


@pytest.mark.parametrize("name", ["FLAT", "PQ", "RQ5"])
@pytest.mark.parametrize("queries", QUERIES)
def test_groups_of_partitions_one_after_another(name: str, queries: int) -> None:
    known = index(name, Metric.DOT)
    scorers, probes = known.scorers, known.probes(queries)
    asked = known.quantizer.prepare(known.queries[:queries])
    groups = [{p: scorers[p] for p in numbers} for numbers in ([0, 3], [], [1, 2, 4], [5, 6])]
    parts = [search_partitions(known.quantizer, group, asked, probes, 10) for group in groups]
    check(Found.merged(parts, 10), known.expected(queries), 10)


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "RQ1", "RQ5"])
def test_equal_rows_come_in_the_order_of_partition_and_position(name: str, queries: int) -> None:
    known = index(name, Metric.L2)
    same = take_columns(known.columns[1], np.zeros(6, dtype=int))
    scorer = known.quantizer.scorer(same, known.ivf.centroids[1])
    asked = known.quantizer.prepare(known.queries[:queries])
    probes = np.tile([4, 1], (queries, 1))
    found = search_partitions(known.quantizer, {1: scorer, 4: scorer}, asked, probes, 12)
    # Products may round equal rows differently.
    assert (np.ptp(found.distances, axis=1) <= 1e-5 * found.distances[:, 0]).all()
    for row in range(queries):
        rows = list(zip(found.distances[row], found.partitions[row], found.positions[row], strict=True))
        assert rows == sorted(rows)
        assert {pair[1:] for pair in rows} == {(p, at) for p in (1, 4) for at in range(6)}


def test_no_queries_and_no_partitions() -> None:
    known = index("PQ", Metric.L2)
    assert known.search(0, 5).distances.shape == (0, 5)
    for queries in QUERIES:
        probes, asked = known.probes(queries), known.queries[:queries]
        assert (search_partitions(known.quantizer, {}, asked, probes, 5).partitions == -1).all()
        assert (search_partitions(known.quantizer, known.scorers, asked, probes[:, :0], 5).partitions == -1).all()


def test_an_equal_vector_is_at_distance_zero_however_many_ask() -> None:
    vectors = clustered(2000, 16).astype(np.float32) + np.float32(5000)
    ivf = Ivf(Metric.L2, vectors[:2] + np.float32(1))
    quantizer = FlatQuantizer.train(vectors, ivf)
    ids = ivf.assign(vectors)[0]
    scorers = {p: quantizer.scorer({"flat": vectors[ids == p]}, ivf.centroids[p]) for p in (0, 1)}
    for count in (1, 5, 200):
        asked = quantizer.prepare(vectors[:count])
        found = search_partitions(quantizer, scorers, asked, ivf.rank(vectors[:count], 2)[0], 3)
        assert (found.distances[:, 0] == 0).all()
        places = [
            np.flatnonzero(ids == p)[at] for p, at in zip(found.partitions[:, 0], found.positions[:, 0], strict=True)
        ]
        assert places == list(range(count))


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("bits", [2, 5, 9])
@pytest.mark.parametrize("spread", [0.3, 1.0, 30.0])
def test_sifting_by_signs_misses_nothing(metric: Metric, bits: int, spread: float) -> None:
    """With tight clusters, loose ones, and none at all."""
    vectors = metric.prepare(clustered(4100, 64, spread=spread).astype(np.float32))
    ivf = Ivf(metric, vectors[::1025][:4].copy())
    quantizer = RabitQuantizer.train(vectors, ivf, num_bits=bits)
    ids = ivf.assign(vectors)[0]
    columns = quantizer.encode(vectors, ivf.centroids, ids)
    scorers = [quantizer.scorer(take_columns(columns, np.flatnonzero(ids == p)), ivf.centroids[p]) for p in range(4)]
    asked = quantizer.prepare(metric.prepare(vectors[:60] + np.float32(0.1)))
    every = np.concatenate([scorer.distances(asked) for scorer in scorers], axis=1)
    expected = np.sort(every, axis=1)[:, :10]
    found = np.stack([quantizer.scan(asked[row : row + 1], scorers, 10)[0] for row in range(60)])
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(every).max(), rtol=0)


def test_scanners_are_given_back() -> None:
    """faiss hands them out without their ownership, 30 KiB each."""
    known = index("PQ", Metric.L2)
    process, scorers = psutil.Process(), known.scorers
    asked, probes = known.queries[:1], known.probes(1)
    search_partitions(known.quantizer, scorers, asked, probes, 10)
    before = process.memory_info().rss
    for _ in range(2000):
        search_partitions(known.quantizer, scorers, asked, probes, 10)
    assert process.memory_info().rss - before < 20 << 20


def test_the_number_of_threads_is_put_back() -> None:
    faiss.omp_set_num_threads(3)
    try:
        with one_thread(), one_thread():
            assert faiss.omp_get_max_threads() == 1
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(1)
