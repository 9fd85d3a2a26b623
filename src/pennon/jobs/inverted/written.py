"""Partitions that tasks have written, and the segment that the driver makes of them: it joins names, and no rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyroaring import BitMap, FrozenBitMap

from pennon.format.index_metadata import IndexFile, IndexSegment, segment_directory
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.files import SegmentMetadata, write_metadata
from pennon.index.inverted.kind import INVERTED


@dataclass(frozen=True)
class WrittenPartition:
    """A partition whose files are in the directory of the segment."""

    number: int
    files: tuple[IndexFile, ...]
    dead_fragments: frozenset[int] = frozenset()  # that documents which it still has, though dead, have been in

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


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
    deleted = FrozenBitMap(fragment for part in partitions for fragment in part.dead_fragments)
    listed = SegmentMetadata(params, tuple(part.number for part in partitions), deleted)
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
