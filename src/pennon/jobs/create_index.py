"""Create an index: plan it, build the files of a segment, then commit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict
from uuid import uuid4

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import IndexExists, InvalidArgument
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.kind import Family
from pennon.index.registry import kind_named, kind_of
from pennon.index.vector.kind import VECTOR
from pennon.index.vector.kinds import vector_kind
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.plan import BTreeOptions, BTreePlan, plan_btree
from pennon.jobs.shared.cleanup import committing
from pennon.jobs.shared.commit import add_segment, check_name_free, publish
from pennon.jobs.vector.build import build_vector
from pennon.jobs.vector.options import VectorOptions, options_of
from pennon.jobs.vector.plan import VectorPlan, plan_vector

Plan = BTreePlan | VectorPlan


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
) -> Plan:
    """What `create_index` would do to this version of the table."""
    if name is not None and (not name or name.startswith("__")):
        raise InvalidArgument(f"{name!r} cannot be the name of an index", "Names are not empty or start with '__'")
    family = kind_named(index_type).family
    said = _checked(index_type, {key: value for key, value in options.items() if value is not None})
    common: dict[str, Any] = {
        "name": name,
        "fragment_ids": fragment_ids,
        "parallelism": parallelism,
        "memory_bytes": memory_bytes,
        "rows_per_task": rows_per_task,
    }
    if family is Family.VECTOR:
        if fragment_ids is not None and "metric" not in said:
            said |= _metric_of(snapshot, name or f"{column}_idx")
        return plan_vector(snapshot, column, index_type, VectorOptions(**said), **common)
    return plan_btree(snapshot, column, BTreeOptions(**said), **common)


def create_index(engine: Engine, snapshot: Snapshot, plan: Plan, *, replace: bool, whole: bool) -> Snapshot:
    """Build what was planned on `snapshot` and commit it, in place of the whole index or as one segment of it."""
    if whole and not replace and any(s.name == plan.name for s in snapshot.manifest.user_segments):
        raise IndexExists(
            f"table {snapshot.uri} has an index {plan.name!r} already", "Choose another name, or replace=True"
        )
    check_name_free(snapshot, plan.name, (plan.field_id,))
    if not whole:
        _check_fits(snapshot, plan, replace)
    if isinstance(plan, VectorPlan):
        segment = build_vector(engine, snapshot, plan)
    else:
        segment = build_btree(engine, snapshot, plan)
    with committing(snapshot, [segment]):
        committed = publish(snapshot, add_segment(segment, replace_whole=whole, may_replace=replace))
    # Attempts that Spark gave up on may have left files that nothing names.
    snapshot.store.delete_directory(segment.directory, keep=segment.file_sizes)
    return committed


def _metric_of(snapshot: Snapshot, name: str) -> dict[str, str]:
    """A new segment measures as the segments it joins."""
    others = [s for s in snapshot.manifest.user_segments if s.name == name and kind_of(s) is VECTOR]
    known = VECTOR.described(snapshot, others[0]) if others else None
    return {"metric": known[1].value} if known else {}


def _check_fits(snapshot: Snapshot, plan: Plan, replace: bool) -> None:
    """A segment that could not stand beside the others is refused before it is built."""
    others = [s for s in snapshot.manifest.user_segments if s.name == plan.name]
    if isinstance(plan, VectorPlan):
        for other in others:
            theirs = VECTOR.described(snapshot, other)
            if theirs != (plan.kind, plan.metric):
                said = f"{theirs[0].name} for {theirs[1]}" if theirs else "of another kind"
                raise InvalidArgument(
                    f"index {plan.name!r} of {snapshot.uri} is {said}, the new segment {plan.kind.name} for"
                    f" {plan.metric}",
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


def _checked(index_type: str, said: dict[str, Any]) -> dict[str, Any]:
    """The options, when all of them mean something for this type."""
    known = _options_of(index_type)
    strange = sorted(said.keys() - known)
    if strange:
        what = f"options {', '.join(strange)}" if len(strange) > 1 else f"option {strange[0]!r}"
        raise InvalidArgument(f"{index_type.upper()} indices take no {what}", f"They take: {', '.join(sorted(known))}")
    return said


def _options_of(index_type: str) -> set[str]:
    if kind_named(index_type).family is Family.SCALAR:
        return {field.name for field in fields(BTreeOptions)}
    return options_of(vector_kind(index_type))
