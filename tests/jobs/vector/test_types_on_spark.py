"""Vectors of bits and several vectors a row, built and joined on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.errors import InvalidArgument
from tests.support.frames import frame_of, rows_of

DIM, ROWS, K = 8, 300, 4


def bits(rng: np.random.Generator) -> Any:
    return rng.integers(0, 256, DIM).tolist()


def several(rng: np.random.Generator) -> Any:
    return rng.standard_normal((rng.integers(1, 4), DIM)).astype(np.float32).tolist()


CASES: dict[str, Any] = {
    "bits": (bits, pa.list_(pa.uint8(), DIM), pa.list_(pa.int32()), "hamming", ["IVF_FLAT", "IVF_HNSW_FLAT"]),
    "several": (
        several,
        pa.list_(pa.list_(pa.float32(), DIM)),
        pa.list_(pa.list_(pa.float32())),
        "cosine",
        ["IVF_SQ", "IVF_HNSW_SQ"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_builds_and_joins(tmp_path: Path, engine: SparkEngine, case: str) -> None:
    draw, held, asked, metric, kinds = CASES[case]
    rng = np.random.default_rng(5)
    uri = str(tmp_path / "t.lance")
    values = pa.array([draw(rng) for _ in range(ROWS)], held)
    lance.write_dataset(pa.table({"id": np.arange(ROWS), "v": values}), uri, max_rows_per_file=100)
    table, queries = pennon.open(uri), [draw(rng) for _ in range(10)]
    expected = table.search_batch("v", queries, K, metric=metric, use_index=False, columns=["id"])
    given = [*queries, None]
    spark = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    frame = frame_of(spark, pa.table({"number": np.arange(len(given)), "q": pa.array(given, asked)}))
    for kind in kinds:
        table.create_index("v", kind, num_partitions=3, rows_per_task=60, replace=True)
        joined = table.knn_join(frame, "v", k=K, query_column="q", nprobes=3, refine_factor=20, ef=500, columns=["id"])
        found = rows_of(joined.orderBy("number", "_rank"))
        np.testing.assert_allclose(found["_distance"].to_numpy(), expected["_distance"].to_numpy(), atol=1e-4)
        assert found["number"].to_pylist() == expected["query_index"].to_pylist()
        assert pc.sum(pc.equal(found["id"], expected["id"])).as_py() >= 0.7 * len(found)  # the others are as far
    with pytest.raises(InvalidArgument, match="not a type of query vectors"):
        table.knn_join(frame.selectExpr("number", "cast(number as string) as q"), "v", query_column="q")
