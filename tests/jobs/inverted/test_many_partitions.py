"""The driver joins the metadata of a thousand partitions, and commits them, in less than a second."""

from __future__ import annotations

import time
from pathlib import Path

import lance
import pyarrow as pa

import pennon
from pennon.format.index_metadata import IndexFile, segment_directory
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.inverted.files import read_metadata
from pennon.index.inverted.kind import INDEX_VERSION
from pennon.index.inverted.options import Inverted
from pennon.jobs.inverted.written import WrittenPartition, finished, partition_numbers
from pennon.jobs.shared.changes import AddSegments
from pennon.jobs.shared.commit import commit_change

PARTITIONS = 1000
FILES = ("tokens", "invert", "docs", "checksums")


def test_a_thousand_partitions_are_joined_in_a_second(tmp_path: Path) -> None:
    uri, uuid = str(tmp_path / "t.lance"), "0b3f1a52-6d0c-4b52-9a2c-3f6c1f0f9f10"
    lance.write_dataset(pa.table({"text": ["some words"] * PARTITIONS}), uri, max_rows_per_file=10)
    snapshot = Snapshot.open(Location.of(uri))
    parts: list[WrittenPartition] = []
    for task in range(PARTITIONS):
        number = next(partition_numbers(task))
        parts.append(WrittenPartition(number, tuple(IndexFile(f"part_{number}_{name}.lance", 4096) for name in FILES)))
    params = Inverted().params
    started = time.process_time()
    segment = finished(
        snapshot,
        uuid,
        parts,
        params,
        name="text_idx",
        field_id=0,
        fragments=snapshot.manifest.fragments,
        index_version=INDEX_VERSION,
    )
    committed = commit_change(snapshot, AddSegments((segment,), replace_whole=True, may_replace=False))
    taken = time.process_time() - started
    [found] = committed.manifest.user_segments
    metadata = read_metadata(committed.store, segment_directory(uuid), found.file_sizes)
    assert sorted(metadata.partitions) == sorted(part.number for part in parts)
    assert len(found.files or ()) == len(FILES) * PARTITIONS + 2
    assert taken < 1
    assert pennon.open(uri).indices()[0].name == "text_idx"
