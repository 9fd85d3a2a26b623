"""Which index segments of a table version can answer, and for which fragments."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.index_metadata import IndexSegment, LogicalIndex, group_segments
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse import FragmentReuse, effective_coverage, read_fragment_reuse
from pennon.index.intervals import Interval
from pennon.index.kind import IndexKind, ScalarSegment
from pennon.index.registry import kind_of, why_unusable


@dataclass(frozen=True)
class UsableSegment:
    """A segment and the live fragments it answers for."""

    segment: IndexSegment
    kind: IndexKind
    column: Column
    coverage: BitMap


@dataclass(frozen=True)
class UsableIndex:
    name: str
    column: Column
    kind: IndexKind
    segments: tuple[UsableSegment, ...]

    @property
    def coverage(self) -> BitMap:
        return BitMap.union(*(s.coverage for s in self.segments)) if self.segments else BitMap()


@dataclass(frozen=True)
class Skipped:
    """A segment that is not used, and why."""

    index: str
    uuid: str
    reason: str


@dataclass
class Catalog:
    """The usable indices of a snapshot by column, and a word on the others."""

    snapshot: Snapshot
    cache: ByteCache
    reuse: FragmentReuse | None = None
    by_column: dict[str, UsableIndex] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    _opened: dict[str, ScalarSegment] = field(default_factory=dict)

    @classmethod
    def read(cls, snapshot: Snapshot, cache: ByteCache) -> Catalog:
        catalog = cls(snapshot, cache)
        logical = group_segments(snapshot.manifest.segments)
        try:
            catalog.reuse = read_fragment_reuse(snapshot)
        except DamagedFile as error:
            # Addresses cannot be told without it; every index is out of use until it is repaired.
            for index in logical:
                catalog.skipped += [Skipped(index.name, s.uuid, error.problem) for s in index.segments]
            return catalog
        for index in logical:
            catalog._add(index)
        return catalog

    def open(self, usable: UsableSegment) -> ScalarSegment:
        """The segment, ready to search; kept open for the snapshot's life. May raise DamagedFile."""
        uuid = usable.segment.uuid
        if uuid not in self._opened:
            self._opened[uuid] = usable.kind.open(self.snapshot, usable.segment, usable.column, self.reuse, self.cache)
        return self._opened[uuid]

    def search(self, usable: UsableSegment, intervals: tuple[Interval, ...], nulls: bool) -> Addresses:
        """Ascending addresses of the live, covered rows that match."""
        found = self.open(usable).search(intervals, nulls)
        stable = self.snapshot.manifest.has_stable_row_ids
        if not usable.kind.stores_addresses(usable.segment.index_version, stable):
            found = self.snapshot.address_of_id(found)
        return self.snapshot.keep_live(sorted_unique(found), usable.coverage)

    def leave_out(self, usable: UsableSegment, reason: str) -> None:
        """Use a segment no more in this version, because it turned out damaged."""
        gone = usable.segment
        self.skipped.append(Skipped(gone.name, gone.uuid, reason))
        index = self.by_column.pop(usable.column.path)
        kept = tuple(s for s in index.segments if s.segment.uuid != gone.uuid)
        if kept:
            self.by_column[usable.column.path] = UsableIndex(index.name, index.column, index.kind, kept)

    def _add(self, index: LogicalIndex) -> None:
        usable: list[UsableSegment] = []
        for segment in index.segments:
            column = self.snapshot.columns.by_id(segment.fields[0]) if len(segment.fields) == 1 else None
            reason = why_unusable(segment) or (None if column else "not on one column of the table")
            kind = kind_of(segment)
            if reason or column is None or kind is None:
                self.skipped.append(Skipped(index.name, segment.uuid, reason or ""))
                continue
            coverage = effective_coverage(segment, self.snapshot, self.reuse, index.segments)
            if coverage:
                usable.append(UsableSegment(segment, kind, column, coverage))
            elif segment.fragments:
                self.skipped.append(Skipped(index.name, segment.uuid, "covers no live fragment"))
        if not usable:
            return
        # Of several indices on one column, the one that covers most.
        found = UsableIndex(index.name, usable[0].column, usable[0].kind, tuple(usable))
        other = self.by_column.get(found.column.path)
        if other is None or len(other.coverage) < len(found.coverage):
            self.by_column[found.column.path] = found
