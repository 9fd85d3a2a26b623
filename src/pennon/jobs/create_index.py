"""Create an index: plan it, build the files of its segments, then commit them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import IndexExists, InvalidArgument
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.options import IndexOptions
from pennon.jobs.kinds import BuildPlan, BuildRequest
from pennon.jobs.registry import jobs_named
from pennon.jobs.shared.arguments import check_at_least_one
from pennon.jobs.shared.changes import AddSegments, check_name_free
from pennon.jobs.shared.cleanup import delete_abandoned_files, delete_if_refused
from pennon.jobs.shared.commit import commit_change
from pennon.jobs.shared.placement import placed


def plan_index(
    snapshot: Snapshot,
    column: str,
    options: IndexOptions,
    *,
    name: str | None,
    fragment_ids: Sequence[int] | None,
    parallelism: int,
    memory_bytes: int,
    rows_per_task: int | None,
) -> BuildPlan:
    """What `create_index` would do to this version of the table."""
    if name is not None and (not name or name.startswith("__")):
        raise InvalidArgument(
            f"{name!r} cannot be the name of an index", "Use a non-empty name that does not start with '__'"
        )
    check_at_least_one(rows_per_task=rows_per_task)
    request = BuildRequest(name, fragment_ids, parallelism, memory_bytes, rows_per_task)
    return jobs_named(options.index_type).plan(snapshot, column, options, request)


def create_index(
    engine: Engine, snapshot: Snapshot, index_type: str, plan: BuildPlan, *, replace: bool, whole: bool
) -> Snapshot:
    """Build what was planned on `snapshot` and commit it, in place of the whole index or next to its segments."""
    if whole and not replace and any(s.name == plan.name for s in snapshot.manifest.user_segments):
        raise IndexExists(
            f"table {snapshot.uri} has an index {plan.name!r} already",
            "Choose another name, or replace it (replace=True, without --no-replace)",
        )
    check_name_free(snapshot, plan.name, (plan.field_id,))
    if not whole:
        _check_fits(snapshot, index_type, plan, replace)
    segments = jobs_named(index_type).build_segments(placed(engine, plan), snapshot, plan)
    with delete_if_refused(snapshot, segments):
        committed = commit_change(snapshot, AddSegments(segments, replace_whole=whole, may_replace=replace))
    for segment in segments:
        delete_abandoned_files(snapshot.store, segment)
    return committed


def _check_fits(snapshot: Snapshot, index_type: str, plan: BuildPlan, replace: bool) -> None:
    """A segment that does not fit the others is refused before it is built."""
    for other in snapshot.manifest.user_segments:
        misfit = jobs_named(index_type).misfit(snapshot, plan, other) if other.name == plan.name else None
        if misfit is not None:
            raise InvalidArgument(
                f"index {plan.name!r} of {snapshot.uri} is {misfit}",
                "Give the same type and metric, or replace the whole index",
            )
    intended = IndexSegment(
        uuid=str(uuid4()),
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(plan.fragments)),
        type_url="",
        details=b"",
        index_version=0,
    )
    AddSegments((intended,), replace_whole=False, may_replace=replace).on(snapshot)
