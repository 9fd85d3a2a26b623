"""The work on B-trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pennon.engine import Engine
from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.snapshot import Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import DEFAULT_BATCH_SIZE, LOOKUP_FILE, read_lookup
from pennon.jobs.btree.audit import BTreeAudit
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.merge import merge_btree
from pennon.jobs.btree.plan import BTreeOptions, BTreePlan, plan_btree
from pennon.jobs.btree.plan_merge import plan_btree_merge
from pennon.jobs.kinds import BuildRequest, Work
from pennon.jobs.shared.remap import Carrying, Source


class BTreeJobs:
    audit = BTreeAudit()
    models_in_files = False

    def option_names(self, index_type: str) -> frozenset[str]:
        return frozenset(field.name for field in fields(BTreeOptions))

    def plan(
        self, snapshot: Snapshot, column: str, index_type: str, options: Mapping[str, Any], request: BuildRequest
    ) -> BTreePlan:
        return plan_btree(snapshot, column, BTreeOptions(**options), **asdict(request))

    def misfit(self, snapshot: Snapshot, plan: BTreePlan, other: IndexSegment) -> str | None:
        return None

    def build(self, engine: Engine, snapshot: Snapshot, plan: BTreePlan) -> IndexSegment:
        return build_btree(engine, snapshot, plan)

    def build_like(
        self, work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> IndexSegment:
        plan = plan_btree(
            work.snapshot,
            work.column_of(like).path,
            BTreeOptions(batch_size=_batch_size(work, like)),
            name=like.name,
            fragment_ids=fragments or None,  # none at all: of an empty table
            parallelism=work.engine.parallelism,
            memory_bytes=work.memory_bytes,
        )
        return build_btree(work.engine, work.snapshot, plan)

    def merge(
        self, work: Work, sources: Sequence[Source], moves: str | None, *, unmoved: bool, rebalance: bool
    ) -> IndexSegment:
        like = max((source.segment for source in sources), key=lambda segment: segment.size_bytes)
        addresses = BTREE.stores_addresses(like.index_version, work.snapshot.manifest.has_stable_row_ids)
        plan = plan_btree_merge(
            work.snapshot,
            work.column_of(like),
            Carrying(work.snapshot.pin(), addresses, tuple(sources), moves),
            name=like.name,
            parallelism=work.engine.parallelism,
            memory_bytes=work.memory_bytes,
            may_copy=unmoved,
        )
        return merge_btree(work.engine, work.snapshot, plan)

    def rebuild(
        self,
        work: Work,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> IndexSegment:
        return self.build_like(work, (*staying, *leaving)[0], fragments)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> None:
        return None


def _batch_size(work: Work, segment: IndexSegment) -> int:
    size = segment.file_sizes.get(LOOKUP_FILE)
    try:
        file = LanceFile(work.snapshot.store, f"{segment.directory}/{LOOKUP_FILE}", size)
        return read_lookup(file, work.column_of(segment).type).batch_size
    except DamagedFile:
        return DEFAULT_BATCH_SIZE
