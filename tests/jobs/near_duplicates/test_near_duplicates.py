"""Near-duplicates: the pairs and groups that comparing every row with every other gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument, SparkUnavailable
from pennon.index.vector.vectors import to_lists
from pennon.jobs.near_duplicates import choose
from pennon.jobs.near_duplicates import plan as planning
from pennon.testing.duplicates import brute_force, pairs_of, planned, within
from tests.support.duplicates import connected, groups_of
from tests.support.frames import rows_of

DIM = 48


def vectors(count: int = 600, dim: int = DIM, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Clusters with copies and near copies in them; items that an index leaves out are added by `write`."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((40, dim))
    found = centres[rng.integers(0, 40, count)] + rng.standard_normal((count, dim))
    near = rng.choice(count, count // 3, replace=False)
    sources = rng.choice(count, len(near))
    found[near] = found[sources] + rng.choice([0, 0.02, 0.2], (len(near), 1)) * rng.standard_normal((len(near), dim))
    return found.astype(dtype)


def write(path: Path, values: np.ndarray, **options: Any) -> str:
    ids = np.arange(len(values))
    table = pa.table({"id": ids, "part": ids % 3, "v": to_lists(values)})
    lance.write_dataset(table, str(path), max_rows_per_file=-(-len(values) // 3), **options)
    return str(path)


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several groups of several cells, also for a small table."""
    monkeypatch.setattr(planning, "ONE_TASK_ROWS", 0)
    monkeypatch.setattr(choose, "CELLS", (16, 64))


def bounds(distances: np.ndarray) -> list[float]:
    """From copies only to every tenth pair, between the distances of two pairs."""
    ascending = np.unique(distances[np.triu_indices(len(distances), 1)])
    places = (len(ascending) * np.array([0.0001, 0.002, 0.1])).astype(int)
    return [0.0, *((ascending[places] + ascending[places + 1]) / 2).tolist()]


def check(uri: str, metric: str, filter: str | None = None, **options: Any) -> None:
    addresses, distances = brute_force(uri, metric, filter)
    for bound in bounds(distances):
        plan = planned(uri, bound, metric=metric, filter=filter, **options)
        expected, found = within(addresses, distances, bound), pairs_of(plan)
        assert found.keys() == expected.keys(), (metric, bound)
        assert expected or not bound
        np.testing.assert_allclose([found[pair] for pair in expected], [*expected.values()], rtol=1e-5, atol=1e-12)
        assert groups_of(plan) == connected(expected)


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize(
    ("metric", "dtype"),
    [("l2", np.float32), ("cosine", np.float32), ("cosine", np.float16), ("l2", np.float64)],
)
def test_pairs_and_groups_are_those_of_brute_force(tmp_path: Path, metric: str, dtype: Any) -> None:
    values = vectors(dtype=dtype)
    values[5], values[6, 3], values[7] = 0, np.nan, np.inf
    uri = write(tmp_path / "t", values)
    lance.dataset(uri).delete("id % 10 = 4")
    check(uri, metric)


@pytest.mark.usefixtures("many_tasks")
def test_rows_that_are_very_far_away(tmp_path: Path) -> None:
    """Their squares are close to the largest float32, and the rounding errors of all others larger than distances."""
    values = vectors(200)
    values[5:7], values[7] = 2e18, -2e18
    uri = write(tmp_path / "t", values)
    addresses, distances = brute_force(uri, "l2")
    for bound in (0.0, 1.0):
        expected = within(addresses, distances, bound)
        assert (5, 6) in expected
        assert pairs_of(planned(uri, bound)).keys() == expected.keys()


@pytest.mark.usefixtures("many_tasks")
def test_filters_deltas_and_compactions_change_nothing(tmp_path: Path, process_engine: Any) -> None:
    """Vectors are those of the table, whatever an index holds."""
    uri = write(tmp_path / "t", vectors(400), enable_stable_row_ids=True)
    lance.dataset(uri).create_index("v", "IVF_PQ", num_partitions=16, num_sub_vectors=4, metric="cosine")
    lance.write_dataset(pa.table({"id": [1], "part": [1], "v": to_lists(vectors(200, seed=1))[:1]}), uri, mode="append")
    lance.dataset(uri).delete("id % 7 = 3")
    lance.dataset(uri).optimize.compact_files()
    check(uri, "cosine", "part != 2")


