"""Checksums of a partition, in a file next to its others: a flipped bit in a posting would be another document, and in
a length another score. Dictionaries have their own.

pylance's partitions have none, and pylance leaves the file alone. `part_<number>_checksums.bin` is sealed for its
segment (`pennon.index.checksums`), and is a sequence of u32, little endian: the CRC-32 of the documents, a digest of
each posting list in the order of their file, and where there are positions a digest of those of each list.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexFile
from pennon.format.store import Store
from pennon.index.arrays import UInt32s
from pennon.index.checksums import sealed, unsealed
from pennon.index.inverted.docs import REMEDY, Docs
from pennon.index.inverted.postings.lists import EncodedLists


@dataclass(frozen=True, eq=False)
class Checksums:
    """What the documents and the posting lists of a partition must sum up to."""

    docs: int
    lists: UInt32s
    streams: UInt32s | None

    @property
    def nbytes(self) -> int:
        return self.lists.nbytes + (0 if self.streams is None else self.streams.nbytes)

    def of_other(self, docs: Docs) -> Checksums:
        """Of the same posting lists with other documents."""
        return replace(self, docs=_of_docs(docs))

    def check_docs(self, docs: Docs, where: str) -> None:
        """DamagedFile where they are not as they were written."""
        if _of_docs(docs) != self.docs:
            raise DamagedFile(f"the documents in {where} are not as they were written", REMEDY)

    def check_lists(self, first: int, lists: EncodedLists) -> None:
        """DamagedFile where one of the lists, from a row on, is not as it was written."""
        last = first + len(lists.sizes)
        same = np.array_equal(lists.digests(), self.lists[first:last])
        found = lists.stream_digests()
        if same and found is not None and self.streams is not None:
            same = np.array_equal(found, self.streams[first:last])
        if not same:
            raise lists.damaged()

    def write(self, store: Store, directory: str, name: str) -> IndexFile:
        """Write the file."""
        parts = [np.array([self.docs], dtype="<u4"), self.lists, *([] if self.streams is None else [self.streams])]
        content = sealed(directory, np.concatenate(parts).astype("<u4").tobytes())
        store.write(f"{directory}/{name}", content)
        return IndexFile(name, len(content))

    @classmethod
    def read(cls, store: Store, directory: str, name: str, terms: int) -> Checksums:
        """DamagedFile where the file is not one for a partition of the segment with some number of terms."""
        path = f"{directory}/{name}"
        found = unsealed(directory, store.read(path))
        if found is None or len(found) not in (4 * (1 + terms), 4 * (1 + 2 * terms)):
            raise DamagedFile(f"{store.describe(path)} is damaged, or of another segment", REMEDY)
        words = np.frombuffer(found, dtype="<u4").astype(np.uint32)
        streams = words[1 + terms :] if len(words) > 1 + terms else None
        return cls(int(words[0]), words[1 : 1 + terms], streams)


class ListDigests:
    """Digests of posting lists while they are written."""

    def __init__(self) -> None:
        self._lists: list[UInt32s] = []
        self._streams: list[UInt32s] = []

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches:
            encoded = EncodedLists.of(batch, "a posting list")
            self._lists.append(encoded.digests())
            streams = encoded.stream_digests()
            if streams is not None:
                self._streams.append(streams)
            yield batch

    def with_docs(self, docs: Docs) -> Checksums:
        """Once all batches are written."""
        none = np.empty(0, dtype=np.uint32)
        streams = np.concatenate([none, *self._streams]) if self._streams else None
        return Checksums(_of_docs(docs), np.concatenate([none, *self._lists]), streams)


def _of_docs(docs: Docs) -> int:
    return zlib.crc32(docs.lengths.tobytes(), zlib.crc32(docs.row_ids.tobytes()))
