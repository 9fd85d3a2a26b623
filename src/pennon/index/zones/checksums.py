"""Checksums of zones: a flipped bit in a bound or a filter would lose rows and look like any other.

The metadata of both kinds of file has under `pennon:zones`: `<segment> <of the zones> <of the NULL bitmap> <of the
checksums of filters> <of this text>`, CRC-32 in hex but for the first. A file with Bloom filters has a last global
buffer with the CRC-32 of each filter, as u32 in little endian. Other readers pass over both. A file without checksums
for its own segment was written by others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.lance_file import LanceFile
from pennon.index.checksums import Digester
from pennon.index.zones.bounds import has_bounds

CHECKSUMS_KEY = "pennon:zones"
REMEDY = "Rebuild the index"
# Zones that share a digest.
_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class Checksums:
    """What the parts of a file must sum up to; `filters` is 0 in a zone map."""

    zones: int
    nulls: int
    filters: int = 0

    @classmethod
    def of_file(cls, file: LanceFile) -> Checksums | None:
        """None where none were recorded for this segment: pylance may copy the metadata of its sources."""
        text, _, check = file.metadata.get(CHECKSUMS_KEY, "").rpartition(" ")
        segment, _, numbers = text.partition(" ")
        if not segment or segment != file.where.split("/")[-2]:
            return None
        try:
            found = cls(*(int(number, 16) for number in numbers.split(" ")))
        except (ValueError, TypeError):
            found = None
        if found is None or check != f"{zlib.crc32(text.encode()):08x}":
            raise DamagedFile(f"the metadata of {file.where} is not as it was written", REMEDY)
        return found

    def to_text(self, directory: str) -> str:
        text = f"{directory.rpartition('/')[2]} {self.zones:08x} {self.nulls:08x} {self.filters:08x}"
        return f"{text} {zlib.crc32(text.encode()):08x}"

    def check_zones(self, columns: Sequence[pa.Array], where: str) -> None:
        """DamagedFile where the columns of a file, but for its filters, are not as they were written."""
        summed = ZoneSum()
        summed.add(columns)
        if summed.finish() != self.zones:
            raise DamagedFile(f"the zones in {where} are not as they were written", REMEDY)

    def check_nulls(self, content: bytes, where: str) -> None:
        """DamagedFile where the NULL bitmap is not as it was written."""
        if zlib.crc32(content) != self.nulls:
            raise DamagedFile(f"the NULL bitmap in {where} is not as it was written", REMEDY)


class ZoneSum:
    """The checksum of zones that are added in the order of the file. The bytes below a NULL do not count."""

    def __init__(self) -> None:
        self._digesters: dict[tuple[int, str], Digester] = {}

    def add(self, columns: Sequence[pa.Array]) -> None:
        for number, column in enumerate(columns):
            self._add(number, "valid", column.is_valid())
            if has_bounds(column.type):
                self._add(number, "values", column.drop_null())

    def finish(self) -> int:
        digests = [digester.finish().astype("<u8").tobytes() for digester in self._digesters.values()]
        return zlib.crc32(b"".join(digests))

    def _add(self, number: int, what: str, values: pa.Array) -> None:
        self._digesters.setdefault((number, what), Digester.of_pages(_AT_ONCE)).add([values])


class BloomSum:
    """Checksums of zones with Bloom filters, while their batches are written."""

    def __init__(self) -> None:
        self._zones = ZoneSum()
        self._filters: list[int] = []

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, whose last column has the filters."""
        for batch in batches:
            self._zones.add(batch.columns[:-1])
            self._filters += map(zlib.crc32, _contents(batch.columns[-1]))
            yield batch

    def finish(self, nulls: bytes) -> tuple[bytes, Checksums]:
        """The global buffer, and what the metadata has."""
        content = np.array(self._filters, dtype="<u4").tobytes()
        return content, Checksums(self._zones.finish(), zlib.crc32(nulls), zlib.crc32(content))


@dataclass(frozen=True, eq=False)
class FilterChecksums:
    """What each filter of a file must sum up to."""

    filters: npt.NDArray[np.uint32]

    @classmethod
    def of_file(cls, file: LanceFile) -> FilterChecksums | None:
        """None where none were recorded."""
        recorded = Checksums.of_file(file)
        if recorded is None:
            return None
        content = file.read_global_buffer(file.last_buffer)
        if len(content) != 4 * file.num_rows or zlib.crc32(content) != recorded.filters:
            raise DamagedFile(f"the checksums in {file.where} are not as they were written", REMEDY)
        return cls(np.frombuffer(content, dtype="<u4"))

    def check(self, start: int, filters: pa.Array, where: str) -> None:
        """DamagedFile where one of the filters from `start` on is not as it was written."""
        found = np.fromiter(map(zlib.crc32, _contents(filters)), dtype=np.uint32, count=len(filters))
        if not np.array_equal(found, self.filters[start : start + len(filters)]):
            raise DamagedFile(f"Bloom filters in {where} are not as they were written", REMEDY)


def _contents(values: pa.Array) -> Iterator[memoryview]:
    """The bytes of each value, without copies."""
    _, offset_buffer, data_buffer = values.buffers()
    data = memoryview(data_buffer or b"")
    offsets = np.frombuffer(offset_buffer or bytes(4), dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    start = int(offsets[0])
    for stop in offsets[1:].tolist():
        yield data[start:stop]
        start = stop
