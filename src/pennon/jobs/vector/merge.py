"""Merge vector segments that share their models: partition by partition, codes as they are.

Every task takes neighbouring partitions from all segments; graphs are drawn anew where rows came together or went. One
segment is a merge too: that is how rows get their new addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine import Engine
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import Partition, VectorFiles
from pennon.index.vector.hnsw.graph import GRAPH_SCHEMA
from pennon.index.vector.quantizers.base import concat_columns, take_columns
from pennon.jobs.shared.cleanup import scratch_directory
from pennon.jobs.shared.remap import Carrier, Carrying, Source
from pennon.jobs.vector.build import assemble, cut_by_weight
from pennon.jobs.vector.models import ModelFiles
from pennon.jobs.vector.partitions import Runs, draw_graph, write_partitions
from pennon.jobs.vector.plan import VectorPlan, merged_plan

# Codes of one segment that a task reads at a time.
READ_BYTES = 32 << 20
# Segments read at a time.
READING_THREADS = 4


def merge_vector(
    engine: Engine, snapshot: Snapshot, like: VectorPlan, carrying: Carrying, parallelism: int
) -> IndexSegment:
    """Write the files of one segment with the rows of several; the caller commits it. `like` is a plan with the models
    that all of them have."""
    assert like.models is not None
    opened = [open_files(carrying.pin, source.segment) for source in carrying.sources]
    lengths = np.zeros(like.models.load().ivf.num_partitions, dtype=np.int64)
    for source, files in zip(carrying.sources, opened, strict=True):
        own = files.layout.lengths
        own = own if source.partitions is None else own[list(source.partitions)]
        lengths[: len(own)] += own
    plan = merged_plan(like, list(carrying.coverage), int(lengths.sum()), parallelism)
    losses = [files.ivf.loss for files in opened]
    with scratch_directory(snapshot.store) as scratch:
        bounds = cut_by_weight(lengths + 1.0, plan.reducers)
        task = partial(_merge_partitions, plan.for_tasks(), like.models, carrying, scratch, bounds)
        runs = engine.map("merge", task, range(len(bounds) - 1), rows=int(lengths.sum()))
        loss = None if None in losses else float(sum(loss or 0.0 for loss in losses))
        return assemble(engine, snapshot, plan, like.models, loss, runs)


@dataclass(frozen=True, eq=False)
class _Merged:
    """Neighbouring partitions; `untouched` says of each which source has all of its rows as they were, None: none."""

    partitions: list[Partition]
    untouched: list[int | None]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.partitions))

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions)


def _merge_partitions(
    plan: VectorPlan, files: ModelFiles, carrying: Carrying, scratch: str, bounds: tuple[int, ...], number: int
) -> Runs:
    """Task: the partitions of one range, from all segments."""
    first, end = bounds[number], bounds[number + 1]
    merged = _merge(plan, carrying, first, end)
    models = files.load()

    def draw(number: int, partition: Partition) -> tuple[pa.RecordBatch, str]:
        source = merged.untouched[number - first]
        if source is not None and len(partition):
            chosen = carrying.sources[source]
            old = number if chosen.partitions is None else chosen.partitions[number]
            batch, said = open_files(carrying.pin, chosen.segment).read_graph(old)
            if batch.schema.equals(GRAPH_SCHEMA):  # older ones lack a column
                return batch, said
        return draw_graph(plan, models, number, partition)

    return write_partitions(plan, models, scratch, first, merged, draw)


def _merge(plan: VectorPlan, carrying: Carrying, first: int, end: int) -> _Merged:
    parts: list[list[tuple[int, Partition, bool]]] = [[] for _ in range(first, end)]
    rows = READ_BYTES // plan.code_bytes

    def carried(source: Source) -> list[tuple[int, Partition, bool]]:
        files = open_files(carrying.pin, source.segment)
        return list(_carried(files, source, carrying.carrier(source), first, end, rows))

    # An object store answers slowly, but many at once.
    with ThreadPoolExecutor(READING_THREADS) as threads:
        for place, found in enumerate(threads.map(carried, carrying.sources)):
            for number, partition, whole in found:
                parts[number - first].append((place, partition, whole))
    empty = open_files(carrying.pin, carrying.sources[0].segment).empty
    joined = [_joined(found, empty) for found in parts]
    return _Merged([partition for partition, _ in joined], [source for _, source in joined])


def _joined(found: Sequence[tuple[int, Partition, bool]], empty: Partition) -> tuple[Partition, int | None]:
    """Rows of several segments come in the order of their ids, so that the order of merges leaves no trace."""
    if not found:
        return empty, None
    if len(found) == 1:
        place, partition, whole = found[0]
        return partition, place if whole else None
    found = sorted(found, key=lambda part: part[1].row_ids[0])
    ids = np.concatenate([partition.row_ids for _, partition, _ in found])
    columns = concat_columns([partition.columns for _, partition, _ in found])
    if (ids[1:] > ids[:-1]).all():  # as a rule every segment has fragments of its own, one after another
        return Partition(ids, columns), None
    order = np.argsort(ids, kind="stable")
    return Partition(ids[order], take_columns(columns, order)), None


def _carried(
    files: VectorFiles, source: Source, carrier: Carrier, first: int, end: int, rows: int
) -> Iterator[tuple[int, Partition, bool]]:
    """The partitions of a source that have rows to take over, by the numbers they will have, and whether all of their
    rows are; in reads of about so many rows."""
    new_numbers = {number: number for number in range(first, end)}
    if source.partitions is not None:
        new_numbers = {old: first + at for at, old in enumerate(source.partitions[first:end])}
    low, high = min(new_numbers, default=0), max(new_numbers, default=-1) + 1
    for start, stop in _pieces(files.layout.lengths, low, high, max(1, rows)):
        stored_ids, stored, cuts = files.read_rows(start, stop)
        ids, kept = carrier.carry(stored_ids)
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
    """Stretches of partitions of about so many rows, at least one partition each."""
    low, held = first, 0
    for number in range(first, end):
        if held and held + int(lengths[number]) > rows:
            yield low, number
            low, held = number, 0
        held += int(lengths[number])
    if low < end:
        yield low, end


def open_files(pin: Pin, segment: IndexSegment) -> VectorFiles:
    """Opened once per process: files never change."""
    return _open_files(pin.location, segment.directory, tuple(segment.file_sizes.items()))


@lru_cache(maxsize=128)
def _open_files(location: Location, directory: str, sizes: tuple[tuple[str, int], ...]) -> VectorFiles:
    return VectorFiles(open_store(location), directory, dict(sizes))
