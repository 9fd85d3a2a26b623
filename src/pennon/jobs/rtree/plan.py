"""Plan R-trees: rows, tasks, ranges of the curve, memory; nothing is written yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from pennon.display import Displayed
from pennon.errors import UnsupportedColumn
from pennon.format.rows import SCAN_BATCH, ScanSlice
from pennon.format.schema import GEOMETRIES, Column
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.rtree.files import TreeFile
from pennon.index.rtree.kind import RTREE
from pennon.index.rtree.options import RTree
from pennon.jobs.kinds import BuildRequest, MergeRequest, PlanContext
from pennon.jobs.shared.arguments import check_at_least_one
from pennon.jobs.shared.placement import MERGE_WEIGHT, Effort, Placed
from pennon.jobs.shared.plan_display import build_fields, build_text, line, merge_fields, merge_text
from pennon.jobs.shared.remap import RemapPlan
from pennon.jobs.shared.tasks import ROWS_PER_TASK, chosen_fragments, cut_slices, whole_waves
from pennon.wording import plural

# A box and an id, in files; with its place on the curve while it is sorted.
ROW_BYTES = 40
SORTED_BYTES = 44
# Copies of a row alive at once while a task sorts: as computed or received, joined, and in order.
SORT_COPIES = 5
# Geometries of a task: a second or two of work.
GEOMETRY_PER_TASK = 512 << 20
# The share of a task's memory for one batch of geometries; a few are read ahead.
BATCH_SHARE = 1 / 32
SAMPLE_ROWS = 20_000
MEASURED_ROWS = 200


@dataclass(frozen=True)
class RTreePlan(Displayed, Placed):
    """The plan of a build."""

    pin: Pin
    column: str
    field_id: int
    geometry: str
    name: str
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    geometry_bytes: int
    slices: tuple[ScanSlice, ...] = field(repr=False)
    batch_rows: int
    run_rows: int
    ranges: int
    page_size: int
    storage_version: str
    stable_row_ids: bool
    memory_bytes: int

    @property
    def single_task(self) -> bool:
        return len(self.slices) <= 1

    @property
    def tasks(self) -> int:
        return len(self.slices)

    @property
    def work(self) -> Effort:
        return Effort(self.pin.location, 8 * self.geometry_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        sorted_rows = min(self.rows, self.run_rows) * SORTED_BYTES * SORT_COPIES
        return min(self.memory_bytes, sorted_rows + 4 * self.batch_rows * self.row_bytes)

    @property
    def row_bytes(self) -> int:
        return -(-self.geometry_bytes // max(1, self.rows))

    @property
    def index_bytes(self) -> int:
        return self.rows * ROW_BYTES

    @property
    def pages(self) -> int:
        return -(-self.rows // self.page_size)

    def to_dict(self) -> dict[str, object]:
        return build_fields(self, RTREE.names[0], self.column, ranges=self.ranges, pages=self.pages)

    def __str__(self) -> str:
        tasks = "1 task" if self.single_task else f"{plural(self.tasks, 'map task')}, {self.ranges} to sort"
        heading = f"R-tree {self.name!r} on {self.column} ({self.geometry})"
        return build_text(
            self, heading, tasks, line("layout", f"about {self.pages:,} pages of {self.page_size:,} boxes")
        )


@dataclass(frozen=True)
class Stretch:
    """Pages [start, stop) of the leaves of a source; with the first of them go its NULLs."""

    source: int
    start: int
    stop: int


@dataclass(frozen=True)
class RTreeMerge(Placed):
    """The plan of a merge. The rows of one source are streamed in their order; those of several are sorted."""

    remap_plan: RemapPlan
    field_id: int
    name: str
    rows: int
    stretches: tuple[Stretch, ...] = field(repr=False)
    run_rows: int
    ranges: int
    page_size: int
    storage_version: str
    memory_bytes: int
    is_estimate: bool

    @property
    def single_task(self) -> bool:
        return len(self.remap_plan.sources) == 1 or self.ranges == 1

    @property
    def tasks(self) -> int:
        return 1 if self.single_task else len(self.stretches)

    @property
    def index_bytes(self) -> int:
        return self.rows * ROW_BYTES

    @property
    def work(self) -> Effort:
        return Effort(self.remap_plan.pin.location, MERGE_WEIGHT * self.index_bytes)

    @property
    def task_memory_bytes(self) -> int:
        """The expected peak memory of a task."""
        return min(self.memory_bytes, min(self.rows, self.run_rows) * SORTED_BYTES * SORT_COPIES + (16 << 20))

    def to_dict(self) -> dict[str, object]:
        return merge_fields(self, len(self.remap_plan.sources))

    def __str__(self) -> str:
        return merge_text(self, plural(self.tasks, "task"))


def plan_rtree(snapshot: Snapshot, column_path: str, options: RTree, request: BuildRequest) -> RTreePlan:
    """A segment over some fragments, or all."""
    check_at_least_one(rows_per_task=request.rows_per_task)
    column = _geometry_column(snapshot, column_path)
    fragments = chosen_fragments(snapshot, request.fragment_ids)
    rows = sum(fragment.live_rows for fragment in fragments)
    sample = snapshot.sample_column(column, [f.id for f in fragments], MEASURED_ROWS, seed=snapshot.version)
    row_bytes = sample.nbytes // len(sample) + 1 if len(sample) else 16
    run_rows = _run_rows(request.memory_bytes, request.rows_per_task)
    wanted = max(-(-rows // run_rows), -(-rows * row_bytes // GEOMETRY_PER_TASK))
    tasks = whole_waves(wanted, request.parallelism) if wanted > 1 else 1
    return RTreePlan(
        pin=snapshot.pin(),
        column=column.path,
        field_id=column.field_id,
        geometry=column.extension,
        name=request.name or f"{column_path}_idx",
        fragments=tuple(fragment.id for fragment in fragments),
        rows=rows,
        geometry_bytes=rows * row_bytes,
        # An empty table is one task too, so that its index is written like any other.
        slices=tuple(cut_slices(fragments, tasks)) if rows else (ScanSlice(()),),
        batch_rows=max(1, min(SCAN_BATCH, int(request.memory_bytes * BATCH_SHARE) // row_bytes)),
        run_rows=run_rows,
        ranges=max(1, -(-rows // run_rows)),
        page_size=options.page_size,
        storage_version=snapshot.storage_version,
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        memory_bytes=request.memory_bytes,
    )


def plan_rtree_merge(context: PlanContext, request: MergeRequest) -> RTreeMerge:
    """One segment with the rows of several, with pages like those of the largest."""
    snapshot, like, delta = context.snapshot, request.largest, request.delta
    files = [TreeFile(snapshot.store, source.segment) for source in request.sources]
    run_rows = _run_rows(context.memory_bytes, None)
    rows = sum(file.items for file in files) + (delta.rows if delta else 0)
    addresses = RTREE.stores_addresses(like.index_version, snapshot.manifest.has_stable_row_ids)
    sizes = {source.segment.uuid: file.page_size for source, file in zip(request.sources, files, strict=True)}
    return RTreeMerge(
        remap_plan=RemapPlan(snapshot.pin(), addresses, tuple(request.sources), request.address_map),
        field_id=context.column_of(like).field_id,
        name=like.name,
        rows=rows,
        stretches=tuple(
            Stretch(number, start, min(start + step, file.leaf_pages))
            for number, file in enumerate(files)
            for step in [max(1, run_rows // file.page_size)]
            for start in range(0, max(1, file.leaf_pages), step)
        ),
        run_rows=run_rows,
        ranges=max(1, -(-rows // run_rows)),
        page_size=sizes[like.uuid],
        storage_version=snapshot.storage_version,
        memory_bytes=context.memory_bytes,
        is_estimate=delta is not None,
    )


def _run_rows(memory_bytes: int, rows_per_task: int | None) -> int:
    """Rows that a task sorts at once."""
    return max(1, min(memory_bytes // (SORTED_BYTES * SORT_COPIES), rows_per_task or ROWS_PER_TASK))


def _geometry_column(snapshot: Snapshot, path: str) -> Column:
    column = snapshot.column(path)
    if not column.extension.startswith(GEOMETRIES):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} has type {column.type} and is not marked as a geometry, which R-trees"
            " need",
            "Index a column with a GeoArrow extension type, such as geoarrow.point, in the metadata of its field",
        )
    if not RTREE.supports(column.type):
        raise UnsupportedColumn(
            f"column {path!r} of {snapshot.uri} is of type {column.extension}, stored as {column.type}, of which Pennon"
            " builds no R-trees",
            "Store coordinates as structs of x and y, or build the index with pylance",
        )
    return column
