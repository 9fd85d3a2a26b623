"""Split partitions that have outgrown the others and join those that hold next to nothing.

Only rows of such partitions are touched: executors fetch their vectors, assign them to the new centroids, code them and
write them as a segment of their own, which is then merged with what the others hold.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.addresses import Addresses, split_by_fragment
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import ADDRESS, Snapshot
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.kmeans import train_kmeans
from pennon.index.vector.partition_balance import Imbalance
from pennon.index.vector.vectors import Vectors
from pennon.jobs.shared.remap import Carrying
from pennon.jobs.vector.build import assemble, cut_by_weight, send_coded
from pennon.jobs.vector.merge import open_files
from pennon.jobs.vector.models import ModelFiles, Models, write_models
from pennon.jobs.vector.partitions import write_runs
from pennon.jobs.vector.plan import VectorPlan
from pennon.jobs.vector.sample import indexable_vectors

# Vectors that the centroids of a partition's children are found from, for each child.
ROWS_PER_CHILD = 256


def rebalanced_models(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    carrying: Carrying,
    imbalance: Imbalance,
    scratch: str,
) -> ModelFiles:
    """The centroids that stay, followed by those of all children; the quantizer is as it was."""
    assert plan.models is not None
    models = plan.models.load()
    pairs = list(zip(imbalance.outgrown.tolist(), imbalance.children.tolist(), strict=True))
    children = engine.map("split", partial(_children, plan.for_tasks(), carrying), pairs)
    kept = models.ivf.centroids[imbalance.kept(models.ivf.num_partitions)]
    centroids = np.concatenate([kept, *children]).astype(models.ivf.centroids.dtype)
    new = Models(Ivf(models.ivf.metric, centroids), models.quantizer)
    return write_models(snapshot.store, plan.pin, scratch, new, plan.storage_version)


def recode(
    engine: Engine,
    snapshot: Snapshot,
    plan: VectorPlan,
    carrying: Carrying,
    imbalance: Imbalance,
    files: ModelFiles,
    scratch: str,
) -> IndexSegment:
    """A segment with the rows of the partitions that go, coded by the new models."""
    partitions = np.concatenate([imbalance.outgrown, imbalance.tiny]).tolist()
    count = files.load().ivf.num_partitions
    plan = replace(plan, num_partitions=count, models=files, slices=())
    bounds = cut_by_weight(np.ones(count), plan.reducers)
    tasks = plan.for_tasks()
    opened = [open_files(carrying.pin, source.segment) for source in carrying.sources]
    written = engine.exchange(
        "recode",
        partial(_recode_partition, tasks, files, carrying, bounds),
        partitions,
        partial(write_runs, tasks, files, scratch, bounds),
        len(bounds) - 1,
        rows=sum(int(segment.layout.lengths[partitions].sum()) for segment in opened),
    ).reduced
    runs = [written[number] for number in sorted(written)]
    return assemble(engine, snapshot, plan, files, None, runs)


def _children(plan: VectorPlan, carrying: Carrying, task: tuple[int, int]) -> Vectors:
    """Task: centroids for the children of a partition."""
    partition, count = task
    ids = np.concatenate(list(_rows(carrying, partition)))
    rng = np.random.default_rng(plan.seed + partition)
    chosen = np.sort(rng.choice(ids, min(len(ids), count * ROWS_PER_CHILD), replace=False))
    vectors, _ = _fetch(plan, carrying, chosen)
    spherical = not plan.metric.by_l2
    return train_kmeans(vectors, min(count, len(vectors)), spherical=spherical, seed=plan.seed + partition).centroids


def _recode_partition(
    plan: VectorPlan, files: ModelFiles, carrying: Carrying, bounds: tuple[int, ...], partition: int
) -> Generator[tuple[int, pa.RecordBatch]]:
    """Map task: the rows of one partition, cut by where they go."""
    models = files.load()
    for ids in _rows(carrying, partition):
        for start in range(0, len(ids), plan.batch_rows):
            vectors, found = _fetch(plan, carrying, ids[start : start + plan.batch_rows])
            yield from send_coded(plan, models, bounds, vectors, found)


def _rows(carrying: Carrying, partition: int) -> Iterator[Addresses]:
    """Ids that are carried over of a partition, ascending, source by source."""
    for source in carrying.sources:
        stored = open_files(carrying.pin, source.segment).read_partition(partition)
        ids, kept = carrying.carrier(source).carry(stored.row_ids)
        yield np.sort(ids[kept])


def _fetch(plan: VectorPlan, carrying: Carrying, ids: Addresses) -> tuple[Vectors, Addresses]:
    """Vectors of the table, prepared, and their ids, by ascending address."""
    snapshot = plan.pin.open()
    addresses = ids
    if not carrying.stores_addresses:
        addresses, _ = snapshot.address_of_id.locate(ids)
        order = np.argsort(addresses)
        addresses, ids = addresses[order], ids[order]
    if not len(ids):
        return np.empty((0, plan.dim), dtype=plan.element), ids
    table = snapshot.scanner(split_by_fragment(addresses), columns=[plan.column], with_row_address=True).to_table()
    # A scan need not come in the order of addresses.
    order = np.argsort(table[ADDRESS].to_numpy())
    vectors, kept = indexable_vectors(plan, table.column(0).combine_chunks().take(pa.array(order)))
    return vectors, ids[kept]
