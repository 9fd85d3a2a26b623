"""Split partitions that are too large and join those that are nearly empty.

Only rows of such partitions are encoded again: executors fetch their vectors, assign them to the new centroids, encode
them and write them as a separate segment, which is then merged with the rows of the others.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS
from pennon.format.snapshot import Snapshot
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.partition_balance import Imbalance
from pennon.index.vector.vectors import Vectors
from pennon.jobs.shared.remap import MergeSource, RemapPlan
from pennon.jobs.vector.build import SegmentRuns, assemble, cut_by_weight, send_coded
from pennon.jobs.vector.models import ModelFiles, TrainedModels, write_models
from pennon.jobs.vector.open_files import open_files
from pennon.jobs.vector.partitions import write_runs
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.plan_like import partition_size
from pennon.jobs.vector.sample import indexable_vectors

# Training vectors per child of a partition.
ROWS_PER_CHILD = 256


def rebalance(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    remap_plan: RemapPlan,
    scratch: str,
    temporary: list[IndexSegment],
) -> tuple[VectorPlan, RemapPlan]:
    """Plan a merge in which partitions are split and joined if they differ too much from their target size. A segment
    that is written for it is added to `temporary`."""
    assert plan.like is not None
    lengths = np.sum([open_files(remap_plan.pin, s.segment).layout.lengths for s in remap_plan.sources], axis=0)
    imbalance = Imbalance.of(lengths, partition_size(plan.like, open_files(remap_plan.pin, plan.like)))
    if not imbalance:
        return plan, remap_plan
    files = _rebalanced_models(engine, snapshot, plan, remap_plan, imbalance, scratch)
    temporary.append(_recode(engine, snapshot, plan, remap_plan, imbalance, files, scratch))
    kept = tuple(imbalance.kept(plan.num_partitions).tolist())
    sources = [replace(source, partitions=kept) for source in remap_plan.sources]
    recoded = MergeSource(temporary[-1], FrozenBitMap(remap_plan.coverage))
    plan = replace(plan, models=files, num_partitions=files.load().ivf.num_partitions)
    return plan, replace(remap_plan, sources=(*sources, recoded))


def _rebalanced_models(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    remap_plan: RemapPlan,
    imbalance: Imbalance,
    scratch: str,
) -> ModelFiles:
    """The remaining centroids, followed by those of all children; the quantizer is unchanged."""
    assert plan.models is not None
    models = plan.models.load()
    pairs = list(zip(imbalance.outgrown.tolist(), imbalance.children.tolist(), strict=True))
    children = engine.map("split", partial(_children, plan.for_tasks(), remap_plan), pairs)
    kept = models.ivf.centroids[imbalance.kept(models.ivf.num_partitions)]
    centroids = np.concatenate([kept, *children]).astype(models.ivf.centroids.dtype)
    new = TrainedModels(Ivf(models.ivf.metric, centroids), models.quantizer)
    return write_models(snapshot.store, plan.pin, scratch, new, plan.storage_version)


def _recode(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    remap_plan: RemapPlan,
    imbalance: Imbalance,
    files: ModelFiles,
    scratch: str,
) -> IndexSegment:
    """A segment with the rows of the removed partitions, encoded with the new models."""
    partitions = np.concatenate([imbalance.outgrown, imbalance.tiny]).tolist()
    count = files.load().ivf.num_partitions
    plan = replace(plan, num_partitions=count, models=files, slices=())
    bounds = cut_by_weight(np.ones(count), plan.reducers)
    tasks = plan.for_tasks()
    opened = [open_files(remap_plan.pin, source.segment) for source in remap_plan.sources]
    written = engine.exchange(
        "recode",
        partial(_recode_partition, tasks, files, remap_plan, bounds),
        partitions,
        partial(write_runs, tasks, files, scratch, bounds, None),
        len(bounds) - 1,
        rows=sum(int(segment.layout.lengths[partitions].sum()) for segment in opened),
    ).reduced
    runs = [written[number] for number in sorted(written)]
    [segment] = assemble(engine, snapshot, plan, files, scratch, [SegmentRuns(plan.fragments, None, runs)])
    return segment


def _children(plan: VectorPlan, remap_plan: RemapPlan, task: tuple[int, int]) -> Vectors:
    """Task: centroids for the children of a partition."""
    partition, count = task
    ids = np.concatenate(list(_rows(remap_plan, partition)))
    rng = np.random.default_rng(plan.seed + partition)
    chosen = np.sort(rng.choice(ids, min(len(ids), count * ROWS_PER_CHILD), replace=False))
    vectors, _ = _fetch(plan, remap_plan, chosen)
    return Ivf.train(vectors, plan.metric, min(count, len(vectors)), seed=plan.seed + partition).centroids


def _recode_partition(
    plan: VectorPlan, files: ModelFiles, remap_plan: RemapPlan, bounds: tuple[int, ...], partition: int
) -> Generator[tuple[int, pa.RecordBatch]]:
    """Map task: the rows of one partition, cut by destination."""
    models = files.load()
    for ids in _rows(remap_plan, partition):
        for start in range(0, len(ids), plan.batch_rows):
            vectors, found = _fetch(plan, remap_plan, ids[start : start + plan.batch_rows])
            yield from send_coded(plan, models, bounds, vectors, found)


def _rows(remap_plan: RemapPlan, partition: int) -> Iterator[Addresses]:
    """Ids of a partition that the new segment keeps, ascending, source by source."""
    for source in remap_plan.sources:
        stored = open_files(remap_plan.pin, source.segment).read_partition(partition)
        ids, kept = remap_plan.remapper(source).remap(stored.row_ids)
        yield np.sort(ids[kept])


def _fetch(plan: VectorPlan, remap_plan: RemapPlan, ids: Addresses) -> tuple[Vectors, Addresses]:
    """Vectors of the table, prepared, and their ids, by ascending address."""
    snapshot = plan.pin.open()
    addresses = ids
    if not remap_plan.stores_addresses:
        addresses, _ = snapshot.address_of_id.locate(ids)
        order = np.argsort(addresses)
        addresses, ids = addresses[order], ids[order]
    if not len(ids):
        return np.empty((0, plan.dim), dtype=plan.element), ids
    table = snapshot.scanner(
        RowSet.of_addresses(addresses).by_fragment, columns=[plan.column], with_row_address=True
    ).to_table()
    # A scan may not return rows in the order of addresses.
    order = np.argsort(table[ADDRESS].to_numpy())
    vectors, kept = indexable_vectors(plan, table.column(0).combine_chunks().take(pa.array(order)))
    return vectors, ids[kept]
