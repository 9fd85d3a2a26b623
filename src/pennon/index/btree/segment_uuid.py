"""Uuids of B-tree segments, which record an upper limit of the fragments whose rows are in their files.

The limit matters on tables with stable row ids, where a tree of index version 1 still holds addresses. pylance 13 and
older treat these as stable ids: an update or a compaction extends the coverage of the tree to the fragments the rows
moved to and leaves its files unchanged. pylance 14 trusts that coverage and misses rows. Only the uuid changes whenever
the files do, with any writer; all other fields of the manifest entry can outlive the files.

Layout of a uuid of version 8, from the left: 32 bits the limit (the highest fragment id + 1), 16 random, 4 the version,
12 a checksum of the others, 2 the variant, 62 random.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable
from uuid import UUID, uuid4

MAX_LIMIT = (1 << 32) - 1


def segment_uuid(fragments: Iterable[int]) -> str:
    """A new uuid for files with addresses in these fragments."""
    below = max(fragments, default=-1) + 1
    if below > MAX_LIMIT:
        return str(uuid4())
    head, tail = below << 16 | secrets.randbits(16), secrets.randbits(62)
    return str(UUID(int=head << 80 | 8 << 76 | _checksum(head, tail) << 64 | 0b10 << 62 | tail))


def fragments_below(uuid: UUID) -> int | None:
    """The limit: all addresses in the files are in fragments with lower ids. None if the uuid records no limit."""
    head, tail = uuid.int >> 80, uuid.int & ((1 << 62) - 1)
    if uuid.version != 8 or (uuid.int >> 64) & 0xFFF != _checksum(head, tail):
        return None
    return head >> 16


def _checksum(head: int, tail: int) -> int:
    return zlib.crc32(b"pennon" + head.to_bytes(6, "little") + tail.to_bytes(8, "little")) & 0xFFF