@pytest.mark.usefixtures("many_tasks")
def test_cells_are_those_of_an_index_where_that_is_cheapest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = write(tmp_path / "t", vectors())
    # Given, because pylance trains other ones each time, some of which are too uneven for as many tasks.
    centroids = vectors()[:24]
    lance.dataset(uri).create_index("v", "IVF_FLAT", name="x", num_partitions=24, metric="l2", ivf_centroids=centroids)
    monkeypatch.setattr(choose, "CELLS", (1024,))
    plan = planned(uri, 0.5)
    assert (plan.index, plan.metric, len(plan.cells)) == ("x", "l2", 24)
    assert plan.tasks > 4
    addresses, distances = brute_force(uri, "l2")
    assert pairs_of(plan).keys() == within(addresses, distances, 0.5).keys()
    assert "cells around the centroids of index x" in str(plan)


def test_one_task_compares_a_small_table_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = write(tmp_path / "t", vectors(300))
    check(uri, "l2", memory=1 << 16)
    assert planned(uri, 1.0).tasks == 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tables_with_hardly_a_row(tmp_path: Path, count: int) -> None:
    uri = write(tmp_path / "t", np.ones((3, DIM), dtype=np.float32))
    lance.dataset(uri).delete(f"id >= {count}")
    plan = planned(uri, 0.0, metric="cosine")
    assert len(pairs_of(plan)) == (count == 2)
    assert len(groups_of(plan)) == (count == 2)


def test_copies_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 copies have 200 million pairs; their groups take no more time than 20,000 other rows."""
    values = np.repeat(vectors(2, seed=3), 10_000, axis=0)
    monkeypatch.setattr(planning, "ONE_TASK_ROWS", 1 << 20)
    uri = write(tmp_path / "t", values)
    assert sorted(map(len, groups_of(planned(uri, 0.5)))) == [10_000, 10_000]


def test_on_spark(tmp_path: Path, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ONE_TASK_ROWS", 0)
    uri = write(tmp_path / "t", vectors(), enable_stable_row_ids=True)
    table = pennon.open(uri, spark=engine.session)
    addresses, distances = brute_force(uri, "cosine")
    expected = within(addresses, distances, 0.02)
    scanned = table.scan(columns=["id"], with_row_address=True)
    ids = dict(zip(scanned["_rowaddr"].to_pylist(), scanned["id"].to_pylist(), strict=True))
    found = rows_of(table.near_duplicates("v", 0.02, metric="cosine", columns=["id", "_rowaddr"]))
    assert found.column_names == ["id_a", "_rowaddr_a", "id_b", "_rowaddr_b", "_distance"]
    pairs = list(zip(found["_rowaddr_a"].to_pylist(), found["_rowaddr_b"].to_pylist(), strict=True))
    assert len(pairs) == len(expected) > 10
    assert set(pairs) == expected.keys()
    assert [(ids[a], ids[b]) for a, b in pairs] == list(
        zip(found["id_a"].to_pylist(), found["id_b"].to_pylist(), strict=True)
    )
    rows = rows_of(table.near_duplicates("v", 0.02, metric="cosine", columns=["_rowaddr", "_rowid"], groups=True))
    groups: dict[int, set[int]] = {}
    sizes: dict[int, int] = {}
    for row, group, size in zip(*(rows[n].to_pylist() for n in ("_rowaddr", "_group", "_group_rows")), strict=True):
        groups.setdefault(group, set()).add(row)
        sizes[group] = size
    assert {group: len(some) for group, some in groups.items()} == sizes
    assert {frozenset(some) for some in groups.values()} == connected(expected)
    first = {group: min(some) for group, some in groups.items()}
    row_ids = dict(zip(rows["_rowaddr"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))
    assert all(row_ids[row] == group for group, row in first.items())


def test_what_cannot_be_asked(tmp_path: Path, engine: Any) -> None:
    uri = write(tmp_path / "t", vectors(30))
    table = pennon.open(uri, spark=engine.session)
    with pytest.raises(InvalidArgument, match="nearer to others than to itself"):
        table.near_duplicates("v", 0.1, metric="dot")
    with pytest.raises(InvalidArgument, match="distance must be a number of at least 0"):
        table.near_duplicates("v", -1)
    with pytest.raises(InvalidArgument, match="distance must be finite"):
        table.plan_near_duplicates("v", float("inf"))
    with pytest.raises(InvalidArgument, match="at least one column"):
        table.near_duplicates("v", 1, columns=[])
    with pytest.raises(SparkUnavailable, match="near_duplicates"):
        pennon.open(uri, engine="local").near_duplicates("v", 1)
