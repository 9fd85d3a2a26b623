"""Merge vector segments that share their models: partition by partition, with unchanged codes.

Every task takes neighboring partitions from all segments; graphs are rebuilt if rows were joined or removed. A
merge of one segment remaps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.vector.files.storage import Partition, VectorFiles
from pennon.index.vector.hnsw.graph import GRAPH_SCHEMA
from pennon.index.vector.quantizers.base import concat_columns, take_columns
from pennon.jobs.shared.cleanup import delete_attempts_on_failure, delete_segment_files, scratch_directory
from pennon.jobs.shared.remap import MergeSource, Remapper, RemapPlan
from pennon.jobs.vector.build import SegmentRuns, assemble, build_vector, cut_by_weight
from pennon.jobs.vector.models import ModelFiles
from pennon.jobs.vector.open_files import open_files
from pennon.jobs.vector.partitions import PartitionRun, build_partition_graph, write_partitions
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.plan_merge import VectorMerge, merged_plan, stored_lengths
from pennon.jobs.vector.rebalance import rebalance

# Codes of one segment that a task reads at a time.
READ_BYTES = 32 << 20
# Segments read at a time.
READING_THREADS = 4


def merge_vector(engine: Engine, snapshot: Snapshot, plan: VectorMerge) -> IndexSegment:
    """Write the files of one segment with the rows of several; the caller commits it."""
    assert not plan.is_estimate, "a source does not exist yet"
    base, remap_plan = plan.base, plan.remap_plan
    temporary: list[IndexSegment] = []
    try:
        if plan.recoded is not None:
            temporary += build_vector(engine, snapshot, plan.recoded)
            recoded = MergeSource(temporary[-1], FrozenBitMap(plan.recoded.fragments))
            remap_plan = replace(remap_plan, sources=(*remap_plan.sources, recoded))
        with scratch_directory(snapshot.store) as scratch, delete_attempts_on_failure(snapshot.store, scratch):
            if plan.rebalance and not base.vectors.several:
                base, remap_plan = rebalance(engine, snapshot, base, remap_plan, scratch, temporary)
            return _merge_shared(engine, snapshot, base, remap_plan, plan.parallelism)
    finally:
        for segment in temporary:
            delete_segment_files(snapshot.store, segment)


def _merge_shared(
    engine: Engine, snapshot: Snapshot, base: VectorPlan, remap_plan: RemapPlan, parallelism: int
) -> IndexSegment:
    """Merge sources that all have the models of `base`."""
    assert base.models is not None
    lengths = stored_lengths(remap_plan, base.num_partitions)
    rows = int(lengths.sum())
    plan = merged_plan(base, list(remap_plan.coverage), rows, parallelism)
    losses = [open_files(remap_plan.pin, source.segment).ivf.loss for source in remap_plan.sources]
    store = snapshot.store
    with scratch_directory(store) as scratch, delete_attempts_on_failure(store, scratch):
        bounds = cut_by_weight(lengths + 1.0, plan.reducers)
        task = partial(_merge_partitions, plan.for_tasks(), base.models, remap_plan, scratch, bounds)
        runs = engine.map("merge", task, range(len(bounds) - 1), rows=rows)
        loss = None if None in losses else float(sum(loss or 0.0 for loss in losses))
        [merged] = assemble(engine, snapshot, plan, base.models, scratch, [SegmentRuns(plan.fragments, loss, runs)])
        return merged


@dataclass(frozen=True, eq=False)
class _Merged:
    """Neighboring partitions; for each, `untouched` is the source that has all of its rows unchanged, or None."""

    partitions: list[Partition]
    untouched: list[int | None]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.partitions))

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)


def _merge_partitions(
    plan: VectorPlan, files: ModelFiles, remap_plan: RemapPlan, scratch: str, bounds: tuple[int, ...], number: int
) -> PartitionRun:
    """Task: the partitions of one range, from all segments."""
    first, end = bounds[number], bounds[number + 1]
    merged = _merge(plan, remap_plan, first, end)
    models = files.load()

    def build(number: int, partition: Partition) -> tuple[pa.RecordBatch, str]:
        source = merged.untouched[number - first]
        if source is not None and len(partition):
            chosen = remap_plan.sources[source]
            old = number if chosen.partitions is None else chosen.partitions[number]
            batch, metadata = open_files(remap_plan.pin, chosen.segment).read_graph(old)
            if batch.schema.equals(GRAPH_SCHEMA):  # older graphs lack a column
                return batch, metadata
        return build_partition_graph(plan, models, number, partition)

    return write_partitions(plan, models, scratch, first, merged, build)


def _merge(plan: VectorPlan, remap_plan: RemapPlan, first: int, end: int) -> _Merged:
    parts: list[list[tuple[int, Partition, bool]]] = [[] for _ in range(first, end)]
    rows = READ_BYTES // plan.code_bytes

    def remapped(source: MergeSource) -> list[tuple[int, Partition, bool]]:
        files = open_files(remap_plan.pin, source.segment)
        return list(_remapped(files, source, remap_plan.remapper(source), first, end, rows))

    # An object store has a high latency but serves many requests at once.
    with ThreadPoolExecutor(READING_THREADS) as threads:
        for place, found in enumerate(threads.map(remapped, remap_plan.sources)):
            for number, partition, whole in found:
                parts[number - first].append((place, partition, whole))
    empty = open_files(remap_plan.pin, remap_plan.sources[0].segment).empty
    joined = [_joined(found, empty) for found in parts]
    return _Merged([partition for partition, _ in joined], [source for _, source in joined])


def _joined(found: Sequence[tuple[int, Partition, bool]], empty: Partition) -> tuple[Partition, int | None]:
    """Rows of several segments are sorted by id, so that the result does not depend on the order of merges."""
    if not found:
        return empty, None
    if len(found) == 1:
        place, partition, whole = found[0]
        return partition, place if whole else None
    found = sorted(found, key=lambda part: part[1].row_ids[0])
    ids = np.concatenate([partition.row_ids for _, partition, _ in found])
    columns = concat_columns([partition.columns for _, partition, _ in found])
    if (ids[1:] >= ids[:-1]).all():  # usually each segment covers later fragments than the previous one
        return Partition(ids, columns), None
    order = np.argsort(ids, kind="stable")
    return Partition(ids[order], take_columns(columns, order)), None


def _remapped(
    files: VectorFiles, source: MergeSource, remapper: Remapper, first: int, end: int, rows: int
) -> Iterator[tuple[int, Partition, bool]]:
    """The partitions of a source that have rows to keep, by their new numbers, and whether all of their rows are kept;
    in reads of about `rows` rows."""
    new_numbers = {number: number for number in range(first, end)}
    if source.partitions is not None:
        new_numbers = {old: first + at for at, old in enumerate(source.partitions[first:end])}
    low, high = min(new_numbers, default=0), max(new_numbers, default=-1) + 1
    for start, stop in _pieces(files.layout.lengths, low, high, max(1, rows)):
        stored_ids, stored, cuts = files.read_rows(start, stop)
        ids, kept = remapper.remap(stored_ids)
        all_kept = bool(kept.all())
        for old, cut in enumerate(cuts, start):
            if cut.start == cut.stop or old not in new_numbers:
                continue
            columns = files.quantizer.unpack({name: column[cut] for name, column in stored.items()})
            chosen = kept[cut]
            if all_kept or chosen.all():
                yield new_numbers[old], Partition(ids[cut], columns), True
            elif chosen.any():
                yield (
                    new_numbers[old],
                    Partition(ids[cut][chosen], take_columns(columns, np.flatnonzero(chosen))),
                    False,
                )


def _pieces(lengths: npt.NDArray[np.int64], first: int, end: int, rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of partitions of about `rows` rows, at least one partition each."""
    low, held = first, 0
    for number in range(first, end):
        if held and held + int(lengths[number]) > rows:
            yield low, number
            low, held = number, 0
        held += int(lengths[number])
    if low < end:
        yield low, end
