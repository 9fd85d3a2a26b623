"""The one file of a bitmap index, `bitmap_page_lookup.lance`: a row for each value.

`keys` is the value, of exactly the column's type (of the elements' type, for an index of lists), and `bitmaps`, binary
with 32-bit offsets, the map of its rows (`row_map`). NULL is a key like any other. pylance writes NULL first, then
values ascending, floats in IEEE 754 total order; readers accept any order. The schema's metadata has
`lance:index_stats`, which is `{"num_bitmaps":N}`, and for an index of lists `lance:label_list_nulls`, the number of the
global buffer with the map of rows whose list is NULL.

Pennon adds a last global buffer that other readers ignore. It cuts the rows into pages, each of which is read and
checked as a unit. Per page it has four u64: the row after its last, the ids in its maps, the runs of consecutive ids,
and the digest of its maps. The metadata has under `pennon:pages`: `<segment> <number of the buffer> <CRC-32 of the
buffer> <CRC-32 of the digests of keys> <CRC-32 of the map of NULL lists> <CRC-32 of this text>`, numbers but the first
in hex. A file without pages for its segment was not written by Pennon, or is damage if the rest of the segment was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import BuildFailed, DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.segment_contents import check_is_own
from pennon.format.store import Store
from pennon.index.bitmap.keyed import Keyed
from pennon.index.bitmap.row_map import REMEDY, Entries, Maps
from pennon.index.checksums import Digester, Digests, digests_of

FILE = "bitmap_page_lookup.lance"
STATS_KEY = "lance:index_stats"
LIST_NULLS_KEY = "lance:label_list_nulls"
PAGES_KEY = "pennon:pages"

# A batch of maps that is written at once; pylance's own limit.
BATCH_BYTES = 32 << 20
LARGEST_MAP = (1 << 31) - 1
# A page ends when it has this many bytes of maps, or keys.
PAGE_BYTES = 1 << 16
PAGE_KEYS = 1 << 12


@dataclass(frozen=True, eq=False)
class Pages:
    """The pages of a file: the end of each, and its ids and runs of ids. `digests` are those of the maps; None if the
    file has none."""

    stops: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64] | None = None
    runs: npt.NDArray[np.int64] | None = None
    digests: Digests | None = None

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([np.zeros(1, dtype=np.int64), self.stops[:-1]]) if len(self.stops) else self.stops

    def of_rows(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The page of each row."""
        return np.searchsorted(self.stops, rows, "right")


