"""The details of a zone map in the manifest: `1: uint64 rows_per_zone, 2: bool use_seeds, 3: bool has_null_bitmap`, all
of them present. Those of a Bloom filter are empty."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.errors import DamagedFile
from pennon.format.protobuf_wire import fields

DEFAULT_ROWS_PER_ZONE = 8192


@dataclass(frozen=True)
class ZoneMapDetails:
    """`use_seeds` makes pylance write the zones of appended rows into data files, and read them from there."""

    rows_per_zone: int = DEFAULT_ROWS_PER_ZONE
    use_seeds: bool = False
    has_null_bitmap: bool = False

    @classmethod
    def from_bytes(cls, content: bytes) -> ZoneMapDetails:
        try:
            found = dict(fields(content))
        except ValueError as error:
            raise DamagedFile(f"the details of a zone map cannot be read: {error}") from error
        rows = found.get(1)
        return cls(
            rows if isinstance(rows, int) and rows > 0 else DEFAULT_ROWS_PER_ZONE,
            bool(found.get(2, 0)),
            bool(found.get(3, 0)),
        )

    def to_bytes(self) -> bytes:
        return b"\x08" + _varint(self.rows_per_zone) + bytes([0x10, self.use_seeds, 0x18, self.has_null_bitmap])


def _varint(number: int) -> bytes:
    content = bytearray()
    while number >= 0x80:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)
