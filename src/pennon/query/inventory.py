"""What indices a table has: their segments, coverage and sizes, from metadata alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyroaring import BitMap

from pennon.display import Displayed, DisplayedFields, rows_table, section, text_table
from pennon.format.index_metadata import IndexSegment, LogicalIndex, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import label_of, why_unusable
from pennon.wording import human_bytes, percent


@dataclass(frozen=True)
class Segment(DisplayedFields):
    """One segment as users see it. `fragments` are the live fragments it answers for; `compactions_behind` counts
    deferred compactions that its files may have yet to follow, by the metadata."""

    uuid: str
    fragments: tuple[int, ...]
    rows: int
    size_bytes: int
    files: int
    index_version: int
    dataset_version: int
    created_at: datetime | None
    compactions_behind: int
    unusable: str | None


@dataclass(frozen=True)
class Index(Displayed):
    """A logical index: all segments of one name."""

    name: str
    type: str
    columns: tuple[str, ...]
    segments: tuple[Segment, ...]
    rows_covered: int
    rows_total: int
    uncovered_fragments: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def compactions_behind(self) -> int:
        """Deferred compactions that queries follow through the Fragment Reuse Index."""
        return max((segment.compactions_behind for segment in self.segments), default=0)

    @property
    def coverage(self) -> float:
        """Share of the table's live rows that the index answers for."""
        return self.rows_covered / self.rows_total if self.rows_total else 1.0

    @property
    def created_at(self) -> datetime | None:
        """When its newest segment was written; None where no writer recorded it."""
        return max((segment.created_at for segment in self.segments if segment.created_at), default=None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: instants as text."""
        segments = [
            asdict(segment) | {"created_at": segment.created_at.isoformat() if segment.created_at else None}
            for segment in self.segments
        ]
        return asdict(self) | {"segments": segments, "size_bytes": self.size_bytes, "coverage": self.coverage}


class IndexList(list[Index]):
    """The indices of a table: a list, printed as a table with a line for each."""

    HEADERS = ("name", "type", "columns", "segments", "coverage", "rows", "size", "created")

    def __str__(self) -> str:
        return text_table(self.HEADERS, self._rows()) if self else "no indices"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """As a notebook shows it."""
        return rows_table(self.HEADERS, self._rows()) if self else section("no indices")

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                index.name,
                index.type,
                ", ".join(index.columns),
                str(len(index.segments)),
                percent(index.coverage),
                f"{index.rows_covered:,}",
                human_bytes(index.size_bytes),
                index.created_at.strftime("%Y-%m-%d") if index.created_at else "",
            )
            for index in self
        ]


@dataclass(frozen=True)
class ReuseInfo(Displayed):
    """The Fragment Reuse Index: deferred compactions, oldest first."""

    size_bytes: int
    tagged: bool
    versions: tuple[ReuseVersionInfo, ...]

    @property
    def depth(self) -> int:
        """Compactions that are recorded."""
        return len(self.versions)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"depth": self.depth, **asdict(self)}


@dataclass(frozen=True)
class ReuseVersionInfo(DisplayedFields):
    """One deferred compaction: the version it read, and how many fragments became how many, in groups."""

    dataset_version: int
    groups: int
    old_fragments: int
    new_fragments: int


def describe_reuse(snapshot: Snapshot) -> ReuseInfo | None:
    reuse = read_fragment_reuse(snapshot)
    if reuse is None:
        return None
    versions = tuple(
        ReuseVersionInfo(
            version.dataset_version,
            len(version.groups),
            sum(len(group.old) for group in version.groups),
            sum(len(group.new) for group in version.groups),
        )
        for version in reuse.versions
    )
    return ReuseInfo(reuse.size_bytes, reuse.tagged, versions)


def list_indices(snapshot: Snapshot) -> IndexList:
    reuse = read_fragment_reuse(snapshot)
    return IndexList(_index(snapshot, index, reuse) for index in group_segments(snapshot.manifest.segments))


def _index(snapshot: Snapshot, index: LogicalIndex, reuse: FragmentReuse | None) -> Index:
    manifest = snapshot.manifest
    covered = BitMap()
    segments: list[Segment] = []
    for segment in index.segments:
        live = effective_coverage(segment, snapshot, reuse, index.segments)
        unusable = why_unusable(snapshot, segment)
        if unusable is None:
            covered |= live
        segments.append(
            Segment(
                uuid=segment.uuid,
                fragments=tuple(live),
                rows=manifest.rows_in(live),
                size_bytes=segment.size_bytes,
                files=len(segment.files),
                index_version=segment.index_version,
                dataset_version=segment.dataset_version,
                created_at=segment.created_at,
                compactions_behind=_compactions_behind(segment, reuse),
                unusable=unusable,
            )
        )
    first = index.segments[0]
    columns = [snapshot.columns.by_id(field) for field in index.fields]
    return Index(
        name=index.name,
        type=label_of(snapshot, first),
        columns=tuple(column.path if column else "(dropped)" for column in columns),
        segments=tuple(segments),
        rows_covered=manifest.rows_in(covered),
        rows_total=manifest.rows_in(manifest.live),
        uncovered_fragments=tuple(manifest.live - covered),
    )


def _compactions_behind(segment: IndexSegment, reuse: FragmentReuse | None) -> int:
    if reuse is None or not BitMap(segment.fragments) & (reuse.old_fragments | reuse.new_fragments):
        return 0
    return sum(version.dataset_version >= segment.dataset_version for version in reuse.versions)
