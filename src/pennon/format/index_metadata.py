"""Index segments as the manifest records them, and the logical indices they form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from uuid import UUID

from pyroaring import FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import read_fragment_bitmap
from pennon.format.pb import lance_pb2 as pb

FRAGMENT_REUSE_NAME = "__lance_frag_reuse"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a segment, relative to the segment's directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class IndexSegment:
    """One immutable piece of an index: its files live in `_indices/<uuid>` and cover `fragments`."""

    uuid: str
    name: str
    fields: tuple[int, ...]
    dataset_version: int
    fragments: FrozenBitMap
    type_url: str
    details: bytes = field(repr=False)
    index_version: int
    files: tuple[IndexFile, ...] = ()
    created_at: datetime | None = None
    base_id: int | None = None
    covering_fields: tuple[int, ...] = ()

    @property
    def directory(self) -> str:
        return f"_indices/{self.uuid}"

    @property
    def type_name(self) -> str:
        """The part of the type URL that identifies the kind; compared without regard to case."""
        return self.type_url.rpartition("/")[2].lower()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def file_sizes(self) -> dict[str, int]:
        return {file.path: file.size_bytes for file in self.files}


@dataclass(frozen=True)
class LogicalIndex:
    """All segments that share a name, in manifest order."""

    name: str
    segments: tuple[IndexSegment, ...]

    @property
    def fields(self) -> tuple[int, ...]:
        return self.segments[0].fields


def group_segments(segments: Iterable[IndexSegment]) -> list[LogicalIndex]:
    """User indices by name; the Fragment Reuse Index is not one of them."""
    named: dict[str, list[IndexSegment]] = {}
    for segment in segments:
        if segment.name != FRAGMENT_REUSE_NAME:
            named.setdefault(segment.name, []).append(segment)
    return [LogicalIndex(name, tuple(members)) for name, members in named.items()]


def segment_from_proto(proto: pb.IndexMetadata) -> IndexSegment:
    if len(proto.uuid.value) != 16:
        raise DamagedFile(f"index {proto.name!r} has a segment without a valid uuid")
    uuid = str(UUID(bytes=proto.uuid.value))
    files = tuple(IndexFile(_plain_path(f.path, uuid), f.size_bytes) for f in proto.files)
    created = datetime.fromtimestamp(proto.created_at / 1000, UTC) if proto.HasField("created_at") else None
    return IndexSegment(
        uuid=uuid,
        name=proto.name,
        fields=tuple(proto.fields),
        dataset_version=proto.dataset_version,
        fragments=FrozenBitMap(read_fragment_bitmap(proto.fragment_bitmap, f"index {proto.name!r}, segment {uuid}")),
        type_url=proto.index_details.type_url,
        details=proto.index_details.value,
        index_version=proto.index_version,
        files=files,
        created_at=created,
        base_id=proto.base_id if proto.HasField("base_id") else None,
        covering_fields=tuple(proto.covering_fields),
    )


def _plain_path(path: str, uuid: str) -> str:
    """Index files lie directly in the segment's directory; anything that leads out of it is hostile."""
    if path.startswith("/") or ".." in path.split("/") or "\\" in path or ":" in path:
        raise DamagedFile(f"segment {uuid} names a file outside its directory: {path!r}")
    return path
