"""Plan a search for near-duplicates: sketches, cells and the tasks that compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pennon.display import Displayed
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.schema import Column
from pennon.format.snapshot import Pin
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Vectors, to_matrix
from pennon.jobs.near_duplicates.cells import Cells
from pennon.jobs.near_duplicates.choose import Chosen, choose_cells
from pennon.jobs.near_duplicates.measure import Measure
from pennon.jobs.near_duplicates.sketch import radius_of
from pennon.jobs.shared.tasks import whole_waves
from pennon.query.catalog import Catalog
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, plan_parts
from pennon.query.search.request import Question, SearchRequest, read_request
from pennon.query.search.source import Source, usable_source
from pennon.wording import human_bytes, in_lines, plural

# Vectors that axes and cells are derived from, and the memory they may take.
SAMPLE_ROWS, SAMPLE_BYTES = 1 << 14, 128 << 20
# Fractions of a task's memory: for the rows of its cells, for rows that are read and sent, and for measured vectors.
HOME_SHARE, READ_SHARE, MEASURED_SHARE = 4, 8, 8
# A row in addition to its sketch: address, hashes and cell, and both again while equal vectors are looked for.
ROW_BYTES = 64
# A table with fewer rows is compared by one task.
ONE_TASK_ROWS = 1 << 13
MOST_READ_ROWS = 1 << 16
# Tasks per core that compare.
WAVES = 2


@dataclass(frozen=True, eq=False)
class NearDuplicatesPlan(Displayed):
    """The plan of a search for near-duplicates. Tasks read the vectors of the table once, by `parts`, and again those
    of rows that may be near-duplicates."""

    pin: Pin
    column: str
    metric: str
    distance: float
    filter: str | None
    index: str | None  # whose centroids are those of the cells
    rows: int  # at most
    parts: tuple[Part, ...] = field(repr=False)
    cells: Cells = field(repr=False)
    compared_share: float  # of all pairs of rows, by their sketches; an estimate
    read_rows: int
    measured_rows: int
    memory_bytes: int
    mergers: int
    finishers: int

    @property
    def tasks(self) -> int:
        """How many tasks compare rows."""
        return len(self.cells.starts)

    def measure(self) -> Measure:
        """The distances of this search."""
        snapshot = self.pin.open()
        column = snapshot.column(self.column)
        return Measure(snapshot, column, Metric(self.metric), self.distance, self.measured_rows)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.pin.location.shown,
            "version": self.pin.version,
            "column": self.column,
            "metric": self.metric,
            "distance": self.distance,
            "filter": self.filter,
            "exact": True,
            "index": self.index,
            "rows": self.rows,
            "sketch_items": self.cells.sketch.width,
            "cells": len(self.cells),
            "compared_share": self.compared_share,
            "read_tasks": len(self.parts),
            "compare_tasks": self.tasks,
            "task_memory_bytes": self.memory_bytes,
        }

    def __str__(self) -> str:
        cells, share = len(self.cells), self.compared_share
        lines = [
            f"near-duplicates in {self.pin.location.shown}, version {self.pin.version}",
            f"  pairs    within {self.distance:g} by {self.metric} of column {self.column}, all of them",
            f"  rows     {'at most ' * (self.filter is not None)}{self.rows:,}",
        ]
        if self.filter is not None:
            lines.append(f"  filter   {self.filter}")
        whose = f"around the centroids of index {self.index}" if self.index else "found in a sample"
        what = f"sketches of {plural(self.cells.sketch.width, 'number')}"
        if cells == 1:
            lines.append(f"  compare  {what}, every row with every other")
        else:
            lines.append(f"  compare  {what} in {cells:,} cells {whose}, about {share:.1%} of all pairs")
        lines.append("  measure  pairs that are not decided by sketches, on the vectors of the table")
        lines.append(f"  tasks    {len(self.parts):,} to read, {self.tasks:,} to compare")
        lines.append(f"  memory   {human_bytes(self.memory_bytes)} a task")
        return in_lines(lines)


def plan_near_duplicates(
    catalog: Catalog,
    request: SearchRequest,
    distance: float,
    memory_bytes: int,
    parallelism: Callable[[], int],
) -> NearDuplicatesPlan:
    """Reads a sample of the column, and centroids where an index has them."""
    snapshot = catalog.snapshot
    question = read_request(snapshot, request, (), many=True)
    source = usable_source(catalog, question)
    _check_metric(question.column, source.metric)
    parts = plan_parts(catalog, ScanRequest(request.filter))
    rows = sum(part.rows for part in parts)
    sample = _sample(catalog, question, source.metric)
    tasks = 1 if rows <= ONE_TASK_ROWS else WAVES * parallelism()
    chosen = choose_cells(source.metric, sample, _centroids(source), radius_of(source.metric, distance), rows, tasks)
    row_bytes = chosen.sketch.width * 4 + ROW_BYTES
    if tasks > 1:
        tasks = whole_waves(max(tasks, -(-rows * row_bytes * HOME_SHARE // memory_bytes)), parallelism())
    vector_bytes = question.column.type.list_size * 8
    return NearDuplicatesPlan(
        pin=snapshot.pin(),
        column=request.column,
        metric=source.metric.value,
        distance=distance,
        filter=request.filter,
        index=source.index if chosen.of_index else None,
        rows=rows,
        parts=tuple(parts),
        cells=_grouped(chosen, tasks, radius_of(source.metric, distance)),
        compared_share=chosen.share,
        read_rows=int(min(MOST_READ_ROWS, max(256, memory_bytes // READ_SHARE // (2 * vector_bytes)))),
        measured_rows=int(max(256, memory_bytes // MEASURED_SHARE // (2 * vector_bytes))),
        memory_bytes=memory_bytes,
        mergers=max(1, round(tasks**0.5)),
        finishers=parallelism(),
    )


def _grouped(chosen: Chosen, tasks: int, radius: float) -> Cells:
    order, starts = chosen.groups(min(tasks, len(chosen.centroids)))
    return Cells(chosen.sketch, radius, chosen.centroids[order], starts)


def _check_metric(column: Column, metric: Metric) -> None:
    type_ = column.type
    if not pa.types.is_fixed_size_list(type_) or not pa.types.is_floating(type_.value_type):
        raise UnsupportedColumn(
            f"near-duplicates are found by one vector of floats a row, and column {column.path!r} has type {type_}",
            "Name another column",
        )
    if metric not in (Metric.L2, Metric.COSINE):
        raise InvalidArgument(
            f"near-duplicates by {metric} are not defined: a vector may be nearer to others than to itself",
            'Use metric="cosine" or metric="l2"',
        )


def _centroids(source: Source) -> Vectors | None:
    """Of the segment with the most rows."""
    largest = max(source.segments, key=lambda segment: segment.opened.lengths.sum(), default=None)
    return None if largest is None else largest.opened.files.ivf.centroids


def _sample(catalog: Catalog, question: Question, metric: Metric) -> Vectors:
    snapshot, column = catalog.snapshot, question.column
    rows = min(SAMPLE_ROWS, max(256, SAMPLE_BYTES // (8 * column.type.list_size)))
    vectors, whole = to_matrix(snapshot.sample_column(column, snapshot.manifest.live, rows, seed=0))
    vectors = vectors[whole]
    return vectors[metric.indexable(vectors)]
