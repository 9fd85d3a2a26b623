"""Create an index: plan it, build the files of a segment, then commit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import uuid4

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import IndexExists, InvalidArgument
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.jobs.kinds import BuildPlan, BuildRequest
from pennon.jobs.registry import jobs_named
from pennon.jobs.shared.cleanup import committing
from pennon.jobs.shared.commit import add_segment, check_name_free, publish


class IndexOptions(TypedDict, total=False):
    """Everything that may be said of an index; which of it, depends on its type. None says nothing."""

    ranges: int | None
    rows_per_range: int | None
    batch_size: int | None
    metric: str | None
    num_partitions: int | None
    target_partition_size: int | None
    num_sub_vectors: int | None
    num_bits: int | None
    sample_rate: int | None
    max_iters: int | None
    m: int | None
    ef_construction: int | None
    max_level: int | None
    ivf_centroids: Any
    pq_codebook: Any
    seed: int | None


def plan_index(
    snapshot: Snapshot,
    column: str,
    index_type: str,
    options: Mapping[str, Any],
    *,
    name: str | None,
    fragment_ids: Sequence[int] | None,
    parallelism: int,
    memory_bytes: int,
    rows_per_task: int | None,
) -> BuildPlan:
    """What `create_index` would do to this version of the table."""
    if name is not None and (not name or name.startswith("__")):
        raise InvalidArgument(f"{name!r} cannot be the name of an index", "Names are not empty or start with '__'")
    given = _checked(index_type, {key: value for key, value in options.items() if value is not None})
    request = BuildRequest(name, fragment_ids, parallelism, memory_bytes, rows_per_task)
    return jobs_named(index_type).plan(snapshot, column, index_type, given, request)


def create_index(
    engine: Engine, snapshot: Snapshot, index_type: str, plan: BuildPlan, *, replace: bool, whole: bool
) -> Snapshot:
    """Build what was planned on `snapshot` and commit it, in place of the whole index or as one segment of it."""
    if whole and not replace and any(s.name == plan.name for s in snapshot.manifest.user_segments):
        raise IndexExists(
            f"table {snapshot.uri} has an index {plan.name!r} already", "Choose another name, or replace=True"
        )
    check_name_free(snapshot, plan.name, (plan.field_id,))
    if not whole:
        _check_fits(snapshot, index_type, plan, replace)
    segment = jobs_named(index_type).build(engine, snapshot, plan)
    with committing(snapshot, [segment]):
        committed = publish(snapshot, add_segment(segment, replace_whole=whole, may_replace=replace))
    # Attempts that Spark gave up on may have left files that nothing names.
    snapshot.store.delete_directory(segment.directory, keep=segment.file_sizes)
    return committed


def _check_fits(snapshot: Snapshot, index_type: str, plan: BuildPlan, replace: bool) -> None:
    """A segment that could not be beside the others is refused before it is built."""
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
    add_segment(intended, replace_whole=False, may_replace=replace)(snapshot)


def _checked(index_type: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options, when all of them mean something for this type."""
    known = jobs_named(index_type).option_names(index_type)
    unknown = sorted(given.keys() - known)
    if unknown:
        what = f"options {', '.join(unknown)}" if len(unknown) > 1 else f"option {unknown[0]!r}"
        raise InvalidArgument(f"{index_type.upper()} indices take no {what}", f"They take: {', '.join(sorted(known))}")
    return given
