"""Plan vector segments like existing ones: over other rows, or to replace damaged files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pennon.errors import DamagedFile, PennonError, StoreUnavailable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.hnsw.graph import HnswParams, params_of
from pennon.index.vector.kinds import SubIndex
from pennon.index.vector.options import IvfOptions, recorded_options
from pennon.jobs.kinds import PlanContext
from pennon.jobs.vector.models import ModelFiles
from pennon.jobs.vector.plan import VectorPlan, plan_vector


def plan_like(
    context: PlanContext, segment: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
) -> VectorPlan:
    """Plan a segment over some fragments (None: all) of the same kind as an existing one: with its models, or with new
    ones trained for partitions of the same size, where a large index becomes several segments."""
    snapshot = context.snapshot
    files = VectorFiles(snapshot.store, segment.directory, segment.file_sizes)
    details = VectorDetails.of(files.kind, files.quantizer, _graph_params(segment, files))
    size = max(partition_size(segment, files), math.isqrt(snapshot.manifest.rows_in(snapshot.manifest.live)))
    more = {"target_partition_size": size} if retrain else {"ivf_centroids": files.ivf.centroids, "num_segments": 1}
    plan = _plan(context, segment, recorded_options(details, **more), fragments)
    if retrain:
        return plan
    models = ModelFiles(snapshot.location, segment.directory)
    return replace(plan, models=models, like=segment, centroids=None, sample_rows=0, train_rows=0)


def plan_rebuild(
    context: PlanContext,
    leaving: Sequence[IndexSegment],
    staying: Sequence[IndexSegment],
    fragments: Sequence[int],
    *,
    retrain: bool,
) -> VectorPlan:
    """The models are those of a valid segment, else of a damaged one if they can be read, else new ones by the details
    in the manifest."""
    for like in (*staying, *leaving) if not retrain else leaving:
        if _readable(context.snapshot, like):
            return plan_like(context, like, fragments, retrain=retrain)
    return _plan_as_recorded(context, leaving[0], fragments)


def partition_size(segment: IndexSegment, files: VectorFiles) -> int:
    """The target rows of a partition when the index was trained."""
    recorded = VectorDetails.from_bytes(segment.details)
    mean = -(-max(1, files.layout.rows) // files.ivf.num_partitions)
    return (recorded and recorded.target_partition_size) or mean


def _plan_as_recorded(context: PlanContext, segment: IndexSegment, fragments: Sequence[int]) -> VectorPlan:
    recorded = VectorDetails.from_bytes(segment.details)
    if recorded is None:
        raise DamagedFile(
            f"neither a file of index {segment.name!r} of {context.snapshot.uri} nor the manifest records its models",
            "Create the index again",
        )
    options = recorded_options(recorded, target_partition_size=recorded.target_partition_size)
    return _plan(context, segment, options, fragments)


def _plan(
    context: PlanContext, segment: IndexSegment, options: IvfOptions, fragments: Sequence[int] | None
) -> VectorPlan:
    return plan_vector(
        context.snapshot,
        context.column_of(segment).path,
        options,
        name=segment.name,
        fragment_ids=fragments or None,  # no fragments: an empty table
        parallelism=context.parallelism,
        memory_bytes=context.memory_bytes,
    )


def _graph_params(segment: IndexSegment, files: VectorFiles) -> HnswParams | None:
    """The parameters of the graphs of a segment, recorded in the manifest and in every graph."""
    if files.kind.sub_index is not SubIndex.HNSW:
        return None
    recorded = VectorDetails.from_bytes(segment.details)
    if recorded is not None and recorded.hnsw is not None:
        return recorded.hnsw
    return next((params_of(text) for text in files.sub_index if text), HnswParams())


def _readable(snapshot: Snapshot, segment: IndexSegment) -> bool:
    try:
        VectorFiles(snapshot.store, segment.directory, segment.file_sizes)
    except StoreUnavailable:
        raise
    except PennonError:
        return False
    return True
