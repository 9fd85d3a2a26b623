"""The footer of a Lance file, checked before pylance opens the file.

The last 40 bytes, little endian: u64 position of the first column's metadata, u64 of the table of columns' metadata,
u64 of the table of global buffers; u32 global buffers, u32 columns; u16 major, u16 minor version; `LANC`. Both tables
have a u64 position and a u64 size for each entry. A column's metadata is a message ColumnMetadata.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pennon.errors import DamagedFile
from pennon.format.pb import lance_pb2 as pb

FOOTER = struct.Struct("<QQQIIHH4s")
VERSION = struct.Struct("<HH4s")
ENTRY = struct.Struct("<QQ")
MAGIC = b"LANC"
# The columns' metadata, their table and the footer of an index file nearly always fit into this size.
ENDING_BYTES = 1 << 16

# Reads bytes of a file: position and length.
Read = Callable[[int, int], bytes]


@dataclass(frozen=True, eq=False)
class FileEnd:
    """What the end of a file describes: positions and sizes of the global buffers, the first of them (empty if it is
    not near the end), the pages of the columns, and the version."""

    buffers: list[tuple[int, int]]
    descriptor: bytes
    columns: list[pb.ColumnMetadata]
    version: tuple[int, int]


def check_footer(read: Read, size: int, where: str) -> FileEnd:
    """Raises DamagedFile if the footer refers to bytes outside a file of this size."""
    try:
        return _check(_Ending(read, size))
    except (ValueError, struct.error, DecodeError) as error:
        raise DamagedFile(f"{where} is not a valid Lance file: {error}", "Rebuild the index") from error


def container_version(read: Read, size: int) -> tuple[int, int] | None:
    """The version in the last bytes of a file; None if they are not those of a Lance file."""
    if size < VERSION.size:
        return None
    major, minor, magic = VERSION.unpack(read(size - VERSION.size, VERSION.size))
    return (major, minor) if magic == MAGIC else None


class _Ending:
    """Reads of a file. Its last bytes are read in one request: mostly no others are needed."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self.size = read, size
        self.start = max(0, size - ENDING_BYTES)
        self._bytes = read(self.start, size - self.start)

    def read(self, position: int, length: int) -> bytes:
        if position + length > self.size:
            raise ValueError(f"{length} bytes at {position} of {self.size}")
        if position < self.start:
            return self._read(position, length)
        return self._bytes[position - self.start : position - self.start + length]


def _check(file: _Ending) -> FileEnd:
    size = file.size
    if size < FOOTER.size:
        raise ValueError(f"it has {size} bytes")
    footer = FOOTER.unpack(file.read(size - FOOTER.size, FOOTER.size))
    first, columns_at, buffers_at, buffers, columns, major, minor, magic = footer
    if magic != MAGIC:
        raise ValueError(f"its last bytes are {magic!r}")
    if not (major == 2 or (major, minor) == (0, 3)) or first > size:
        raise ValueError(f"it has version {major}.{minor}")
    found = _table(file, buffers_at, buffers)
    described = [_column(file.read(*entry), size) for entry in _table(file, columns_at, columns)]
    descriptor = file.read(*found[0]) if found and found[0][0] >= file.start else b""
    return FileEnd(found, descriptor, described, (major, minor))


def _table(file: _Ending, position: int, count: int) -> list[tuple[int, int]]:
    if position + count * ENTRY.size > file.size:
        raise ValueError(f"a table of {count} entries at {position} in {file.size} bytes")
    entries = [*ENTRY.iter_unpack(file.read(position, count * ENTRY.size))]
    _check_within(entries, file.size)
    return entries


def _column(metadata: bytes, size: int) -> pb.ColumnMetadata:
    column = pb.ColumnMetadata.FromString(metadata)
    for each in (*column.pages, column):
        _check_within(zip(each.buffer_offsets, each.buffer_sizes, strict=True), size)
    return column


def _check_within(entries: Iterable[tuple[int, int]], size: int) -> None:
    for position, length in entries:
        if position + length > size:
            raise ValueError(f"{length} bytes at {position} of {size}")
