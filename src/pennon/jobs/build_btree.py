"""Build a B-tree: plan -> sample -> sort, cut, exchange -> merge, write ranges -> join lookups."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.errors import BuildFailed, InvalidArgument, UnsupportedColumn
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import Fragment
from pennon.format.schema import Column
from pennon.format.snapshot import Pin, ScanSlice, Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.btree.lookup import PLAIN_PAGE_FILE, PageStats, page_file_name, write_lookup
from pennon.index.btree.order import has_keys
from pennon.index.btree.pages import Run, gather_run, merge_runs, sort_all, sort_run, write_pages
from pennon.index.btree.ranges import Boundaries, boundaries_from_sample
from pennon.index.btree.sentinel import GUARD_ROWS, guard
from pennon.jobs.describe import human_bytes, plural
from pennon.jobs.slices import ROWS_PER_TASK, cut_slices

MAX_ROWS_PER_RANGE = 10_000_000
RANGES_PER_CORE = 4
# Enough for ranges within a few per cent of each other; more where more is cheap, fewer where there are many ranges.
SAMPLES_PER_RANGE = 256
# A sample this small is read by the driver; a larger one by executors.
DRIVER_SAMPLE = 20_000
# Copies of a row alive at once while a task sorts: as scanned, joined, keys, permutation, result.
SORT_COPIES = 6
# Rows of a range as received, and the piece being merged.
MERGE_COPIES = 3
# Boundaries that strings are compared with one by one; with more of them sorting is cheaper.
MOST_COMPARED = 32
# Blocks smaller than this many rows make the exchange slow, so tasks grow with the number of ranges.
ROWS_PER_BLOCK = 16_384
MAX_BATCH_SIZE = 1 << 20


@dataclass(frozen=True)
class BTreePlan:
    """What a build will do, known before it does anything."""

    pin: Pin
    column: str
    field_id: int
    value_type: pa.DataType
    name: str
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    row_bytes: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    run_rows: int
    ranges: int
    batch_size: int
    sample_rows: int
    storage_version: str
    stable_row_ids: bool

    @property
    def single_task(self) -> bool:
        return len(self.slices) <= 1

    @property
    def sorts_early(self) -> bool:
        """Whether map tasks sort, so that reducers only merge. Strings are compared so dearly that they are sorted
        once, by the reducer; to tell their range they are compared with every boundary, so there must be few."""
        return has_keys(self.value_type) or self.ranges > MOST_COMPARED

    @property
    def task_memory_bytes(self) -> int:
        """The most a task is expected to hold."""
        mapped = min(self.rows, self.run_rows) * self.row_bytes * SORT_COPIES
        copies = MERGE_COPIES if self.sorts_early else SORT_COPIES
        reduced = self.rows // max(1, self.ranges) * self.row_bytes * copies
        return max(mapped, 0 if self.single_task else reduced)

    @property
    def pages(self) -> int:
        return -(-self.rows // self.batch_size)

    def __str__(self) -> str:
        shape = "1 task" if self.single_task else f"{plural(len(self.slices), 'map task')}, {self.ranges} to merge"
        lines = [
            f"B-tree {self.name!r} on {self.column} ({self.value_type})",
            f"table     {self.pin.location.uri}, version {self.pin.version}",
            f"rows      {self.rows:,} in {len(self.fragments):,} fragments",
            f"work      {shape}, about {human_bytes(self.task_memory_bytes)} a task",
            f"layout    {plural(self.ranges, 'range')}, about {self.pages:,} pages of {self.batch_size:,} rows",
            f"files     about {human_bytes(self.rows * self.row_bytes)}",
        ]
        return "\n".join(lines)


def plan_btree(
    snapshot: Snapshot,
    column_path: str,
    *,
    name: str | None = None,
    ranges: int | None = None,
    rows_per_range: int | None = None,
    batch_size: int = 4096,
    fragment_ids: Sequence[int] | None = None,
    parallelism: int = 1,
    memory_bytes: int,
    rows_per_task: int | None = None,
) -> BTreePlan:
    column = _indexable_column(snapshot, column_path)
    _check_sizes(ranges=ranges, rows_per_range=rows_per_range, batch_size=batch_size, rows_per_task=rows_per_task)
    fragments = _chosen_fragments(snapshot, fragment_ids)
    rows = sum(f.live_rows for f in fragments)
    row_bytes = _row_bytes(snapshot, column, fragments)
    memory_rows = memory_bytes // (row_bytes * SORT_COPIES)
    run_rows = max(1, min(memory_rows, rows_per_task or ROWS_PER_TASK))
    copies = MERGE_COPIES if has_keys(column.type) else SORT_COPIES
    most_rows = max(1, min(MAX_ROWS_PER_RANGE, memory_bytes // (row_bytes * copies)))
    if rows_per_range:
        ranges = -(-rows // rows_per_range)
    if ranges is None and rows > run_rows:
        ranges = max(-(-rows // most_rows), min(RANGES_PER_CORE * parallelism, -(-rows // ROWS_PER_TASK)))
        ranges = _whole_waves(ranges, parallelism)
    ranges = max(1, min(ranges or 1, -(-rows // batch_size)))
    if rows_per_task is None:
        run_rows = max(run_rows, min(memory_rows, ranges * ROWS_PER_BLOCK))
    # An empty table is one task too, so that its index is written like any other.
    tasks = _whole_waves(-(-rows // run_rows), parallelism) if rows > run_rows else 1
    slices = cut_slices(fragments, tasks) if rows else [ScanSlice(())]
    return BTreePlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        value_type=column.type,
        name=name or f"{column_path}_idx",
        fragments=tuple(f.id for f in fragments),
        rows=rows,
        row_bytes=row_bytes,
        slices=tuple(slices),
        run_rows=run_rows,
        ranges=ranges,
        batch_size=batch_size,
        sample_rows=max(min(DRIVER_SAMPLE, 1024 * (ranges + 3)), SAMPLES_PER_RANGE * ranges),
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
    )


def build_btree(engine: Callable[[], Engine], snapshot: Snapshot, plan: BTreePlan) -> IndexSegment:
    """Write the files of one segment; the caller commits it."""
    if plan.single_task:
        [(uuid, parts)] = engine().map("build", partial(_build_whole, plan), plan.slices)
        with _discarding(snapshot, uuid):
            return _finish(snapshot, plan, uuid, parts)
    uuid = str(uuid4())
    boundaries = boundaries_from_sample(_sample(engine(), snapshot, plan), plan.ranges)
    with _discarding(snapshot, uuid):
        written = engine().exchange(
            "build",
            partial(_cut_slice, plan, boundaries),
            plan.slices,
            partial(_reduce_range, plan, uuid),
            plan.ranges,
        )
        return _finish(snapshot, plan, uuid, [written[r] for r in sorted(written)])


@contextmanager
def _discarding(snapshot: Snapshot, uuid: str) -> Generator[None]:
    """Leave no files behind when a build fails."""
    try:
        yield
    except BaseException:
        snapshot.store.delete_directory(f"_indices/{uuid}")
        raise


def _cut_slice(plan: BTreePlan, boundaries: Boundaries, part: ScanSlice) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Map task: the rows of a slice cut at the boundaries, and sorted where that pays here already."""
    for chunks in _scanned(plan, part):
        if plan.sorts_early:
            pieces = boundaries.cut(sort_run(chunks, plan.value_type))
        else:
            pieces = boundaries.scatter(gather_run(chunks, plan.value_type))
        for number, piece in pieces:
            yield number, piece.to_batch()


