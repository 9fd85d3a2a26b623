"""The manifest of a table version, parsed without pylance, which hides part of it.

File layout: `[sections][u32 length][Manifest] i64 manifest position | u16 major | u16 minor | "LANC"`; a section is
`u32 length` + protobuf bytes at an absolute offset that the Manifest names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from pennon.errors import DamagedFile, TableNotFound, UnsupportedTable
from pennon.format.base_paths import BasePath, base_location, why_refused
from pennon.format.index_metadata import FRAGMENT_REUSE_NAME, FRAGMENT_REUSE_TYPE, IndexSegment, segments_from_proto
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import Location, Store

FOOTER = struct.Struct("<qHH4s")
MAGIC = b"LANC"
VERSIONS = "_versions"
MAX_VERSION = 2**64 - 1
MAX_ROWS = 2**32

FLAG_DELETION_FILES = 1
FLAG_STABLE_ROW_IDS = 2
FLAG_TABLE_CONFIG = 8
FLAG_TAGGED_REUSE = 1024
# 4 (v2 data files), 16 (base paths) and 32 (no transaction files) do not affect the parts that Pennon parses itself.
READER_FLAGS = FLAG_DELETION_FILES | FLAG_STABLE_ROW_IDS | 4 | FLAG_TABLE_CONFIG | 16 | 32 | FLAG_TAGGED_REUSE


@dataclass(frozen=True, slots=True)
class DeletionFile:
    is_bitmap: bool
    read_version: int
    id: int
    num_deleted_rows: int
    base_id: int | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A horizontal slice of the table. `field_files` names the data file that holds each field id; lists and structs
    are not in it, only what is below them. `was_replaced` if a column is in a newer file than at first. `file_bytes` is
    the size of its data files, 0 if a writer did not record it."""

    id: int
    physical_rows: int
    deletion_file: DeletionFile | None
    field_files: Mapping[int, str] = field(repr=False)
    inline_row_ids: bytes | None = field(default=None, repr=False)
    was_replaced: bool = False
    file_bytes: int = 0

    @property
    def num_deleted_rows(self) -> int:
        return self.deletion_file.num_deleted_rows if self.deletion_file else 0

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.num_deleted_rows


@dataclass(frozen=True)
class Manifest:
    """One version of a table: its fragments, its index segments and the features it requires of a reader."""

    version: int
    fields: Sequence[pb.Field] = field(repr=False)
    fragments: Mapping[int, Fragment] = field(repr=False)
    segments: tuple[IndexSegment, ...]
    max_fragment_id: int
    next_row_id: int
    reader_flags: int
    base_paths: Mapping[int, BasePath]

    @property
    def has_stable_row_ids(self) -> bool:
        return bool(self.reader_flags & FLAG_STABLE_ROW_IDS)

    @cached_property
    def live(self) -> BitMap:
        """Ids of the fragments that exist in this version."""
        return BitMap(self.fragments)

    @property
    def user_segments(self) -> tuple[IndexSegment, ...]:
        return tuple(s for s in self.segments if not s.is_reuse)

    @property
    def reuse_segment(self) -> IndexSegment | None:
        """Raises DamagedFile if the entry is ambiguous: without the right one, addresses in indices are meaningless."""
        found = [s for s in self.segments if s.is_reuse]
        if not found:
            return None
        [first, *others] = found
        if others or first.name != FRAGMENT_REUSE_NAME or first.type_name != FRAGMENT_REUSE_TYPE:
            raise DamagedFile(
                f"the Fragment Reuse Index of version {self.version} is not one entry of its name and type",
                "Restore the manifest, or an older version",
            )
        return first

    @cached_property
    def _children(self) -> Mapping[int, list[int]]:
        children: dict[int, list[int]] = {}
        for proto in self.fields:
            children.setdefault(proto.parent_id, []).append(proto.id)
        return children

    def is_nested(self, field_id: int) -> bool:
        """Whether a column has fields below it."""
        return field_id in self._children

    def column_files(self, fragment: int, field_id: int) -> dict[int, str] | None:
        """The files of a fragment that hold a column, by its id and those below it; None without such a fragment."""
        found = self.fragments.get(fragment)
        if found is None:
            return None
        held, left = dict[int, str](), [field_id]
        while left:
            each = left.pop()
            left += self._children.get(each, ())
            if each in found.field_files:
                held[each] = found.field_files[each]
        return held

    def rows_in(self, fragments: BitMap) -> int:
        return sum(self.fragments[f].live_rows for f in fragments if f in self.fragments)


def read_manifest(store: Store, version: int | None = None) -> Manifest:
    """The manifest of a version, by default of the newest."""
    path = find_manifest(store, version)
    manifest = parse_manifest(store.read(path), store.describe(path), store.location)
    if version is not None and manifest.version != version:
        raise DamagedFile(
            f"{store.describe(path)} is the manifest of version {manifest.version}", "Restore the file of that version"
        )
    return manifest


