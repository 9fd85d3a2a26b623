"""What keeps fragments from being compacted: indices that would be lost, or that pylance could no longer search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyroaring import BitMap

from pennon.format.compaction import CompactionTask
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.foreign import foreign_kind
from pennon.index.fragment_reuse.coverage import changed_in_place, effective_coverage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.registry import kind_of, stores_addresses, why_unusable
from pennon.wording import in_line, plural

FRAGILE = "pylance fails to search an HNSW index after a deferred compaction has dropped deleted rows it covers"


@dataclass(frozen=True)
class Obstacle:
    """Fragments that a compaction must leave alone, because of an index that covers them."""

    index: str
    fragments: BitMap
    reason: str

    def holding_back(self, tasks: Iterable[CompactionTask]) -> Obstacle:
        """With all fragments of the tasks that it is in the way of."""
        met = (task.ids for task in tasks if task.ids & self.fragments)
        return replace(self, fragments=BitMap().union(*met))

    def __str__(self) -> str:
        return f"{plural(len(self.fragments), 'fragment')} held back ({self.reason})"

    def to_dict(self) -> dict[str, object]:
        return {"index": self.index, "fragments": list(self.fragments), "reason": self.reason}


def obstacles(base: Snapshot, remap: str) -> list[Obstacle]:
    """What a compaction of this version that remaps indices this way must leave alone."""
    if remap == "drop":
        # Coverage by stable row id moves on even then.
        return _stale(base) if base.manifest.has_stable_row_ids else []
    found = [*_stale(base), *_unrecordable(base)]
    for segment, fragments in fragile_segments(base) if not base.manifest.has_stable_row_ids else ():
        readable = why_unusable(base, segment) is None
        # At once it is rewritten without the deleted rows, before those are dropped.
        if remap == "deferred" or not readable:
            found.append(_fragile(segment, fragments, readable))
    return found


def fragile_segments(base: Snapshot) -> list[tuple[IndexSegment, BitMap]]:
    """Segments that pylance cannot search once a deferred compaction drops deleted rows of these fragments."""
    marked = BitMap(f.id for f in base.manifest.fragments.values() if f.deletion_file is not None)
    reuse = read_fragment_reuse(base)
    found: list[tuple[IndexSegment, BitMap]] = []
    for segment in base.manifest.user_segments if marked else ():
        kind = kind_of(segment)
        if kind is not None and not kind.outlives_lost_rows(base, segment):
            fragments = effective_coverage(segment, base, reuse) & marked
            if fragments:
                found.append((segment, fragments))
    return found


def _stale(base: Snapshot) -> list[Obstacle]:
    """Coverage of values that are not there any more. Nothing would show it in the fragments that replace these."""
    reuse, found = read_fragment_reuse(base), list[Obstacle]()
    for segment in base.manifest.user_segments:
        listed = BitMap(segment.fragments) if reuse is None else reuse.effective(BitMap(segment.fragments))
        changed = changed_in_place(segment, base, listed & base.manifest.live)
        if changed:
            reason = (
                f"index {segment.name} claims to cover values of theirs that were changed in place; optimize it first"
            )
            found.append(Obstacle(segment.name, changed, in_line(reason)))
    return found


def _fragile(segment: IndexSegment, fragments: BitMap, readable: bool) -> Obstacle:
    remedy = "compact them with remap='immediate'"
    if not readable:
        remedy = f"Pennon cannot rewrite {segment.name}; remap='drop' compacts them and gives up its coverage"
    return Obstacle(segment.name, fragments, in_line(f"{FRAGILE}; {remedy}"))


def _unrecordable(base: Snapshot) -> list[Obstacle]:
    """Segments that can neither be rewritten nor follow a recorded compaction: they would be lost."""
    reuse, found = read_fragment_reuse(base), list[Obstacle]()
    for segment in base.manifest.user_segments:
        problem = why_unusable(base, segment)
        if problem is not None and stores_addresses(base, segment) and not _follows_reuse(base, segment):
            reason = (
                f"index {segment.name} names their rows by address and can neither be rewritten ({problem}) nor follow"
                " a recorded compaction; remap='drop' compacts them and gives up its coverage"
            )
            found.append(Obstacle(segment.name, effective_coverage(segment, base, reuse), in_line(reason)))
    return found


def _follows_reuse(base: Snapshot, segment: IndexSegment) -> bool:
    """Whether pylance finds rows of a segment that a recorded compaction has moved. None is recorded where rows have
    stable ids."""
    foreign = foreign_kind(segment)
    return not base.manifest.has_stable_row_ids and (foreign is None or foreign.follows_reuse)
