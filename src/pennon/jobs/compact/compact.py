"""Compact a table: small fragments are joined and deleted rows dropped on executors, and its indices follow.

plan -> rewrite fragments -> remap segments -> commit. `immediate` rewrites every index segment that names rows of these
fragments by address, in the same transaction; where one cannot be rewritten, the Fragment Reuse Index records the
address map for it (`record`). `deferred` leaves all index files alone and records the address map. Only `drop` gives up
coverage of what was rewritten.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import CommitConflict, CompactionWarning, CoverageWarning, PennonError, StoreUnavailable
from pennon.format.compaction import (
    Rewritten,
    assign_fragment_ids,
    commit_deferred,
    commit_dropping,
    commit_remapped,
    discard,
    execute_compaction,
    remappable_at_once,
    still_valid,
)
from pennon.format.snapshot import Snapshot
from pennon.jobs.compact.obstacles import obstacles
from pennon.jobs.compact.plan import CompactPlan, Effect
from pennon.jobs.compact.record import commit_recorded
from pennon.jobs.compact.remap import RemappedSegment, Unremappable, remap_segments, remappable
from pennon.jobs.kinds import PlanContext
from pennon.jobs.shared.changes import ReplacePairs
from pennon.jobs.shared.cleanup import delete_abandoned_files, delete_if_refused
from pennon.jobs.shared.commit import commit_change, log_commit
from pennon.jobs.shared.retry import attempts


def compact(engine: Engine, snapshot: Snapshot, plan: CompactPlan, memory_bytes: int) -> Snapshot:
    """Rewrite the planned fragments, remap the segments over them, commit both.

    Fragments that others change in the meantime are left as they are. After a conflict segments are remapped again;
    fragments are not rewritten again.

    Raises:
        CommitConflict: others changed all of the fragments; nothing was committed.
    """
    _warn_of_held_back(plan)
    if not plan.due:
        return snapshot
    groups = engine.map("compact", partial(execute_compaction, snapshot.pin()), plan.tasks, rows=plan.rows)
    try:
        for attempt in attempts(snapshot, str(plan)):
            with attempt as base:
                groups = _keep_valid(base, groups, plan.remap)
                if plan.remap == "deferred":
                    committed = _logged(commit_deferred(base, groups), plan, groups)
                elif plan.remap == "drop":
                    committed = _logged(commit_dropping(base, groups), plan, groups)
                else:
                    committed = _remap_and_commit(engine, base, plan, groups, memory_bytes)
                return committed
    except StoreUnavailable:
        raise  # the commit may be running or done
    except PennonError:
        # Only after a refusal is it certain that no version names the files.
        for group in groups:
            discard(snapshot.store, group)
        raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _warn_of_held_back(plan: CompactPlan) -> None:
    for each in plan.obstacles:
        _warn_of(plan.uri, each.fragments, each.reason)


def _warn_of(uri: str, fragments: BitMap, reason: str) -> None:
    problem = f"fragments {list(fragments)} of {uri} are not compacted: {reason}"
    warnings.warn(problem, CompactionWarning, stacklevel=4)


def _keep_valid(base: Snapshot, groups: Sequence[Rewritten], remap: str) -> list[Rewritten]:
    """Groups whose fragments are as they were read. The files of others are deleted, with a warning."""
    held_back = BitMap().union(*(each.fragments for each in obstacles(base, remap)))
    valid = [group for group in groups if still_valid(base, group) and not group.old_ids & held_back]
    lost = [group for group in groups if group not in valid]
    for group in lost:
        discard(base.store, group)
    fragments = sorted(f for group in lost for f in group.old_ids)
    if lost and not valid:
        raise CommitConflict(
            f"all fragments of {base.uri} that were compacted have been changed in the meantime: {fragments}",
            "Nothing was committed; run it again",
        )
    if lost:
        warnings.warn(
            f"fragments {fragments} of {base.uri} were changed while they were compacted, and stay as they are",
            CoverageWarning,
            stacklevel=2,
        )
    return valid


def _logged(committed: Snapshot, plan: CompactPlan, groups: Sequence[Rewritten]) -> Snapshot:
    affected = [each.index for each in plan.indices if each.effect is not Effect.UNAFFECTED]
    counts = {"groups": len(groups), "fragments": sum(len(group.old_ids) for group in groups)}
    log_commit(committed, str(plan), affected, **counts)
    return committed


def _remap_and_commit(
    engine: Engine, base: Snapshot, plan: CompactPlan, groups: list[Rewritten], memory_bytes: int
) -> Snapshot:
    """All at once where every segment can be rewritten; where one cannot, the compaction is recorded for it."""
    stable = base.manifest.has_stable_row_ids
    while groups and (stable or remappable(base, BitMap().union(*(group.old_ids for group in groups)))):
        with_ids = assign_fragment_ids(base, groups)
        try:
            remapped = remap_segments(engine, PlanContext.of(engine, base, memory_bytes), with_ids)
        except Unremappable as error:
            if not stable:
                break
            groups = _hold_back(base, groups, error)
        else:
            return _commit_with_segments(base, plan, with_ids, remapped)
    if not groups:
        return base
    return _logged(commit_recorded(engine, base, groups, memory_bytes), plan, groups)


def _hold_back(base: Snapshot, groups: Sequence[Rewritten], error: Unremappable) -> list[Rewritten]:
    """The groups without those that a segment covers whose files cannot be read. Where rows have stable ids, Lance
    records no compactions."""
    held_back = [group for group in groups if group.old_ids & error.coverage]
    for group in held_back:
        discard(base.store, group)
    fragments = BitMap().union(*(group.old_ids for group in held_back))
    _warn_of(base.uri, fragments, f"index {error.segment.name!r} cannot be rewritten: {error.problem}")
    return [group for group in groups if group not in held_back]


def _commit_with_segments(
    base: Snapshot, plan: CompactPlan, groups: Sequence[Rewritten], remapped: Sequence[RemappedSegment]
) -> Snapshot:
    """Fragments and segments in one transaction.

    A segment that covers a group only in part cannot be committed together with it, nor can one whose files are in
    another table: then the fragments come first, uncovered, and the segments after them. In between answers are right,
    only slower.
    """
    pairs = tuple((each.old, each.new) for each in remapped)
    own = all(each.old.base_id is None for each in remapped)
    with delete_if_refused(base, [each.new for each in remapped]):
        if own and remappable_at_once(groups, [each.coverage for each in remapped]):
            committed = _logged(commit_remapped(base, groups, pairs), plan, groups)
        else:
            bare = _logged(commit_dropping(base, groups), plan, groups)
            committed = commit_change(bare, ReplacePairs(pairs))
    present = {segment.uuid for segment in committed.manifest.segments}
    for each in remapped:
        delete_abandoned_files(base.store, each.new)
        if each.new.uuid not in present:
            # pylance leaves a segment out when another compaction replaced the old one during the commit.
            warnings.warn(
                f"a segment of index {each.old.name!r} of {committed.uri} was replaced during the commit; what was"
                " compacted is not covered until the index is optimized",
                CoverageWarning,
                stacklevel=2,
            )
    return committed
