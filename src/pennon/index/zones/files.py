"""The files of zone maps and Bloom filters, written as pylance writes them, and checked when they are read.

`zonemap.lance`: min, max (the column's type), null_count, nan_count (uint32), fragment_id, zone_start, zone_length
(uint64). Metadata: `rows_per_zone`, and `null_bitmap`, the number of a global buffer with the row map of all NULLs.

`bloomfilter.lance`: fragment_id, zone_start, zone_length (uint64), has_null (bool), bloom_filter_data (binary).
Metadata: `bloomfilter_item`, `bloomfilter_probability`, `null_bitmap`.

Both also have checksums (`checksums`). Row ids are addresses, also on tables with stable row ids.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import DamagedFile
from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.manifest import Manifest
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.row_map import read_row_map, write_row_map
from pennon.index.value_order import fixed_keys
from pennon.index.zones.bloom import BLOCK_BYTES, MOST_BYTES, Words
from pennon.index.zones.bounds import has_bounds
from pennon.index.zones.checksums import CHECKSUMS_KEY, BloomSum, Checksums, FilterChecksums, ZoneSum
from pennon.index.zones.cutting import Mask, Positions, Zones
from pennon.index.zones.zone_map import ZoneBounds

ZONE_MAP_FILE = "zonemap.lance"
BLOOM_FILE = "bloomfilter.lance"
REMEDY = "Rebuild the index"

_NULLS = "null_bitmap"
_ROWS_PER_ZONE = "rows_per_zone"
_ITEMS, _PROBABILITY = "bloomfilter_item", "bloomfilter_probability"
_PLACE = [pa.field(name, pa.uint64(), nullable=False) for name in ("fragment_id", "zone_start", "zone_length")]
_PLACES = [field.name for field in _PLACE]
_FILTERS = "bloom_filter_data"
_BLOOM_SCHEMA = pa.schema(
    [*_PLACE, pa.field("has_null", pa.bool_(), nullable=False), pa.field(_FILTERS, pa.binary(), nullable=False)]
)
# Bytes of filters read or written at once.
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class BloomZones:
    """Zones of a Bloom filter index, without the filters."""

    zones: Zones
    has_null: Mask
    items: int
    probability: float

    @property
    def nbytes(self) -> int:
        return self.zones.nbytes + self.has_null.nbytes


@dataclass(frozen=True, eq=False)
class Filters:
    """Filter i is words[offsets[i]:offsets[i + 1]]."""

    words: Words
    offsets: Positions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.offsets.nbytes


@dataclass
class NullReader:
    """The row map of a file's NULLs; `number` is None if the file has none."""

    file: LanceFile = field(repr=False)
    number: int | None

    def read(self) -> RowSet:
        """DamagedFile where they are not as they were written."""
        assert self.number is not None
        content, checksums = self.file.read_global_buffer(self.number), Checksums.of_file(self.file)
        if checksums is not None:
            checksums.check_nulls(content, self.file.where)
        return read_row_map(content, self.file.where)


def zone_map_schema(type_: pa.DataType) -> pa.Schema:
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in ("null_count", "nan_count")]
    return pa.schema([pa.field("min", type_), pa.field("max", type_), *counts, *_PLACE])


def write_zone_map(
    store: Store, directory: str, zone_map: ZoneBounds, rows_per_zone: int, nulls: RowSet, storage_version: str
) -> IndexFile:
    schema = zone_map_schema(zone_map.mins.type)
    columns = [
        zone_map.mins,
        zone_map.maxs,
        pa.array(zone_map.null_counts),
        pa.array(zone_map.nan_counts),
        *_places(zone_map.zones),
    ]
    content, summed = write_row_map(nulls), ZoneSum()
    summed.add(columns)
    checksums = Checksums(summed.finish(), zlib.crc32(content))
    return write_lance_file(
        store,
        directory,
        ZONE_MAP_FILE,
        schema,
        [pa.record_batch(columns, schema=schema)] if len(zone_map) else [],
        storage_version,
        {_NULLS: "1", _ROWS_PER_ZONE: str(rows_per_zone), CHECKSUMS_KEY: checksums.to_text(directory)},
        [content],
    )


