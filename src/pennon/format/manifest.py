"""The manifest of a table version, parsed without pylance, which hides part of it.

File layout: `[sections][u32 length][Manifest] i64 manifest position | u16 major | u16 minor | "LANC"`; a section is
`u32 length` + protobuf bytes at an absolute offset that the Manifest names.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from pennon.errors import DamagedFile, TableNotFound, UnsupportedTable
from pennon.format.base_paths import BasePath, base_location, why_refused
from pennon.format.fragments import Fragments
from pennon.format.index_metadata import FRAGMENT_REUSE_NAME, FRAGMENT_REUSE_TYPE, IndexSegment, segments_from_proto
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import Location, Store

FOOTER = struct.Struct("<qHH4s")
MAGIC = b"LANC"
VERSIONS = "_versions"
MAX_VERSION = 2**64 - 1
# pylance panics on times that its calendar does not have, which ends at about twice this.
MAX_MILLISECONDS = 2**52

FLAG_DELETION_FILES = 1
FLAG_STABLE_ROW_IDS = 2
FLAG_TABLE_CONFIG = 8
FLAG_TAGGED_REUSE = 1024
# 4 (v2 data files), 16 (base paths) and 32 (no transaction files) do not affect the parts that Pennon parses itself.
READER_FLAGS = FLAG_DELETION_FILES | FLAG_STABLE_ROW_IDS | 4 | FLAG_TABLE_CONFIG | 16 | 32 | FLAG_TAGGED_REUSE


P = TypeVar("P", pb.Manifest, pb.ManifestOutline)


@dataclass(frozen=True)
class Manifest:
    """One version of a table: its fragments, its index segments and the features it requires of a reader."""

    version: int
    fields: Sequence[pb.Field] = field(repr=False)
    fragments: Fragments = field(repr=False)
    segments: tuple[IndexSegment, ...]
    max_fragment_id: int
    next_row_id: int
    reader_flags: int
    base_paths: Mapping[int, BasePath]
    outline: pb.ManifestOutline = field(repr=False, compare=False)
    is_doubtful: bool = field(
        default=False, repr=False
    )  # an entry of an index is such that pylance may refuse the table

    @property
    def has_stable_row_ids(self) -> bool:
        return bool(self.reader_flags & FLAG_STABLE_ROW_IDS)

    @property
    def live(self) -> BitMap:
        """Ids of the fragments that exist in this version. It must not be changed."""
        return self.fragments.live

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
        return self.fragments.rows_in(fragments)


def read_manifest(store: Store, version: int | None = None) -> Manifest:
    """The manifest of a version, by default of the newest."""
    path, content = _find_and_read(store, version)
    manifest = parse_manifest(content, store.describe(path), store.location)
    if version is not None and manifest.version != version:
        raise DamagedFile(
            f"{store.describe(path)} is the manifest of version {manifest.version}", "Restore the file of that version"
        )
    return manifest


def _find_and_read(store: Store, version: int | None) -> tuple[str, bytes]:
    if version is not None and not store.is_local:
        # Without asking first whether it is there, which would be a request of its own.
        with suppress(DamagedFile):
            path = _newer_path(version)
            return path, store.read(path)
    path = find_manifest(store, version)
    return path, store.read(path)


def _newer_path(version: int) -> str:
    return f"{VERSIONS}/{MAX_VERSION - version:020d}.manifest"


def find_manifest(store: Store, version: int | None = None) -> str:
    if version is not None:
        # Both path namings; first the newer one, which new tables use.
        for path in (_newer_path(version), f"{VERSIONS}/{version}.manifest"):
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
    for path in store.files_in(VERSIONS):
        digits = path.rpartition("/")[2].removesuffix(".manifest")
        if path.endswith(".manifest") and digits.isdecimal() and digits.isascii():
            found[MAX_VERSION - int(digits) if len(digits) == 20 else int(digits)] = path
    return found


def parse_manifest(content: bytes, where: str, location: Location | None = None) -> Manifest:
    """`location` is the table's; the files of segments are below it unless they are in another table."""
    proto, indices = _read_protos(pb.ManifestOutline, content, where)
    bases = {base.id: BasePath(base.path, base.is_dataset_root) for base in proto.base_paths}
    segments = segments_from_proto(indices)
    if location is not None:
        segments = tuple(_rooted(segment, bases, location) for segment in segments)
    return Manifest(
        version=proto.version,
        fields=proto.fields,
        fragments=Fragments(proto.fragments, where),
        segments=segments,
        max_fragment_id=proto.max_fragment_id,
        next_row_id=proto.next_row_id,
        reader_flags=proto.reader_feature_flags,
        base_paths=bases,
        outline=proto,
        is_doubtful=any(s.damage for s in segments) or any(i.created_at > MAX_MILLISECONDS for i in indices.indices),
    )


def _rooted(segment: IndexSegment, bases: Mapping[int, BasePath], location: Location) -> IndexSegment:
    """A segment whose files are in another table, with the root of that table; without, where that is refused."""
    base = bases.get(segment.base_id) if segment.base_id is not None else None
    if base is None or segment.base_id is None or why_refused(location, segment.base_id, base) is not None:
        return segment
    return replace(segment, root=base_location(location, base).uri)


def manifest_protos(content: bytes, where: str) -> tuple[pb.Manifest, pb.IndexSection]:
    """The messages in a manifest. Raises UnsupportedTable if it uses features unknown to Pennon."""
    return _read_protos(pb.Manifest, content, where)


def _read_protos(form: type[P], content: bytes, where: str) -> tuple[P, pb.IndexSection]:
    try:
        position, _, _, magic = FOOTER.unpack(content[-FOOTER.size :])
        if magic != MAGIC:
            raise DamagedFile(f"{where} is not a Lance manifest: its last bytes are {magic!r}")
        proto = form.FromString(_section(content, position))
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


def _refuse_unknown(proto: pb.Manifest | pb.ManifestOutline, where: str) -> None:
    unknown = proto.reader_feature_flags & ~READER_FLAGS
    if unknown:
        raise UnsupportedTable(
            f"{where} needs reader features {unknown:#x} that this version of Pennon does not support",
            "Upgrade Pennon, or use the tool that wrote the table",
        )
    if proto.HasField("fragment_tree"):
        raise UnsupportedTable(f"{where} stores its fragments as a tree, which this version of Pennon does not support")
