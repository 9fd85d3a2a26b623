"""The true neighbors of many queries: one pass over the column, in this process or on the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.row_set import RowSet, bitmap_of
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Floats, Vectors
from pennon.jobs.shared.placement import Effort
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import read_filter
from pennon.query.search.exact import ExactSearch
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.prefilter import ScanPart
from pennon.query.search.request import SearchRequest
from pennon.query.search.tuning.truth import Queries, Truth, find_truth, searched_k

# Vectors that a task reads.
TASK_BYTES = 128 << 20
# Queries whose comparison with a byte takes as long as reading it.
QUERIES_PER_BYTE = 100


@dataclass(frozen=True)
class _Stretch:
    """Rows [start, stop) of a fragment, deleted ones included."""

    fragment: int
    start: int
    stop: int


def exact_neighbors(
    engine: Engine, catalog: Catalog, request: SearchRequest, metric: Metric, queries: Queries
) -> Truth:
    """By tasks of the engine where the column is large."""
    snapshot = catalog.snapshot
    type_ = snapshot.column(request.column).type
    vector_bytes = type_.list_size * type_.value_type.bit_width // 8
    rows = snapshot.manifest.rows_in(snapshot.manifest.live)
    weight = max(1, len(queries) // QUERIES_PER_BYTE)
    if Effort(snapshot.location, rows * vector_bytes * weight).in_process:
        return find_truth(catalog, request, queries)
    tasks = _stretches(snapshot, max(1, TASK_BYTES // vector_bytes))
    filter = request.filter if request.prefilter else None
    sql = None if filter is None else read_filter(filter, snapshot.column_types).sql
    k = searched_k(queries, request.reach)
    nearest = partial(_nearest, snapshot.pin(), request.column, metric, queries.vectors, sql, k)
    found = [Neighbors(*part) for part in engine.map("exact search", nearest, tasks, rows=rows)]
    return Truth.of(queries, Neighbors.merged(found or [Neighbors.none(len(queries))], k), request.reach)


def _stretches(snapshot: Snapshot, rows: int) -> list[_Stretch]:
    return [
        _Stretch(fragment.id, start, min(start + rows, fragment.physical_rows))
        for fragment in snapshot.manifest.fragments.values()
        for start in range(0, fragment.physical_rows, rows)
    ]


def _nearest(
    pin: Pin, column: str, metric: Metric, queries: Vectors, filter: str | None, k: int, stretch: _Stretch
) -> tuple[Floats, Addresses]:
    """Task: the nearest rows of a stretch, for all queries."""
    snapshot = pin.open()
    offsets = BitMap(range(stretch.start, stretch.stop))
    if snapshot.manifest.fragments[stretch.fragment].deletion_file is not None:
        offsets -= bitmap_of(snapshot.deleted_offsets(stretch.fragment))
    part = ScanPart(BitMap([stretch.fragment]), RowSet({stretch.fragment: offsets}), filter)
    exact = ExactSearch(snapshot, snapshot.column(column), metric, threads=1)
    found, _ = exact.nearest([part] if offsets else [], queries, k)
    return found.distances, found.addresses
