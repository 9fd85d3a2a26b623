"""Sets of row ids inside index files, as Lance stores NULLs and the rows of a value.

Layout, little endian: u32 entries, then per entry, ascending, u32 high half of the ids, u32 size, and a portable
roaring bitmap of the low halves in `size` bytes; size 0 means every row of the high half.
"""

from __future__ import annotations

import struct

from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import read_bitmap, serialize_allowlist
from pennon.format.row_set import RowSet

MOST_LISTED = 1 << 25
_ENTRY = struct.Struct("<II")


def write_row_map(rows: RowSet) -> bytes:
    """High halves without rows are left out."""
    filled = {high: low for high, low in rows.by_fragment.items() if low is None or low}
    return serialize_allowlist({high: low and _without_runs(low) for high, low in filled.items()})


def read_row_map(content: bytes, where: str) -> RowSet:
    """Raises DamagedFile if the content is not exactly one map."""
    if len(content) < 4:
        raise DamagedFile(f"a row map of {where} has {len(content)} bytes")
    entries, at = int.from_bytes(content[:4], "little"), 4
    rows: dict[int, BitMap | None] = {}
    for _ in range(entries):
        if at + _ENTRY.size > len(content):
            raise DamagedFile(f"a row map of {where} ends after {len(rows)} of {entries} entries")
        high, size = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        if at + size > len(content) or high in rows:
            raise DamagedFile(f"a row map of {where} has an invalid entry for fragment {high}")
        rows[high] = _bitmap(content[at : at + size], where) if size else None
        at += size
    if at != len(content):
        raise DamagedFile(f"a row map of {where} has {len(content) - at} bytes too many")
    return RowSet(rows)


def _without_runs(rows: BitMap) -> BitMap:
    """pylance reads runs but does not write them: only bitmaps too large to be listed keep theirs."""
    if len(rows) > MOST_LISTED or not rows.get_statistics()["n_run_containers"]:
        return rows
    return BitMap(rows.to_array(), optimize=False)


def _bitmap(content: bytes, where: str) -> BitMap:
    try:
        return read_bitmap(content)
    except ValueError as error:
        raise DamagedFile(f"a row map of {where} cannot be read: {error}") from error