class BitmapFile:
    """The file of a segment, opened and checked; maps are read page by page."""

    def __init__(
        self, store: Store, directory: str, key_type: pa.DataType, size_bytes: int | None = None, name: str = FILE
    ) -> None:
        self._store, self._type, self._path = store, key_type, f"{directory}/{name}"
        self._file = LanceFile(store, self._path, size_bytes, columns=["bitmaps"])
        self.where, self.rows = self._file.where, self._file.num_rows
        self.nbytes = size_bytes or store.size(self._path) or 0
        self._recorded = _recorded(self._file, _segment(directory))
        self._check()
        self.pages = self._read_pages()

    @classmethod
    def of_segment(cls, store: Store, segment: IndexSegment, key_type: pa.DataType) -> BitmapFile:
        file = cls(store, segment.directory, key_type, segment.file_sizes.get(FILE))
        check_is_own(segment.file_sizes, file._recorded, file.where)
        return file

    def read_keys(self) -> pa.Array:
        """All keys, in the order of the file."""
        file = LanceFile(self._store, self._path, columns=["keys"])
        keys = file.read().column(0).combine_chunks()
        keys = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
        if self._recorded is not None and _of_keys([keys]) != self._recorded.keys:
            raise DamagedFile(f"the keys in {self.where} are not as they were written", REMEDY)
        return keys

    def read_page(self, page: int) -> Maps:
        """The maps of a page. Raises DamagedFile if they are not as they were written."""
        start, stop = int(self.pages.starts[page]), int(self.pages.stops[page])
        column = self._file.read(start, stop - start).column(0).combine_chunks()
        array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if array.null_count:
            raise DamagedFile(f"{self.where} has keys without rows", REMEDY)
        if self.pages.digests is not None and digests_of([array], [stop - start])[0] != self.pages.digests[page]:
            raise DamagedFile(f"page {page} in {self.where} is not as it was written", REMEDY)
        return Maps.of_array(array)

    def read_list_nulls(self) -> Maps:
        """The rows whose list is NULL. Raises DamagedFile if the file does not record them."""
        number = self._file.metadata.get(LIST_NULLS_KEY, "")
        if not number.isdecimal():
            raise DamagedFile(f"{self.where} does not record which lists are NULL", REMEDY)
        content = self._file.read_global_buffer(int(number))
        if self._recorded is not None and zlib.crc32(content) != self._recorded.list_nulls:
            raise DamagedFile(f"the NULL lists in {self.where} are not as they were written", REMEDY)
        return Maps.of_bytes(content)

    def _check(self) -> None:
        found = [(field.name, field.type) for field in self._file.schema]
        if found[:2] != [("keys", self._type), ("bitmaps", pa.binary())]:
            raise DamagedFile(f"{self.where} does not hold maps of rows by values of type {self._type}", REMEDY)
        stats = self._file.metadata.get(STATS_KEY)
        if stats is None:
            return
        try:
            count = json.loads(stats)["num_bitmaps"]
        except (ValueError, KeyError, TypeError):
            count = None
        if count != self.rows:
            raise DamagedFile(f"{self.where} has {self.rows} keys, its metadata records {count}", REMEDY)

    def _read_pages(self) -> Pages:
        if self._recorded is None:
            keys = min(max(PAGE_BYTES * self.rows // max(self.nbytes, 1), 1), PAGE_KEYS)
            stops = np.minimum(np.arange(keys, self.rows + keys, keys, dtype=np.int64), self.rows)
            return Pages(stops)
        content = self._file.read_global_buffer(self._recorded.buffer)
        if zlib.crc32(content) != self._recorded.pages or len(content) % 32:
            raise DamagedFile(f"the pages of {self.where} are not as they were written", REMEDY)
        stops, ids, runs, digests = np.frombuffer(content, dtype="<u8").reshape(-1, 4).T
        ends = np.ascontiguousarray(stops).astype(np.int64)
        if (int(ends[-1]) if len(ends) else 0) != self.rows or not bool(np.all(np.diff(ends, prepend=0) > 0)):
            raise DamagedFile(f"the pages of {self.where} do not hold its {self.rows} rows", REMEDY)
        return Pages(ends, ids.astype(np.int64), runs.astype(np.int64), np.ascontiguousarray(digests))


def write_bitmaps(
    store: Store,
    directory: str,
    key_type: pa.DataType,
    parts: Iterable[Keyed],
    storage_version: str,
    list_nulls: bytes | None = None,
    name: str = FILE,
) -> WrittenBitmaps:
    """Write the file of a segment from sorted keys and their maps, part by part. Raises BuildFailed if the rows of one
    value exceed the limit of the format."""
    schema = pa.schema([pa.field("keys", key_type), pa.field("bitmaps", pa.binary())])
    metadata: dict[str, str] = {}
    written = _Written()

    def batches() -> Iterator[pa.RecordBatch]:
        for part in parts:
            keys, maps = part.keys.cast(key_type), part.maps
            for start, stop in _cuts(maps.offsets, BATCH_BYTES, len(maps)):
                some = maps.slice(start, stop)
                if int(some.sizes.max(initial=0)) > LARGEST_MAP:
                    raise BuildFailed(
                        "the rows of one value take more than 2 GiB, which a bitmap index cannot hold",
                        "Use a B-tree, or build segments over fewer fragments",
                    )
                array = some.to_array()
                written.add(keys.slice(start, stop - start), array, some)
                yield pa.record_batch([keys.slice(start, stop - start), array], schema=schema)

    def buffers() -> Iterator[bytes]:
        metadata[STATS_KEY] = f'{{"num_bitmaps":{written.rows}}}'
        if list_nulls is not None:
            metadata[LIST_NULLS_KEY] = "1"
            yield list_nulls
        pages = written.pages()
        number = 1 if list_nulls is None else 2
        crcs = zlib.crc32(pages), written.keys_digest(), zlib.crc32(list_nulls or b"")
        metadata[PAGES_KEY] = _Recorded(number, *crcs).to_text(_segment(directory))
        yield pages

    file = write_lance_file(store, directory, name, schema, batches(), storage_version, metadata, buffers())
    return WrittenBitmaps(file, written.rows, written.ids)


@dataclass(frozen=True)
class WrittenBitmaps:
    """The report of a file's writer: the number of keys, and of ids in all maps."""

    file: IndexFile
    keys: int
    ids: int


@dataclass(frozen=True)
class _Recorded:
    """The metadata about the rest of the file."""

    buffer: int
    pages: int
    keys: int
    list_nulls: int

    def to_text(self, segment: str) -> str:
        text = f"{segment} {self.buffer:x} {self.pages:08x} {self.keys:08x} {self.list_nulls:08x}"
        return f"{text} {zlib.crc32(text.encode()):08x}"


def _recorded(file: LanceFile, segment: str) -> _Recorded | None:
    """The record that Pennon wrote for this segment; pylance may copy it to other segments."""
    text, _, check = file.metadata.get(PAGES_KEY, "").rpartition(" ")
    if not text.startswith(f"{segment} "):
        return None
    try:
        recorded = _Recorded(*(int(number, 16) for number in text.split(" ")[1:]))
    except (ValueError, TypeError):
        recorded = None
    if recorded is None or check != f"{zlib.crc32(text.encode()):08x}":
        raise DamagedFile(f"the metadata of {file.where} is not as it was written", REMEDY)
    return recorded


class _Written:
    """Collects the record of the rows of a file while they are written."""

    def __init__(self) -> None:
        self.rows = self.ids = 0
        self._pages: list[npt.NDArray[np.uint64]] = []
        self._keys = Digester.of_pages(PAGE_KEYS)

    def add(self, keys: pa.Array, array: pa.Array, maps: Maps) -> None:
        cuts = np.array([stop for _, stop in _cuts(maps.offsets, PAGE_BYTES, PAGE_KEYS)], dtype=np.int64)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), cuts[:-1]])
        counts = Entries.of(maps, FILE).containers(FILE).counts()
        per_page = np.add.reduceat(counts, starts, axis=0)
        digests = digests_of([array], (cuts - starts).tolist())
        columns = (cuts + self.rows, per_page[:, 0], per_page[:, 1], digests)
        self._pages.append(np.stack([column.astype(np.uint64) for column in columns], axis=1))
        self._keys.add([keys])
        self.rows += len(maps)
        self.ids += int(counts[:, 0].sum())

    def pages(self) -> bytes:
        return b"".join(page.astype("<u8").tobytes() for page in self._pages)

    def keys_digest(self) -> int:
        return zlib.crc32(self._keys.finish().astype("<u8").tobytes())


def _segment(directory: str) -> str:
    return directory.rpartition("/")[2]


def _of_keys(arrays: Iterable[pa.Array]) -> int:
    digester = Digester.of_pages(PAGE_KEYS)
    for array in arrays:
        digester.add([array])
    return zlib.crc32(digester.finish().astype("<u8").tobytes())


def _cuts(offsets: npt.NDArray[np.int64], size: int, most: int) -> Iterator[tuple[int, int]]:
    """Runs of maps of at most `size` bytes together, or a single larger one, and of at most `most` maps."""
    start, count = 0, len(offsets) - 1
    while start < count:
        fits = int(np.searchsorted(offsets, offsets[start] + size, "right")) - 1
        stop = min(max(fits, start + 1), start + most, count)
        yield start, stop
        start = stop
