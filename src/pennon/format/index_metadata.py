"""Index segments as the manifest records them, and the logical indices they form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from uuid import UUID

from pyroaring import FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import read_fragment_bitmap
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import below_root

FRAGMENT_REUSE_NAME = "__lance_frag_reuse"
FRAGMENT_REUSE_TYPE = "lance.table.fragmentreuseindexdetails"
MOST_FRAGMENTS = 1 << 24
NOTHING = FrozenBitMap()
INDICES = "_indices"
# In a path that leads out of its directory: a drive, an escape, or a part that is empty, "." or "..".
_ELSEWHERE = re.compile(r"[\\:%\0]|(?:^|/)\.{0,2}(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a segment, relative to the segment's directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class IndexSegment:
    """One immutable piece of an index. Its files are in `_indices/<uuid>` of the table, or of the one at `root` where a
    branch or a clone shares them; `fragments` is the coverage that the entry lists, of which a kind may trust only a
    part (`index/fragment_reuse/coverage.py`)."""

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
    root: str | None = field(default=None, repr=False)  # None with a base id: a base path that is refused
    covering_fields: tuple[int, ...] = ()
    damage: str | None = None  # the problem of an invalid entry, which then covers nothing and lists no file

    @property
    def directory(self) -> str:
        """Where its files are, as `Store` reads it."""
        own = segment_directory(self.uuid)
        return own if self.root is None else below_root(self.root, own)

    @property
    def is_reuse(self) -> bool:
        """Whether it is the Fragment Reuse Index, by its name or by its type."""
        return self.name == FRAGMENT_REUSE_NAME or self.type_name == FRAGMENT_REUSE_TYPE

    @property
    def field_id(self) -> int:
        """The indexed column; -1, which no column has, unless there is exactly one."""
        return self.fields[0] if len(self.fields) == 1 else -1

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


def segment_directory(uuid: str) -> str:
    """The directory of a segment's files, relative to the table."""
    return f"{INDICES}/{uuid}"


def group_segments(segments: Iterable[IndexSegment]) -> list[LogicalIndex]:
    """User indices by name; the Fragment Reuse Index is not one of them."""
    named: dict[str, list[IndexSegment]] = {}
    for segment in segments:
        if not segment.is_reuse:
            named.setdefault(segment.name, []).append(segment)
    return [LogicalIndex(name, tuple(members)) for name, members in named.items()]


def segments_from_proto(section: pb.IndexSection) -> tuple[IndexSegment, ...]:
    """Segments in manifest order. Several with the same uuid are damaged: the files may belong to any of them."""
    segments = [_segment_from_proto(proto) for proto in section.indices]
    known = Counter(segment.uuid for segment in segments)
    return tuple(
        segment
        if known[segment.uuid] == 1
        else replace(segment, fragments=FrozenBitMap(), damage=f"several segments have the uuid {segment.uuid}")
        for segment in segments
    )


def _segment_from_proto(proto: pb.IndexMetadata) -> IndexSegment:
    if len(proto.uuid.value) != 16:
        raise DamagedFile(f"index {proto.name!r} has a segment without a valid uuid")
    uuid = str(UUID(bytes=proto.uuid.value))
    damage, files, fragments = None, (), NOTHING
    try:
        files = tuple(IndexFile(_plain_path(f.path, uuid), f.size_bytes) for f in proto.files)
        fragments = _coverage(proto, uuid)
    except DamagedFile as error:
        # An invalid entry is a damaged index; the table can still be read.
        damage, files = error.problem, ()
    return IndexSegment(
        uuid=uuid,
        name=proto.name,
        fields=tuple(proto.fields),
        dataset_version=proto.dataset_version,
        fragments=fragments,
        type_url=proto.index_details.type_url,
        details=proto.index_details.value,
        index_version=proto.index_version,
        files=files,
        created_at=_instant(proto.created_at) if proto.HasField("created_at") else None,
        base_id=proto.base_id if proto.HasField("base_id") else None,
        covering_fields=tuple(proto.covering_fields),
        damage=damage,
    )


def _coverage(proto: pb.IndexMetadata, uuid: str) -> FrozenBitMap:
    where = f"index {proto.name!r}, segment {uuid}"
    fragments = read_fragment_bitmap(proto.fragment_bitmap, where)
    if len(fragments) > MOST_FRAGMENTS:
        # A few bytes can encode billions of fragments; iterating over them would not end.
        raise DamagedFile(f"the fragment bitmap of {where} lists {len(fragments)} fragments")
    return FrozenBitMap(fragments)


def _instant(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _plain_path(path: str, uuid: str) -> str:
    """Index files are in the segment's directory; a path outside it is hostile."""
    if not is_plain_path(path):
        raise DamagedFile(f"segment {uuid} names a file outside its directory: {path[:200]!r}")
    return path


def is_plain_path(path: str) -> bool:
    """Whether a name stays below the directory it is relative to, on every file system and store."""
    return _ELSEWHERE.search(path) is None
