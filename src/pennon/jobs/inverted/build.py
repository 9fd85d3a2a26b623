"""Build an inverted index: tasks write partitions into the final directory, the driver lists them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.engine import Engine
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Int64s
from pennon.index.inverted.build import PartitionBuilder
from pennon.jobs.inverted.join import join_small
from pennon.jobs.inverted.plan import InvertedPlan, Target
from pennon.jobs.inverted.written import WrittenPartition, finished, partition_numbers
from pennon.jobs.shared.cleanup import delete_on_failure
from pennon.wording import human_bytes

# Of the memory of a partition, the text that is analyzed between two looks at how much is in use.
PIECES = 32


def build_inverted(engine: Engine, snapshot: Snapshot, plan: InvertedPlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    target, uuid = plan.target, str(uuid4())
    with delete_on_failure(snapshot.store, uuid):
        tasks = list(enumerate(plan.slices))
        made = engine.map("build", partial(build_slice, target, uuid), tasks, rows=plan.rows) if tasks else []
        partitions = [part for parts in made for part in parts]
        return finished(
            snapshot,
            uuid,
            join_small(engine, target, uuid, partitions),
            target.params,
            name=target.name,
            field_id=target.field_id,
            fragments=plan.fragments,
            index_version=target.index_version,
        )


def build_slice(target: Target, uuid: str, numbered: tuple[int, ScanSlice]) -> list[WrittenPartition]:
    """Task: the partition of a slice, or several where one would take too much memory."""
    task, part = numbered
    store, numbers = target.pin.open().store, partition_numbers(task)
    written: list[WrittenPartition] = []

    def write(builder: PartitionBuilder) -> None:
        number = next(numbers)
        files = builder.write(store, segment_directory(uuid), number)
        if files:
            written.append(WrittenPartition(number, tuple(files)))

    builder = PartitionBuilder(target.params)
    for values, row_ids in _documents(target, part):
        _check_longest(target, values, row_ids)
        for first, last in _pieces(values, target.partition_bytes // PIECES):
            builder.add(values.slice(first, last - first), row_ids[first:last])
            if builder.used_bytes > target.partition_bytes:
                write(builder)
                builder = PartitionBuilder(target.params)
    write(builder)
    return written


def _documents(target: Target, part: ScanSlice) -> Iterator[tuple[pa.Array, Addresses]]:
    """The live rows of a slice by row id; BuildFailed where the scan does not give all of them."""
    snapshot, seen = target.pin.open(), 0
    given = snapshot.column(target.column), part, target.batch_rows, target.batch_bytes
    for values, addresses in snapshot.scan_column(*given):
        seen += len(values)
        yield values, ids_of(addresses, snapshot.row_ids) if target.stable_row_ids else addresses
    expected = snapshot.slice_rows(part)
    if seen != expected:
        problem = f"a scan of {snapshot.uri} returned {seen:,} rows of {expected:,}"
        raise BuildFailed(problem, "Nothing was committed; run it again")


def _check_longest(target: Target, values: pa.Array, row_ids: Addresses) -> None:
    """A document is never divided. BuildFailed where one takes more memory than a task has."""
    if values.nbytes <= target.longest_text:
        return
    sizes = _row_bytes(values)
    place = int(sizes.argmax())
    if sizes[place] > target.longest_text:
        needed = int(sizes[place]) * target.memory_bytes // target.longest_text
        raise BuildFailed(
            f"the text of row {row_ids[place]} in column {target.column!r} has {human_bytes(int(sizes[place]))}; to "
            f"index it takes about {human_bytes(needed)}, and a task may take {human_bytes(target.memory_bytes)}",
            "Pass a larger task_memory_bytes, or shorten the text; nothing was committed",
        )


def _pieces(values: pa.Array, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of rows with at most some bytes, or of one row: a few long documents among short ones must not
    take more memory than the plan has for all."""
    if values.nbytes <= most_bytes:
        yield 0, len(values)
        return
    ends = np.cumsum(_row_bytes(values))
    first = 0
    while first < len(values):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most_bytes, "right")))
        yield first, last
        first = last


def _row_bytes(values: pa.Array) -> Int64s:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        return pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    items = pc.fill_null(pc.binary_length(values.flatten()), 0).to_numpy(zero_copy_only=False)
    counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    reached = np.concatenate([[0], np.cumsum(items, dtype=np.int64)])
    return np.diff(reached[np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])])
