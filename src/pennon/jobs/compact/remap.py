"""Rewrite the segments that name rows of compacted fragments, before those fragments are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.compaction import Rewritten, group_moves
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.registry import why_unusable
from pennon.jobs.compact.plan import remapped_segments
from pennon.jobs.kinds import PlanContext
from pennon.jobs.shared.cleanup import delete_segment_files, scratch_directory
from pennon.jobs.shared.remap import MergeSource
from pennon.jobs.shared.rewrite import remap_segment

ADDRESS_MAP_FILE = "address_map.binpb"


@dataclass(frozen=True)
class RemappedSegment:
    """A segment with its rows at their new addresses, in place of the one that covered `coverage`."""

    old: IndexSegment
    new: IndexSegment
    coverage: BitMap


class Unremappable(Exception):
    """A segment cannot be rewritten, so that it would lose coverage if the fragments were committed with the others."""

    def __init__(self, segment: IndexSegment, coverage: BitMap, problem: str) -> None:
        super().__init__(problem)
        self.segment, self.coverage, self.problem = segment, coverage, problem


def remap_segments(engine: Engine, context: PlanContext, groups: Sequence[Rewritten]) -> list[RemappedSegment]:
    """Every segment that names rows of these groups by address, at the addresses that the rows will have.

    Raises:
        Unremappable: one of them cannot be read. The files of the others are deleted.
    """
    base, reuse = context.snapshot, read_fragment_reuse(context.snapshot)
    rewritten = BitMap().union(*(group.old_ids for group in groups))
    remapped: list[RemappedSegment] = []
    try:
        with scratch_directory(base.store) as scratch:
            address_map = f"{scratch}/{ADDRESS_MAP_FILE}"
            base.store.write(address_map, group_moves(groups))
            for segment in remapped_segments(base, rewritten):
                coverage = effective_coverage(segment, base, reuse)
                after = FrozenBitMap(_coverage_after(coverage, groups))
                try:
                    new = remap_segment(engine, context, MergeSource(segment, after), address_map)
                except (DamagedFile, UnsupportedTable) as error:
                    raise Unremappable(segment, coverage, error.problem) from error
                remapped.append(RemappedSegment(segment, new, coverage))
    except BaseException:
        for each in remapped:
            delete_segment_files(base.store, each.new)
        raise
    return remapped


def remappable(base: Snapshot, rewritten: BitMap) -> bool:
    """Whether every segment that names rows of these fragments can be replaced together with them, as far as the
    manifest shows. Not one that cannot be read; nor one whose files are in another table: where a compaction replaces
    it, pylance keeps looking there."""
    segments = remapped_segments(base, rewritten)
    return all(s.base_id is None and why_unusable(base, s) is None for s in segments)


def _coverage_after(coverage: BitMap, groups: Sequence[Rewritten]) -> BitMap:
    """Where all fragments of a group are covered, its new ones will be; where only some are, none will."""
    after = BitMap(coverage)
    for group in groups:
        after -= group.old_ids
        if group.old_ids <= coverage:
            after |= BitMap(f.id for f in group.new if f.id is not None)
    return after
