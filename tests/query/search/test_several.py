"""Rows of several vectors, measured on the vectors of the table."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon

DIM = 4
# As many vectors as rows, but not one of each row.
COUNTS = [[1, 0, 2], [2, 0, 1], [0, 3, 0], [1, 1, 1], [0, 2, 1, 1, 0, 2]]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_vectors_are_those_of_their_rows(tmp_path: Path, counts: list[int], metric: str) -> None:
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal((count, DIM)).astype(np.float32).tolist() or None for count in counts]
    data = pa.table({"id": range(len(rows)), "v": pa.array(rows, pa.list_(pa.list_(pa.float32(), DIM)))})
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(data, uri)
    table = pennon.open(uri)
    for number, own in enumerate(rows):
        if own is not None:
            found = table.search("v", np.array(own[:1], np.float32), len(rows), metric=metric, columns=["id"])
            assert found.num_rows == sum(row is not None for row in rows)
            assert found["id"][0].as_py() == number
            assert abs(found["_distance"][0].as_py()) < 1e-6
