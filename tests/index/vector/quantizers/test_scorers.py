"""Distances of a partition, by whatever kernel: alike for one query and for many, for all rows and for some."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest

from pennon.errors import InvalidArgument
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.quantizers.base import FEW_QUERIES, Columns, Quantizer, concat_columns, take_columns
from pennon.index.vector.quantizers.flat import FlatQuantizer
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.quantizers.rabitq.quantizer import RabitQuantizer
from pennon.index.vector.quantizers.sq import ScalarQuantizer
from pennon.index.vector.vectors import Vectors
from tests.support.quantizers import train
from tests.support.vectors import clustered

# 24 is no multiple of 16, below which faiss's scalar kernels are left aside; 2100 rows need several chunks at 128.
SHAPES = [(300, 24), (2100, 128)]


@cache
def trained(name: str, metric: Metric, rows: int, dim: int) -> tuple[Ivf, Quantizer, Columns, Vectors]:
    vectors = metric.prepare(clustered(rows, dim).astype(np.float32))
    ivf = Ivf(metric, vectors[:1] + vectors[1:2])
    quantizer = train(name, vectors[:600], ivf)
    return ivf, quantizer, quantizer.encode(vectors, ivf.centroids, np.zeros(rows, dtype=np.int64)), vectors


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "PQ4", "RQ1", "RQ5", "RQ9"])
def test_few_and_many_queries_agree(name: str, metric: Metric, shape: tuple[int, int]) -> None:
    ivf, quantizer, columns, vectors = trained(name, metric, *shape)
    scorer = quantizer.scorer(columns, ivf.centroids[0])
    asked = quantizer.prepare(metric.prepare(vectors[:9] + np.float32(0.05)))
    many = scorer.distances(asked)
    assert many.shape == (9, len(vectors))
    tolerance = 1e-5 * np.abs(many).max()
    one_by_one = np.concatenate([scorer.distances(asked[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(one_by_one, many, atol=tolerance, rtol=0)
    expected = np.sort(many, axis=1)[:, :12]
    for queries in (asked, asked[:FEW_QUERIES], asked[:1]):
        values, positions = scorer.nearest(queries, 12)
        np.testing.assert_allclose(values, expected[: len(queries)], atol=tolerance, rtol=0)
        told = np.take_along_axis(many[: len(queries)], positions, axis=1)
        np.testing.assert_allclose(told, values, atol=tolerance, rtol=0)


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "PQ4"])
def test_distances_are_those_of_the_points(name: str, metric: Metric) -> None:
    """What a graph is built on and what a scan computes are one and the same."""
    ivf, quantizer, columns, vectors = trained(name, metric, 300, 24)
    assert isinstance(quantizer, FlatQuantizer | ScalarQuantizer | ProductQuantizer)
    asked = quantizer.prepare(metric.prepare(vectors[:6] + np.float32(0.05)))
    points = quantizer.points(columns).astype(np.float64)
    queries = quantizer.query_points(asked, ivf.centroids[0]).astype(np.float64)
    by_product = metric is Metric.DOT or (metric is Metric.COSINE and name == "FLAT")
    expected = 1 - queries @ points.T if by_product else ((queries[:, None] - points) ** 2).sum(axis=2)
    found = quantizer.scorer(columns, ivf.centroids[0]).distances(asked)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "RQ1", "RQ5"])
def test_some_rows_score_as_among_all(name: str, metric: Metric) -> None:
    ivf, quantizer, columns, vectors = trained(name, metric, 300, 24)
    scorer = quantizer.scorer(columns, ivf.centroids[0])
    asked = quantizer.prepare(metric.prepare(vectors[:2]))
    rows = np.array([250, 3, 77, 4])
    some = scorer.take(rows)
    assert len(some) == 4
    np.testing.assert_allclose(some.distances(asked), scorer.distances(asked)[:, rows], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "PQ4", "RQ1", "RQ5"])
def test_more_neighbors_than_rows(name: str) -> None:
    ivf, quantizer, columns, vectors = trained(name, Metric.L2, 300, 24)
    asked = quantizer.prepare(vectors[:9])
    for rows in (0, 3):
        few = quantizer.scorer(take_columns(columns, np.arange(rows)), ivf.centroids[0])
        for queries in (asked, asked[:1]):
            values, positions = few.nearest(queries, 5)
            assert ((positions >= 0).sum(axis=1) == rows).all()
            assert np.isinf(values[positions < 0]).all()
            assert np.isfinite(values[positions >= 0]).all()


def test_an_equal_vector_is_at_distance_zero_however_long_it_is() -> None:
    vectors = clustered(2000, 16).astype(np.float32) + np.float32(5000)
    ivf = Ivf(Metric.L2, vectors.mean(axis=0, keepdims=True))
    quantizer = FlatQuantizer.train(vectors, ivf)
    scorer = quantizer.scorer({"flat": vectors}, ivf.centroids[0])
    values, positions = scorer.nearest(quantizer.prepare(vectors[:50]), 3)
    assert positions[:, 0].tolist() == list(range(50))
    assert (values[:, 0] == 0).all()


@pytest.mark.parametrize("bits", range(1, 10))
def test_rabitq_gets_closer_with_every_bit(bits: int) -> None:
    vectors = clustered(500, 64).astype(np.float32)
    ivf = Ivf(Metric.L2, vectors.mean(axis=0, keepdims=True))
    errors = []
    for width in (bits, bits + 1) if bits < 9 else (8, 9):
        quantizer = RabitQuantizer.train(vectors, ivf, num_bits=width)
        scorer = quantizer.scorer(quantizer.encode(vectors, ivf.centroids, np.zeros(500, dtype=int)), ivf.centroids[0])
        found = scorer.distances(quantizer.prepare(vectors[:20] + np.float32(0.1)))
        errors.append(np.abs(found - Metric.L2.distances(vectors[:20] + np.float32(0.1), vectors)).mean())
    assert errors[1] < 0.75 * errors[0]


def test_a_vector_that_is_its_centroid_can_be_encoded() -> None:
    vectors = np.ones((3, 16), dtype=np.float32)
    for name in ("FLAT", "SQ", "PQ", "RQ1", "RQ5"):
        for metric in FLOAT_METRICS:
            prepared = metric.prepare(vectors)
            ivf = Ivf(metric, prepared[:1].copy())
            quantizer = train(name, prepared, ivf)
            columns = quantizer.encode(prepared, ivf.centroids, np.zeros(3, dtype=int))
            found = quantizer.scorer(columns, ivf.centroids[0]).distances(quantizer.prepare(prepared[:1]))
            expected = -15 if metric is Metric.DOT else 0
            np.testing.assert_allclose(found, np.full((1, 3), expected), atol=0.2)


@pytest.mark.parametrize("name", ["FLAT", "SQ", "PQ", "PQ4", "RQ1", "RQ5"])
def test_training_repeats_itself_and_models_travel(name: str) -> None:
    vectors = clustered(700, 32).astype(np.float32)
    models = []
    for _ in range(2):
        ivf = Ivf.train(vectors, Metric.L2, 4, seed=7)
        models.append((ivf, train(name, vectors, ivf)))
    (ivf, first), (again, second) = models
    np.testing.assert_array_equal(ivf.centroids, again.centroids)
    assert first.to_metadata() == second.to_metadata()
    ids = ivf.assign(vectors)[0]
    encoded = first.encode(vectors, ivf.centroids, ids)
    travelled: Any = pickle.loads(pickle.dumps(first))
    assert travelled.to_metadata() == first.to_metadata()
    for column, values in travelled.encode(vectors, ivf.centroids, ids).items():
        np.testing.assert_array_equal(values, encoded[column])
    joined = concat_columns([take_columns(encoded, np.arange(9)), take_columns(encoded, np.arange(9, 700))])
    for column, values in joined.items():
        np.testing.assert_array_equal(values, encoded[column])


@pytest.mark.parametrize(("subs", "bits"), [(5, 8), (0, 8), (8, 6), (1, 4), (33, 8)])
def test_impossible_pq_is_refused(subs: int, bits: int) -> None:
    vectors = clustered(300, 32).astype(np.float32)
    with pytest.raises(InvalidArgument):
        ProductQuantizer.train(vectors, Ivf(Metric.L2, vectors[:1]), num_sub_vectors=subs, num_bits=bits)


@pytest.mark.parametrize(("dim", "bits"), [(12, 5), (16, 0), (16, 10)])
def test_impossible_rabitq_is_refused(dim: int, bits: int) -> None:
    vectors = clustered(30, dim).astype(np.float32)
    with pytest.raises(InvalidArgument):
        RabitQuantizer.train(vectors, Ivf(Metric.L2, vectors[:1]), num_bits=bits)


def test_pq_of_fewer_vectors_than_codewords() -> None:
    vectors = clustered(20, 16).astype(np.float32)
    ivf = Ivf(Metric.DOT, vectors[:1])
    quantizer = ProductQuantizer.train(vectors, ivf, num_sub_vectors=4)
    columns = quantizer.encode(vectors, ivf.centroids, np.zeros(20, dtype=int))
    np.testing.assert_allclose(quantizer.points(columns), vectors, atol=5e-3)
