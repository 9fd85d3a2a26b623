"""All rows within a distance: what an index of whole vectors rules out, and that it is never an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.index.vector.vectors import to_lists
from pennon.query.search import radius
from tests.support.neighbors import brute_force, check, index, queries, rows, write

ASKED = queries(12)


def made(path: Path, kind: str = "IVF_FLAT", dtype: type = np.float32, offset: float = 0.0) -> str:
    """Rows that are deleted, and rows that no index covers."""

    def moved(table: pa.Table) -> pa.Table:
        vectors = np.stack(table["v"].to_numpy(zero_copy_only=False)).astype(np.float64) + offset
        return table.set_column(3, "v", to_lists(vectors.astype(dtype)))

    uri = write(path, moved(rows(1200)), fragments=3)
    index(uri, kind, partitions=24)
    lance.write_dataset(moved(rows(100, 1200, seed=2)), uri, mode="append")
    lance.dataset(uri).delete("id % 6 = 1")
    return uri


@pytest.mark.parametrize("filter", [None, "part < 8", "part < 1"])
@pytest.mark.parametrize(
    ("kind", "dtype", "offset"),
    [
        ("IVF_FLAT", np.float32, 0.0),
        ("IVF_HNSW_FLAT", np.float32, 1000.0),
        ("IVF_FLAT", np.float16, 30.0),
        ("IVF_FLAT", np.float64, 1e6),
    ],
)
def test_nothing_within_the_distance_is_ruled_out(
    tmp_path: Path, kind: str, dtype: type, offset: float, filter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every distance between two rows, and just above and at those of rows, where rounding decides."""
    monkeypatch.setattr(radius, "FEW_SELECTED", 200)
    uri = made(tmp_path / "t.lance", kind, dtype, offset)
    table, asked = pennon.open(uri), (ASKED + offset).astype(dtype)
    options: dict[str, Any] = {"filter": filter, "columns": ["id"]}
    for query in asked[:4]:
        every = table.search("v", query, 2000, use_index=False, **options)["_distance"].to_numpy()
        for rank in (0, 3, 40, 100):
            for upper in (every[rank], np.nextafter(every[rank], np.float32(np.inf)), every[rank : rank + 2].mean()):
                bounds = (None, float(upper))
                found = table.search("v", query, None, distance_range=bounds, **options)
                assert found == table.search("v", query, None, distance_range=bounds, use_index=False, **options)
    batch = table.search_batch("v", asked, None, distance_range=(0.5, float(every[40])), **options)
    assert batch.num_rows > 12
    assert batch == table.search_batch(
        "v", asked, None, distance_range=(0.5, float(every[40])), use_index=False, **options
    )


def test_partitions_that_are_too_far_away_are_not_read_again(tmp_path: Path) -> None:
    uri = made(tmp_path / "t.lance")
    table = pennon.open(uri)
    ids, distances = brute_force(uri, ASKED[0], 30)
    bounds = (None, float(distances[8:10].mean()))
    planned = table.explain_search("v", ASKED[0], None, distance_range=bounds)
    assert planned.segments[0].probed == planned.segments[0].partitions, "nothing is known of them yet"
    first = table.explain_search("v", ASKED[0], None, distance_range=bounds, analyze=True)
    again = table.explain_search("v", ASKED[0], None, distance_range=bounds, analyze=True)
    assert (first.rows_returned, again.rows_returned) == (9, 9)
    assert again.segments[0].probed < 18 < again.segments[0].partitions
    assert again.rows_measured is not None
    assert again.rows_measured < 200, "84 of them are not covered"
    assert "radius does not rule out" in str(again)
    check(table.search("v", ASKED[0], None, distance_range=bounds, columns=["id"]), (ids[:9], distances[:9]))
    assert table.search("v", ASKED[0], None, distance_range=(None, 0.0)).num_rows == 0
    assert table.search("v", ASKED[0], None, distance_range=(None, float("inf"))).num_rows == table.count()


@pytest.mark.parametrize(("kind", "metric"), [("IVF_SQ", "l2"), ("IVF_PQ", "l2"), ("IVF_FLAT", "cosine")])
def test_an_index_without_a_bound_is_not_used(tmp_path: Path, kind: str, metric: str) -> None:
    uri = write(tmp_path / "t.lance", rows(400))
    index(uri, kind, metric)
    ids, distances = brute_force(uri, ASKED[0], 30, metric)
    bounds = (None, float(distances[8:10].mean()))
    plan = pennon.open(uri).explain_search("v", ASKED[0], None, distance_range=bounds, analyze=True)
    assert plan.rows_measured == 400
    assert "not used: it has no bound" in str(plan)
    found = pennon.open(uri).search("v", ASKED[0], None, distance_range=bounds, columns=["id"])
    check(found, (ids[:9], distances[:9]))
