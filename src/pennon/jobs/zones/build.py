"""Build a segment of zones: tasks write the zones of their fragments, and one task joins them."""

from __future__ import annotations

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
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.rows import ScanSlice
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.index.zones.layouts import Part, Rows
from pennon.jobs.shared.cleanup import delete_on_failure, scratch_directory
from pennon.jobs.zones.plan import Target, ZonesPlan

# A file of at most this size is joined by the driver.
JOINED_HERE_BYTES = 64 << 20


def build_zones(engine: Engine, snapshot: Snapshot, plan: ZonesPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    target = plan.target
    if len(plan.slices) == 1:
        [written] = engine.map("build", partial(_build_whole, plan), plan.slices, rows=plan.rows)
        return finished(snapshot, target, plan.fragments, written)
    with scratch_directory(snapshot.store) as scratch:
        parts = engine.map("build", partial(_build_part, plan, scratch), plan.slices, rows=plan.rows)
        written = join(engine, target, parts, plan.index_bytes)
        return finished(snapshot, target, plan.fragments, written)


@dataclass(frozen=True)
class Written:
    """The file of a new segment."""

    uuid: str
    file: IndexFile


def join(engine: Engine, target: Target, parts: Sequence[Part], index_bytes: int) -> Written:
    """One file of several: in this process if it is small, which is faster than to start a job for it."""
    if index_bytes <= JOINED_HERE_BYTES:
        return join_parts(target, parts)
    [written] = engine.map("join", partial(join_parts, target), [tuple(parts)])
    return written


def join_parts(target: Target, parts: Sequence[Part]) -> Written:
    """Task: join several files into one, in a directory unique to this attempt."""
    uuid, store = str(uuid4()), target.pin.open().store
    with delete_on_failure(store, uuid):
        file = target.layout.write_joined(store, f"_indices/{uuid}", target.value_type, parts, target.storage_version)
        return Written(uuid, file)


def write_part(target: Target, scratch: str, rows: Rows) -> Part:
    """Write the zones of some rows, in a directory unique to this attempt."""
    directory, store = f"{scratch}/{uuid4()}", target.pin.open().store
    file = target.layout.write_rows(store, directory, target.value_type, rows, target.storage_version)
    return Part(directory, file.size_bytes)


def scanned(target: Target, part: ScanSlice) -> Iterator[tuple[pa.Array, Addresses]]:
    """The live rows of a slice. Raises BuildFailed if the scan does not return all of them."""
    snapshot, seen = target.pin.open(), 0
    for values, addresses in snapshot.scan_column(snapshot.column(target.column), part, target.batch_rows):
        seen += len(values)
        yield values, addresses
    expected = snapshot.slice_rows(part)
    if seen != expected:
        problem = f"a scan of {snapshot.uri} returned {seen:,} rows of {expected:,}"
        raise BuildFailed(problem, "Nothing was committed; run it again")


def finished(snapshot: Snapshot, target: Target, fragments: Iterable[int], written: Written) -> IndexSegment:
    """Describe a segment whose file is written."""
    covered = BitMap(fragments)
    with delete_on_failure(snapshot.store, written.uuid):
        contents = write_contents(snapshot.store, written.uuid, covered, snapshot.manifest.next_row_id)
        return IndexSegment(
            uuid=written.uuid,
            name=target.name,
            fields=(target.field_id,),
            dataset_version=snapshot.version,
            fragments=FrozenBitMap(covered),
            type_url=target.kind.type_url,
            details=target.layout.details(),
            index_version=0,
            files=(written.file, contents),
            created_at=datetime.now(UTC),
        )


def _build_whole(plan: ZonesPlan, part: ScanSlice) -> Written:
    """Task: write the file of the segment, in a directory unique to this attempt."""
    uuid, target = str(uuid4()), plan.target
    store = target.pin.open().store
    with delete_on_failure(store, uuid):
        rows = scanned(target, part)
        file = target.layout.write_rows(store, f"_indices/{uuid}", target.value_type, rows, target.storage_version)
        return Written(uuid, file)


def _build_part(plan: ZonesPlan, scratch: str, part: ScanSlice) -> Part:
    """Task: the zones of a slice."""
    return write_part(plan.target, scratch, scanned(plan.target, part))
