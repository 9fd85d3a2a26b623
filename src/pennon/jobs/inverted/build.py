"""Build an inverted index: tasks write partitions into the final directory, the driver lists them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexFile, IndexSegment, segment_directory
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.files import SegmentMetadata, write_metadata
from pennon.index.inverted.kind import INVERTED
from pennon.jobs.inverted.plan import InvertedPlan, Target
from pennon.jobs.shared.cleanup import delete_on_failure


@dataclass(frozen=True)
class WrittenPartition:
    """A partition whose files are in the directory of the segment."""

    number: int
    files: tuple[IndexFile, ...]


def build_inverted(engine: Engine, snapshot: Snapshot, plan: InvertedPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    target, uuid = plan.target, str(uuid4())
    with delete_on_failure(snapshot.store, uuid):
        tasks = list(enumerate(plan.slices))
        made = engine.map("build", partial(build_slice, target, uuid), tasks, rows=plan.rows) if tasks else []
        return finished(
            snapshot,
            uuid,
            [part for parts in made for part in parts],
            target.params,
            name=target.name,
            field_id=target.field_id,
            fragments=plan.fragments,
            index_version=target.index_version,
        )


def partition_numbers(task: int) -> Iterator[int]:
    """Numbers of this attempt of a task alone, 64 bits: 20 of the task, 32 drawn, 12 counted."""
    first = task << 44 | secrets.randbits(32) << 12
    return iter(range(first, first + (1 << 12)))


def finished(
    snapshot: Snapshot,
    uuid: str,
    partitions: Sequence[WrittenPartition],
    params: TextParams,
    *,
    name: str,
    field_id: int,
    fragments: Iterable[int],
    index_version: int,
) -> IndexSegment:
    """A segment whose partitions are written."""
    covered, directory = BitMap(fragments), segment_directory(uuid)
    listed = SegmentMetadata(params, tuple(part.number for part in partitions))
    metadata = write_metadata(snapshot.store, directory, listed)
    contents = write_contents(snapshot.store, uuid, covered, snapshot.manifest.next_row_id)
    return IndexSegment(
        uuid=uuid,
        name=name,
        fields=(field_id,),
        dataset_version=snapshot.version,
        fragments=FrozenBitMap(covered),
        type_url=INVERTED.type_url,
        details=params.to_details(),
        index_version=index_version,
        files=(*(file for part in partitions for file in part.files), metadata, contents),
        created_at=datetime.now(UTC),
    )


def build_slice(target: Target, uuid: str, numbered: tuple[int, ScanSlice]) -> list[WrittenPartition]:
    """Task: the partition of a slice, or several where one would take too much memory."""
    task, part = numbered
    store, numbers = target.pin.open().store, partition_numbers(task)
    written: list[WrittenPartition] = []

    def write(builder: PartitionBuilder) -> None:
        number = next(numbers)
        files = builder.write(store, segment_directory(uuid), number)
        if files:
            written.append(WrittenPartition(number, tuple(files)))

    builder = PartitionBuilder(target.params)
    for values, row_ids in _documents(target, part):
        builder.add(values, row_ids)
        if builder.used_bytes > target.partition_bytes:
            write(builder)
            builder = PartitionBuilder(target.params)
    write(builder)
    return written


def _documents(target: Target, part: ScanSlice) -> Iterator[tuple[pa.Array, Addresses]]:
    """The live rows of a slice by row id; BuildFailed where the scan does not give all of them."""
    snapshot, seen = target.pin.open(), 0
    for values, addresses in snapshot.scan_column(snapshot.column(target.column), part, target.batch_rows):
        seen += len(values)
        yield values, ids_of(addresses, snapshot.row_ids) if target.stable_row_ids else addresses
    expected = snapshot.slice_rows(part)
    if seen != expected:
        problem = f"a scan of {snapshot.uri} returned {seen:,} rows of {expected:,}"
        raise BuildFailed(problem, "Nothing was committed; run it again")
