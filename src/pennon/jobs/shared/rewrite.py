"""New segments in place of old ones, whatever their kind: built over more fragments, or merged from segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.jobs.kinds import Work
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.remap import Source
from pennon.jobs.shared.stale_values import held_fragments


def build_like(
    work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
) -> IndexSegment:
    """A segment over some fragments (None: all) of the same kind as one that exists, with its models unless they are to
    be trained again."""
    return jobs_of(like).build_like(work, like, fragments, retrain=retrain)


def merge_segments(
    work: Work, sources: Sequence[Source], moves: str | None = None, *, may_copy: bool = False, rebalance: bool = False
) -> IndexSegment:
    """One segment with the rows of several. `may_copy` lets files be taken over whole where nothing in them changes."""
    unmoved = may_copy and moves is None and _unmoved(work.snapshot, sources)
    return jobs_of(sources[0].segment).merge(work, sources, moves, unmoved=unmoved, rebalance=rebalance)


def move_segment(work: Work, source: Source, moves: str | None = None) -> IndexSegment:
    """A segment with its rows at today's addresses, or at those of a compaction under way. It stays as old as it
    was."""
    return replace(merge_segments(work, [source], moves), created_at=source.segment.created_at)


def _unmoved(snapshot: Snapshot, sources: Sequence[Source]) -> bool:
    """Whether every id in the files may stay as it is: none has moved, and none is of a fragment that its segment does
    not cover."""
    if read_fragment_reuse(snapshot) is not None:
        return False
    committed = {s.uuid for s in snapshot.manifest.segments}
    return not any(
        held_fragments(snapshot, source.segment, snapshot.manifest.live - BitMap(source.coverage), None)
        for source in sources
        if source.segment.uuid in committed
    )