def _reduce_range(plan: BTreePlan, uuid: str, number: int, batches: Iterator[pa.RecordBatch]) -> PageStats:
    """Reduce task: put the pieces of one range in order and write its page file, under a name of this attempt alone."""
    partition_id = number << 32 | secrets.randbits(32)
    pieces = [Run.from_batch(batch) for batch in batches]
    rows = merge_runs(pieces) if plan.sorts_early else sort_all(pieces, plan.value_type)
    return _write_range(plan, uuid, page_file_name(partition_id), partition_id, guard(rows))


def _build_whole(plan: BTreePlan, part: ScanSlice) -> tuple[str, list[PageStats]]:
    """The only task of a small build: sort everything, cut by position. The attempt has a directory of its own."""
    uuid = str(uuid4())
    with _discarding(plan.pin.open(), uuid):
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
    """The rows of a slice, as many at once as a task may sort."""
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
        store, f"_indices/{uuid}", file_name, partition_id, runs, plan.value_type, plan.batch_size, plan.storage_version
    )


def _sample(engine: Engine, snapshot: Snapshot, plan: BTreePlan) -> pa.Array:
    column = snapshot.column(plan.column)
    if plan.sample_rows <= DRIVER_SAMPLE:
        return snapshot.sample_column(column, plan.fragments, plan.sample_rows, seed=plan.pin.version)
    groups = [group for i in range(engine.parallelism * 2) if (group := plan.fragments[i :: engine.parallelism * 2])]
    return pa.concat_arrays(engine.map("sample", partial(_sample_fragments, plan), groups))


