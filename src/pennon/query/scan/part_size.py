"""How many rows a part of a scan has: limited by their number, and by the bytes of the columns that are read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pennon.format.snapshot import Snapshot

ROWS_PER_PART = 1 << 18
BYTES_PER_PART = 128 << 20
# A fragment is cut if it has more than this many times the rows of a part, and if the number of rows is given, more
# than half as much again. Parts of one fragment open its files again.
LARGE, LARGER_THAN_GIVEN = 4.0, 1.5
# A value of unknown width.
LEAST_BYTES = 8


def rows_of_parts(snapshot: Snapshot, columns: Sequence[str] | None, given: int | None = None) -> tuple[int, int]:
    """The rows of a part, and of the largest fragment that is not cut."""
    if given is not None:
        return given, int(given * LARGER_THAN_GIVEN)
    rows = max(1, min(ROWS_PER_PART, int(BYTES_PER_PART // row_bytes(snapshot, columns))))
    return rows, int(rows * LARGE)


def row_bytes(snapshot: Snapshot, columns: Sequence[str] | None) -> float:
    """About the bytes of some columns of a row (None: all). Values of variable length share what files have beyond the
    others."""
    fragments = snapshot.manifest.fragments.values()
    widths = {field.name: _width(field.type) for field in snapshot.schema}
    known = sum(width for width in widths.values() if width is not None)
    unknown = sum(width is None for width in widths.values())
    total = sum(fragment.file_bytes for fragment in fragments) / max(1, sum(each.physical_rows for each in fragments))
    share = max(LEAST_BYTES, (total - known) / max(1, unknown))
    names = widths if columns is None else {name.partition(".")[0] for name in columns}
    found = (widths.get(name, LEAST_BYTES) for name in names)
    return max(1.0, sum(share if width is None else width for width in found))


def _width(type_: pa.DataType) -> float | None:
    """The bytes of a value; None if values differ."""
    if isinstance(type_, pa.BaseExtensionType):
        return _width(type_.storage_type)
    if pa.types.is_fixed_size_list(type_):
        item = _width(type_.value_type)
        return None if item is None else item * type_.list_size
    try:
        return type_.bit_width / 8
    except ValueError:
        return None
