"""The zone map and Bloom filter kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyroaring import BitMap

from pennon.deferred import deferred
from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import KindDefaults, Precision, Query
from pennon.index.options import IndexOptions, OptionsByType

if TYPE_CHECKING:
    from pennon.index.zones import files
    from pennon.index.zones.bloom import can_filter
    from pennon.index.zones.bounds import has_bounds
    from pennon.index.zones.details import ZoneMapDetails
    from pennon.index.zones.layouts import BloomLayout, ZoneLayout, ZoneMapLayout
    from pennon.index.zones.options import BloomFilter, ZoneMap
    from pennon.index.zones.points import points_of
    from pennon.index.zones.segment import BloomFilterSegment, ZoneMapSegment, ZoneSegment
else:
    files = deferred("pennon.index.zones.files")
    can_filter = deferred("pennon.index.zones.bloom", "can_filter")
    has_bounds = deferred("pennon.index.zones.bounds", "has_bounds")
    ZoneMapDetails = deferred("pennon.index.zones.details", "ZoneMapDetails")
    BloomLayout = deferred("pennon.index.zones.layouts", "BloomLayout")
    ZoneMapLayout = deferred("pennon.index.zones.layouts", "ZoneMapLayout")
    BloomFilter = deferred("pennon.index.zones.options", "BloomFilter")
    ZoneMap = deferred("pennon.index.zones.options", "ZoneMap")
    points_of = deferred("pennon.index.zones.points", "points_of")
    BloomFilterSegment = deferred("pennon.index.zones.segment", "BloomFilterSegment")
    ZoneMapSegment = deferred("pennon.index.zones.segment", "ZoneMapSegment")


@dataclass(frozen=True)
class ZonesKind(KindDefaults, ABC):
    """The common parts of both: version 0, and row addresses on every table."""

    options: ClassVar[Mapping[str, type[IndexOptions]]]
    names: tuple[str, ...]
    type_url: str
    type_names: frozenset[str]
    types: str  # the supported column types, for messages
    queries: frozenset[Query] = frozenset({Query.FILTER})
    versions: frozenset[int] = frozenset({0})

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return True

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> ZoneSegment:
        opened = self.open_zones(snapshot, segment, column, reuse, cache)
        if reuse is not None or snapshot.manifest.reuse_segment is None:
            _check_coverage(snapshot, segment, reuse, opened)
        return opened

    @abstractmethod
    def open_zones(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> ZoneSegment:
        """Open a segment without checking its coverage."""

    @abstractmethod
    def layout(self, options: IndexOptions) -> ZoneLayout:
        """The layout of a segment with these options."""

    @abstractmethod
    def layout_of(self, snapshot: Snapshot, segment: IndexSegment) -> ZoneLayout:
        """The layout of an existing segment; the default one if its file cannot be read."""

    @abstractmethod
    def supports(self, type_: pa.DataType) -> bool: ...

    @abstractmethod
    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None: ...


@dataclass(frozen=True)
class ZoneMapKind(ZonesKind):
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType("pennon.index.zones.options", ZONEMAP="ZoneMap")
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/lance.table.ZoneMapIndexDetails"
    type_names: frozenset[str] = frozenset({"lance.table.zonemapindexdetails", "lance.index.pb.zonemapindexdetails"})
    types: str = "all but structs"

    def supports(self, type_: pa.DataType) -> bool:
        """Types without bounds can be indexed for their NULLs. pylance's zones of structs do not match their rows."""
        return not pa.types.is_struct(type_) and not pa.types.is_null(type_)

    def objection(self, segment: IndexSegment) -> str | None:
        try:
            ZoneMapDetails.from_bytes(segment.details)
        except DamagedFile as error:
            return error.problem
        return None

    def layout(self, options: IndexOptions) -> ZoneMapLayout:
        return ZoneMapLayout(options.rows_per_zone) if isinstance(options, ZoneMap) else ZoneMapLayout()

    def layout_of(self, snapshot: Snapshot, segment: IndexSegment) -> ZoneMapLayout:
        details = ZoneMapDetails.from_bytes(segment.details)
        return ZoneMapLayout(details.rows_per_zone, details.use_seeds)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        if not isinstance(condition, ColumnRanges):
            return None
        if not condition.spans or condition.is_everything:
            exact = ZoneMapDetails.from_bytes(segment.details).has_null_bitmap
            return Precision.EXACT if exact else Precision.SUPERSET
        return Precision.SUPERSET if has_bounds(condition.type) else None

    def open_zones(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> ZoneMapSegment:
        return ZoneMapSegment(snapshot, segment, column.type, cache, reuse)


@dataclass(frozen=True)
class BloomFilterKind(ZonesKind):
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType(
        "pennon.index.zones.options", BLOOMFILTER="BloomFilter"
    )
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/lance.index.pb.BloomFilterIndexDetails"
    type_names: frozenset[str] = frozenset(
        {"lance.index.pb.bloomfilterindexdetails", "lance.table.bloomfilterindexdetails"}
    )
    types: str = "whole numbers, 32 and 64-bit floats, dates, times, timestamps, text and binary"

    def supports(self, type_: pa.DataType) -> bool:
        return can_filter(type_)

    def layout(self, options: IndexOptions) -> BloomLayout:
        given = isinstance(options, BloomFilter)
        return BloomLayout(options.number_of_items, options.probability) if given else BloomLayout()

    def layout_of(self, snapshot: Snapshot, segment: IndexSegment) -> BloomLayout:
        path, size = f"{segment.directory}/{files.BLOOM_FILE}", segment.file_sizes.get(files.BLOOM_FILE)
        try:
            found = files.read_bloom_zones(files.open_bloom_file(snapshot.store, path, size, filters=False))
        except DamagedFile:
            return BloomLayout()
        return BloomLayout(found.items, found.probability)

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        if not isinstance(condition, ColumnRanges) or points_of(condition) is None:
            return None
        return Precision.SUPERSET if condition.spans else Precision.EXACT

    def open_zones(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> BloomFilterSegment:
        return BloomFilterSegment(snapshot, segment, cache, reuse)


ZONE_MAP = ZoneMapKind()
BLOOM_FILTER = BloomFilterKind()


def _check_coverage(
    snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None, opened: ZoneSegment
) -> None:
    """Raises DamagedFile if a covered fragment has live rows and no zone. On tables with stable row ids, older versions
    of pylance extend the coverage of address-based segments to the fragments that rows moved to, without changing the
    files."""
    if reuse is not None and reuse.tagged:
        return  # then the coverage of a segment depends on others of its name
    covered, held = BitMap(segment.fragments), BitMap(opened.zones.fragments)
    if reuse is not None:
        covered, held = reuse.effective(covered), reuse.reached(held)
    missing = (covered & snapshot.manifest.live) - held
    empty = [fragment for fragment in missing if snapshot.manifest.fragments[fragment].live_rows]
    if empty:
        problem = f"segment {segment.uuid} covers fragment {empty[0]} but has no zones of it"
        raise DamagedFile(problem, "Rebuild the index")
