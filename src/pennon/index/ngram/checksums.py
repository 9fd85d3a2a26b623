"""Checksums of posting lists, in a file next to them: a flipped bit in a bitmap would lose rows undetected.

pylance's segments have none, and pylance ignores the file. `pennon-checksums.bin` is sealed for its segment
(`pennon.index.checksums`), and is a sequence of u32, little endian: the CRC-32 of the tokens, and that of each posting
list in order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.store import Store
from pennon.index.checksums import sealed, unsealed

CHECKSUMS_FILE = "pennon-checksums.bin"
REMEDY = "Rebuild the index"


class ChecksumWriter:
    """Computes the checksums of a file while it is written."""

    def __init__(self) -> None:
        self._tokens = 0
        self._lists: list[int] = []

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches of tokens and posting lists."""
        for batch in batches:
            self._tokens = zlib.crc32(batch.column(0).to_numpy().tobytes(), self._tokens)
            self._lists += map(zlib.crc32, contents(batch.column(1)))
            yield batch

    def write(self, store: Store, directory: str) -> IndexFile:
        """Write the checksums, after all batches."""
        found = struct.pack(f"<{len(self._lists) + 1}I", self._tokens, *self._lists)
        content = sealed(directory, found)
        store.write(f"{directory}/{CHECKSUMS_FILE}", content)
        return IndexFile(CHECKSUMS_FILE, len(content))


@dataclass(frozen=True, eq=False)
class Checksums:
    """The checksums of a segment's posting lists."""

    tokens: int
    lists: npt.NDArray[np.uint32]

    def check_tokens(self, tokens: npt.NDArray[np.uint32], where: str) -> None:
        """Raises DamagedFile if they are not as they were written."""
        if len(tokens) != len(self.lists) or zlib.crc32(tokens.tobytes()) != self.tokens:
            raise DamagedFile(f"the tokens in {where} are not as they were written", REMEDY)

    def check_lists(self, rows: Iterable[int], lists: pa.Array, where: str) -> None:
        """Raises DamagedFile if one of them is not as it was written."""
        for row, content in zip(rows, contents(lists), strict=True):
            if row >= len(self.lists) or zlib.crc32(content) != self.lists[row]:
                raise DamagedFile(f"posting list {row} in {where} is not as it was written", REMEDY)


def read_checksums(store: Store, segment: IndexSegment) -> Checksums | None:
    """None if the segment was written without checksums."""
    if CHECKSUMS_FILE not in segment.file_sizes:
        return None
    path = f"{segment.directory}/{CHECKSUMS_FILE}"
    found = unsealed(segment.directory, store.read(path))
    if not found or len(found) % 4:
        raise DamagedFile(f"{store.describe(path)} is damaged, or of another segment", REMEDY)
    words = np.frombuffer(found, dtype="<u4")
    return Checksums(int(words[0]), words[1:])


def contents(lists: pa.Array) -> Iterator[memoryview]:
    """The bytes of each value, without copies."""
    _, offset_buffer, data_buffer = lists.buffers()
    data = memoryview(data_buffer or b"")
    offsets = np.frombuffer(offset_buffer or bytes(4), dtype=np.int32)[lists.offset : lists.offset + len(lists) + 1]
    start = int(offsets[0])
    for stop in offsets[1:].tolist():
        yield data[start:stop]
        start = stop