def find_manifest(store: Store, version: int | None = None) -> str:
    if version is not None:
        # Both path namings; first the newer one, which new tables use.
        for path in (f"{VERSIONS}/{MAX_VERSION - version:020d}.manifest", f"{VERSIONS}/{version}.manifest"):
            if store.exists(path):
                return path
        raise TableNotFound(f"table {store.location.uri} has no version {version}", "List its versions, or omit it")
    paths = manifest_paths(store)
    if not paths:
        raise TableNotFound(f"there is no Lance table at {store.location.uri}", "Check the address")
    return paths[max(paths)]


def manifest_paths(store: Store) -> dict[int, str]:
    """Version -> manifest path for every attached version; detached ones are not part of the history."""
    found: dict[int, str] = {}
    for path in store.list(VERSIONS):
        if match := re.fullmatch(r"(?:.*/)?(\d+)\.manifest", path):
            digits = match[1]
            found[MAX_VERSION - int(digits) if len(digits) == 20 else int(digits)] = path
    return found


def parse_manifest(content: bytes, where: str, location: Location | None = None) -> Manifest:
    """`location` is the table's; the files of segments are below it unless they are in another table."""
    proto, indices = manifest_protos(content, where)
    bases = {base.id: BasePath(base.path, base.is_dataset_root) for base in proto.base_paths}
    segments = segments_from_proto(indices)
    if location is not None:
        segments = tuple(_rooted(segment, bases, location) for segment in segments)
    fragments = {f.id: _fragment(f, where) for f in proto.fragments}
    if len(fragments) != len(proto.fragments):
        raise DamagedFile(f"manifest {where} lists a fragment twice", "Restore the file, or an older version")
    return Manifest(
        version=proto.version,
        fields=proto.fields,
        fragments=fragments,
        segments=segments,
        max_fragment_id=proto.max_fragment_id,
        next_row_id=proto.next_row_id,
        reader_flags=proto.reader_feature_flags,
        base_paths=bases,
    )


def _rooted(segment: IndexSegment, bases: Mapping[int, BasePath], location: Location) -> IndexSegment:
    """A segment whose files are in another table, with the root of that table; without, where that is refused."""
    base = bases.get(segment.base_id) if segment.base_id is not None else None
    if base is None or segment.base_id is None or why_refused(location, segment.base_id, base) is not None:
        return segment
    return replace(segment, root=base_location(location, base).uri)


def manifest_protos(content: bytes, where: str) -> tuple[pb.Manifest, pb.IndexSection]:
    """The messages in a manifest. Raises UnsupportedTable if it uses features unknown to Pennon."""
    try:
        position, _, _, magic = FOOTER.unpack(content[-FOOTER.size :])
        if magic != MAGIC:
            raise DamagedFile(f"{where} is not a Lance manifest: its last bytes are {magic!r}")
        proto = pb.Manifest.FromString(_section(content, position))
        indices = pb.IndexSection()
        if proto.HasField("index_section"):
            indices = pb.IndexSection.FromString(_section(content, proto.index_section))
    except (struct.error, DecodeError, IndexError, ValueError) as error:
        raise DamagedFile(
            f"manifest {where} cannot be read: {error}", "Restore the file, or an older version"
        ) from error
    _refuse_unknown(proto, where)
    return proto, indices


def _section(content: bytes, position: int) -> bytes:
    (length,) = struct.unpack_from("<I", content, position)
    if position < 0 or position + 4 + length > len(content):
        raise ValueError(f"a section of {length} bytes at {position} does not fit the file of {len(content)} bytes")
    return content[position + 4 : position + 4 + length]


def _refuse_unknown(proto: pb.Manifest, where: str) -> None:
    unknown = proto.reader_feature_flags & ~READER_FLAGS
    if unknown:
        raise UnsupportedTable(
            f"{where} needs reader features {unknown:#x} that this version of Pennon does not support",
            "Upgrade Pennon, or use the tool that wrote the table",
        )
    if proto.HasField("fragment_tree"):
        raise UnsupportedTable(f"{where} stores its fragments as a tree, which this version of Pennon does not support")


def _fragment(proto: pb.DataFragment, where: str) -> Fragment:
    # Addresses have 32 bits for either. Larger numbers would only lead to large allocations.
    if proto.id >= MAX_ROWS or proto.physical_rows > MAX_ROWS:
        raise DamagedFile(
            f"manifest {where} has a fragment {proto.id} of {proto.physical_rows} rows, too large for row addresses",
            "Restore the file, or an older version",
        )
    deletion = None
    if proto.HasField("deletion_file"):
        d = proto.deletion_file
        base = d.base_id if d.HasField("base_id") else None
        deletion = DeletionFile(d.file_type == 1, d.read_version, d.id, d.num_deleted_rows, base)
    # A negative id marks a column of the file that a newer file replaces.
    field_files = {f: file.path for file in proto.files for f in file.fields if f >= 0}
    replaced = any(f < 0 for file in proto.files for f in file.fields)
    size = sum(file.size_bytes for file in proto.files)
    return Fragment(proto.id, proto.physical_rows, deletion, field_files, proto.inline_row_ids or None, replaced, size)
