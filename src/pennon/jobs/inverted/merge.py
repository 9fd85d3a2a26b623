"""Merge segments of an inverted index: partitions are joined without their dead documents, under current row ids.

A remap is a merge of one segment. A partition that is not joined and has lost few documents, or none, keeps its
posting lists and dictionary: only its documents are written again. Those that are dead keep the addresses they had, in
fragments that are gone and that the metadata lists as deleted; they count in scores until the partition is written
again. On tables with stable row ids they have no fragment to be masked by, and are always dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.inverted.files import PartitionFiles, copy_partition
from pennon.index.inverted.merge import merge_partitions
from pennon.index.inverted.remap import RemappedPartition, must_rewrite
from pennon.jobs.inverted.plan_merge import InvertedMerge, SourcePartition
from pennon.jobs.inverted.written import WrittenPartition, finished, partition_numbers
from pennon.jobs.shared.cleanup import delete_on_failure


def merge_inverted(engine: Engine, snapshot: Snapshot, plan: InvertedMerge) -> IndexSegment:
    """Write the files of the merged segment; the caller commits it in place of its sources."""
    uuid = str(uuid4())
    common = replace(plan, groups=())  # a task needs its own group only
    with delete_on_failure(snapshot.store, uuid):
        tasks = list(enumerate(plan.groups))
        made = engine.map("merge", partial(_merge_group, common, uuid), tasks, rows=plan.rows) if tasks else []
        return finished(
            snapshot,
            uuid,
            [part for part in made if part is not None],
            plan.params,
            name=plan.name,
            field_id=plan.field_id,
            fragments=plan.remap_plan.coverage,
            index_version=plan.index_version,
        )


def _merge_group(
    plan: InvertedMerge, uuid: str, numbered: tuple[int, Sequence[SourcePartition]]
) -> WrittenPartition | None:
    """Task: the partition that a group becomes; None where no document is left."""
    task, group = numbered
    store, directory = plan.pin.open().store, segment_directory(uuid)
    number = next(partition_numbers(task))
    parts = [_remapped(plan, store, part) for part in group]
    left = [part for part in parts if part.dead < len(part.docs)]
    if len(left) == 1 and not must_rewrite(left, plan.remap_plan.coverage, plan.stable_row_ids):
        [part] = left
        files = copy_partition(part.files, part.docs, store, directory, number)
        return WrittenPartition(number, tuple(files), frozenset(part.dead_fragments))
    sources = [part.source() for part in left]
    files = merge_partitions(sources, store, directory, number, plan.params.with_position)
    return WrittenPartition(number, tuple(files)) if files else None


def _remapped(plan: InvertedMerge, store: Store, part: SourcePartition) -> RemappedPartition:
    source = plan.remap_plan.sources[part.source]
    files = PartitionFiles(store, source.segment.directory, part.number, source.segment.file_sizes)
    remapper = plan.remap_plan.remapper(source)
    return RemappedPartition.of(files, plan.metadata[part.source].deleted_fragments, remapper.remap)
