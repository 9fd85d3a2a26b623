"""The work on inverted indices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict

from pennon.engine import Engine
from pennon.errors import DamagedFile, DamagedIndexWarning, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.kind import INVERTED
from pennon.index.inverted.options import Inverted
from pennon.jobs.inverted.audit import InvertedAudit
from pennon.jobs.inverted.build import build_inverted
from pennon.jobs.inverted.merge import merge_inverted
from pennon.jobs.inverted.plan import InvertedPlan, plan_inverted
from pennon.jobs.inverted.plan_merge import InvertedMerge, plan_inverted_merge
from pennon.jobs.inverted.upkeep import upkeep_of
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext, Upkeep
from pennon.jobs.shared.remap import RemapPlan


class InvertedJobs(JobsDefaults):
    audit = InvertedAudit()

    def plan(self, snapshot: Snapshot, column: str, options: Inverted, request: BuildRequest) -> InvertedPlan:
        return plan_inverted(snapshot, column, options.params, **asdict(request))

    def misfit(self, snapshot: Snapshot, plan: InvertedPlan, other: IndexSegment) -> str | None:
        if not INVERTED.claims(other):
            return None  # the commit refuses it
        try:
            theirs = INVERTED.metadata_of(snapshot, other).params
        except UnsupportedTable:
            return "of a form that only pylance extends, the new segment of Pennon's"
        except DamagedFile:
            return None
        ours = plan.target.params
        differing = [name for name, value in asdict(ours).items() if value != getattr(theirs, name)]
        if not differing:
            return None
        return f"built with {_listed(theirs, differing)}, the new segment with {_listed(ours, differing)}"

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> InvertedPlan:
        return self._plan_with(context, like, _recorded_params(context.snapshot, [like]), fragments)

    def plan_rebuild(
        self,
        context: PlanContext,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> InvertedPlan:
        segments = (*staying, *leaving)
        return self._plan_with(context, segments[0], _recorded_params(context.snapshot, segments), fragments)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> InvertedMerge:
        snapshot, like, delta = context.snapshot, request.largest, request.delta
        addresses = INVERTED.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
        return plan_inverted_merge(
            snapshot,
            context.column_of(like),
            RemapPlan(snapshot.pin(), addresses, request.sources, request.address_map),
            like=like,
            memory_bytes=context.memory_bytes,
            delta_rows=delta.rows if delta else None,
            delta_bytes=delta.index_bytes if delta else 0,
        )

    def build(self, engine: Engine, snapshot: Snapshot, plan: InvertedPlan) -> IndexSegment:
        return build_inverted(engine, snapshot, plan)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: InvertedMerge) -> IndexSegment:
        return merge_inverted(engine, snapshot, plan)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> Upkeep | None:
        return upkeep_of(snapshot, segments)

    def _plan_with(
        self, context: PlanContext, like: IndexSegment, params: TextParams, fragments: Sequence[int] | None
    ) -> InvertedPlan:
        return plan_inverted(
            context.snapshot,
            context.column_of(like).path,
            params,
            name=like.name,
            fragment_ids=fragments or None,  # none at all: of an empty table
            parallelism=context.parallelism,
            memory_bytes=context.memory_bytes,
            index_version=like.index_version,
        )


def _recorded_params(snapshot: Snapshot, segments: Sequence[IndexSegment]) -> TextParams:
    """The parameters of the first segment whose files can be read; else those of the manifest, where stop words of the
    index's own are not recorded."""
    for segment in segments:
        try:
            return INVERTED.metadata_of(snapshot, segment).params
        except DamagedFile:
            continue
    first = segments[0]
    params = TextParams.from_details(first.details)
    if params.remove_stop_words:
        warnings.warn(
            f"the files of index {first.name!r} of {snapshot.uri} are damaged: if it was built with custom_stop_words,"
            " these are lost, and a segment is built with those of the language",
            DamagedIndexWarning,
            stacklevel=2,
        )
    return params


def _listed(params: TextParams, names: Sequence[str]) -> str:
    return ", ".join(f"{name}={getattr(params, name)!r}" for name in names)
