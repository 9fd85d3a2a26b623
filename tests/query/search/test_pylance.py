"""Searches of stock's own indices find what stock finds."""

from __future__ import annotations

import numpy as np
import pytest

import pennon
from tests.support.neighbors import KINDS, METRICS, PARTITIONS, brute_force, check, index, queries, rows, stock, write

EVERY_INDEX = [(kind, metric, np.float32) for kind in KINDS for metric in METRICS]
OTHER_TYPES = [
    ("IVF_FLAT", "l2", np.float16),
    ("IVF_HNSW_FLAT", "cosine", np.float16),
    ("IVF_PQ", "cosine", np.float64),
    ("IVF_SQ", "dot", np.float64),
    ("IVF_RQ", "l2", np.float16),
]


def halved(kind: str, metric: str) -> float:
    """Stock reports the squared l2 of vectors of length 1 where cosine distances are meant, except on FLAT."""
    return 0.5 if metric == "cosine" and not kind.endswith("FLAT") else 1.0


@pytest.fixture(scope="module", params=EVERY_INDEX + OTHER_TYPES, ids=lambda case: "-".join(map(str, case[:2])))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str, type]:
    kind, metric, dtype = request.param
    uri = write(tmp_path_factory.mktemp("stock") / "t.lance", rows(2000, dtype=dtype))
    index(uri, kind, metric)
    return uri, kind, metric, dtype


def test_the_nearest_are_stocks(case: tuple[str, str, str, type]) -> None:
    uri, kind, metric, dtype = case
    table, k = pennon.open(uri), 8
    asked = queries(12, dtype)
    shared = 0
    # The two have other defaults for the breadth of a walk.
    breadth = {"ef": 200} if kind.startswith("IVF_HNSW") else {}
    for nprobes in (2, PARTITIONS):
        batch = table.search_batch("v", asked, k, nprobes=nprobes, columns=["id"], **breadth)
        for number, query in enumerate(asked):
            ids, distances = stock(uri, query, k, nprobes, **breadth)
            found = table.search("v", query, k, nprobes=nprobes, columns=["id"], **breadth)
            assert found.column_names == ["id", "_distance"]
            own = batch.slice(number * k, k).drop_columns(["query_index"])
            together, alone = own["_distance"].to_numpy(), found["_distance"].to_numpy()
            if kind.startswith("IVF_HNSW"):
                # A partition that many queries probe is scanned, which finds rows that a walk through its graph misses.
                assert (together <= alone + 1e-4 + 1e-3 * np.abs(alone)).all()
            else:
                np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)
            errors = np.abs(found["_distance"].to_numpy() - distances * halved(kind, metric)) / (1 + np.abs(distances))
            if kind == "IVF_RQ":
                # Stock adds up entries of tables that it rounds to bytes.
                assert errors.mean() < 0.05
            else:
                assert errors.max() < (2e-3 if dtype == np.float16 else 1e-4)
            shared += len(np.intersect1d(ids, found["id"].to_numpy()))
    assert shared >= (0.9 if kind == "IVF_RQ" or dtype == np.float16 else 0.98) * 2 * k * len(asked)


def test_refined_distances_are_exact(case: tuple[str, str, str, type]) -> None:
    uri, _, metric, dtype = case
    table, tolerance = pennon.open(uri), 2e-3 if dtype == np.float16 else 1e-4
    for query in queries(4, dtype):
        found = table.search("v", query, 5, nprobes=PARTITIONS, refine_factor=40, ef=600, columns=["id"])
        check(found, brute_force(uri, query, 5, metric), tolerance)