def _sample_fragments(plan: BTreePlan, fragments: Sequence[int]) -> pa.Array:
    """A group's share of the sample, by its rows."""
    snapshot = plan.pin.open()
    share = snapshot.manifest.rows_in(BitMap(fragments)) / plan.rows
    rows = max(1, round(plan.sample_rows * share))
    return snapshot.sample_column(snapshot.column(plan.column), fragments, rows, seed=plan.pin.version)


def _finish(snapshot: Snapshot, plan: BTreePlan, uuid: str, parts: list[PageStats]) -> IndexSegment:
    """Check what the tasks report, join the lookups, and describe the segment."""
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
        snapshot.store, f"_indices/{uuid}", plan.value_type, parts, plan.batch_size, plan.storage_version
    )
    return IndexSegment(
        uuid=uuid,
        name=plan.name,
        fields=(plan.field_id,),
        dataset_version=plan.pin.version,
        fragments=FrozenBitMap(BitMap(plan.fragments)),
        type_url=BTREE.type_url,
        details=b"",
        index_version=BTREE.version_for(plan.stable_row_ids),
        files=(*(part.file for part in parts), lookup),
        created_at=datetime.now(UTC),
    )


def _whole_waves(tasks: int, parallelism: int) -> int:
    """Rounded up so that no core idles while others do the last tasks."""
    return -(-tasks // parallelism) * parallelism


def _indexable_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not column.is_leaf or not BTREE.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type}, which a B-tree cannot order",
            "Index a column of numbers, strings, binaries, booleans, dates or times",
        )
    return column


def _check_sizes(**sizes: int | None) -> None:
    for label, value in sizes.items():
        if value is not None and value < 1:
            raise InvalidArgument(f"{label} must be at least 1, not {value}")
    if sizes["ranges"] is not None and sizes["rows_per_range"] is not None:
        raise InvalidArgument("ranges and rows_per_range contradict each other", "Give one of the two")
    if (sizes["batch_size"] or 0) > MAX_BATCH_SIZE:
        raise InvalidArgument(f"batch_size must be at most {MAX_BATCH_SIZE}", "The default is 4096")


def _chosen_fragments(snapshot: Snapshot, fragment_ids: Sequence[int] | None) -> list[Fragment]:
    live = snapshot.manifest.fragments
    if fragment_ids is None:
        return list(live.values())
    unknown = sorted(set(fragment_ids) - set(live))
    if unknown or not fragment_ids:
        raise InvalidArgument(
            f"{snapshot.uri} has no fragments {unknown}" if unknown else "fragment_ids is empty",
            f"Choose among {len(live)} fragments with ids {min(live, default=0)} to {max(live, default=0)}",
        )
    return [live[f] for f in sorted(set(fragment_ids))]


def _row_bytes(snapshot: Snapshot, column: Column, fragments: Sequence[Fragment]) -> int:
    """Bytes of a value and its address; strings are measured on a few rows."""
    try:
        return max(1, column.type.bit_width // 8) + 8
    except ValueError:
        values = snapshot.sample_column(column, [f.id for f in fragments], 1000, seed=0)
        return (values.nbytes // len(values) if len(values) else 8) + 16
