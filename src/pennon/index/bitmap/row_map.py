"""Row maps: sets of row ids, as bitmap indices store one for every value.

`pennon.index.row_map` describes the layout of one. pylance writes bitmaps without runs, and reads them with runs too.
Entries are independent: maps with different high halves are joined by copying their entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses, fragment_bounds, offset_of, read_bitmap
from pennon.format.row_set import RowSet, bitmap_of
from pennon.index.row_map import read_row_map, write_row_map

T = TypeVar("T", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

EMPTY_MAP = bytes(4)
REMEDY = "Rebuild the index"
# The number of ids that are decoded at once.
CHUNK_IDS = 1 << 21
# Fewer maps are decoded one by one.
FEW_MAPS = 32

# Returns new ids for ids, and a mask of the rows that still exist.
Remap = Callable[[Addresses], tuple[Addresses, npt.NDArray[np.bool_]]]


@dataclass(frozen=True, eq=False)
class Maps:
    """Row maps one after another: number i is `data[offsets[i]:offsets[i + 1]]`."""

    data: Bytes
    offsets: Places

    @classmethod
    def of_array(cls, array: pa.Array) -> Maps:
        """The maps in a binary column without NULLs."""
        if not len(array):
            return cls(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        _, offset_buffer, data = array.buffers()
        kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
        offsets = np.frombuffer(offset_buffer, dtype=kind)[array.offset : array.offset + len(array) + 1]
        content = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
        return cls(content, offsets.astype(np.int64))

    @classmethod
    def of_bytes(cls, content: bytes) -> Maps:
        """A single map."""
        return cls(np.frombuffer(content, dtype=np.uint8), np.array([0, len(content)], dtype=np.int64))

    def to_bytes(self) -> bytes:
        """All of them, one after another."""
        return self.data[self.offsets[0] : self.offsets[-1]].tobytes()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Places:
        return np.diff(self.offsets)

    def slice(self, start: int, stop: int) -> Maps:
        return Maps(self.data, self.offsets[start : stop + 1])

    def take(self, numbers: Places) -> Maps:
        """Some of the maps in another order, copied."""
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.sizes[numbers])])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        _kernels().copy_maps(_fixed(self.data), _fixed(self.offsets[numbers]), _fixed(offsets), data)
        return Maps(data, offsets)

    def pick(self, numbers: list[int]) -> Maps:
        """The same for a few of them, without kernels."""
        contents = [self.data[self.offsets[number] : self.offsets[number + 1]] for number in numbers]
        ends = np.cumsum([0, *map(len, contents)], dtype=np.int64)
        return Maps(np.concatenate(contents), ends)

    def to_array(self, type_: pa.DataType | None = None) -> pa.Array:
        """A binary column, by default one with 32-bit offsets, which must suffice."""
        type_ = type_ or pa.binary()
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        offsets = (self.offsets - first).astype(np.int64 if pa.types.is_large_binary(type_) else np.int32)
        data = pa.py_buffer(np.ascontiguousarray(self.data[first:last]))
        return pa.Array.from_buffers(type_, len(self), [None, pa.py_buffer(offsets), data])


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of maps: high half, map, and the bitmap's place and size. The bitmaps are not parsed."""

    data: Bytes
    count: int  # of maps
    highs: Words
    owners: Places
    places: Places
    sizes: Places

    @classmethod
    def of(cls, maps: Maps, where: str) -> Entries:
        """Raises DamagedFile if a map does not consist of entries."""
        damaged, highs, owners, places, sizes = _kernels().find_entries(_fixed(maps.data), _fixed(maps.offsets))
        if damaged >= 0:
            raise _damaged(where)
        return cls(maps.data, len(maps), highs, owners, places, sizes)

    def containers(self, where: str) -> Containers:
        """The containers of the bitmaps. Raises DamagedFile if one is invalid."""
        data, places, sizes = _fixed(self.data), _fixed(self.places), _fixed(self.sizes)
        total, damaged = _kernels().count_containers(data, places, sizes)
        if damaged < 0:
            highs, owners = _fixed(self.highs), _fixed(self.owners)
            damaged, bases, maps, kinds, rows, contents = _kernels().find_containers(
                data, highs, owners, places, sizes, total
            )
            if damaged < 0:
                return Containers(self.data, self.count, bases, maps, kinds, rows, contents)
        raise _damaged(where)

    @property
    def has_whole_fragments(self) -> bool:
        return bool((self.sizes == 0).any())


@dataclass(frozen=True, eq=False)
class Containers:
    """The parts of bitmaps, at most 65536 rows each, in the order of maps and ids."""

    data: Bytes
    count: int  # of maps
    bases: Words
    owners: Places
    kinds: Bytes
    rows: Places
    contents: Places

    def counts(self) -> Places:
        """For every map the rows, and the runs of consecutive ids."""
        found = np.zeros((self.count, 2), dtype=np.int64)
        _kernels().count_rows(
            _fixed(self.data),
            _fixed(self.bases),
            _fixed(self.owners),
            _fixed(self.kinds),
            _fixed(self.contents),
            _fixed(self.rows),
            found,
        )
        return found

    def decode(self, start: int, stop: int) -> Addresses:
        """The ids of containers [start, stop)."""
        ids = np.empty(int(self.rows[start:stop].sum()), dtype=np.uint64)
        some = slice(start, stop)
        _kernels().read_containers(
            _fixed(self.data),
            _fixed(self.bases[some]),
            _fixed(self.kinds[some]),
            _fixed(self.rows[some]),
            _fixed(self.contents[some]),
            ids,
        )
        return ids

    def chunks(self, ids: int = CHUNK_IDS) -> Iterator[tuple[Addresses, Places]]:
        """Ids and the numbers of their maps, about `ids` at a time."""
        ends = np.cumsum(self.rows)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + ids, "right")))
            yield self.decode(start, stop), np.repeat(self.owners[start:stop], self.rows[start:stop])
            start = stop


