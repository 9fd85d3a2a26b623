"""What catching up with the Fragment Reuse Index and trimming it would do. Files decide, so executors read them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import effective_coverage, read_fragment_reuse
from pennon.jobs.fragment_reuse import check_untagged, read_state
from pennon.text import in_lines, plural


@dataclass(frozen=True)
class CatchUpPlan:
    """`segments` name rows by addresses from before a move; `rows` are those they cover."""

    uri: str
    version: int
    segments: tuple[IndexSegment, ...] = field(repr=False)
    rows: int

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "version": self.version,
            "rows": self.rows,
            "segments": [{"index": segment.name, "uuid": segment.uuid} for segment in self.segments],
        }

    def __str__(self) -> str:
        lines = [f"{segment.name}: rewrite segment {segment.uuid}" for segment in self.segments]
        return in_lines([*lines, f"{plural(len(self.segments), 'segment')} to rewrite, {plural(self.rows, 'row')}"])


@dataclass(frozen=True)
class TrimPlan:
    """The moves of the Fragment Reuse Index by the version that made them: those no index file needs, and the rest."""

    uri: str
    version: int
    removable: tuple[int, ...]
    needed: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "version": self.version,
            "removable": list(self.removable),
            "needed": list(self.needed),
        }

    def __str__(self) -> str:
        needed = f", {len(self.needed)} needed by index files" if self.needed else ""
        which = f" (of version {', '.join(map(str, self.removable))})" if self.removable else ""
        return f"{plural(len(self.removable), 'move')} to remove{which}{needed}"


def plan_catch_up(engine: Engine, snapshot: Snapshot) -> CatchUpPlan:
    reuse, state = read_fragment_reuse(snapshot), read_state(engine, snapshot)
    segments = state.followable if state else ()
    rows = sum(snapshot.manifest.rows_in(effective_coverage(segment, snapshot, reuse)) for segment in segments)
    return CatchUpPlan(snapshot.uri, snapshot.version, segments, rows)


def plan_trim(engine: Engine, snapshot: Snapshot) -> TrimPlan:
    reuse = read_fragment_reuse(snapshot)
    if reuse is None:
        return TrimPlan(snapshot.uri, snapshot.version, (), ())
    check_untagged(snapshot, reuse)
    state = read_state(engine, snapshot)
    moves = list(zip(reuse.versions, state.needed if state else (), strict=True))
    removable = tuple(move.dataset_version for move, needed in moves if not needed)
    needed = tuple(move.dataset_version for move, needed in moves if needed)
    return TrimPlan(snapshot.uri, snapshot.version, removable, needed)
