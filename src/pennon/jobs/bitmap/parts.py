"""Files that tasks of bitmap jobs write: parts in a directory of the job, and the single file of a segment."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.files import BitmapFile, WrittenBitmaps, write_bitmaps
from pennon.index.bitmap.keyed import Keyed
from pennon.index.bitmap.kind import BitmapKind
from pennon.index.bitmap.stored import read_in_order
from pennon.jobs.shared.cleanup import delete_on_failure
from pennon.jobs.shared.new_segment import describe_new_segment


@dataclass(frozen=True)
class Part:
    """A file in the directory of a job, with the keys of a range in order."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class WrittenSegment:
    """The directory of a new segment, and its file."""

    uuid: str
    bitmaps: WrittenBitmaps


def write_part(snapshot: Snapshot, scratch: str, number: int, key_type: pa.DataType, keyed: Iterable[Keyed]) -> Part:
    """Write a part under a name unique to this attempt."""
    name = f"{number}_{secrets.token_hex(8)}.lance"
    file = write_bitmaps(snapshot.store, scratch, key_type, keyed, snapshot.storage_version, name=name).file
    return Part(name, file.size_bytes)


def read_part(snapshot: Snapshot, scratch: str, part: Part, key_type: pa.DataType) -> Iterator[Keyed]:
    return read_in_order(BitmapFile(snapshot.store, scratch, key_type, part.size_bytes, part.name))


def write_segment(
    snapshot: Snapshot, kind: BitmapKind, key_type: pa.DataType, keyed: Iterable[Keyed], list_nulls: bytes | None
) -> WrittenSegment:
    """Write the file of a segment, in a directory unique to this attempt. `kind` decides whether it includes NULL
    lists."""
    uuid = str(uuid4())
    with delete_on_failure(snapshot.store, uuid):
        nulls = list_nulls if kind.over_lists else None
        written = write_bitmaps(
            snapshot.store, segment_directory(uuid), key_type, keyed, snapshot.storage_version, list_nulls=nulls
        )
        return WrittenSegment(uuid, written)


def finish(
    snapshot: Snapshot, kind: BitmapKind, name: str, field_id: int, fragments: Iterable[int], written: WrittenSegment
) -> IndexSegment:
    """Record the contents of the segment, and describe it."""
    return describe_new_segment(
        snapshot,
        written.uuid,
        [written.bitmaps.file],
        name=name,
        field_id=field_id,
        fragments=fragments,
        type_url=kind.type_url,
        index_version=kind.version,
    )
