"""A vector index for a metric that Pennon does not know stands in nobody's way."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.pb import lance_pb2 as pb
from pennon.jobs.maintain import MaintenancePolicy
from pennon.testing.engines import in_process
from tests.support.manifests import edit_newest


def rows(count: int, start: int) -> pa.Table:
    bits = np.random.default_rng(start).integers(0, 256, count * 16).astype(np.uint8)
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "k": ids % 7, "v": pa.FixedSizeListArray.from_arrays(pa.array(bits), 16)})


METRIC = b"\x08\x07"  # field 1 of the details: number 7


def forge(_: pb.Manifest, indices: pb.IndexSection) -> None:
    for index in indices.indices:
        if index.name == "v_idx":
            index.index_details.value = METRIC


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(300, 0), uri, max_rows_per_file=100)
    lance.dataset(uri).create_index("v", "IVF_FLAT", metric="hamming", num_partitions=2)
    with in_process():
        pennon.open(uri).create_index("k")
    lance.write_dataset(rows(100, 300), uri, mode="append")
    edit_newest(Path(uri), forge)
    return uri


@pytest.mark.parametrize("remap", ["immediate", "deferred"])
def test_everything_else_is_done(uri: str, remap: str) -> None:
    with in_process():
        table = pennon.open(uri)
        [kept] = [step for step in table.plan_optimize().steps if step.name == "v_idx"]
        assert "metric number 7" in kept.reason
        table.optimize_indices()
        lance.dataset(uri).delete("id % 5 = 0")
        table.refresh()
        covered = _rows_covered(uri)
        table.compact(remap=remap)
        if remap == "deferred":
            table.catch_up_indices()
            table.trim_fragment_reuse()
        table.maintain(MaintenancePolicy(min_fragments_to_compact=1))
        assert {index.name: index.coverage for index in table.indices()}["k_idx"] == 1.0
        assert table.count("k = 3") == lance.dataset(uri).to_table(filter="k = 3").num_rows
        assert table.audit().ok
    assert _rows_covered(uri) == covered > 0
    query = {"column": "v", "q": np.zeros(16, np.uint8), "k": 5, "metric": "hamming"}
    assert lance.dataset(uri).to_table(nearest=query, columns=["id"]).num_rows == 5


def _rows_covered(uri: str) -> int:
    """Live rows that pylance finds through its index."""
    [index] = [index for index in lance.dataset(uri).describe_indices() if index.name == "v_idx"]
    return index.num_rows_indexed
