"""An exchange on Spark before 4.1: keys that hash to their partitions, small batches, rows collected without Arrow.

The replacements work on every Spark, so the installed one runs them here; `make test-versions` runs the older ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.engine import SparkEngine
from pennon.engine.cluster import Cluster
from pennon.engine.older_sparks import (
    collect_table,
    keys_of_partitions,
    murmur3,
    repartition_by_key,
    version_of,
)
from tests.support.exchange import gather, scatter

# Adaptive execution as eager as it can be to join partitions.
EAGER = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1g",
}


@pytest.fixture
def session(engine: SparkEngine) -> Iterator[Any]:
    shared: Any = engine.session
    own: Any = shared.newSession()
    for key, value in EAGER.items():
        own.conf.set(key, value)
    yield own
    # A session becomes the active one when it makes a frame; data sources are looked up in that one.
    shared.createDataFrame([(1,)], "number int")


@pytest.fixture
def older(engine: SparkEngine) -> SparkEngine:
    """On the same session, as if its Spark were 3.5."""
    attached = SparkEngine.attach(engine.session)
    cluster: Any = attached._cluster  # pyright: ignore[reportPrivateUsage]
    cluster.version = (3, 5)
    return attached


def test_the_hash_is_sparks(session: Any) -> None:
    numbers = np.concatenate([np.arange(5000), np.random.default_rng(0).integers(-(2**31), 2**31, 5000)])
    frame = session.createDataFrame([(int(number),) for number in numbers], "number int")
    hashed = [row[0] for row in frame.selectExpr("hash(number)").collect()]
    assert murmur3(numbers.astype(np.int32)).tolist() == hashed


@pytest.mark.parametrize("count", [1, 2, 3, 7, 60, 200, 4096, 50_021])
def test_every_partition_has_a_key(count: int) -> None:
    keys = keys_of_partitions(count)
    assert (murmur3(keys).astype(np.int64) % count).tolist() == list(range(count))


@pytest.mark.parametrize("count", [1, 5, 64])
def test_rows_are_where_their_destination_is(session: Any, count: int) -> None:
    frame = session.range(0, 3 * count, 1, 4).selectExpr(f"cast(id % {count} as int) as destination")
    sent = repartition_by_key(frame, count).selectExpr("destination", "spark_partition_id() as partition")
    rows = sent.collect()
    assert len(rows) == 3 * count
    assert all(row.destination == row.partition for row in rows)


@pytest.mark.parametrize(("tasks", "rows", "destinations"), [(5, 1000, 1), (3, 100, 60), (3, 400_000, 4)])
def test_every_row_arrives_once(older: SparkEngine, tasks: int, rows: int, destinations: int) -> None:
    send = partial(scatter, destinations, rows)
    results = older.exchange("scatter", send, range(tasks), gather, destinations).reduced
    everything = np.arange(tasks * rows)
    for destination in range(destinations):
        mine = everything[everything % destinations == destination]
        assert results[destination] == (destination, len(mine), mine.sum(), True)


def test_few_blocks_are_in_memory_at_once(engine: SparkEngine, older: SparkEngine) -> None:
    cluster: Cluster = older._cluster  # pyright: ignore[reportPrivateUsage]

    def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": pa.array([batch.num_rows for batch in batches], pa.int64())})

    def blocks(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"block": pa.array([b"x" * 1000] * 50, pa.binary())})

    sent = cluster.apply(cluster.numbers(1), blocks, "block binary")
    rows = [row.rows for row in cluster.apply(sent, count_rows, "rows long").collect()]
    assert sum(rows) == 50
    assert max(rows) <= 4
    # The user's session is another one.
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    assert engine.session.conf.get(key) != cluster._block_session.conf.get(key)  # pyright: ignore[reportPrivateUsage]


def test_collected_rows_are_the_same(session: Any) -> None:
    frame = session.range(0, 20, 1, 3).selectExpr("id as key", "id % 2 = 0 as failed", "encode(id, 'utf-8') as payload")
    expected = [tuple(row) for row in frame.collect()]
    table = collect_table(frame)
    assert [tuple(row.values()) for row in table.to_pylist()] == [(k, f, bytes(p)) for k, f, p in expected]
    assert collect_table(frame.where("key < 0")).num_rows == 0


@pytest.mark.parametrize(("text", "version"), [("4.0.1", (4, 0)), ("3.5.2-amzn-1", (3, 5)), ("4.1.0.dev1", (4, 1))])
def test_versions_of_vendors(text: str, version: tuple[int, int]) -> None:
    assert version_of(text) == version
