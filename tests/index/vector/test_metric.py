"""Distances on Lance's scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import InvalidArgument
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.vectors import is_vector_type, to_lists, to_matrix
from tests.support.vectors import COLUMN, clustered, write_table


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_exact_distances_are_those_of_a_stock_scan(tmp_path: Path, metric: Metric, element: Any) -> None:
    vectors = clustered(200, 16).astype(element)
    uri = write_table(tmp_path / "t.lance", vectors)
    queries = vectors[:3] + element(0.25)
    found = metric.distances(queries, vectors)
    for query, row in zip(queries, found, strict=True):
        nearest = {"column": COLUMN, "q": query, "k": 200, "metric": metric.value}
        stock = lance.dataset(uri).to_table(columns=["id", "_distance"], nearest=nearest)
        expected = stock["_distance"].to_numpy()[np.argsort(stock["id"].to_numpy())]
        np.testing.assert_allclose(row, expected, atol=3e-6 * np.abs(expected).max(), rtol=0)


def test_equal_vectors_are_at_distance_zero() -> None:
    vectors = clustered(50, 16).astype(np.float32) + np.float32(1e4)
    assert (np.diagonal(Metric.L2.distances(vectors, vectors)) == 0).all()


def test_under_cosine_nothing_is_near_a_vector_of_length_zero() -> None:
    vectors = np.array([[0, 0], [1, 0]], dtype=np.float32)
    assert Metric.COSINE.distances(vectors[1:], vectors).tolist() == [[np.inf, 0]]


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
def test_rows_that_have_no_distance_are_not_indexable(element: Any) -> None:
    vectors = np.ones((6, 4), dtype=element)
    vectors[1, 2], vectors[2, 0], vectors[3, 3], vectors[4] = np.nan, np.inf, -np.inf, 0
    assert Metric.L2.indexable(vectors).tolist() == [True, False, False, False, True, True]
    assert Metric.DOT.indexable(vectors).tolist() == [True, False, False, False, True, True]
    assert Metric.COSINE.indexable(vectors).tolist() == [True, False, False, False, False, True]


def test_rows_too_long_for_float32_are_not_indexable() -> None:
    assert Metric.L2.indexable(np.array([[1e25, 1], [1e15, 1]])).tolist() == [False, True]


def test_names() -> None:
    assert Metric.named("Cosine") is Metric.COSINE
    assert Metric.named("euclidean") is Metric.L2
    with pytest.raises(InvalidArgument, match="l2, cosine, dot, hamming"):
        Metric.named("jaccard")


def test_a_column_is_a_matrix() -> None:
    lists = [[1.0, 2.0], None, [3.0, None], [5.0, 6.0], [7.0, 8.0]]
    column = pa.array(lists, pa.list_(pa.float32(), 2))
    matrix, whole = to_matrix(column.slice(1, 3))
    assert whole.tolist() == [False, False, True]
    assert matrix[2].tolist() == [5.0, 6.0]
    assert to_lists(matrix[2:]).to_pylist() == [[5.0, 6.0]]
    assert to_matrix(column.slice(0, 0))[0].shape == (0, 2)
    assert is_vector_type(column.type)
    assert not is_vector_type(pa.list_(pa.int8(), 2))
    assert not is_vector_type(pa.list_(pa.float32()))
