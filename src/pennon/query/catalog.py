"""Which index segments of a table version can answer, and for which fragments."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, cast

from pyroaring import BitMap

from pennon.errors import DamagedFile, DamagedIndexWarning, DamagedTable, UnsupportedTable
from pennon.format.addresses import Addresses, sorted_unique
from pennon.format.index_metadata import IndexSegment, LogicalIndex, group_segments
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse, effective_coverage, read_fragment_reuse
from pennon.index.intervals import Interval
from pennon.index.kind import Family, IndexKind, OpenSegment, ScalarSegment
from pennon.index.registry import kind_of, why_unusable
from pennon.index.vector.metric import Metric
from pennon.index.vector.search.segment import VectorSegment


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

    def without(self, uuid: str) -> UsableIndex:
        return replace(self, segments=tuple(s for s in self.segments if s.segment.uuid != uuid))


@dataclass(frozen=True)
class Skipped:
    """A segment that is not used, and why."""

    index: str
    uuid: str
    reason: str


class UnusableSegment(Exception):
    """A segment turned out damaged, or of a kind unknown here, when it was opened or read."""

    def __init__(self, usable: UsableSegment, error: DamagedFile | UnsupportedTable) -> None:
        super().__init__(str(error))
        self.usable, self.error = usable, error


@contextmanager
def naming(usable: UsableSegment) -> Generator[None]:
    """Says which segment a file that cannot be used belongs to."""
    try:
        yield
    except DamagedTable:
        raise  # a scan in place of the index would meet it too
    except (DamagedFile, UnsupportedTable) as error:
        raise UnusableSegment(usable, error) from error


@dataclass
class Catalog:
    """The usable indices of a snapshot by column, and a word on the others."""

    snapshot: Snapshot
    cache: ByteCache
    reuse: FragmentReuse | None = None
    by_column: dict[str, UsableIndex] = field(default_factory=dict)  # scalar: the one that covers most
    vectors: dict[str, list[UsableIndex]] = field(default_factory=dict)  # in manifest order
    skipped: list[Skipped] = field(default_factory=list)
    default_metrics: dict[str, Metric] = field(default_factory=dict)  # by column; decided once for the handle's life
    memory: dict[Hashable, Any] = field(default_factory=dict)  # what searches worked out; void when a segment leaves
    _opened: dict[str, OpenSegment] = field(default_factory=dict)
    _leaving: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, snapshot: Snapshot, cache: ByteCache) -> Catalog:
        catalog = cls(snapshot, cache)
        logical = group_segments(snapshot.manifest.segments)
        try:
            catalog.reuse = read_fragment_reuse(snapshot)
            problem = catalog.reuse.contradiction(snapshot.manifest.fragments) if catalog.reuse else None
            if problem is not None:
                raise DamagedFile(problem)
        except DamagedFile as error:
            # Addresses cannot be told without it; every index is out of use until it is repaired.
            for index in logical:
                catalog.skipped += [Skipped(index.name, s.uuid, error.problem) for s in index.segments]
            catalog.reuse = None
            if logical:
                said = f"no index of {snapshot.uri} can be used and all is scanned: {error}"
                warnings.warn(said, DamagedIndexWarning, stacklevel=2)
            return catalog
        for index in logical:
            catalog._add(index)
        return catalog

    def open(self, usable: UsableSegment) -> ScalarSegment:
        """The segment of a scalar index, ready to search. May raise DamagedFile."""
        known = usable.segment.uuid in self._opened
        opened = cast(ScalarSegment, self._open(usable))
        rows = 0 if known else self.snapshot.manifest.rows_in(usable.coverage)
        if opened.capacity < rows:
            # Every row has its entry; somebody lost pages, or claims coverage.
            problem = f"segment {usable.segment.uuid} covers {rows:,} rows and holds {opened.capacity:,} at most"
            raise DamagedFile(problem, "Rebuild the index")
        return opened

    def open_vector(self, usable: UsableSegment) -> VectorSegment:
        """The segment of a vector index, ready to search. May raise DamagedFile, or UnsupportedTable."""
        return cast(VectorSegment, self._open(usable))

    def _open(self, usable: UsableSegment) -> OpenSegment:
        """Kept open for the snapshot's life."""
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

    def leave_out(self, unusable: UnusableSegment) -> None:
        """Use a segment no more in this version. Damage is told the user, once."""
        gone, error = unusable.usable.segment, unusable.error
        with self._leaving:
            if any(skipped.uuid == gone.uuid for skipped in self.skipped):
                return  # another thread was faster
            self.skipped.append(Skipped(gone.name, gone.uuid, error.problem))
            self._remove(unusable.usable)
            self.memory = {}  # a new one: what another thread works out right now goes to the old
        if isinstance(error, DamagedFile):
            warnings.warn(
                f"index {gone.name!r} of {self.snapshot.uri} is damaged and its fragments are scanned: {error}",
                DamagedIndexWarning,
                stacklevel=2,
            )

    def _remove(self, usable: UsableSegment) -> None:
        path, uuid = usable.column.path, usable.segment.uuid
        if usable.kind.family is Family.VECTOR:
            self.vectors[path] = [kept for index in self.vectors[path] if (kept := index.without(uuid)).segments]
            return
        kept = self.by_column.pop(path).without(uuid)
        if kept.segments:
            self.by_column[path] = kept

    def _add(self, index: LogicalIndex) -> None:
        usable: list[UsableSegment] = []
        for segment in index.segments:
            column = self.snapshot.columns.by_id(segment.field_id)
            reason = why_unusable(self.snapshot, segment)
            kind = kind_of(segment)
            if reason or column is None or kind is None:
                self.skipped.append(Skipped(index.name, segment.uuid, reason or ""))
                continue
            if usable and (usable[0].kind, usable[0].column) != (kind, column):
                self.skipped.append(Skipped(index.name, segment.uuid, "of another kind than others of its name"))
                continue
            coverage = effective_coverage(segment, self.snapshot, self.reuse, index.segments)
            if coverage:
                usable.append(UsableSegment(segment, kind, column, coverage))
            elif segment.fragments:
                self.skipped.append(Skipped(index.name, segment.uuid, "covers no live fragment"))
        if not usable:
            return
        found = UsableIndex(index.name, usable[0].column, usable[0].kind, tuple(usable))
        if found.kind.family is Family.VECTOR:
            self.vectors.setdefault(found.column.path, []).append(found)
            return
        other = self.by_column.get(found.column.path)
        if other is None or len(other.coverage) < len(found.coverage):
            self.by_column[found.column.path] = found