def read_zone_map(file: LanceFile, type_: pa.DataType) -> ZoneBounds:
    """All zones. Raises DamagedFile if one has an invalid position or impossible bounds."""
    expected = zone_map_schema(type_)
    if file.schema.names != expected.names or [f.type for f in file.schema][2:] != [f.type for f in expected][2:]:
        raise DamagedFile(f"{file.where} is not a zone map", REMEDY)
    if has_bounds(type_) and [f.type for f in file.schema][:2] != [type_, type_]:
        raise DamagedFile(f"{file.where} has bounds of type {file.schema.field(0).type}, its column {type_}", REMEDY)
    table, checksums = file.read(), Checksums.of_file(file)
    if checksums is not None:
        checksums.check_zones([_flat(column) for column in table.columns], file.where)
    mins, maxs = _flat(table.column(0)), _flat(table.column(1))
    nulls, nans = _numbers(table, "null_count", file.where), _numbers(table, "nan_count", file.where)
    found = ZoneBounds(_read_places(table, file.where), mins, maxs, nulls.astype(np.uint32), nans.astype(np.uint32))
    if has_bounds(type_):
        _check_bounds(found, file.where)
    return found


def read_rows_per_zone(file: LanceFile) -> int:
    return int(_number(file, _ROWS_PER_ZONE))


def write_bloom_filters(
    store: Store,
    directory: str,
    batches: Iterable[pa.RecordBatch],
    items: int,
    probability: float,
    nulls: Iterable[RowSet],
    storage_version: str,
) -> IndexFile:
    """`batches` are those of `bloom_batch`; `nulls` yields one set, after the last of them."""
    metadata, summed = {_NULLS: "1", _ITEMS: str(items), _PROBABILITY: repr(probability)}, BloomSum()

    def buffers() -> Iterator[bytes]:
        [content] = map(write_row_map, nulls)
        yield content
        of_filters, checksums = summed.finish(content)
        metadata[CHECKSUMS_KEY] = checksums.to_text(directory)
        yield of_filters

    return write_lance_file(
        store, directory, BLOOM_FILE, _BLOOM_SCHEMA, summed.over(batches), storage_version, metadata, buffers()
    )