def encode(ids: Addresses, starts: Places) -> Maps:
    """A map of each group of ids, which may be in any order and repeated; group i is `ids[starts[i]:starts[i + 1]]`."""
    ids = _in_order(ids, starts)
    offsets = _kernels().map_sizes(_fixed(ids), _fixed(starts))
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    _kernels().write_maps(_fixed(ids), _fixed(starts), _fixed(offsets), data)
    return Maps(data, offsets)


def encode_by_code(codes: npt.NDArray[np.int32], count: int, ids: Addresses) -> Maps:
    """A map of the ids of each code below `count`."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(codes, minlength=count))])
    return encode(_kernels().bucket(_fixed(codes), _fixed(starts), _fixed(ids)), starts)


def encode_one(ids: Addresses) -> bytes:
    """One map of ids in any order."""
    return encode(ids, np.array([0, len(ids)], dtype=np.int64)).to_bytes()


def listed(maps: Maps, where: str) -> Containers:
    """The containers of maps that list all their rows. Raises UnsupportedTable if one includes a whole fragment."""
    entries = Entries.of(maps, where)
    if entries.has_whole_fragments:
        raise UnsupportedTable(f"{where} includes all rows of a fragment without listing them", REMEDY)
    return entries.containers(where)


def join_entries(entries: Entries, starts: Places) -> Maps | None:
    """One map of each group of maps, whose bitmaps are copied; None if a high half is in two maps of a group."""
    group = np.searchsorted(starts, entries.owners, "right") - 1
    order = np.lexsort((entries.highs, group))
    highs, places, sizes = entries.highs[order], entries.places[order], entries.sizes[order]
    bounds = np.searchsorted(group[order], np.arange(len(starts)))
    offsets, repeated = _kernels().joined_sizes(_fixed(highs), _fixed(sizes), _fixed(bounds))
    if repeated:
        return None
    joined = np.empty(int(offsets[-1]), dtype=np.uint8)
    _kernels().write_joined(
        _fixed(entries.data), _fixed(highs), _fixed(places), _fixed(sizes), _fixed(bounds), _fixed(offsets), joined
    )
    return Maps(joined, offsets)


def to_row_set(maps: Maps, where: str) -> RowSet:
    """The rows of any of the maps. Many small maps are decoded together, large ones stay compressed."""
    if len(maps) <= FEW_MAPS:
        return _union(maps, where)
    entries = Entries.of(maps, where)
    containers = entries.containers(where)  # checks that they are valid
    whole = {int(high): None for high in entries.highs[entries.sizes == 0]}
    rows = int(containers.rows.sum())
    if rows <= 16 * len(entries.highs) and rows <= CHUNK_IDS:
        found = RowSet.of_addresses(np.sort(containers.decode(0, len(containers.rows))))
        return found | RowSet(whole) if whole else found
    bitmaps: dict[int, list[BitMap]] = {}
    for high, place, size in zip(entries.highs.tolist(), entries.places.tolist(), entries.sizes.tolist(), strict=True):
        if size:
            bitmaps.setdefault(high, []).append(_read(maps.data[place : place + size].tobytes(), where))
    joined = {high: some[0] if len(some) == 1 else BitMap.union(*some) for high, some in bitmaps.items()}
    return RowSet({**joined, **whole})


def from_row_set(rows: RowSet) -> bytes:
    """The map of a set that lists its rows."""
    if None in rows.by_fragment.values():
        raise ValueError("a map must list its rows")
    return write_row_map(rows)


def remapped(rows: RowSet, remap: Remap) -> RowSet:
    """The same rows under other ids, without those that no longer exist."""
    found: dict[int, BitMap | None] = {}
    for piece in rows.pieces(CHUNK_IDS):
        ids, kept = remap(piece.addresses())
        ascending = np.sort(ids[kept])
        for high, (start, stop) in fragment_bounds(ascending).items():
            more, known = bitmap_of(offset_of(ascending[start:stop])), found.get(high)
            found[high] = more if known is None else known | more
    return RowSet(found)


def _in_order(ids: Addresses, starts: Places) -> Addresses:
    """The ids, sorted within each group."""
    falls = ids[1:] < ids[:-1]
    falls[starts[(starts > 0) & (starts < len(ids))] - 1] = False
    if not falls.any():
        return ids
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return ids[np.lexsort((ids, group))]


def _union(maps: Maps, where: str) -> RowSet:
    """The union without kernels, whose import would delay a query for a few values."""
    found = RowSet.none()
    for start, stop in itertools.pairwise(maps.offsets.tolist()):
        found = found | read_row_map(maps.data[start:stop].tobytes(), where)
    return found


def _read(content: bytes, where: str) -> BitMap:
    try:
        return read_bitmap(content)
    except ValueError as error:
        raise _damaged(where) from error


def _damaged(where: str) -> DamagedFile:
    return DamagedFile(f"{where} holds a map of rows that is not valid", REMEDY)


def _fixed(array: npt.NDArray[T]) -> npt.NDArray[T]:
    """A read-only view: functions are compiled for one type of arrays."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _kernels() -> ModuleType:
    """Imported on demand: the compiler takes a second to load."""
    from pennon.index.bitmap import kernels  # noqa: PLC0415

    return kernels
