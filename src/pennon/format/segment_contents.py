"""A record of the rows that a segment's files can contain, written next to them by their writer.

Coverage does not provide this: it shrinks when a column is updated in place, and changes with compactions, while the
files keep every row they were written with. pylance's segments have no such record.

`pennon-contents.json` in the segment's directory is a CRC-32 in hex of what follows, a space, and JSON: `segment`, the
uuid; `fragments`, a portable roaring bitmap in base64 of the fragments whose addresses are in the files; and
`row_ids_below`, the first stable row id that is too high to be in them.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap, FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import read_fragment_bitmap
from pennon.format.index_metadata import IndexFile, IndexSegment, segment_directory
from pennon.format.store import Store

CONTENTS_FILE = "pennon-contents.json"


@dataclass(frozen=True)
class SegmentContents:
    """Addresses in the files are of these fragments, stable row ids are below `row_ids_below`."""

    fragments: FrozenBitMap
    row_ids_below: int


def write_contents(store: Store, uuid: str, fragments: Iterable[int], row_ids_below: int) -> IndexFile:
    """Record the source of a new segment before it is committed."""
    held = BitMap(fragments)
    held.run_optimize()
    recorded = {
        "segment": uuid,
        "fragments": b64encode(held.serialize()).decode(),
        "row_ids_below": row_ids_below,
    }
    text = json.dumps(recorded, separators=(",", ":")).encode()
    content = b"%08x %s" % (zlib.crc32(text), text)
    store.write(f"{segment_directory(uuid)}/{CONTENTS_FILE}", content)
    return IndexFile(CONTENTS_FILE, len(content))


def check_is_own(sizes: Mapping[str, int], recorded: object, where: str) -> None:
    """DamagedFile for a valid file of another segment, in a segment that Pennon wrote: `recorded` is None if the file
    has no record for its segment. In segments of other writers a file may have none; pylance copies metadata."""
    if recorded is None and CONTENTS_FILE in sizes:
        raise DamagedFile(f"{where} is not the file that was written for its segment", "Rebuild the index")


def read_contents(store: Store, segment: IndexSegment) -> SegmentContents | None:
    """The record of a segment; None if it has no valid one."""
    if CONTENTS_FILE not in segment.file_sizes:
        return None
    try:
        content = store.read(f"{segment.directory}/{CONTENTS_FILE}")
        check, _, text = content.partition(b" ")
        if check != b"%08x" % zlib.crc32(text):
            return None
        recorded = json.loads(text)
        if recorded["segment"] != segment.uuid:
            return None
        fragments = read_fragment_bitmap(
            b64decode(recorded["fragments"], validate=True), store.describe(segment.directory)
        )
        return SegmentContents(FrozenBitMap(fragments), int(recorded["row_ids_below"]))
    except (DamagedFile, ValueError, KeyError, TypeError):
        return None
