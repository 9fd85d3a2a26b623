"""Tables of vectors for searches, and the oracle: brute force over the live rows, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from pennon.index.vector.vectors import to_lists, to_matrix
from tests.support.vectors import clustered

KINDS: dict[str, dict[str, int]] = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 4},
    "IVF_SQ": {},
    "IVF_RQ": {"num_bits": 5},
    "IVF_HNSW_FLAT": {},
    "IVF_HNSW_PQ": {"num_sub_vectors": 4},
    "IVF_HNSW_SQ": {},
}
METRICS = ("l2", "cosine", "dot")
DIM = 16
PARTITIONS = 6


def rows(count: int, start: int = 0, seed: int = 0, dtype: type = np.float32) -> pa.Table:
    """`id` numbers the rows, `part` has few values, `word` is text, `v` the vectors."""
    ids = np.arange(start, start + count)
    vectors = to_lists(clustered(count, DIM, seed).astype(dtype))
    return pa.table({"id": ids, "part": ids % 10, "word": [f"w{i % 7}" for i in ids], "v": vectors})


def write(path: Path, table: pa.Table, fragments: int = 3, **options: Any) -> str:
    lance.write_dataset(table, str(path), max_rows_per_file=-(-len(table) // fragments), **options)
    return str(path)


def index(uri: str, kind: str, metric: str = "l2", name: str = "x", partitions: int = PARTITIONS) -> None:
    dataset = lance.dataset(uri)
    options: dict[str, Any] = dict(KINDS[kind])
    dataset.create_index("v", kind, name=name, metric=metric, num_partitions=partitions, replace=True, **options)


def queries(count: int, dtype: type = np.float32, seed: int = 77) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (clustered(count, DIM) + 0.3 * rng.standard_normal((count, DIM))).astype(dtype)


def brute_force(
    uri: str, query: np.ndarray, k: int, metric: str = "l2", filter: str | None = None, version: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and distances of the k nearest rows that have a distance at all."""
    dataset = lance.dataset(uri, version=version)
    return brute_force_over(dataset.to_table(columns=["id", "v"], filter=filter), query, k, metric)


def brute_force_over(table: pa.Table, query: np.ndarray, k: int, metric: str = "l2") -> tuple[np.ndarray, np.ndarray]:
    """The same over the rows of a table in memory."""
    lists = table["v"].combine_chunks()
    vectors, whole = to_matrix(lists)
    wide, query = vectors.astype(np.float64), query.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sound = whole & np.isfinite(wide).all(axis=1)
        if metric == "cosine":
            sound &= (wide != 0).any(axis=1)
    ids, wide = table["id"].to_numpy()[sound], wide[sound]
    if metric == "l2":
        distances = ((wide - query) ** 2).sum(axis=1)
    else:
        products = wide @ query
        if metric == "cosine":
            products /= np.linalg.norm(wide, axis=1) * np.linalg.norm(query)
        distances = 1 - products
    order = np.argsort(distances, kind="stable")[:k]
    return ids[order], distances[order]


def check(found: pa.Table, expected: tuple[np.ndarray, np.ndarray], tolerance: float = 1e-4) -> None:
    """The same distances, and the same rows but for those that are as far as another."""
    ids, distances = expected
    own = found["_distance"].to_numpy()
    np.testing.assert_allclose(own, distances, rtol=tolerance, atol=tolerance)
    assert (np.diff(own) >= 0).all()
    clear = np.ones(len(ids), dtype=bool)
    near = np.diff(distances) <= 2 * tolerance * (1 + np.abs(distances[1:]))
    clear[1:] &= ~near
    clear[:-1] &= ~near
    clear[-1:] = False
    found_ids = found["id"].to_numpy()
    assert len(np.unique(found_ids)) == len(found_ids)
    np.testing.assert_array_equal(found_ids[clear], ids[clear])


def stock(uri: str, query: np.ndarray, k: int, nprobes: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ids and distances as stock finds them by its index."""
    filter = options.pop("filter", None)
    nearest = {"column": "v", "q": query, "k": k, "nprobes": nprobes, **options}
    scanner = lance.dataset(uri).scanner(
        columns=["id", "_distance"], nearest=nearest, filter=filter, prefilter=filter is not None
    )
    assert "ANN" in scanner.explain_plan()
    found = scanner.to_table()
    return found["id"].to_numpy(), found["_distance"].to_numpy()
