"""Which index segments of a table version can answer, and for which fragments."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from threading import Lock
from types import TracebackType
from typing import Any, cast

from pyroaring import BitMap

from pennon.display import DisplayedFields
from pennon.errors import DamagedFile, DamagedIndexWarning, DamagedTable, UnsupportedTable
from pennon.events import Event, EventKind, emit
from pennon.format.addresses import sorted_unique
from pennon.format.index_metadata import IndexSegment, LogicalIndex, group_segments
from pennon.format.row_set import RowSet, bitmap_of
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import Condition
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.kind import FilterSegment, IndexKind, OpenSegment, Query
from pennon.index.registry import kind_of, why_unusable

logger = logging.getLogger(__name__)


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
class Skipped(DisplayedFields):
    """A segment that is not used, and why."""

    index: str
    uuid: str
    reason: str


class UnusableSegment(Exception):
    """A segment turned out damaged, or of a kind unknown here, when it was opened or read."""

    def __init__(self, usable: UsableSegment, error: DamagedFile | UnsupportedTable) -> None:
        super().__init__(str(error))
        self.usable, self.error = usable, error


class attributing_errors:  # noqa: N801 - a context manager of the standard library's kind, entered for every segment
    """Name the segment that a file which cannot be used belongs to."""

    __slots__ = ("_usable",)

    def __init__(self, usable: UsableSegment) -> None:
        self._usable = usable

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # A damaged table is not the segment's fault: a scan in place of the index would meet it too.
        if isinstance(error, DamagedFile | UnsupportedTable) and not isinstance(error, DamagedTable):
            raise UnusableSegment(self._usable, error) from error


@dataclass
class Catalog:
    """Usable indices by column, and the segments skipped with the reason."""

    snapshot: Snapshot
    cache: ByteCache
    reuse: FragmentReuse | None = None
    indices: dict[str, list[UsableIndex]] = field(default_factory=dict)  # by column path, in manifest order
    skipped: list[Skipped] = field(default_factory=list)
    memory: dict[Hashable, Any] = field(default_factory=dict)  # what searches worked out; void when a segment leaves
    lasting: dict[Hashable, Any] = field(default_factory=dict)  # what stays decided for the handle's life
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
            # Without it addresses cannot be mapped; every index is out of use until it is repaired.
            for index in logical:
                catalog.skipped += [Skipped(index.name, s.uuid, error.problem) for s in index.segments]
            catalog.reuse = None
            if logical:
                problem = f"no index of {snapshot.uri} can be used and all is scanned: {error}"
                warnings.warn(problem, DamagedIndexWarning, stacklevel=2)
            return catalog
        for index in logical:
            catalog._add(index)
        return catalog

    def serving(self, query: Query, column: str) -> list[UsableIndex]:
        """The indices on a column that can be asked for something, in manifest order."""
        return [index for index in self.indices.get(column, ()) if query in index.kind.queries]

    def open(self, usable: UsableSegment) -> OpenSegment:
        """The segment, ready to search; kept open for the snapshot's life. May raise DamagedFile, or
        UnsupportedTable."""
        uuid = usable.segment.uuid
        if uuid not in self._opened:
            opened = usable.kind.open(self.snapshot, usable.segment, usable.column, self.reuse, self.cache)
            rows = self.snapshot.manifest.rows_in(usable.coverage)
            if opened.capacity is not None and opened.capacity < rows:
                # Every row has its entry: pages are lost, or coverage is claimed that is not there.
                problem = f"segment {uuid} covers {rows:,} rows and holds {opened.capacity:,} at most"
                raise DamagedFile(problem, "Rebuild the index")
            self._opened[uuid] = opened
        return self._opened[uuid]

    def open_filter(self, usable: UsableSegment) -> FilterSegment:
        """A segment of a kind that answers conditions."""
        return cast(FilterSegment, self.open(usable))

    def search(self, usable: UsableSegment, condition: Condition) -> RowSet:
        """The live, covered rows that a segment finds for a condition; every fragment's rows are listed."""
        found = self.open_filter(usable).search(condition)
        if not found.by_fragment:
            return found
        stable = self.snapshot.manifest.has_stable_row_ids
        if not usable.kind.stores_addresses(usable.segment.index_version, stable):
            try:
                ids = found.addresses()
            except ValueError:
                raise UnsupportedTable("the index names all rows of a range of stable row ids") from None
            found = RowSet.of_addresses(sorted_unique(self.snapshot.address_of_id(ids)))
        return self._live(found.within(usable.coverage), usable)

    def _live(self, found: RowSet, usable: UsableSegment) -> RowSet:
        fragments = self.snapshot.manifest.fragments
        live: dict[int, BitMap | None] = {}
        self.snapshot.read_deletions(found.by_fragment)
        for number, offsets in found.by_fragment.items():
            fragment = fragments[number]
            if offsets is None:
                offsets = BitMap(range(fragment.physical_rows))
            elif offsets and offsets.max() >= fragment.physical_rows:
                problem = f"segment {usable.segment.uuid} names rows beyond the end of fragment {number}"
                raise DamagedFile(problem, "Rebuild the index")
            if fragment.deletion_file is not None:
                offsets = offsets - bitmap_of(self.snapshot.deleted_offsets(number))
            if offsets:
                live[number] = offsets
        return RowSet(live)

    def exclude(self, unusable: UnusableSegment) -> None:
        """Do not use a segment any more in this version; warn once if it is damaged."""
        gone, error = unusable.usable, unusable.error
        uuid, name = gone.segment.uuid, gone.segment.name
        with self._leaving:
            if any(skipped.uuid == uuid for skipped in self.skipped):
                return  # another thread was faster
            self.skipped.append(Skipped(name, uuid, error.problem))
            on_column = self.indices.get(gone.column.path, ())
            self.indices[gone.column.path] = [kept for index in on_column if (kept := index.without(uuid)).segments]
            self.memory = {}  # a new one: what another thread works out right now goes to the old
        self._log_fallback(name, uuid, error.problem, len(gone.coverage), logging.WARNING)
        if isinstance(error, DamagedFile):
            warnings.warn(
                f"index {name!r} of {self.snapshot.uri} is damaged and its fragments are scanned: {error}",
                DamagedIndexWarning,
                stacklevel=2,
            )

    def _log_fallback(self, index: str, segment: str, reason: str, fragments: int, level: int = logging.INFO) -> None:
        """Its fragments are scanned instead."""
        uri, version = self.snapshot.uri, self.snapshot.version
        message = f"segment {segment} of index {index!r} of {uri} is not used, its fragments are scanned: {reason}"
        details = {"segment": segment, "reason": reason}
        emit(
            logger,
            level,
            Event(EventKind.FALLBACK, uri, message, (index,), version, {"fragments": fragments}, details),
        )

    def _add(self, index: LogicalIndex) -> None:
        usable: list[UsableSegment] = []
        for segment in index.segments:
            column = self.snapshot.columns.by_id(segment.field_id)
            reason = why_unusable(self.snapshot, segment)
            kind = kind_of(segment)
            if reason or column is None or kind is None:
                self.skipped.append(Skipped(index.name, segment.uuid, reason or ""))
                self._log_fallback(index.name, segment.uuid, reason or "its column was dropped", len(segment.fragments))
                if segment.base_id is not None and segment.root is None:
                    problem = f"index {index.name!r} of {self.snapshot.uri} is not used: {reason}"
                    warnings.warn(problem, DamagedIndexWarning, stacklevel=3)
                continue
            if usable and (usable[0].kind, usable[0].column) != (kind, column):
                self.skipped.append(Skipped(index.name, segment.uuid, "of another kind than others of its name"))
                continue
            coverage = effective_coverage(segment, self.snapshot, self.reuse, index.segments)
            if coverage:
                usable.append(UsableSegment(segment, kind, column, coverage))
            elif segment.fragments:
                self.skipped.append(Skipped(index.name, segment.uuid, "covers no live fragment"))
        if usable:
            found = UsableIndex(index.name, usable[0].column, usable[0].kind, tuple(usable))
            self.indices.setdefault(found.column.path, []).append(found)
