"""Changes of the index segments of a table, as values that can be printed and applied to a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyroaring import BitMap

from pennon.errors import CommitConflict, IndexExists, IndexNotFound, InvalidArgument
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage, trusted_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.jobs.shared.stale_values import held_fragments
from pennon.wording import in_line, plural


class Change(Protocol):
    """A change that is computed for the newest version when it is committed, and again after every conflict."""

    def on(self, base: Snapshot) -> SegmentChange:
        """The segments to add to and remove from this version. Raises PennonError if the change is impossible there."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class SegmentChange:
    """Segments to add and to remove in one transaction, the same for every version. An added segment with an existing
    uuid replaces that entry."""

    add: tuple[IndexSegment, ...] = ()
    remove: tuple[IndexSegment, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.add and not self.remove

    def on(self, base: Snapshot) -> SegmentChange:
        return self

    def __str__(self) -> str:
        names = sorted({segment.name for segment in (*self.add, *self.remove)})
        counts = f"add {plural(len(self.add), 'segment')}, remove {len(self.remove)}"
        return in_line(f"{counts} of {', '.join(names) or 'no index'}")


@dataclass(frozen=True)
class AddSegments:
    """Add segments of one index: in place of the whole index of that name, or next to the segments they do not overlap.
    Segments that they cover are removed, unless `may_replace` is False: then they are an error, also if another writer
    has committed them since the build began."""

    segments: tuple[IndexSegment, ...]
    replace_whole: bool
    may_replace: bool = True

    @property
    def name(self) -> str:
        return self.segments[0].name

    @property
    def fragments(self) -> BitMap:
        return BitMap().union(*(segment.fragments for segment in self.segments))

    def on(self, base: Snapshot) -> SegmentChange:
        same_name = [s for s in base.manifest.user_segments if s.name == self.name]
        check_name_free(base, self.name, self.segments[0].fields)
        if self.replace_whole:
            if same_name and not self.may_replace:
                raise IndexExists(
                    f"table {base.uri} has an index {self.name!r} already",
                    "Choose another name, or replace it (replace=True, without --no-replace)",
                )
            return SegmentChange(self.segments, tuple(same_name))
        reuse = read_fragment_reuse(base)
        leaving = tuple(other for other in same_name if self._replaces(base, other, reuse))
        return SegmentChange(self.segments, leaving)

    def _replaces(self, base: Snapshot, other: IndexSegment, reuse: FragmentReuse | None) -> bool:
        ours = BitMap().union(*(effective_coverage(segment, base, reuse) for segment in self.segments))
        theirs = effective_coverage(other, base, reuse)
        if not theirs & ours and not trusted_coverage(other) & self.fragments:
            _check_not_stale(base, other, self, reuse)
            return False
        if theirs - ours:
            raise InvalidArgument(
                f"the new segment of index {self.name!r} overlaps segment {other.uuid} in part",
                f"Also index fragments {sorted(theirs - ours)}, or replace the whole index",
            )
        if not self.may_replace:
            raise InvalidArgument(
                f"index {self.name!r} covers some of the fragments already", "Leave them out, or allow replace"
            )
        return True

    def __str__(self) -> str:
        how = "in place of the whole index" if self.replace_whole else "next to its other segments"
        uuids = ", ".join(segment.uuid for segment in self.segments)
        what = f"segment {uuids}" if len(self.segments) == 1 else f"segments {uuids}"
        return in_line(f"add {what} over {plural(len(self.fragments), 'fragment')} to {self.name}, {how}")


@dataclass(frozen=True)
class ReplaceSegments:
    """Replace segments of an index by those built from them; by none if no row of them is left.

    The index and all segments to remove must still exist: an index that was dropped stays dropped, and a segment that
    another job replaced stays replaced.
    """

    name: str
    new: tuple[IndexSegment, ...]
    leaving: tuple[IndexSegment, ...]

    @classmethod
    def of(cls, name: str, new: Sequence[IndexSegment], leaving: Sequence[IndexSegment]) -> ReplaceSegments:
        return cls(name, tuple(new), tuple(leaving))

    def on(self, base: Snapshot) -> SegmentChange:
        old = {segment.uuid for segment in self.leaving}
        current = {s.uuid: s for s in base.manifest.user_segments if s.name == self.name}
        gone = old - current.keys()
        if not current or gone:
            what = f"segments {', '.join(sorted(gone))} of index {self.name!r}" if current else f"index {self.name!r}"
            raise CommitConflict(
                f"{what} of {base.uri} left the table in the meantime", "Nothing was committed; run the job again"
            )
        return SegmentChange(self.new, tuple(current[uuid] for uuid in old))

    def __str__(self) -> str:
        return in_line(f"{self.name}: {plural(len(self.leaving), 'segment')} replaced by {len(self.new)}")


@dataclass(frozen=True)
class ReplacePairs:
    """Replace old segments by new ones, pair by pair, of any indices, in one transaction."""

    pairs: tuple[tuple[IndexSegment, IndexSegment], ...]

    def on(self, base: Snapshot) -> SegmentChange:
        changes = [step.on(base) for step in self._by_index()]
        return SegmentChange(
            tuple(s for change in changes for s in change.add), tuple(s for change in changes for s in change.remove)
        )

    def _by_index(self) -> list[ReplaceSegments]:
        names = dict.fromkeys(old.name for old, _ in self.pairs)
        return [
            ReplaceSegments.of(
                name, [n for o, n in self.pairs if o.name == name], [o for o, _ in self.pairs if o.name == name]
            )
            for name in names
        ]

    def __str__(self) -> str:
        return "; ".join(map(str, self._by_index())) or "replace nothing"


@dataclass(frozen=True)
class DropIndex:
    """Remove all segments of an index."""

    name: str

    def on(self, base: Snapshot) -> SegmentChange:
        leaving = tuple(s for s in base.manifest.user_segments if s.name == self.name)
        if not leaving:
            raise IndexNotFound.among((s.name for s in base.manifest.user_segments), self.name, base.uri)
        return SegmentChange(remove=leaving)

    def __str__(self) -> str:
        return in_line(f"drop index {self.name}")


def check_name_free(base: Snapshot, name: str, fields: tuple[int, ...]) -> None:
    """Raises InvalidArgument if an index on another column has this name: pylance accepts such a pair and then fails on
    both."""
    for other in base.manifest.user_segments:
        if other.name == name and other.fields != fields:
            columns = [column.path if (column := base.columns.by_id(f)) else f"field {f}" for f in other.fields]
            raise InvalidArgument(
                f"index {name!r} of {base.uri} is on another column ({', '.join(columns)})",
                "Choose another name, or drop that index first",
            )


def _check_not_stale(base: Snapshot, other: IndexSegment, new: AddSegments, reuse: FragmentReuse | None) -> None:
    stale = held_fragments(base, other, new.fragments, reuse)
    if stale:
        together = sorted(effective_coverage(other, base, reuse) | new.fragments)
        raise InvalidArgument(
            f"fragments {sorted(stale)} of {base.uri} were changed in place, and segment {other.uuid} of index "
            f"{new.name!r} still holds their old values, which pylance would return in addition to the new segment",
            f"Rebuild the index, or index fragments {together} as one segment that replaces the old one",
        )
