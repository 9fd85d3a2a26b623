"""A build that holds its vectors in memory writes the same index as one that reads them again for every step."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import LocalEngine
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.vectors import to_lists
from pennon.jobs.vector import build, held
from pennon.jobs.vector.held import HeldVectors
from tests.support.vectors import COLUMN, clustered

ROWS, DIM, PARTITIONS = 3000, 32, 8
KINDS: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 8, "max_iters": 4},
    "IVF_SQ": {},
    "IVF_RQ": {"num_bits": 5},
    "IVF_HNSW_SQ": {},
}


def table_with_gaps(path: Path, *, stable_row_ids: bool = False) -> str:
    """Several fragments, some vectors that no index contains, and deleted rows."""
    vectors = clustered(ROWS, DIM, seed=7).astype(np.float32)
    vectors[::97] = np.nan
    column = to_lists(vectors).to_pylist()
    column[5::301] = [None] * len(column[5::301])
    rows = pa.table({"id": np.arange(ROWS), COLUMN: pa.array(column, pa.list_(pa.float32(), DIM))})
    lance.write_dataset(rows, str(path), max_rows_per_file=700, enable_stable_row_ids=stable_row_ids)
    lance.dataset(str(path)).delete("id % 11 = 3 OR (id >= 700 AND id < 900)")
    return str(path)


def content(uri: str) -> tuple[Any, ...]:
    [index] = pennon.open(uri).indices()
    files = VectorFiles(open_store(Location.of(uri)), f"_indices/{index.segments[0].uuid}")
    partitions = [files.read_partition(number) for number in range(files.ivf.num_partitions)]
    rows = [(part.row_ids.tolist(), {name: c.tobytes() for name, c in part.columns.items()}) for part in partitions]
    return files.ivf.centroids.tobytes(), files.ivf.loss, files.sub_index, rows


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_index_is_the_same(tmp_path: Path, kind: str, metric: str) -> None:
    uri = table_with_gaps(tmp_path / "t.lance")
    options: dict[str, Any] = {"metric": metric, "num_partitions": PARTITIONS, "sample_rate": 64, **KINDS[kind]}
    found: list[tuple[Any, ...]] = []
    for fits in (True, False):
        with mock.patch.object(held, "fits", return_value=fits):
            table = pennon.open(uri, engine="local")
            table.create_index(COLUMN, kind, rows_per_task=500, replace=True, **options)
        found.append(content(uri))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ"])
def test_stable_row_ids_are_stored(tmp_path: Path, kind: str) -> None:
    uri = table_with_gaps(tmp_path / "t.lance", stable_row_ids=True)
    table = pennon.open(uri, engine="local")
    table.create_index(COLUMN, kind, num_partitions=PARTITIONS)
    live = lance.dataset(uri).to_table(filter=f"{COLUMN} IS NOT NULL", columns=[COLUMN], with_row_id=True)
    finite = [np.isfinite(vector).all() for vector in live[COLUMN].to_pylist()]
    stored = sorted(row for ids, _ in content(uri)[3] for row in ids)
    assert stored == sorted(live["_rowid"].to_numpy()[finite].tolist())
    assert table.audit().ok


def test_the_column_is_read_once(tmp_path: Path) -> None:
    uri = table_with_gaps(tmp_path / "t.lance")
    with mock.patch.object(build, "indexable_vectors", side_effect=AssertionError):
        pennon.open(uri, engine="local").create_index(COLUMN, "IVF_FLAT", num_partitions=PARTITIONS)
    assert pennon.open(uri).indices()[0].coverage == 1.0


def test_vectors_beyond_the_memory_of_a_task_are_not_held(tmp_path: Path) -> None:
    uri = table_with_gaps(tmp_path / "t.lance")
    plan: Any = pennon.open(uri, engine="local").plan_index(COLUMN, "IVF_FLAT", num_partitions=PARTITIONS)
    assert held.fits(plan)
    assert not held.fits(replace(plan, memory_bytes=plan.rows * plan.vector_bytes))


def test_held_vectors_are_never_sent() -> None:
    own = HeldVectors(np.empty((1, 1)), np.empty(1, dtype=np.uint64), np.ones(1, dtype=np.bool_), {})
    with pytest.raises(TypeError, match="stay in their process"):
        pickle.dumps(own)
    assert LocalEngine(threads=2).map("same", lambda _: own.vectors.shape[0], [0]) == [1]
