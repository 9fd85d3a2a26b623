"""Plan a compaction: which fragments are rewritten, and what happens to each index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict, get_type_hints

from pyroaring import BitMap

from pennon.display import Displayed
from pennon.errors import InvalidArgument, UnsupportedTable
from pennon.format.compaction import CompactionOptions, CompactionTask, plan_compaction
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import FLAG_TAGGED_REUSE
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.registry import stores_addresses, why_unusable
from pennon.jobs.compact.obstacles import Obstacle, obstacles
from pennon.jobs.shared.arguments import check_type
from pennon.wording import human_bytes, in_line, plural

REMAPS = ("immediate", "deferred", "drop")


class CompactionChoices(TypedDict, total=False):
    """Options of a compaction; `CompactionOptions` has the defaults."""

    target_rows_per_fragment: int
    max_bytes_per_file: int | None
    materialize_deletions: bool
    materialize_deletions_threshold: float
    num_threads: int | None
    batch_size: int | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None


def check_compaction(given: Mapping[str, Any]) -> None:
    """The names and types of a compaction's options.

    Raises:
        InvalidArgument: an option that a compaction does not take, or a value of another type.
    """
    hints = get_type_hints(CompactionChoices)
    unknown = sorted(given.keys() - hints.keys())
    if unknown:
        raise InvalidArgument(f"compaction takes no option {unknown[0]!r}", f"It takes: {', '.join(hints)}")
    for name, value in given.items():
        check_type(name, value, hints[name])


class Effect(StrEnum):
    """What a compaction does to a segment."""

    REMAPPED = "remapped"
    KEPT = "kept by stable row ids"
    DEFERRED = "deferred"
    RECORDED = "not rewritten, kept by the Fragment Reuse Index"
    DROPPED = "coverage dropped"
    UNAFFECTED = "unaffected"


@dataclass(frozen=True)
class IndexEffect(Displayed):
    """What happens to segments of an index."""

    index: str
    effect: Effect
    segments: int

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"index": self.index, "effect": self.effect.value, "segments": self.segments}

    def __str__(self) -> str:
        return in_line(f"{self.index} {self.effect.value} ({plural(self.segments, 'segment')})")


@dataclass(frozen=True)
class CompactPlan(Displayed):
    """What will be rewritten, and what happens to each index, before anything runs."""

    uri: str
    version: int
    remap: str
    tasks: tuple[CompactionTask, ...] = field(repr=False)
    indices: tuple[IndexEffect, ...]
    obstacles: tuple[Obstacle, ...] = ()  # what keeps fragments from being compacted this way

    @property
    def due(self) -> bool:
        """Whether there is something to rewrite."""
        return bool(self.tasks)

    @property
    def held_back(self) -> tuple[int, ...]:
        """Fragments that pylance would compact, and that stay as they are."""
        return tuple(BitMap().union(*(each.fragments for each in self.obstacles)))

    @property
    def records(self) -> bool:
        """Whether the Fragment Reuse Index records where rows go although segments are remapped at once: some of them
        cannot be rewritten."""
        return any(each.effect is Effect.RECORDED for each in self.indices)

    @property
    def fragments(self) -> int:
        """Fragments that are rewritten."""
        return sum(len(task.fragments) for task in self.tasks)

    @property
    def rows(self) -> int:
        """Rows that are rewritten."""
        return sum(task.rows for task in self.tasks)

    @property
    def deleted_rows(self) -> int:
        """Deleted rows that are dropped."""
        return sum(f.num_deleted_rows for task in self.tasks for f in task.fragments)

    @property
    def size_bytes(self) -> int | None:
        """Of the data files that are rewritten; None where the table does not record it."""
        sizes = [f.size_bytes for task in self.tasks for f in task.fragments]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "version": self.version,
            "remap": self.remap,
            "tasks": len(self.tasks),
            "fragments": self.fragments,
            "rows": self.rows,
            "deleted_rows": self.deleted_rows,
            "size_bytes": self.size_bytes,
            "indices": [each.to_dict() for each in self.indices],
            "held_back": list(self.held_back),
            "obstacles": [each.to_dict() for each in self.obstacles],
        }

    def __str__(self) -> str:
        left = "".join(
            f"; {plural(len(each.fragments), 'fragment')} held back ({each.reason})" for each in self.obstacles
        )
        if not self.due:
            return f"compaction: nothing to rewrite{left}"
        size = f", {human_bytes(self.size_bytes)}" if self.size_bytes is not None else ""
        gone = f", {self.deleted_rows:,} deleted rows dropped" if self.deleted_rows else ""
        affected = [str(each) for each in self.indices if each.effect is not Effect.UNAFFECTED]
        return (
            f"compaction: {plural(self.fragments, 'fragment')} in {plural(len(self.tasks), 'group')},"
            f" {self.rows:,} rows{size}{gone}; {', '.join(affected) or 'no index affected'}{left}"
        )


def plan_compact(snapshot: Snapshot, choices: CompactionChoices, remap: str) -> CompactPlan:
    """What `compact` would do to this version of the table.

    Raises:
        InvalidArgument: an unknown remap mode.
        UnsupportedTable: Lance does not support this mode for the table.
    """
    if remap not in REMAPS:
        raise InvalidArgument(f"unknown remap mode {remap!r}", f"Use one of: {', '.join(REMAPS)}")
    if remap == "deferred" and snapshot.manifest.has_stable_row_ids:
        raise UnsupportedTable(
            f"{snapshot.uri} has stable row ids, and Lance does not record compactions in a Fragment Reuse Index there",
            "Use remap='immediate'",
        )
    if remap != "deferred" and snapshot.manifest.reader_flags & FLAG_TAGGED_REUSE:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {snapshot.uri} has the newer tagged form", "Use remap='deferred'"
        )
    # Without it pylance leaves alone what an index covers that it does not know, for it could not remap that one.
    deferred = not snapshot.manifest.has_stable_row_ids
    tasks = plan_compaction(snapshot, CompactionOptions(**choices), deferred=deferred).tasks
    met = [obstacle.holding_back(tasks) for obstacle in obstacles(snapshot, remap)]
    held_back = BitMap().union(*(each.fragments for each in met))
    tasks = tuple(task for task in tasks if not task.ids & held_back)
    found = tuple(each for each in met if each.fragments)
    return CompactPlan(snapshot.uri, snapshot.version, remap, tasks, _effects(snapshot, tasks, remap), found)


def remapped_segments(base: Snapshot, rewritten: BitMap) -> list[IndexSegment]:
    """Segments whose files name rows of these fragments by address."""
    reuse = read_fragment_reuse(base)
    return [
        segment
        for segment in base.manifest.user_segments
        if stores_addresses(base, segment) and effective_coverage(segment, base, reuse) & rewritten
    ]


def _effects(snapshot: Snapshot, tasks: tuple[CompactionTask, ...], remap: str) -> tuple[IndexEffect, ...]:
    rewritten, reuse = BitMap().union(*(task.ids for task in tasks)), read_fragment_reuse(snapshot)
    counts = Counter[tuple[str, Effect]]()
    for segment in snapshot.manifest.user_segments:
        effect = Effect.UNAFFECTED
        if effective_coverage(segment, snapshot, reuse) & rewritten:
            effect = _effect(snapshot, segment, remap)
        counts[segment.name, effect] += 1
    return tuple(IndexEffect(name, effect, count) for (name, effect), count in counts.items())


def _effect(snapshot: Snapshot, segment: IndexSegment, remap: str) -> Effect:
    if not stores_addresses(snapshot, segment):
        return Effect.KEPT
    if remap != "immediate":
        return Effect.DEFERRED if remap == "deferred" else Effect.DROPPED
    return Effect.REMAPPED if why_unusable(snapshot, segment) is None else Effect.RECORDED
