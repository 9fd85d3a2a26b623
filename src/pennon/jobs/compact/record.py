"""Compact fragments that an index covers which cannot be rewritten: no index is left behind.

The fragments are committed with their address map in the Fragment Reuse Index, which pylance applies when it loads an
index; then the segments that Pennon can rewrite follow, in one commit. Only what it cannot rewrite keeps naming rows by
their old addresses. Between the commits every index answers through the Fragment Reuse Index.

Graphs are the exception: pylance fails to search one whose deleted rows a recorded compaction has dropped. Those are
rewritten first, without their deleted rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import CommitConflict, CompactionWarning, DamagedFile, DamagedIndexWarning, UnsupportedTable
from pennon.format.commit import RetryableConflict
from pennon.format.compaction import Rewritten, commit_deferred, still_valid
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.registry import why_unusable
from pennon.jobs.compact.obstacles import fragile_segments
from pennon.jobs.compact.plan import remapped_segments
from pennon.jobs.fragment_reuse.catch_up import rewrite_segment
from pennon.jobs.fragment_reuse.state import coverage_of
from pennon.jobs.fragment_reuse.trim import trim
from pennon.jobs.kinds import PlanContext
from pennon.jobs.shared.changes import ReplacePairs
from pennon.jobs.shared.cleanup import delete_abandoned_files, delete_if_refused
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.remap import MergeSource


def commit_recorded(engine: Engine, base: Snapshot, groups: Sequence[Rewritten], memory_bytes: int) -> Snapshot:
    """Commit the fragments and record where rows went, then rewrite the segments that Pennon can rewrite.

    Raises:
        RetryableConflict: others changed the fragments; nothing was committed of them.
    """
    rewritten = BitMap().union(*(group.old_ids for group in groups))
    graphs = [s for s, marked in fragile_segments(base) if marked & rewritten and why_unusable(base, s) is None]
    base = _follow(engine, base, graphs, memory_bytes)
    if not all(still_valid(base, group) for group in groups):
        raise RetryableConflict(f"fragments of {base.uri} were changed while its graphs were rewritten", "Try again")
    affected = {segment.uuid for segment in remapped_segments(base, rewritten)}
    committed = commit_deferred(base, groups)
    try:
        return _follow_up(engine, committed, affected, memory_bytes)
    except CommitConflict as conflict:
        warnings.warn(
            f"{base.uri} is compacted, but its indices still name rows by old addresses: {conflict.problem}."
            " Catch them up",
            CompactionWarning,
            stacklevel=2,
        )
        return committed.latest()


def _follow_up(engine: Engine, committed: Snapshot, affected: set[str], memory_bytes: int) -> Snapshot:
    """Rewrite what can be, and forget the address map again where nothing else needs it."""
    segments = [segment for segment in committed.manifest.user_segments if segment.uuid in affected]
    followed = _follow(engine, committed, segments, memory_bytes)
    left = affected & {segment.uuid for segment in followed.manifest.user_segments}
    return followed if left else trim(engine, followed)[0]


def _follow(engine: Engine, base: Snapshot, segments: Sequence[IndexSegment], memory_bytes: int) -> Snapshot:
    """Rewrite those that can be read, with the rows that are alive, at current addresses; in one commit."""
    context, reuse = PlanContext.of(engine, base, memory_bytes), read_fragment_reuse(base)
    pairs: list[tuple[IndexSegment, IndexSegment]] = []
    written: list[IndexSegment] = []
    with delete_if_refused(base, written):
        for segment in segments:
            if why_unusable(base, segment) is not None:
                continue
            source = MergeSource(segment, FrozenBitMap(coverage_of(base, segment, reuse)))
            try:
                written.append(rewrite_segment(engine, context, source))
                pairs.append((segment, written[-1]))
            except UnsupportedTable:
                continue  # like segments that `why_unusable` rejects
            except DamagedFile as error:
                warnings.warn(
                    f"a segment of index {segment.name!r} of {base.uri} is damaged and was not rewritten:"
                    f" {error.problem}",
                    DamagedIndexWarning,
                    stacklevel=2,
                )
        if not pairs:
            return base
        committed = commit_change(base, ReplacePairs(tuple(pairs)))
    for new in written:
        delete_abandoned_files(base.store, new)
    return committed
