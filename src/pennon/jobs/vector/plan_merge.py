"""Plan the merge of vector segments: which of them share their models, and which must be encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.kind import VECTOR
from pennon.jobs.kinds import MergeRequest, PlanContext
from pennon.jobs.shared.placement import MERGE_WEIGHT, UNBOUNDED, Effort, Placed
from pennon.jobs.shared.plan_display import merge_fields, merge_text
from pennon.jobs.shared.remap import RemapPlan
from pennon.jobs.vector.models import TrainedModels
from pennon.jobs.vector.open_files import open_files
from pennon.jobs.vector.plan import REDUCE_COPIES, VectorPlan, reducers_for
from pennon.jobs.vector.plan_like import plan_like
from pennon.wording import plural


@dataclass(frozen=True)
class VectorMerge(Placed):
    """The plan of a merge. Rows are those in the files, including deleted ones."""

    base: VectorPlan  # with the models of the largest segment
    remap_plan: RemapPlan = field(repr=False)  # of the sources that have these models
    recoded: VectorPlan | None  # builds a segment of the fragments of the other sources, with these models
    rebalance: bool
    parallelism: int
    stored_rows: int
    delta_rows: int | None = None  # rows of a segment that is built before the merge

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def is_estimate(self) -> bool:
        return self.delta_rows is not None

    @property
    def rows(self) -> int:
        return self.stored_rows + (self.recoded.rows if self.recoded else 0) + (self.delta_rows or 0)

    @property
    def tasks(self) -> int:
        """Tasks that merge partitions."""
        return self._merged.reducers

    @property
    def task_memory_bytes(self) -> int:
        recoded = self.recoded.task_memory_bytes if self.recoded else 0
        return max(self._merged.task_memory_bytes, recoded)

    @property
    def index_bytes(self) -> int:
        return self._merged.index_bytes

    @property
    def _merged(self) -> VectorPlan:
        return merged_plan(self.base, (), self.rows, self.parallelism)

    @property
    def work(self) -> Effort:
        """Codes are copied; to encode rows, or to build graphs, takes as long as a build."""
        copies = self.base.hnsw is None and self.recoded is None and not self.rebalance
        return Effort(self.remap_plan.pin.location, MERGE_WEIGHT * self.index_bytes if copies else UNBOUNDED)

    def to_dict(self) -> dict[str, object]:
        return merge_fields(
            self,
            len(self.remap_plan.sources),
            recoded_rows=self.recoded.rows if self.recoded else 0,
            rebalance=self.rebalance,
        )

    def __str__(self) -> str:
        recoded = f", {self.recoded.rows:,} rows coded again" if self.recoded else ""
        rebalanced = ", partitions rebalanced" if self.rebalance else ""
        return merge_text(self, f"{plural(self.tasks, 'task')}{recoded}{rebalanced}")


def plan_vector_merge(context: PlanContext, request: MergeRequest) -> VectorMerge:
    """Plan a merge with the models of the largest source; fragments of sources with other models are encoded again from
    the table."""
    snapshot, like = context.snapshot, request.largest
    addresses = VECTOR.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
    shared = [source for source in request.sources if _share_models(snapshot.pin(), like, source.segment)]
    others = BitMap().union(*(source.coverage for source in request.sources if source not in shared))
    remap_plan = RemapPlan(snapshot.pin(), addresses, tuple(shared), request.address_map)
    base = plan_like(context, like, None)
    return VectorMerge(
        base=base,
        remap_plan=remap_plan,
        recoded=plan_like(context, like, list(others)) if others else None,
        rebalance=request.rebalance,
        parallelism=context.parallelism,
        stored_rows=int(stored_lengths(remap_plan, base.num_partitions).sum()),
        delta_rows=request.delta.rows if request.delta else None,
    )


def merged_plan(plan: VectorPlan, fragments: Sequence[int], rows: int, parallelism: int) -> VectorPlan:
    """The plan for rows that are already encoded."""
    held = rows * (plan.code_bytes + 4) * REDUCE_COPIES
    reducers = min(reducers_for(held, plan.kind, parallelism, plan.memory_bytes), plan.num_partitions)
    return replace(plan, fragments=tuple(fragments), rows=rows, slices=(), reducers=reducers, vectors_per_row=1)


def stored_lengths(remap_plan: RemapPlan, num_partitions: int) -> npt.NDArray[np.int64]:
    """Rows of each partition of all sources, by their new numbers."""
    lengths = np.zeros(num_partitions, dtype=np.int64)
    for source in remap_plan.sources:
        own = open_files(remap_plan.pin, source.segment).layout.lengths
        own = own if source.partitions is None else own[list(source.partitions)]
        lengths[: len(own)] += own
    return lengths


def _share_models(pin: Pin, like: IndexSegment, other: IndexSegment) -> bool:
    if other.index_version != like.index_version:
        return False
    return _models(open_files(pin, other)).same_as(_models(open_files(pin, like)))


def _models(files: VectorFiles) -> TrainedModels:
    return TrainedModels(files.ivf, files.quantizer)
