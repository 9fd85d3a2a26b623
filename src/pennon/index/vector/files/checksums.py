"""Digests that Pennon records in a vector index file, to detect damage.

They are in the schema's metadata under `pennon:digests`: a CRC-32 in hex of what follows, a space, and JSON: `segment`,
the directory the file was written to; `metadata`, a CRC-32 of the other keys and values; `buffers`, one of each global
buffer from number 1 on; and `runs`, the digests of the partitions' rows in base64, 8 bytes each. Other readers ignore
the key. pylance may copy it to the files of another segment, where it does not apply. A file without digests for its
segment was not written by Pennon and is not checked; it is damage if the rest of the segment was.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.index.checksums import Digester, Digests, chunks_of, digests_of_runs

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
        content = {"segment": self.segment, "metadata": self.metadata, "buffers": self.buffers, "runs": runs}
        text = json.dumps(content, separators=(",", ":"))
        return f"{zlib.crc32(text.encode()):08x} {text}"

    @classmethod
    def read(cls, metadata: Mapping[str, str], directory: str) -> FileDigests | None:
        """The digests of a file in this directory; None if it has none. Raises ValueError, KeyError or TypeError if
        they are unreadable or do not match."""
        if DIGESTS_KEY not in metadata:
            return None
        check, _, text = metadata[DIGESTS_KEY].partition(" ")
        if check != f"{zlib.crc32(text.encode()):08x}":
            raise ValueError("digests that are not as they were written")
        content = json.loads(text)
        runs = np.frombuffer(b64decode(content["runs"], validate=True), dtype="<u8")
        found = cls(str(content["segment"]), int(content["metadata"]), tuple(map(int, content["buffers"])), runs)
        if found.segment != _name(directory):
            return None
        if found.metadata != _of_metadata(metadata):
            raise ValueError("metadata that is not as it was written")
        return found

    def check_buffer(self, number: int, content: bytes) -> None:
        if 1 <= number <= len(self.buffers) and zlib.crc32(content) != self.buffers[number - 1]:
            raise ValueError(f"a global buffer {number} that is not as it was written")

    def check_runs(self, first: int, lengths: Sequence[int], rows: pa.Table) -> None:
        """Check the rows of partitions from number `first` on."""
        recorded, pieces = self.runs[first : first + len(lengths)], list(chunks_of(rows))
        found = digests_of_runs(pieces[0], lengths) if len(pieces) == 1 and len(lengths) > 1 else None
        if found is None:
            digester = Digester(lengths)
            for columns in pieces:
                digester.add(columns)
            found = digester.finish()
        if not np.array_equal(found, recorded):
            raise ValueError("rows that are not as they were written")


def _of_metadata(metadata: Mapping[str, str]) -> int:
    others = sorted((key, value) for key, value in metadata.items() if key != DIGESTS_KEY)
    return zlib.crc32(json.dumps(others).encode())


def _name(directory: str) -> str:
    return directory.rpartition("/")[2]
