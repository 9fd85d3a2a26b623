"""Uuids of B-tree segments, which tell up to where their files can know rows. It matters on tables with stable row ids.

A tree holds addresses there, too. pylance 13 and older take them for stable ids: when they update or compact, they let
the tree cover the fragments the rows moved to, and leave its files alone. pylance 14 believes it and misses rows. Only
the uuid changes whenever the files do, whoever writes them; all else in the manifest outlives them.

A uuid of version 8, from the left: 32 bits the first fragment id that is too high, 16 random, 4 the version, 12 a check
of the others, 2 the variant, 62 random.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable
from uuid import UUID, uuid4

MOST = (1 << 32) - 1


def segment_uuid(fragments: Iterable[int]) -> str:
    """A new one, for files with addresses in these fragments."""
    below = max(fragments, default=-1) + 1
    if below > MOST:
        return str(uuid4())
    head, tail = below << 16 | secrets.randbits(16), secrets.randbits(62)
    return str(UUID(int=head << 80 | 8 << 76 | _check(head, tail) << 64 | 0b10 << 62 | tail))


def fragments_below(uuid: UUID) -> int | None:
    """Files of a segment with this uuid have addresses in fragments below this one only; None where it does not say."""
    head, tail = uuid.int >> 80, uuid.int & ((1 << 62) - 1)
    if uuid.version != 8 or (uuid.int >> 64) & 0xFFF != _check(head, tail):
        return None
    return head >> 16


def _check(head: int, tail: int) -> int:
    return zlib.crc32(b"pennon" + head.to_bytes(6, "little") + tail.to_bytes(8, "little")) & 0xFFF
