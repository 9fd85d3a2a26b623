"""What a verb did to a table: counts, bytes, seconds, the versions before and after, and the plan it followed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Protocol, Self, TypeVar

from pennon.display import Displayed
from pennon.format.snapshot import Snapshot
from pennon.query.inventory import Index
from pennon.wording import human_bytes, in_line, in_lines, plural
from pennon.work import NO_WORK, Work


class Plan(Protocol):
    """What a verb would do. Printable."""

    def to_dict(self) -> dict[str, Any]: ...


PlanT = TypeVar("PlanT", bound=Plan)


@dataclass(frozen=True)
class Result(Displayed, Generic[PlanT]):
    """What a verb did. Segments and fragments are counted by comparing the versions before and after it, so that other
    writers between the two count as well."""

    verb: str
    table: str
    plan: PlanT
    version_before: int
    version_after: int
    seconds: float
    segments_written: int
    segments_removed: int
    bytes_written: int
    """The size of the index files in the segments that were written."""
    fragments_before: int
    fragments_after: int
    work: Work = field(default=NO_WORK, kw_only=True)
    """What was read and exchanged for it."""

    @classmethod
    def between(cls, verb: str, plan: PlanT, before: Snapshot, after: Snapshot, started: float, **more: Any) -> Self:
        """`started` is a value of `time.monotonic()`."""
        old = {segment.uuid for segment in before.manifest.user_segments}
        new = {segment.uuid: segment for segment in after.manifest.user_segments}
        return cls(
            verb=verb,
            table=after.uri,
            plan=plan,
            version_before=before.version,
            version_after=after.version,
            seconds=time.monotonic() - started,
            segments_written=len(new.keys() - old),
            segments_removed=len(old - new.keys()),
            bytes_written=sum(segment.size_bytes for uuid, segment in new.items() if uuid not in old),
            fragments_before=len(before.manifest.fragments),
            fragments_after=len(after.manifest.fragments),
            **more,
        )

    @property
    def changed(self) -> bool:
        """Whether a version was committed."""
        return self.version_after != self.version_before

    @property
    def status(self) -> str:
        """`done`, or `nothing to do`."""
        return "done" if self.changed else "nothing to do"

    @property
    def summary(self) -> str:
        """One line."""
        return f"{plural(self.segments_written, 'segment')} rewritten"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the plan."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("plan", "work")}
        return {"status": self.status, **own, "work": self.work.to_dict(), "plan": self.plan.to_dict()}

    def __str__(self) -> str:
        return in_lines([f"{self.verb}: {self.status}", *(f"  {line}" for line in self._lines())])

    def _lines(self) -> list[str]:
        if not self.changed:
            return [f"version {self.version_after}, {self.seconds:.1f} s"]
        lines = [f"version {self.version_before} -> {self.version_after}, {self.seconds:.1f} s"]
        if self.segments_written or self.segments_removed:
            removed = f", {self.segments_removed} removed" if self.segments_removed else ""
            size = human_bytes(self.bytes_written)
            lines.append(f"{plural(self.segments_written, 'index segment')} written ({size}){removed}")
        if self.fragments_before != self.fragments_after:
            lines.append(f"{plural(self.fragments_before, 'fragment')} -> {self.fragments_after}")
        return lines


@dataclass(frozen=True)
class IndexResult(Result[PlanT]):
    """`index` is the index that was built, as `indices` lists it, or was dropped."""

    index: Index

    @property
    def summary(self) -> str:
        """One line."""
        return in_line(f"{'built' if self.segments_written else 'dropped'} {self.index.name}")

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"index": self.index.to_dict()}

    def _lines(self) -> list[str]:
        where = ", ".join(self.index.columns)
        return [f"{self.index.type} index {self.index.name!r} on {where}", *super()._lines()]


@dataclass(frozen=True)
class TrimResult(Result[PlanT]):
    """`versions_removed` of the Fragment Reuse Index, and how many index files still need."""

    versions_removed: int
    versions_left: int

    @property
    def summary(self) -> str:
        """One line."""
        needed = f", {self.versions_left} needed by index files" if self.versions_left else ""
        return f"{plural(self.versions_removed, 'compaction')} removed{needed}"

    def _lines(self) -> list[str]:
        return [*super()._lines(), self.summary]


@dataclass(frozen=True)
class UpdateResult(Result[PlanT]):
    """`rows` got a value, in these fragments."""

    rows: int
    fragments: tuple[int, ...]

    @property
    def summary(self) -> str:
        """One line."""
        return f"{plural(self.rows, 'row')} of {plural(len(self.fragments), 'fragment')} changed"

    def _lines(self) -> list[str]:
        return [*super()._lines(), self.summary]


@dataclass(frozen=True)
class RowsResult(Result[PlanT]):
    """How many rows were deleted, updated and inserted, in which fragments rows were marked deleted, and the size of
    the data files that were written."""

    rows_deleted: int
    rows_updated: int
    rows_inserted: int
    fragments: tuple[int, ...]
    data_bytes_written: int

    @property
    def summary(self) -> str:
        """One line."""
        counts = {"deleted": self.rows_deleted, "updated": self.rows_updated, "inserted": self.rows_inserted}
        changed = ", ".join(f"{plural(count, 'row')} {verb}" for verb, count in counts.items() if count)
        return changed or "no rows changed"

    def _lines(self) -> list[str]:
        size = f" ({human_bytes(self.data_bytes_written)} of data written)" if self.data_bytes_written else ""
        return [*super()._lines(), f"{self.summary}{size}"]