def bloom_batch(zones: Zones, has_null: Mask, filters: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([*_places(zones), pa.array(has_null), filters], schema=_BLOOM_SCHEMA)


def read_bloom_zones(file: LanceFile) -> BloomZones:
    """The zones of a file that was opened without filters, see `open_bloom_file`."""
    if file.schema != _BLOOM_SCHEMA and [(f.name, f.type) for f in file.schema] != [
        (f.name, f.type) for f in _BLOOM_SCHEMA
    ]:
        raise DamagedFile(f"{file.where} has no Bloom filters", REMEDY)
    table, checksums = file.read(), Checksums.of_file(file)
    if checksums is not None:
        checksums.check_zones([_flat(table.column(name)) for name in (*_PLACES, "has_null")], file.where)
    has_null = _flat(table.column("has_null"))
    if has_null.null_count:
        raise DamagedFile(f"{file.where} has zones without has_null", REMEDY)
    probability = _number(file, _PROBABILITY)
    if not 0 < probability <= 1:
        raise DamagedFile(f"{file.where} has Bloom filters of probability {probability}", REMEDY)
    places = _read_places(table, file.where)
    return BloomZones(places, has_null.to_numpy(zero_copy_only=False), int(_number(file, _ITEMS)), probability)


def open_bloom_file(store: Store, path: str, size_bytes: int | None, *, filters: bool) -> LanceFile:
    """Open a file to read its filters, or everything else."""
    columns = [_FILTERS] if filters else [*_PLACES, "has_null"]
    return LanceFile(store, path, size_bytes, columns)


def filters_at_once(file_bytes: int, zones: int) -> int:
    """The number of filters to read at once."""
    return max(1, BATCH_BYTES // max(BLOCK_BYTES, file_bytes // max(1, zones)))


def read_filters(file: LanceFile, checksums: FilterChecksums | None, start: int, count: int) -> Filters:
    [filters] = read_filter_arrays(file, checksums, start, count, count)
    offsets = np.frombuffer(filters.buffers()[1], dtype=np.int32)[filters.offset : filters.offset + len(filters) + 1]
    content = np.frombuffer(filters.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    words = content.copy().view(np.uint32)
    return Filters(words, (offsets - offsets[0]).astype(np.int64) // 4)


def read_filter_arrays(
    file: LanceFile, checksums: FilterChecksums | None, start: int, count: int, at_once: int
) -> Iterator[pa.Array]:
    """Filters as stored. Their sizes are checked: a power of two and not empty."""
    for first in range(start, start + count, at_once):
        filters = _flat(file.read(first, min(at_once, start + count - first)).column(_FILTERS))
        sizes = pc.binary_length(filters)
        if filters.null_count or not _are_sizes(sizes.to_numpy(zero_copy_only=False)):
            raise DamagedFile(f"{file.where} has Bloom filters of an invalid size", REMEDY)
        if checksums is not None:
            checksums.check(first, filters, file.where)
        yield filters


def null_reader(file: LanceFile) -> NullReader:
    number = file.metadata.get(_NULLS)
    if number is None:
        return NullReader(file, None)
    if not number.isdecimal() or len(number) > 9:
        raise DamagedFile(f"{file.where} has NULLs in buffer {number[:20]!r}", REMEDY)
    return NullReader(file, int(number))


def check_zones(zones: Zones, manifest: Manifest, where: str) -> None:
    """Raises DamagedFile if a zone of a live fragment extends beyond its rows."""
    if not len(zones) or not manifest.fragments:
        return
    live = np.array(sorted(manifest.fragments), dtype=np.uint32)
    rows = np.array([manifest.fragments[int(f)].physical_rows for f in live], dtype=np.uint64)
    at = np.minimum(np.searchsorted(live, zones.fragments), len(live) - 1)
    beyond = (live[at] == zones.fragments) & ((zones.starts & OFFSET_MASK) + zones.lengths > rows[at])
    if beyond.any():
        fragment = int(zones.fragments[beyond][0])
        raise DamagedFile(f"{where} has a zone beyond the end of fragment {fragment}", REMEDY)


def _places(zones: Zones) -> list[pa.Array]:
    return [
        pa.array(zones.starts >> OFFSET_BITS),
        pa.array(zones.starts & OFFSET_MASK),
        pa.array(zones.lengths),
    ]


def _read_places(table: pa.Table, where: str) -> Zones:
    fragments, starts, lengths = (_numbers(table, name, where) for name in _PLACES)
    most = np.uint64(1) << OFFSET_BITS
    valid = (fragments < most) & (starts < most) & (lengths > 0) & (lengths <= most)
    if not valid.all() or bool(np.any(starts + lengths > most)):
        raise DamagedFile(f"{where} has zones outside the range of row addresses", REMEDY)
    return Zones(fragments << OFFSET_BITS | starts, lengths)


def _check_bounds(found: ZoneBounds, where: str) -> None:
    least = found.mins.is_valid().to_numpy(zero_copy_only=False)
    most = found.maxs.is_valid().to_numpy(zero_copy_only=False)
    # pylance records no minimum for a zone whose values are all NaN.
    if bool(np.any((least != most) & (found.nan_counts == 0))):
        raise DamagedFile(f"{where} has zones with one bound only", REMEDY)
    if bool(np.any(~most & (found.nan_counts == 0) & (found.null_counts == 0))):
        raise DamagedFile(f"{where} has zones of values without bounds", REMEDY)
    both = pa.array(least & most)
    low, high = found.mins.filter(both), found.maxs.filter(both)
    low_keys, high_keys = fixed_keys(low), fixed_keys(high)
    if low_keys is not None and high_keys is not None:
        crossed = bool(np.any(low_keys > high_keys))
    else:
        crossed = bool(pc.any(pc.greater(_comparable(low), _comparable(high))).as_py())
    if crossed:
        raise DamagedFile(f"{where} has zones whose minimum is above the maximum", REMEDY)


def _comparable(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary()) if not pa.types.is_decimal(values.type) else values


def _are_sizes(sizes: npt.NDArray[np.integer]) -> bool:
    return bool(np.all((sizes >= BLOCK_BYTES) & (sizes <= MOST_BYTES) & (sizes & (sizes - 1) == 0)))


def _numbers(table: pa.Table, name: str, where: str) -> npt.NDArray[np.uint64]:
    values = _flat(table.column(name))
    if values.null_count:
        raise DamagedFile(f"{where} has zones without {name}", REMEDY)
    return values.to_numpy().astype(np.uint64)


def _number(file: LanceFile, key: str) -> float:
    text = file.metadata.get(key, "")
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1 << 62:
        raise DamagedFile(f"{file.where} has {key} {text[:20]!r}", REMEDY)
    return number


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
