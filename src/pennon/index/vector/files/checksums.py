"""What Pennon writes down of a vector index file beside its content, so that damage is told from data.

The schema's metadata has it under `pennon:digests`: a CRC-32 in hex of what follows, a space, and JSON: `segment`, the
directory the file was written to; `metadata`, a CRC-32 of the other keys and values; `buffers`, one of each global
buffer from number 1 on; and `runs`, the digests of the partitions' rows in base64, 8 bytes each. Readers that do not
know the key pass over it. pylance copies it to the files of another segment, of which it says nothing then. A file
without digests of its own is somebody else's, and believed.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.index.checksums import Digester, Digests, chunks_of

DIGESTS_KEY = "pennon:digests"


@dataclass(frozen=True, eq=False)
class FileDigests:
    segment: str
    metadata: int
    buffers: tuple[int, ...]
    runs: Digests

    @classmethod
    def of(cls, directory: str, metadata: Mapping[str, str], buffers: Sequence[bytes], runs: Digests) -> FileDigests:
        return cls(_name(directory), _of_metadata(metadata), tuple(map(zlib.crc32, buffers)), runs)

    def to_text(self) -> str:
        runs = b64encode(self.runs.astype("<u8").tobytes()).decode()
        said = {"segment": self.segment, "metadata": self.metadata, "buffers": self.buffers, "runs": runs}
        text = json.dumps(said, separators=(",", ":"))
        return f"{zlib.crc32(text.encode()):08x} {text}"

    @classmethod
    def read(cls, metadata: Mapping[str, str], directory: str) -> FileDigests | None:
        """Those of a file in this directory, None if it has none; ValueError, KeyError or TypeError where they cannot
        be read or do not fit."""
        if DIGESTS_KEY not in metadata:
            return None
        check, _, text = metadata[DIGESTS_KEY].partition(" ")
        if check != f"{zlib.crc32(text.encode()):08x}":
            raise ValueError("digests that are not as they were written")
        said = json.loads(text)
        runs = np.frombuffer(b64decode(said["runs"], validate=True), dtype="<u8")
        found = cls(str(said["segment"]), int(said["metadata"]), tuple(map(int, said["buffers"])), runs)
        if found.segment != _name(directory):
            return None
        if found.metadata != _of_metadata(metadata):
            raise ValueError("metadata that is not as it was written")
        return found

    def check_buffer(self, number: int, content: bytes) -> None:
        if 1 <= number <= len(self.buffers) and zlib.crc32(content) != self.buffers[number - 1]:
            raise ValueError(f"a global buffer {number} that is not as it was written")

    def check_runs(self, first: int, lengths: Sequence[int], rows: pa.Table) -> None:
        """Of partitions from number `first` on."""
        told = self.runs[first : first + len(lengths)]
        digester = Digester(lengths)
        for columns in chunks_of(rows):
            digester.add(columns)
        if not np.array_equal(digester.finish(), told):
            raise ValueError("rows that are not as they were written")


def _of_metadata(metadata: Mapping[str, str]) -> int:
    said = sorted((key, value) for key, value in metadata.items() if key != DIGESTS_KEY)
    return zlib.crc32(json.dumps(said).encode())


def _name(directory: str) -> str:
    return directory.rpartition("/")[2]
