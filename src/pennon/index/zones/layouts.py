"""Write segments of zones: from rows, or from existing zones.

A layout writes one of the two kinds of file. Both are written in parts, which have the format of the file itself and
are joined by copying zones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, FrozenBitMap

from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import LanceFile
from pennon.format.row_set import RowSet
from pennon.format.store import Store
from pennon.index.zones.bloom import FilterBuilder, filter_bytes
from pennon.index.zones.bounds import null_counts
from pennon.index.zones.checksums import FilterChecksums
from pennon.index.zones.cutting import Mask, ZoneCutter, Zones
from pennon.index.zones.details import DEFAULT_ROWS_PER_ZONE, ZoneMapDetails
from pennon.index.zones.files import (
    BATCH_BYTES,
    BLOOM_FILE,
    ZONE_MAP_FILE,
    bloom_batch,
    filters_at_once,
    null_reader,
    open_bloom_file,
    read_bloom_zones,
    read_filter_arrays,
    read_zone_map,
    write_bloom_filters,
    write_zone_map,
)
from pennon.index.zones.zone_map import ZoneMapBuilder, joined

Rows = Iterable[tuple[pa.Array, Addresses]]

DEFAULT_ITEMS = 8192
DEFAULT_PROBABILITY = 0.00057
# Bytes of a zone of a zone map in its file, without its bounds.
_ZONE_BYTES = 32


@dataclass(frozen=True)
class Part:
    """A file in a directory, and the fragments whose zones are to be copied; None means all."""

    directory: str
    size_bytes: int | None
    fragments: FrozenBitMap | None = None

    def wanted(self, fragments: npt.NDArray[np.uint32]) -> Mask:
        if self.fragments is None:
            return np.ones(len(fragments), dtype=np.bool_)
        return np.isin(fragments, np.array(list(self.fragments), dtype=np.uint32))

    def nulls(self, file: LanceFile) -> RowSet:
        rows = null_reader(file).read()
        return rows if self.fragments is None else rows.within(BitMap(self.fragments))


class ZoneLayout(Protocol):
    """Writes the zones of a segment."""

    @property
    def file(self) -> str:
        """The name of the file."""
        ...

    @property
    def rows_per_zone(self) -> int: ...

    def details(self) -> bytes:
        """The details in the manifest."""
        ...

    @property
    def work(self) -> int:
        """What is done with a byte of the column, in comparison with a zone map."""
        ...

    def zone_bytes(self, value_bytes: int) -> int:
        """The approximate size of a zone in the file."""
        ...

    def write_rows(
        self, store: Store, directory: str, type_: pa.DataType, rows: Rows, storage_version: str
    ) -> IndexFile:
        """Write the zones of live rows, which come fragment by fragment and in address order within each."""
        ...

    def write_joined(
        self, store: Store, directory: str, type_: pa.DataType, parts: Sequence[Part], storage_version: str
    ) -> IndexFile:
        """Copy the zones of all parts into one file."""
        ...


@dataclass(frozen=True)
class ZoneMapLayout:
    rows_per_zone: int = DEFAULT_ROWS_PER_ZONE
    use_seeds: bool = False
    file: str = ZONE_MAP_FILE

    def details(self) -> bytes:
        return ZoneMapDetails(self.rows_per_zone, self.use_seeds, has_null_bitmap=True).to_bytes()

    @property
    def work(self) -> int:
        return 1

    def zone_bytes(self, value_bytes: int) -> int:
        return _ZONE_BYTES + 2 * value_bytes

    def write_rows(
        self, store: Store, directory: str, type_: pa.DataType, rows: Rows, storage_version: str
    ) -> IndexFile:
        builder, nulls = ZoneMapBuilder(type_, self.rows_per_zone), _Nulls()
        for values, addresses in rows:
            builder.add(values, addresses)
            nulls.add(values, addresses)
        return write_zone_map(store, directory, builder.finish(), self.rows_per_zone, nulls.rows, storage_version)

    def write_joined(
        self, store: Store, directory: str, type_: pa.DataType, parts: Sequence[Part], storage_version: str
    ) -> IndexFile:
        files = [LanceFile(store, f"{part.directory}/{self.file}", part.size_bytes) for part in parts]
        found = [read_zone_map(file, type_) for file in files]
        kept = [zones.chosen(part.wanted(zones.zones.fragments)) for part, zones in zip(parts, found, strict=True)]
        nulls = RowSet.none()
        for part, file in zip(parts, files, strict=True):
            nulls = nulls | part.nulls(file)
        return write_zone_map(store, directory, joined(kept, type_), self.rows_per_zone, nulls, storage_version)


@dataclass(frozen=True)
class BloomLayout:
    items: int = DEFAULT_ITEMS
    probability: float = DEFAULT_PROBABILITY
    file: str = BLOOM_FILE

    @property
    def rows_per_zone(self) -> int:
        return self.items

    def details(self) -> bytes:
        return b""

    @property
    def work(self) -> int:
        return 3

    def zone_bytes(self, value_bytes: int) -> int:
        return _ZONE_BYTES + filter_bytes(self.items, self.probability)

    def write_rows(
        self, store: Store, directory: str, type_: pa.DataType, rows: Rows, storage_version: str
    ) -> IndexFile:
        nulls = _Nulls()
        return self._write(store, directory, self._filtered(rows, nulls), nulls, storage_version)

    def write_joined(
        self, store: Store, directory: str, type_: pa.DataType, parts: Sequence[Part], storage_version: str
    ) -> IndexFile:
        nulls = _Nulls()
        batches = (batch for part in parts for batch in self._copied(store, part, nulls))
        return self._write(store, directory, batches, nulls, storage_version)

    def _write(
        self, store: Store, directory: str, batches: Iterable[pa.RecordBatch], nulls: _Nulls, storage_version: str
    ) -> IndexFile:
        after = (nulls.rows for _ in range(1))
        return write_bloom_filters(store, directory, batches, self.items, self.probability, after, storage_version)

    def _filtered(self, rows: Rows, nulls: _Nulls) -> Generator[pa.RecordBatch]:
        """Zones of rows, in batches of a bounded size of filters."""
        size = filter_bytes(self.items, self.probability)
        cutter, builder, waiting = ZoneCutter(self.items), FilterBuilder(size), list[bytes]()
        null_parts: list[npt.NDArray[np.uint32]] = []
        written = 0

        def batch() -> pa.RecordBatch:
            nonlocal waiting, written
            stop = written + len(waiting)
            zones, edges = cutter.zones(), cutter.piece_edges()
            with_null = np.add.reduceat(np.concatenate(null_parts), edges) > 0
            some = Zones(zones.starts[written:stop], zones.lengths[written:stop])
            filled = bloom_batch(some, with_null[written:stop], pa.array(waiting, pa.binary()))
            waiting, written = [], stop
            return filled

        for values, addresses in rows:
            edges, numbers = cutter.cut(addresses)
            null_parts.append(null_counts(values, edges))
            nulls.add(values, addresses)
            waiting += builder.add(values, edges, numbers)
            if len(waiting) * size >= BATCH_BYTES:
                yield batch()
        waiting += builder.finish()
        if waiting:
            yield batch()

    def _copied(self, store: Store, part: Part, nulls: _Nulls) -> Iterator[pa.RecordBatch]:
        path = f"{part.directory}/{self.file}"
        file = open_bloom_file(store, path, part.size_bytes, filters=False)
        found = read_bloom_zones(file)
        nulls.join(part.nulls(file))
        wanted = part.wanted(found.zones.fragments)
        at_once = filters_at_once(part.size_bytes or 0, len(wanted))
        filters, start = open_bloom_file(store, path, part.size_bytes, filters=True), 0
        for array in read_filter_arrays(filters, FilterChecksums.of_file(filters), 0, len(wanted), at_once):
            some = slice(start, start + len(array))
            kept = wanted[some]
            if kept.any():
                zones = Zones(found.zones.starts[some], found.zones.lengths[some]).chosen(kept)
                yield bloom_batch(zones, found.has_null[some][kept], array.filter(pa.array(kept)))
            start += len(array)


@dataclass
class _Nulls:
    rows: RowSet = field(default_factory=RowSet.none)

    def add(self, values: pa.Array, addresses: Addresses) -> None:
        if values.null_count:
            self.join(RowSet.of_addresses(addresses[pc.is_null(values).to_numpy(zero_copy_only=False)]))

    def join(self, rows: RowSet) -> None:
        self.rows = self.rows | rows
