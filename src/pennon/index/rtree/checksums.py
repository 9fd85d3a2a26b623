"""Checksums of the pages of an R-tree, in a file next to it: a flipped bit in a box would lose rows undetected.

pylance's segments have none, and pylance ignores the file. `pennon-checksums.bin` is sealed for its segment
(`pennon.index.checksums`), and is, in little endian: u32 CRC-32 of the row map of NULLs, and a u64 digest of each page
in order, over the columns xmin, ymin, xmax, ymax and id.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.store import Store
from pennon.index.checksums import Digests, digests_of, sealed, unsealed
from pennon.index.rtree.geometries import Leaves

CHECKSUMS_FILE = "pennon-checksums.bin"
REMEDY = "Rebuild the index"
_NULLS_BYTES = 4


@dataclass(frozen=True, eq=False)
class Checksums:
    """The digest of every page, and the checksum of the NULLs."""

    nulls: int
    pages: Digests

    def check_pages(self, start: int, leaves: Leaves, lengths: Sequence[int], where: str) -> None:
        """Raises DamagedFile if one of the pages from number `start` on is not as it was written."""
        found = page_digests(leaves, lengths)
        if not np.array_equal(found, self.pages[start : start + len(found)]):
            raise DamagedFile(
                f"a page of {start} to {start + len(found) - 1} in {where} is not as it was written", REMEDY
            )

    def check_nulls(self, content: bytes, where: str) -> None:
        """Raises DamagedFile if the row map is not as it was written."""
        if zlib.crc32(content) != self.nulls:
            raise DamagedFile(f"the NULLs in {where} are not as they were written", REMEDY)


def page_digests(leaves: Leaves, lengths: Iterable[int]) -> Digests:
    """The digests of consecutive pages of the given lengths."""
    columns = [pa.array(np.ascontiguousarray(leaves.boxes[:, at])) for at in range(4)]
    return digests_of([*columns, pa.array(leaves.ids)], lengths)


def write_checksums(store: Store, directory: str, nulls: bytes, pages: Digests) -> IndexFile:
    found = zlib.crc32(nulls).to_bytes(_NULLS_BYTES, "little") + pages.astype("<u8").tobytes()
    content = sealed(directory, found)
    store.write(f"{directory}/{CHECKSUMS_FILE}", content)
    return IndexFile(CHECKSUMS_FILE, len(content))


def read_checksums(store: Store, segment: IndexSegment, pages: int) -> Checksums | None:
    """None if the segment was written without checksums; `DamagedFile` if these are not of as many pages."""
    if CHECKSUMS_FILE not in segment.file_sizes:
        return None
    path = f"{segment.directory}/{CHECKSUMS_FILE}"
    found = unsealed(segment.directory, store.read(path))
    if found is None or len(found) != _NULLS_BYTES + 8 * pages:
        raise DamagedFile(f"{store.describe(path)} is damaged, or of another segment", REMEDY)
    nulls = int.from_bytes(found[:_NULLS_BYTES], "little")
    return Checksums(nulls, np.frombuffer(found[_NULLS_BYTES:], dtype="<u8"))
