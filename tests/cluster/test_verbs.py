"""Indices of every family are built, merged, kept and joined by executors that share nothing with the driver but S3."""

from __future__ import annotations

from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.jobs.maintain import MaintenancePolicy
from tests.cluster.conftest import Store
from tests.cluster.tables import DIM, FAMILIES, WORDS, rows
from tests.support.neighbors import brute_force_over, check
from tests.support.vectors import clustered

NAME = "verbs.lance"
TYPES = {kind for _, kind, _, _ in FAMILIES}
K = 5
EXACT: dict[str, Any] = {"nprobes": 100, "refine_factor": 40}


@pytest.fixture(scope="module")
def table(store: Store) -> pennon.Table:
    """With an index of every family, each built by several tasks."""
    store.write(NAME, rows(4000), max_rows_per_file=1000)
    table = store.table(NAME)
    for column, kind, options, _ in FAMILIES:
        done = table.create_index(column, kind, rows_per_task=1000, **options)
        assert done.index.coverage == 1.0
        assert done.work.rows_read >= 4000, f"{kind} counts what its tasks read on executors"
    return table


def agree(store: Store, table: pennon.Table) -> None:
    """Every filter finds what a scan finds, by Pennon and by pylance; the audit finds nothing."""
    dataset = store.dataset(NAME)
    for column, kind, _, filters in FAMILIES:
        for filter in filters:
            expected = store.scan(NAME, filter)
            assert expected, filter
            assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, (kind, filter)
            assert sorted(dataset.to_table(filter=filter, columns=["id"])["id"].to_pylist()) == expected, filter
            assert f"{column}_idx" in str(table.explain(filter)), (kind, filter)
    report = table.audit(recall_queries=20)
    assert report.ok, str(report)
    assert report.indices == len(FAMILIES)


def test_builds_of_every_family(store: Store, table: pennon.Table) -> None:
    assert {index.type for index in table.indices()} == TYPES
    agree(store, table)


def test_merges_of_segments(store: Store, table: pennon.Table) -> None:
    store.write(NAME, rows(600, 4000), mode="append")
    table.optimize_indices(num_indices_to_merge=0)
    assert {len(index.segments) for index in table.indices()} == {2}
    store.write(NAME, rows(300, 4600), mode="append")
    table.optimize_indices(num_indices_to_merge=2)
    assert {len(index.segments) for index in table.indices()} == {1}
    agree(store, table)


def test_maintenance(store: Store, table: pennon.Table) -> None:
    store.dataset(NAME).delete("id % 7 = 3")
    store.write(NAME, rows(200, 4900), mode="append")
    report = table.maintain(MaintenancePolicy(target_rows_per_fragment=3000, min_fragments_to_compact=1))
    assert report.status == "done", str(report)
    assert {"compact", "optimize"} <= {decision.step for decision in report.due}
    assert all(index.coverage == 1.0 for index in table.indices())
    agree(store, table)
    assert table.maintain(MaintenancePolicy(target_rows_per_fragment=3000)).status == "nothing to do"


def test_a_knn_join(store: Store, table: pennon.Table, spark: Any) -> None:
    asked = clustered(24, DIM, 3).astype(np.float32)
    frame = spark.createDataFrame(
        [(number, query.tolist()) for number, query in enumerate(asked)], "number int, q array<float>"
    )
    joined = table.knn_join(frame.repartition(3), "v", "q", K, columns=["id"], **EXACT)
    found = pa.Table.from_pylist([row.asDict() for row in joined.orderBy("number", "_rank").collect()])
    assert found.num_rows == K * len(asked)
    everything = store.dataset(NAME).to_table(columns=["id", "v"])
    for number, query in enumerate(asked):
        check(found.filter(pa.compute.equal(found["number"], number)), brute_force_over(everything, query, K))


def test_a_text_join(store: Store, table: pennon.Table, spark: Any) -> None:
    queries = [f"{WORDS[number]} {WORDS[3 * number]}" for number in range(1, 20)]
    frame = spark.createDataFrame(list(enumerate(queries)), "number int, q string").repartition(3)
    rows = table.text_join(frame, "body", "q", k=K, columns=["id"]).orderBy("number", "_rank").collect()
    dataset = store.dataset(NAME)
    for number, query in enumerate(queries):
        own = [row for row in rows if row["number"] == number]
        # pylance with the same index; rows of one score come in any order.
        best = dataset.scanner(
            columns=["id"], full_text_query={"columns": ["body"], "query": query}, limit=K
        ).to_table()
        assert [row["_score"] for row in own] == pytest.approx(best["_score"].to_pylist(), rel=1e-4)
        assert len({row["id"] for row in own}) == K


def test_pylance_uses_all_of_it(store: Store, table: pennon.Table) -> None:
    dataset: lance.LanceDataset = store.dataset(NAME)
    described = {index.name for index in dataset.describe_indices()}
    assert {f"{column}_idx" for column, *_ in FAMILIES} <= described
    assert "ScalarIndexQuery" in dataset.scanner(filter="k = 77").explain_plan()
