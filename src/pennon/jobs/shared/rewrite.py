"""New segments in place of old ones, whatever their kind: built over more fragments, or merged from segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedColumn
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import DEFAULT_BATCH_SIZE, LOOKUP_FILE, read_lookup
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.kind import Family
from pennon.index.registry import kind_of
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.partition_balance import Imbalance
from pennon.jobs.btree.build import build_btree
from pennon.jobs.btree.merge import merge_btree
from pennon.jobs.btree.plan import BTreeOptions, plan_btree
from pennon.jobs.btree.plan_merge import plan_btree_merge
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.jobs.shared.remap import Carrying, Source
from pennon.jobs.shared.stale_values import held_fragments
from pennon.jobs.vector.build import build_vector
from pennon.jobs.vector.merge import merge_vector, open_files
from pennon.jobs.vector.models import Models
from pennon.jobs.vector.plan import VectorPlan, partition_size, plan_like
from pennon.jobs.vector.rebalance import rebalanced_models, recode


@dataclass(frozen=True)
class Rewriting:
    """Where and with what segments are written. Nothing here commits."""

    engine: Engine
    snapshot: Snapshot
    memory_bytes: int

    def build(self, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False) -> IndexSegment:
        """A segment over some fragments (None: all) of the same kind as one that exists, with its models unless they
        are to be trained anew."""
        column = self.column_of(like)
        common: dict[str, Any] = {
            "fragment_ids": fragments or None,  # none at all: of an empty table
            "parallelism": self.engine.parallelism,
            "memory_bytes": self.memory_bytes,
        }
        if _family(like) is Family.VECTOR:
            plan = plan_like(self.snapshot, column, like, retrain=retrain, **common)
            return _as_before(build_vector(self.engine, self.snapshot, plan), like, retrain)
        options = BTreeOptions(batch_size=self._batch_size(like, column))
        return build_btree(
            self.engine, self.snapshot, plan_btree(self.snapshot, column.path, options, name=like.name, **common)
        )

    def merge(
        self,
        sources: Sequence[Source],
        moves: str | None = None,
        *,
        may_copy: bool = False,
        rebalance: bool = False,
    ) -> IndexSegment:
        """One segment with the rows of several, with the models of the largest. `rebalance` lets partitions of a vector
        index be split and joined."""
        like = max((source.segment for source in sources), key=lambda segment: segment.size_bytes)
        column, kind = self.column_of(like), kind_of(like)
        stable = self.snapshot.manifest.has_stable_row_ids
        addresses = kind is None or kind.stores_addresses(like.index_version, stable)
        parallelism = self.engine.parallelism
        if _family(like) is Family.SCALAR:
            carrying = Carrying(self.snapshot.pin(), addresses, tuple(sources), moves)
            plan = plan_btree_merge(
                self.snapshot,
                column,
                carrying,
                name=like.name,
                parallelism=parallelism,
                memory_bytes=self.memory_bytes,
                may_copy=may_copy and moves is None and self._unmoved(sources),
            )
            return merge_btree(self.engine, self.snapshot, plan)
        temporary: list[IndexSegment] = []
        try:
            shared = self._reconciled(like, sources, temporary)
            carrying = Carrying(self.snapshot.pin(), addresses, tuple(shared), moves)
            common: dict[str, Any] = {"parallelism": parallelism, "memory_bytes": self.memory_bytes}
            plan = plan_like(self.snapshot, column, like, fragment_ids=None, **common)
            with scratch_directory(self.snapshot.store) as scratch:
                if rebalance:
                    plan, carrying = self._rebalanced(like, plan, carrying, scratch, temporary)
                return _as_before(merge_vector(self.engine, self.snapshot, plan, carrying, parallelism), like)
        finally:
            for segment in temporary:
                self.discard(segment)

    def _rebalanced(
        self, like: IndexSegment, plan: VectorPlan, carrying: Carrying, scratch: str, temporary: list[IndexSegment]
    ) -> tuple[VectorPlan, Carrying]:
        """With partitions split and joined where they are too uneven; `like` tells how large they were meant to be."""
        opened = [open_files(carrying.pin, source.segment) for source in carrying.sources]
        lengths = np.sum([files.layout.lengths for files in opened], axis=0)
        imbalance = Imbalance.of(lengths, partition_size(like, open_files(carrying.pin, like)))
        if not imbalance:
            return plan, carrying
        files = rebalanced_models(self.engine, self.snapshot, plan, carrying, imbalance, scratch)
        temporary.append(recode(self.engine, self.snapshot, plan, carrying, imbalance, files, scratch))
        kept = tuple(imbalance.kept(plan.num_partitions).tolist())
        sources = [replace(source, partitions=kept) for source in carrying.sources]
        recoded = Source(temporary[-1], FrozenBitMap(carrying.coverage))
        plan = replace(plan, models=files, num_partitions=files.load().ivf.num_partitions)
        return plan, replace(carrying, sources=(*sources, recoded))

    def move(self, source: Source, moves: str | None = None) -> IndexSegment:
        """A segment with its rows at today's addresses, or at those of a compaction under way. It stays as old as it
        was."""
        return replace(self.merge([source], moves), created_at=source.segment.created_at)

    def discard(self, segment: IndexSegment) -> None:
        """Remove files that no version names."""
        self.snapshot.store.delete_directory(segment.directory)

    def column_of(self, segment: IndexSegment) -> Column:
        column = self.snapshot.columns.by_id(segment.field_id)
        if column is None:
            raise UnsupportedColumn(f"the column of index {segment.name!r} of {self.snapshot.uri} is gone", "Drop it")
        return column

    def _reconciled(self, like: IndexSegment, sources: Sequence[Source], temporary: list[IndexSegment]) -> list[Source]:
        """Sources that have the models of `like`; what others cover is coded anew from the table."""
        pin = self.snapshot.pin()
        models = _models(open_files(pin, like))
        kept: list[Source] = []
        again = BitMap()
        for source in sources:
            alike = source.segment.index_version == like.index_version
            if alike and _models(open_files(pin, source.segment)).same_as(models):
                kept.append(source)
            else:
                again |= source.coverage
        if again:
            temporary.append(self.build(like, list(again)))
            kept.append(Source(temporary[0], FrozenBitMap(again)))
        return kept

    def _unmoved(self, sources: Sequence[Source]) -> bool:
        """Whether every id in the files may stay as it is: none has moved, and none is of a fragment that its segment
        does not cover."""
        if read_fragment_reuse(self.snapshot) is not None:
            return False
        committed = {s.uuid for s in self.snapshot.manifest.segments}
        live = self.snapshot.manifest.live
        return not any(
            held_fragments(self.snapshot, source.segment, live - BitMap(source.coverage), None)
            for source in sources
            if source.segment.uuid in committed
        )

    def _batch_size(self, segment: IndexSegment, column: Column) -> int:
        size = segment.file_sizes.get(LOOKUP_FILE)
        try:
            file = LanceFile(self.snapshot.store, f"{segment.directory}/{LOOKUP_FILE}", size)
            return read_lookup(file, column.type).batch_size
        except DamagedFile:
            return DEFAULT_BATCH_SIZE


def _family(segment: IndexSegment) -> Family:
    kind = kind_of(segment)
    return Family.SCALAR if kind is None or kind is BTREE else kind.family


def _models(files: VectorFiles) -> Models:
    return Models(files.ivf, files.quantizer)


def _as_before(segment: IndexSegment, like: IndexSegment, retrained: bool = False) -> IndexSegment:
    """Older layouts stay what they are as long as their models are used."""
    if retrained:
        return segment
    return replace(segment, index_version=like.index_version, details=like.details or segment.details)
