"""Rows that change on the cluster: lookup joins, merges that race, and streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import pennon.spark
from pennon.errors import CommitConflict
from tests.cluster.conftest import Store
from tests.cluster.tables import rows
from tests.cluster.test_races import race

WRITERS = 16


def test_a_lookup_join_equals_sparks_own(store: Store, spark: Any) -> None:
    name = "joined.lance"
    store.write(name, rows(4000), max_rows_per_file=1000)
    table = store.table(name)
    table.create_index("id")
    store.write(name, rows(100, 4000), mode="append")
    table.refresh()
    frame = spark.range(3950, 4150).selectExpr("id AS wanted", "id % 7 AS other")
    found = table.lookup_join(frame, on={"wanted": "id"}, columns=["k"]).collect()
    all_rows = spark.createDataFrame(store.dataset(name).to_table(columns=["id", "k"]))
    expected = frame.join(all_rows, frame["wanted"] == all_rows["id"]).select("wanted", "other", "k").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, expected))
    assert len(found) == 150


def test_a_merge_by_key(store: Store, spark: Any) -> None:
    name = "merged.lance"
    store.write(name, rows(4000), max_rows_per_file=1000)
    table = store.table(name)
    table.create_index("id")
    changes = rows(200, 3900)
    done = table.merge(spark.createDataFrame(changes.select(["id", "k"])), on="id")
    assert (done.rows_updated, done.rows_inserted) == (100, 100)
    ids = store.dataset(name).to_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(4100))
    assert table.delete("id >= 4000").rows_deleted == 100
    assert table.count() == 4000
    assert table.audit().ok


def test_racing_merges_never_insert_a_key_twice(store: Store) -> None:
    """Every writer merges the same new keys. One inserts them; the others update them, or fail with a conflict."""
    name = "racing.lance"
    store.write(name, rows(400), max_rows_per_file=200)
    store.table(name, engine="local").create_index("id")
    source = rows(50, 390)
    tables = [store.table(name, engine="local") for _ in range(WRITERS)]
    outcomes = race(*(lambda table=table: table.merge(source, on="id") for table in tables))
    assert all(outcome is None or isinstance(outcome, CommitConflict) for outcome in outcomes), outcomes
    assert outcomes.count(None) >= 1
    ids = store.dataset(name).to_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(440))
    assert store.table(name, engine="local").audit().ok


def test_a_stream_appends_each_batch_once(store: Store, spark: Any, tmp_path: Path) -> None:
    name = "streamed.lance"
    pennon.spark.register(spark)
    storage = {f"storage.{key}": value for key, value in store.server.storage_options.items()}
    source = str(tmp_path / "source.lance")
    total = 0
    for _ in range(3):
        batch = pa.table({"id": pa.array(range(total, total + 40))})
        lance.write_dataset(batch, source, mode="append" if total else "create")
        total += 40
        query = (
            spark.readStream.format("pennon")
            .option("starting_version", "snapshot")
            .load(source)
            .writeStream.format("pennon")
            .options(**storage)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(store.uri(name))
        )
        assert query.awaitTermination(120)
    ids = store.dataset(name).to_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(total))
