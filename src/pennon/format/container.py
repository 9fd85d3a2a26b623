"""The end of a Lance file, looked at before pylance is given it.

The last 40 bytes, little endian: u64 position of the first column's metadata, u64 of the table of columns' metadata,
u64 of the table of global buffers; u32 global buffers, u32 columns; u16 major, u16 minor version; `LANC`. Both tables
have a u64 position and a u64 size for each entry. A column's metadata is a message: 2 repeated page, 3 positions and
4 sizes of its own buffers; a page: 1 positions and 2 sizes of buffers, 3 rows.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from pennon.errors import DamagedFile
from pennon.format.wire import fields, numbers

FOOTER = struct.Struct("<QQQIIHH4s")
ENTRY = struct.Struct("<QQ")
MAGIC = b"LANC"
PAGES = 2


def check_footer(file: BinaryIO, where: str) -> None:
    """DamagedFile where the file says it has what cannot be in it."""
    try:
        _check(file)
    except (ValueError, struct.error) as error:
        raise DamagedFile(f"{where} is no sound Lance file: {error}", "Rebuild the index") from error


def _check(file: BinaryIO) -> None:
    size = file.seek(0, 2)
    if size < FOOTER.size:
        raise ValueError(f"it has {size} bytes")
    file.seek(size - FOOTER.size)
    first, columns_at, buffers_at, buffers, columns, major, minor, magic = FOOTER.unpack(file.read(FOOTER.size))
    if magic != MAGIC:
        raise ValueError(f"its last bytes are {magic!r}")
    if not (major == 2 or (major, minor) == (0, 3)) or first > size:
        raise ValueError(f"it is of version {major}.{minor}")
    _table(file, buffers_at, buffers, size)
    for position, length in _table(file, columns_at, columns, size):
        file.seek(position)
        _check_column(file.read(length), size)


def _table(file: BinaryIO, position: int, count: int, size: int) -> list[tuple[int, int]]:
    if position + count * ENTRY.size > size:
        raise ValueError(f"a table of {count} entries at {position} in {size} bytes")
    file.seek(position)
    entries = [*ENTRY.iter_unpack(file.read(count * ENTRY.size))]
    _check_within(entries, size)
    return entries


def _check_column(metadata: bytes, size: int) -> None:
    positions: list[int] = []
    sizes: list[int] = []
    for number, value in fields(metadata):
        if number == PAGES and isinstance(value, bytes):
            for inner, told in fields(value):
                if inner in (1, 2):
                    (positions if inner == 1 else sizes).extend(numbers(told))
        elif number in (3, 4):
            (positions if number == 3 else sizes).extend(numbers(value))
    if len(positions) != len(sizes):
        raise ValueError(f"{len(positions)} buffers and {len(sizes)} sizes")
    _check_within(list(zip(positions, sizes, strict=True)), size)


def _check_within(entries: list[tuple[int, int]], size: int) -> None:
    for position, length in entries:
        if position + length > size:
            raise ValueError(f"{length} bytes at {position} of {size}")
