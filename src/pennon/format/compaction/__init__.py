"""Compaction: rewriting fragments into fewer and fuller ones, and the ways to commit that.

pylance plans and rewrites. Rows keep their order, so the k-th surviving row of a group's old fragments is the k-th row
of its new ones. The commits differ in what they do to the indices: `commit_deferred` records the new addresses in the
Fragment Reuse Index, `commit_dropping` leaves the new fragments to be scanned, and `commit_remapped` adds index files
that already have the new addresses.
"""

from pennon.format.compaction.commit import (
    assign_fragment_ids,
    commit_deferred,
    commit_dropping,
    commit_remapped,
    remappable_at_once,
    still_valid,
)
from pennon.format.compaction.execute import NewFragment, Rewritten, discard, execute_compaction, group_moves
from pennon.format.compaction.options import CompactionOptions
from pennon.format.compaction.plan import CompactionPlan, CompactionTask, OldFragment, plan_compaction

__all__ = [
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "NewFragment",
    "OldFragment",
    "Rewritten",
    "assign_fragment_ids",
    "commit_deferred",
    "commit_dropping",
    "commit_remapped",
    "discard",
    "execute_compaction",
    "group_moves",
    "plan_compaction",
    "remappable_at_once",
    "still_valid",
]
