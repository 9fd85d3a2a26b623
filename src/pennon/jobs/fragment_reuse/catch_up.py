"""Catch up with the Fragment Reuse Index: segments whose files name rows by old addresses are rewritten.

plan -> merge each segment with itself, at current addresses -> commit each separately.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from pyroaring import FrozenBitMap

from pennon.display import Displayed
from pennon.engine import Engine
from pennon.errors import DamagedFile, DamagedIndexWarning, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.fragment_reuse.state import coverage_of, read_state
from pennon.jobs.kinds import PlanContext
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.changes import ReplaceSegments
from pennon.jobs.shared.cleanup import delete_abandoned_files, delete_if_refused
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.rewrite import remap_segment
from pennon.wording import in_lines, plural


@dataclass(frozen=True)
class CatchUpPlan(Displayed):
    """`segments` name rows by addresses from before a compaction; `rows` are those they cover."""

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


def plan_catch_up(engine: Engine, snapshot: Snapshot) -> CatchUpPlan:
    """Which segments `catch_up` would rewrite. Executors read the ids in the files."""
    reuse, state = read_fragment_reuse(snapshot), read_state(engine, snapshot)
    segments = state.followable if state else ()
    rows = sum(snapshot.manifest.rows_in(coverage_of(snapshot, segment, reuse)) for segment in segments)
    return CatchUpPlan(snapshot.uri, snapshot.version, segments, rows)


def catch_up(
    engine: Engine, snapshot: Snapshot, memory_bytes: int, plan: CatchUpPlan | None = None
) -> tuple[Snapshot, int]:
    """Rewrite every segment whose files name rows by old addresses. Returns how many were rewritten."""
    plan, reuse = plan or plan_catch_up(engine, snapshot), read_fragment_reuse(snapshot)
    newest, done = snapshot, 0
    for segment in plan.segments:
        source = MergeSource(segment, FrozenBitMap(coverage_of(snapshot, segment, reuse)))
        try:
            new = rewrite_segment(engine, PlanContext.of(engine, snapshot, memory_bytes), source)
        except UnsupportedTable:
            continue  # unreadable, like segments that `why_unusable` rejects
        with delete_if_refused(snapshot, [new]):
            newest = commit_change(snapshot, ReplaceSegments.of(segment.name, [new], [segment]))
        delete_abandoned_files(snapshot.store, new)
        done += 1
    return newest, done


def rewrite_segment(engine: Engine, context: PlanContext, source: MergeSource) -> IndexSegment:
    """A segment with its rows at current addresses; from the data, where its own files are damaged.

    Raises:
        DamagedFile: the files are damaged, and the models that a new segment needs are in them.
        UnsupportedTable: the files have a layout that Pennon does not read.
    """
    try:
        return remap_segment(engine, context, source)
    except DamagedFile as error:
        warnings.warn(
            f"a segment of index {source.segment.name!r} of {context.snapshot.uri} is built from the data instead:"
            f" {error.problem}",
            DamagedIndexWarning,
            stacklevel=2,
        )
        jobs = jobs_of(source.segment)
        plan = jobs.plan_like(context, source.segment, list(source.coverage), retrain=False)
        return jobs.build(engine, context.snapshot, plan)
