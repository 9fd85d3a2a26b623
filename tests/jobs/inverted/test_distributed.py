"""Builds in many tasks: bounded partitions, of which neighbors are joined, equal to a build in one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.index_metadata import IndexFile
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.files import checksums_name
from pennon.jobs.inverted import build as build_module
from pennon.jobs.inverted.build import build_slice
from pennon.jobs.inverted.join import FEW, join_small
from pennon.jobs.inverted.plan import plan_inverted
from pennon.jobs.inverted.written import WrittenPartition, finished
from pennon.testing.engines import InProcess
from tests.index.inverted.contents import partition_files, terms_and_lists
from tests.index.inverted.corpus import COLUMN, NAME, documents, pylance_index, pylance_search, segments, write_table

ROWS = 600


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = write_table(tmp_path / "t", documents(ROWS, seed=8, words=300), fragments=5)
    lance.dataset(uri).delete("id % 9 = 2")
    return uri


def check_joined(uri: str, other: str) -> None:
    """One partition, equal to that of a build in one task, and nothing left of those that it came from."""
    [segment], [expected] = segments(uri), segments(other)
    [joined], [direct] = partition_files(uri, segment), partition_files(other, expected)
    terms, lists = terms_and_lists(joined, with_positions=True)
    assert (terms, lists) == terms_and_lists(direct, with_positions=True)
    assert joined.read_docs().row_ids.tolist() == direct.read_docs().row_ids.tolist()
    there = {path.name for path in Path(uri, segment.directory).iterdir()}
    assert there == {file.path for file in segment.files}
    assert checksums_name(joined.partition) in there
    assert pennon.open(uri).audit().ok


@pytest.mark.usefixtures("process_engine")
def test_small_partitions_are_joined_as_if_built_in_one_task(uri: str, tmp_path: Path) -> None:
    other = write_table(tmp_path / "other", documents(ROWS, seed=8, words=300), fragments=5)
    lance.dataset(other).delete("id % 9 = 2")
    pennon.open(other).create_index(COLUMN, "INVERTED", with_position=True)
    pennon.open(uri).create_index(COLUMN, "INVERTED", with_position=True, rows_per_task=20)
    check_joined(uri, other)


@pytest.mark.usefixtures("engine")
def test_tasks_on_spark_write_and_join_partitions(uri: str, tmp_path: Path) -> None:
    other = write_table(tmp_path / "other", documents(ROWS, seed=8, words=300), fragments=5)
    lance.dataset(other).delete("id % 9 = 2")
    pylance_index(other, with_position=True)
    pennon.open(uri).create_index(COLUMN, "INVERTED", NAME, with_position=True, rows_per_task=ROWS // (FEW + 4))
    [segment] = segments(uri)
    assert len([file for file in segment.files if file.path.endswith("_invert.lance")]) == 1
    for query in ("running", "the cafe geologist", "tokyo it"):
        assert pylance_search(uri, query) == pytest.approx(pylance_search(other, query), rel=1e-5), query


def test_joined_partitions_stay_within_what_a_task_can_merge(uri: str) -> None:
    plan = plan_inverted(Snapshot.open(Location.of(uri)), COLUMN, TextParams(), memory_bytes=1 << 30, rows_per_task=20)
    uuid = str(uuid4())
    made = [part for task in enumerate(plan.slices) for part in build_slice(plan.target, uuid, task)]
    assert len(made) > FEW
    smallest = min(part.size_bytes for part in made)
    assert join_small(InProcess(), replace(plan.target, joined_bytes=smallest), uuid, made) == made
    limit = 5 * max(part.size_bytes for part in made)
    joined = join_small(InProcess(), replace(plan.target, joined_bytes=limit), uuid, made)
    assert 2 < len(joined) < len(made) / 3
    assert all(part.size_bytes <= limit for part in joined)


@pytest.mark.parametrize("type_", [pa.string(), pa.list_(pa.string()), pa.json_()], ids=str)
def test_a_few_long_documents_among_short_ones_become_partitions_of_their_own(
    tmp_path: Path, type_: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = " ".join(f"w{number}" for number in range(60_000))
    texts: list[object] = [long if number % 50 == 7 else "short text" for number in range(300)]
    if type_ == pa.json_():
        texts = [f'{{"a":"{text}"}}' for text in texts]
    elif type_ != pa.string():
        texts = [[text, None] for text in texts]
    uri = write_table(tmp_path / "t", pa.array(texts, type_), fragments=1)
    plan = plan_inverted(Snapshot.open(Location.of(uri)), COLUMN, TextParams(), memory_bytes=8 << 20)
    target = replace(plan.target, batch_rows=1 << 17)
    most, add = 0, PartitionBuilder.add

    def watched(self: PartitionBuilder, column: pa.Array, row_ids: np.ndarray) -> None:
        nonlocal most
        most = max(most, column.nbytes)
        add(self, column, row_ids)

    monkeypatch.setattr(build_module.PartitionBuilder, "add", watched)
    written = build_slice(target, str(uuid4()), (0, plan.slices[0]))
    assert len(written) > 1
    assert most < 2 * len(long)


def test_a_thousand_partitions_are_listed_at_once(uri: str) -> None:
    snapshot = Snapshot.open(Location.of(uri))
    made = [
        WrittenPartition(number << 44, tuple(IndexFile(f"part_{number << 44}_{kind}", 9) for kind in "abcd"))
        for number in range(1000)
    ]
    started = time.thread_time()
    segment = finished(
        snapshot, str(uuid4()), made, TextParams(), name=NAME, field_id=1, fragments=[0], index_version=2
    )
    assert time.thread_time() - started < 1
    assert len(segment.files) == 4002
