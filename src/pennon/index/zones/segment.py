"""Search zones: a segment finds the ranges of rows whose summaries do not rule out a condition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses, fragment_of, sorted_unique
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.row_set import RowSet
from pennon.format.segment_contents import check_is_own
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate
from pennon.index.zones.bloom import hash_values, may_hold, may_hold_each
from pennon.index.zones.checksums import Checksums, FilterChecksums
from pennon.index.zones.cutting import Mask, Positions, Zones
from pennon.index.zones.description import describe_zone_map, describe_zones
from pennon.index.zones.details import ZoneMapDetails
from pennon.index.zones.files import (
    BLOOM_FILE,
    REMEDY,
    ZONE_MAP_FILE,
    BloomZones,
    Filters,
    NullReader,
    check_zones,
    filters_at_once,
    null_reader,
    open_bloom_file,
    read_bloom_zones,
    read_filters,
    read_rows_per_zone,
    read_zone_map,
)
from pennon.index.zones.points import points_of
from pennon.index.zones.zone_map import ZoneBounds, ZoneSearch, allowed
from pennon.wording import human_bytes


class ZoneSegment(ABC):
    """The common parts of zone maps and Bloom filters: positions of zones, and NULLs."""

    def __init__(
        self, snapshot: Snapshot, segment: IndexSegment, file: LanceFile, cache: ByteCache, reuse: FragmentReuse | None
    ) -> None:
        check_is_own(segment.file_sizes, Checksums.of_file(file), file.where)
        self._file, self._cache, self._reuse = file, cache, reuse
        self._key = (snapshot.location.uri, segment.uuid)
        self._nulls: NullReader = null_reader(file)

    @property
    @abstractmethod
    def zones(self) -> Zones: ...

    @abstractmethod
    def search(self, condition: Condition) -> RowSet: ...

    @abstractmethod
    def estimate(self, condition: Condition) -> Estimate: ...

    @abstractmethod
    def describe(self) -> Description: ...

    @abstractmethod
    def allows(self, zones: Positions, values: pa.Array) -> Mask:
        """For each value, whether a search for it finds its zone, given by number. NULLs are always found if they are
        recorded row by row."""

    @property
    def has_null_map(self) -> bool:
        return self._nulls.number is not None

    @property
    def capacity(self) -> int:
        return int(self.zones.lengths.sum())

    def stored_ids(self) -> Iterator[Addresses]:
        """The first row of every zone, which represents the fragment of the zone, and one NULL per fragment."""
        yield self.zones.starts
        if self.has_null_map:
            rows = self.stored_nulls().by_fragment.items()
            firsts = [(fragment << 32) | (offsets.min() if offsets else 0) for fragment, offsets in rows]
            yield np.array(firsts, dtype=np.uint64)

    def stored_nulls(self) -> RowSet:
        """The rows with NULL, by their addresses in the file."""

        def load() -> tuple[RowSet, int]:
            rows = self._nulls.read()
            whole = [fragment for fragment, offsets in rows.by_fragment.items() if offsets is None]
            if whole:
                # A whole fragment: the rows of its zones.
                rows = RowSet({**rows.by_fragment, **self.zones.rows().within(BitMap(whole)).by_fragment})
            return rows, rows.nbytes

        return self._cache.get_or_load((*self._key, "nulls"), load)

    def warm(self) -> Iterator[None]:
        if self.has_null_map:
            self.stored_nulls()
        yield

    def exact_null_rows(self) -> RowSet:
        """The same as `null_rows`. UnsupportedTable if old NULLs are among them, which cannot be distinguished."""
        if self.overlapping:
            raise UnsupportedTable(
                f"fragments {sorted(self.overlapping)[:8]} have zones and NULLs from before a change in place, too"
            )
        return self.null_rows()

    def null_rows(self) -> RowSet:
        """The recorded rows with NULL, by their current addresses."""
        return self._null_rows(self.covered_twice)

    def null_rows_of_pylance(self) -> RowSet:
        """The same, and the rows that pylance takes for NULL because they were before a change in place."""
        return self._null_rows(BitMap())

    def _null_rows(self, covered_twice: BitMap) -> RowSet:
        rows = self.stored_nulls()
        if self._reuse is None:
            return rows
        stored = rows.addresses()
        addresses, alive = self._reuse.remap(stored)
        if covered_twice:
            moved = addresses != stored
            alive &= ~(moved & np.isin(fragment_of(addresses), list(covered_twice)))
        return RowSet.of_addresses(sorted_unique(addresses[alive]))

    @cached_property
    def overlapping(self) -> BitMap:
        """Fragments that have two zones for a row: pylance's optimize keeps the zones, and the NULLs, of a fragment
        whose values were changed in place next to the new ones."""
        return self.zones.overlapping()

    @cached_property
    def covered_twice(self) -> BitMap:
        """Fragments that have zones next to those of fragments that were compacted into them.

        pylance's optimize keeps the zones of a fragment whose values were changed in place. If a deferred compaction
        has moved its rows, the old zones are found through the Fragment Reuse Index; the newer ones are right.
        """
        if self._reuse is None:
            return BitMap()
        own = BitMap(np.unique(fragment_of(self.zones.starts)))
        compacted = own.intersection(BitMap().union(*(version.old_fragments for version in self._reuse.versions)))
        return own & (self._reuse.reached(compacted) - compacted)

    def rows_of(self, mask: Mask) -> RowSet:
        """The rows of some zones, by their current addresses."""
        zones = self.zones.chosen(mask)
        if self._reuse is not None:
            starts, lengths, _ = self._reuse.address_map.apply_ranges(zones.starts, zones.lengths)
            zones = Zones(starts, lengths)
        return zones.rows()

    def _estimated(self, mask: Mask) -> Estimate:
        zones = int(np.count_nonzero(mask))
        return Estimate(zones, int(self.zones.lengths[mask].sum()), zones)


class ZoneMapSegment(ZoneSegment):
    def __init__(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        value_type: pa.DataType,
        cache: ByteCache,
        reuse: FragmentReuse | None,
    ) -> None:
        path = f"{segment.directory}/{ZONE_MAP_FILE}"
        file = LanceFile(snapshot.store, path, segment.file_sizes.get(ZONE_MAP_FILE))
        super().__init__(snapshot, segment, file, cache, reuse)
        self._type = value_type
        self.rows_per_zone = read_rows_per_zone(file)
        if ZoneMapDetails.from_bytes(segment.details).has_null_bitmap and not self.has_null_map:
            raise DamagedFile(f"{file.where} has no NULL bitmap, but the manifest records one", REMEDY)
        # The last condition and its zones: a search follows the estimate of the same condition.
        self._asked: tuple[ColumnRanges | None, Mask] = None, np.empty(0, dtype=np.bool_)
        self.zone_map, self._bounds = cache.get_or_load((*self._key, "zones"), self._load)
        check_zones(self.zones, snapshot.manifest, file.where)

    @property
    def zones(self) -> Zones:
        return self.zone_map.zones

    def search(self, condition: Condition) -> RowSet:
        ranges = _ranges(condition)
        found = self.rows_of(self._matching(ranges))
        if not self.has_null_map:
            return found
        if ranges.is_everything:
            return found if ranges.nulls else found - self.exact_null_rows()
        return found | self.exact_null_rows() if ranges.nulls else found

    def estimate(self, condition: Condition) -> Estimate:
        ranges = _ranges(condition)
        nulls = int(self.zone_map.null_counts.sum(dtype=np.int64)) if ranges.nulls and self.has_null_map else 0
        return self._estimated(self._matching(ranges)) + Estimate(int(nulls > 0), nulls)

    def allows(self, zones: Positions, values: pa.Array) -> Mask:
        found = allowed(self.zone_map, zones, values)
        return found | pc.is_null(values).to_numpy(zero_copy_only=False) if self.has_null_map else found

    def describe(self) -> Description:
        return describe_zone_map(self.zone_map, (("rows per zone", f"{self.rows_per_zone:,}"),))

    def _matching(self, ranges: ColumnRanges) -> Mask:
        if ranges.is_everything:
            return np.ones(len(self.zones), dtype=np.bool_)
        last, matching = self._asked
        if last is not ranges:
            matching = self._bounds.matching(ranges)
            self._asked = ranges, matching
        return matching | (self.zone_map.null_counts > 0) if ranges.nulls and not self.has_null_map else matching

    def _load(self) -> tuple[tuple[ZoneBounds, ZoneSearch], int]:
        found = read_zone_map(self._file, self._type)
        search = ZoneSearch(found, self._type)
        size = found.mins.nbytes + found.maxs.nbytes + 24 * len(found) + search.nbytes
        return (found, search), size


class BloomFilterSegment(ZoneSegment):
    """Filters are read on first use, several at once, and kept in the cache."""

    def __init__(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        cache: ByteCache,
        reuse: FragmentReuse | None,
    ) -> None:
        path, size = f"{segment.directory}/{BLOOM_FILE}", segment.file_sizes.get(BLOOM_FILE)
        file = open_bloom_file(snapshot.store, path, size, filters=False)
        super().__init__(snapshot, segment, file, cache, reuse)
        self._store, self._path, self._size = snapshot.store, path, size
        self._filter_file: tuple[LanceFile, FilterChecksums | None] | None = None
        self.bloom: BloomZones = cache.get_or_load((*self._key, "zones"), self._load)
        self._at_once = filters_at_once(size or 0, len(self.zones))
        check_zones(self.zones, snapshot.manifest, file.where)

    @property
    def zones(self) -> Zones:
        return self.bloom.zones

    def search(self, condition: Condition) -> RowSet:
        ranges = _ranges(condition)
        if ranges.nulls and not ranges.spans and not self.has_null_map:
            raise UnsupportedTable("the Bloom filters have no NULL bitmap, and cannot find NULLs exactly")
        matching = np.zeros(len(self.zones), dtype=np.bool_)
        values = points_of(ranges)
        if values is None:
            raise TypeError("a Bloom filter answers single values only")
        if len(values):
            hashes = hash_values(values)
            for start in range(0, len(self.zones), self._at_once):
                filters = self._filters(start)
                matching[start : start + len(filters)] = may_hold(filters.words, filters.offsets, hashes)
        if not ranges.nulls:
            return self.rows_of(matching)
        if not self.has_null_map:
            return self.rows_of(matching | self.bloom.has_null)
        return self.rows_of(matching) | self.exact_null_rows()

    def estimate(self, condition: Condition) -> Estimate:
        """Before the filters are read, any zone may contain a value."""
        ranges = _ranges(condition)
        everywhere = np.full(len(self.zones), bool(ranges.spans))
        return self._estimated(everywhere | self.bloom.has_null if ranges.nulls else everywhere)

    def describe(self) -> Description:
        parameters = (
            ("values per zone", f"{self.bloom.items:,}"),
            ("false positives", f"{100 * self.bloom.probability:.3g}%"),
        )
        size = (self._size or 0) / max(len(self.zones), 1)
        text = f"A search reads every filter, {human_bytes(size)} per zone on average."
        return describe_zones(self.zones, parameters, text=text)

    def allows(self, zones: Positions, values: pa.Array) -> Mask:
        found = np.full(len(zones), self.has_null_map) | self.bloom.has_null[zones]
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        hashes, searched = hash_values(values.take(pa.array(present))), zones[present]
        for start in np.unique(searched // self._at_once).tolist():
            filters, first = self._filters(start * self._at_once), start * self._at_once
            own = np.flatnonzero(searched // self._at_once == start)
            found[present[own]] = may_hold_each(filters.words, filters.offsets, searched[own] - first, hashes[own])
        return found

    def warm(self) -> Iterator[None]:
        yield from super().warm()
        for start in range(0, len(self.zones), self._at_once):
            self._filters(start)
            yield

    def _filters(self, start: int) -> Filters:
        """The filters that are read together; `start` is a multiple of their number."""
        key = (*self._key, "filters", start)
        known: Filters | None = self._cache.get(key)
        if known is None:
            if self._filter_file is None:
                file = open_bloom_file(self._store, self._path, self._size, filters=True)
                self._filter_file = file, FilterChecksums.of_file(file)
            known = read_filters(*self._filter_file, start, min(self._at_once, len(self.zones) - start))
            self._cache.put(key, known, known.nbytes)
        return known

    def _load(self) -> tuple[BloomZones, int]:
        found = read_bloom_zones(self._file)
        return found, found.nbytes


def _ranges(condition: Condition) -> ColumnRanges:
    if not isinstance(condition, ColumnRanges):
        raise TypeError(f"zones answer ranges of values only, not {type(condition).__name__}")
    return condition
