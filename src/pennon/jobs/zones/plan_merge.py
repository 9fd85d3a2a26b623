"""Plan the merge of segments of zones: which zones are copied, and which are built from the data.

A compaction does not keep the rows of a zone together, so the zones of compacted fragments are rebuilt: from the
fragments themselves, or, while the compaction is running, from the old ones, whose live rows fill the new fragments in
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap, FrozenBitMap

from pennon.format.fragments import Fragment
from pennon.format.index_metadata import IndexSegment
from pennon.format.rows import ScanSlice
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import read_address_map
from pennon.index.zones.kind import ZonesKind
from pennon.index.zones.layouts import Part, ZoneLayout
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort, Placed
from pennon.jobs.shared.plan_display import merge_fields, merge_text
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.zones.plan import Target, plan_target, zone_slices
from pennon.wording import plural


@dataclass(frozen=True)
class Reading:
    """Rows whose zones are built from the data. With `into`, those that will be in these fragments once the running
    compaction is committed."""

    slices: tuple[ScanSlice, ...]
    into: FrozenBitMap | None = None


@dataclass(frozen=True)
class ZonesMerge(Placed):
    """The plan of a merge."""

    target: Target
    copied: tuple[Part, ...] = field(repr=False)
    readings: tuple[Reading, ...] = field(repr=False)
    coverage: FrozenBitMap = field(repr=False)
    rows: int
    read_rows: int
    address_map: str | None
    delta_rows: int | None = None  # rows of a segment that is built before the merge

    @property
    def pin(self) -> Pin:
        return self.target.pin

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def is_estimate(self) -> bool:
        return self.delta_rows is not None

    @property
    def tasks(self) -> int:
        return len(self.readings) + 1

    @property
    def index_bytes(self) -> int:
        return self.target.file_bytes(self.rows)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, (self.index_bytes + self.read_rows * self.target.value_bytes) * MERGE_WEIGHT)

    @property
    def task_memory_bytes(self) -> int:
        return self.target.task_memory_bytes

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.copied), read_rows=self.read_rows)

    def __str__(self) -> str:
        read = f", {self.read_rows:,} rows read" if self.read_rows else ""
        return merge_text(self, f"{plural(self.target.zones_of(self.rows), 'zone')}{read}")


def plan_zones_merge(
    snapshot: Snapshot,
    column: Column,
    kind: ZonesKind,
    layout: ZoneLayout,
    sources: Sequence[MergeSource],
    address_map: str | None,
    *,
    name: str,
    parallelism: int,
    memory_bytes: int,
    delta_rows: int | None = None,
) -> ZonesMerge:
    """Raises DamagedFile if a source cannot be read."""
    copied: list[Part] = []
    missing, kept = BitMap(), BitMap()
    for source in sources:
        stored = _copyable(snapshot, source.segment, column, kind) & BitMap(source.coverage)
        missing |= BitMap(source.coverage) - stored
        kept |= stored
        if stored:
            size = source.segment.file_sizes.get(layout.file)
            copied.append(Part(source.segment.directory, size, FrozenBitMap(stored)))
    live = [snapshot.manifest.fragments[f] for f in missing & snapshot.manifest.live]
    readings = [Reading((part,)) for part in _slices(live, layout, parallelism)]
    pending = _during_compaction(snapshot, missing - snapshot.manifest.live, address_map)
    readings += pending
    read_rows = sum(snapshot.slice_rows(part) for reading in readings for part in reading.slices)
    coverage = BitMap().union(*(source.coverage for source in sources))
    measured = [snapshot.manifest.fragments[f] for f in kept & snapshot.manifest.live] or live
    return ZonesMerge(
        target=plan_target(snapshot, column, kind, layout, measured, name, memory_bytes),
        copied=tuple(copied),
        readings=tuple(readings),
        coverage=FrozenBitMap(coverage),
        rows=snapshot.manifest.rows_in(kept & snapshot.manifest.live) + read_rows + (delta_rows or 0),
        read_rows=read_rows,
        address_map=address_map,
        delta_rows=delta_rows,
    )


def _copyable(snapshot: Snapshot, segment: IndexSegment, column: Column, kind: ZonesKind) -> BitMap:
    """The fragments whose zones are in a segment's file; none if the file does not record NULLs."""
    opened = kind.open_zones(snapshot, segment, column, None, ByteCache(0))
    return BitMap(opened.zones.fragments) if opened.has_null_map else BitMap()


def _slices(fragments: Sequence[Fragment], layout: ZoneLayout, parallelism: int) -> tuple[ScanSlice, ...]:
    filled = [fragment for fragment in fragments if fragment.live_rows]
    return zone_slices(filled, layout.rows_per_zone, parallelism) if filled else ()


def _during_compaction(snapshot: Snapshot, missing: BitMap, address_map: str | None) -> list[Reading]:
    """The old fragments of every group that becomes one of the missing fragments, in the order of the compaction."""
    if not missing or address_map is None:
        return []
    groups = [group for version in read_address_map(snapshot.store, address_map).versions for group in version.groups]
    found: list[Reading] = []
    for group in groups:
        into = BitMap(digest.id for digest in group.new) & missing
        if into:
            found.append(Reading(tuple(ScanSlice((digest.id,)) for digest in group.old), FrozenBitMap(into)))
    return found
