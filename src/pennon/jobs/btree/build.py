"""Build a B-tree: sample -> cut, exchange -> sort, write ranges -> join lookups."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.engine.spill import batched_by_bytes, buffered
from pennon.errors import BuildFailed
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.rows import ScanSlice
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot
from pennon.index.btree.boundaries import Boundaries, boundaries_from_sample
from pennon.index.btree.guard_rows import GUARD_ROWS, guard
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import PLAIN_PAGE_FILE, PageStats, page_file_name, write_lookup
from pennon.index.btree.packed_run import pack_run, unpack_run, unpacked_bytes
from pennon.index.btree.pages import Run, gather_run, merge_runs, sort_or_merge, sort_run, write_pages
from pennon.index.btree.segment_uuid import segment_uuid
from pennon.index.sorting import kernels
from pennon.index.value_order import is_sorted
from pennon.jobs.btree.plan import DRIVER_SAMPLE, BTreePlan, copies_of
from pennon.jobs.shared.cleanup import delete_on_failure


def build_btree(engine: Engine, snapshot: Snapshot, plan: BTreePlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    if plan.single_task:
        [(uuid, parts)] = engine.map("build", partial(_build_whole, plan), plan.slices, rows=plan.rows)
        with delete_on_failure(snapshot.store, uuid):
            return _finish(snapshot, plan, uuid, parts)
    uuid = segment_uuid(plan.fragments)
    boundaries = boundaries_from_sample(_sample(engine, snapshot, plan), plan.ranges)
    with delete_on_failure(snapshot.store, uuid):
        written = engine.exchange(
            "build",
            partial(_cut_slice, plan, boundaries),
            plan.slices,
            partial(_reduce_range, plan, uuid),
            plan.ranges,
            rows=plan.rows,
        ).reduced
        return _finish(snapshot, plan, uuid, [written[r] for r in sorted(written)])


def _cut_slice(plan: BTreePlan, boundaries: Boundaries, part: ScanSlice) -> Generator[tuple[int, pa.RecordBatch]]:
    """Map task: the rows of a slice cut at the boundaries. The reducer sorts them, unless kernels are missing."""
    for chunks in _scanned(plan, part):
        run = gather_run(chunks, plan.value_type)
        chunks.clear()
        if is_sorted(run.values):
            pieces = boundaries.cut(run)
        elif plan.sorts_early and kernels(run.rows) is None:
            pieces = boundaries.cut(replace(sort_run([(run.values, run.ids)], plan.value_type), null_ids=run.null_ids))
        else:
            pieces = boundaries.scatter(run)
        for number, piece in pieces:
            yield number, pack_run(piece)


def _reduce_range(plan: BTreePlan, uuid: str, number: int, batches: Iterator[pa.RecordBatch]) -> PageStats:
    """Reduce task: sort the pieces of one range and write its page file, under a name unique to this attempt."""
    partition_id = number << 32 | secrets.randbits(32)
    return _write_range(plan, uuid, page_file_name(partition_id), partition_id, guard(_sorted(plan, batches)))


def _sorted(plan: BTreePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[Run]:
    """Sort pieces: all at once, or if they do not fit, in groups that fit, which are then merged."""
    parts = batched_by_bytes(batches, plan.memory_bytes // copies_of(plan.value_type), unpacked_bytes)
    pieces = [unpack_run(batch) for batch in next(parts, ())]
    second = next(parts, None)
    if second is None:
        yield from sort_or_merge(pieces, plan.value_type)
        return

    def in_order() -> Iterator[pa.RecordBatch]:
        yield from (run.to_batch() for run in sort_or_merge(pieces, plan.value_type))
        pieces.clear()
        for some in chain([second], parts):
            runs = [unpack_run(batch) for batch in some]
            some.clear()
            yield from (run.to_batch() for run in sort_or_merge(runs, plan.value_type))

    yield from merge_runs([Run.from_batch(batch) for batch in buffered(in_order(), 0)])


def _build_whole(plan: BTreePlan, part: ScanSlice) -> tuple[str, list[PageStats]]:
    """The only task of a small build: sort everything, cut by position. Each attempt has its own directory."""
    uuid = segment_uuid(plan.fragments)
    with delete_on_failure(plan.pin.open().store, uuid):
        rows = merge_runs([sort_run(chunks, plan.value_type) for chunks in _scanned(plan, part)])
        if plan.ranges == 1:
            return uuid, [_write_range(plan, uuid, PLAIN_PAGE_FILE, 0, rows)]
        edges = [plan.rows * r // plan.ranges for r in range(1, plan.ranges)]
        parts = [
            _write_range(plan, uuid, page_file_name(number << 32), number << 32, guard(pieces))
            for number, pieces in enumerate(_cut_stream(rows, edges))
        ]
        return uuid, parts


def _scanned(plan: BTreePlan, part: ScanSlice) -> Iterator[list[tuple[pa.Array, Addresses]]]:
    """The rows of a slice, in groups that a task may sort at once."""
    snapshot = plan.pin.open()
    chunks: list[tuple[pa.Array, Addresses]] = []
    held = 0
    for values, ids in snapshot.scan_column(snapshot.column(plan.column), part):
        chunks.append((values, ids))
        held += len(values)
        if held >= plan.run_rows:
            yield chunks
            chunks, held = [], 0
    if chunks:
        yield chunks


def _cut_stream(runs: Iterator[Run], edges: list[int]) -> Iterator[Iterator[Run]]:
    """One stream of rows as consecutive streams that end at the given row positions."""
    position = 0
    rest: Run | None = None

    def until(edge: int | None) -> Iterator[Run]:
        nonlocal position, rest
        while rest is not None or (rest := next(runs, None)) is not None:
            room = rest.rows if edge is None else edge - position
            piece, rest = (rest, None) if rest.rows <= room else (rest.slice(0, room), rest.slice(room, rest.rows))
            position += piece.rows
            yield piece
            if position == edge:
                return

    for edge in [*edges, None]:
        yield until(edge)


def _write_range(plan: BTreePlan, uuid: str, file_name: str, partition_id: int, runs: Iterator[Run]) -> PageStats:
    store = plan.pin.open().store
    return write_pages(
        store,
        segment_directory(uuid),
        file_name,
        partition_id,
        runs,
        plan.value_type,
        plan.batch_size,
        plan.storage_version,
    )


def _sample(engine: Engine, snapshot: Snapshot, plan: BTreePlan) -> pa.Array:
    column = snapshot.column(plan.column)
    if plan.sample_rows <= DRIVER_SAMPLE:
        return snapshot.sample_column(column, plan.fragments, plan.sample_rows, seed=plan.pin.version)
    groups = [group for i in range(engine.parallelism * 2) if (group := plan.fragments[i :: engine.parallelism * 2])]
    return pa.concat_arrays(engine.map("sample", partial(_sample_fragments, plan), groups, rows=plan.sample_rows))


def _sample_fragments(plan: BTreePlan, fragments: Sequence[int]) -> pa.Array:
    """The share of the sample of a group of fragments, proportional to its rows."""
    snapshot = plan.pin.open()
    share = snapshot.manifest.rows_in(BitMap(fragments)) / plan.rows
    rows = max(1, round(plan.sample_rows * share))
    return snapshot.sample_column(snapshot.column(plan.column), fragments, rows, seed=plan.pin.version)


def _finish(snapshot: Snapshot, plan: BTreePlan, uuid: str, parts: list[PageStats]) -> IndexSegment:
    """Check the reports of the tasks, join the lookups, and describe the segment."""
    ranged = [part.file.path for part in parts] != [PLAIN_PAGE_FILE]
    rows = sum(part.rows for part in parts) - (GUARD_ROWS * len(parts) if ranged else 0)
    if rows != plan.rows:
        raise BuildFailed(
            f"the tasks indexed {rows:,} of the {plan.rows:,} rows of {plan.pin.location.uri}",
            "Nothing was committed; report this",
        )
    if ranged and any(part.pages == 0 for part in parts):
        raise BuildFailed(f"a range of the new index {plan.name!r} is empty", "Nothing was committed; report this")
    lookup = write_lookup(
        snapshot.store, segment_directory(uuid), plan.value_type, parts, plan.batch_size, plan.storage_version
    )
    contents = write_contents(snapshot.store, uuid, plan.fragments, snapshot.manifest.next_row_id)
    return IndexSegment(
        uuid=uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(plan.fragments)),
        type_url=BTREE.type_url,
        details=b"",
        index_version=BTREE.version_for(plan.stable_row_ids),
        files=(*(part.file for part in parts), lookup, contents),
        created_at=datetime.now(UTC),
    )
