"""Plan a lookup join: through indices, or by reading the table.

The number of keys is unknown before the DataFrame is computed, and computing it to count them would do the work of the
user twice. So the plan relies on what is known: with an index that finds values exactly, each task looks up the keys it
receives, and the more rows of a fragment it finds, the more it reads in sequence. The caller may give the number of
keys; if it is a large share of the rows, the table is read instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from pennon.display import Displayed
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.jobs.lookup_join.ranges import choose_cuts
from pennon.jobs.shared.tasks import ROWS_PER_TASK, whole_waves
from pennon.query.catalog import Catalog
from pennon.query.lookup.find import Coverage, Lookup
from pennon.query.scan.request import ScanRequest
from pennon.query.scan.tasks import Part, plan_parts
from pennon.wording import human_bytes, in_lines, joined_names, plural

WAYS = ("inner", "left", "semi", "anti")
# A key that is looked up costs about as much as this many rows that Spark joins.
KEY_COST = 10
# Up to this many keys are looked up in indices that only narrow down where they are.
FEW_KEYS = 1000
# The table is read if indices cover less than this share of it.
LEAST_COVERED = 0.5
# Tasks per core, and the parts of the range of a task that are read one after another.
WAVES, PARTS_OF_RANGE = 2, 8
# Fractions of a task's memory: for pages of the index, for keys that no index covers, and for rows of the DataFrame.
CACHE_SHARE, HELD_SHARE, BLOCK_SHARE = 3, 4, 16
# A key with its address while it is held and matched, and a row of the DataFrame, both in bytes.
HELD_BYTES, ROW_BYTES = 96, 256
MOST_BLOCK_ROWS = 1 << 18
LONG_LIST = 8


@dataclass(frozen=True)
class LookupRequest:
    """The request of a user: pairs of a column of the DataFrame and one of the table, and the columns to add."""

    on: tuple[tuple[str, str], ...]
    how: str
    columns: tuple[str, ...]
    filter: str | None
    keys: int | None


@dataclass(frozen=True, eq=False)
class LookupJoinPlan(Displayed):
    """The plan of a join. Small: tasks open indices from the table's files.

    Without `reason`, rows of the DataFrame go to `tasks` tasks by ranges of their keys, which `cuts` separate. The keys
    of fragments that no index covers are read once, by `scans`, and sent to the same tasks. With a `reason`, the table
    is read in `scans` and joined by Spark.
    """

    pin: Pin
    request: LookupRequest
    indices: tuple[tuple[str, str], ...]
    covered: BitMap = field(repr=False)
    covered_rows: int
    scanned_rows: int
    scans: tuple[Part, ...] = field(repr=False)
    reason: str = ""
    by: int = 0  # the number of the key column that ranges are of
    cuts: pa.Array | None = field(default=None, repr=False)
    tasks: int = 0
    block_rows: int = 0
    memory_bytes: int = 0

    @property
    def uses_index(self) -> bool:
        """Whether keys are looked up; the table is read otherwise."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        request = self.request
        return {
            "table": self.pin.location.shown,
            "version": self.pin.version,
            "on": [{"dataframe": own, "table": theirs} for own, theirs in request.on],
            "how": request.how,
            "columns": list(request.columns),
            "filter": request.filter,
            "keys": request.keys,
            "strategy": "index" if self.uses_index else "scan",
            "reason": self.reason or None,
            "indices": [name for _, name in self.indices] if self.uses_index else [],
            "covered_rows": self.covered_rows if self.uses_index else 0,
            "scanned_rows": self.scanned_rows,
            "scan_tasks": len(self.scans),
            "lookup_tasks": self.tasks,
            "rows_at_once": self.block_rows,
            "task_memory_bytes": self.memory_bytes,
        }

    def __str__(self) -> str:
        request = self.request
        pairs = joined_names([own if own == theirs else f"{own} = {theirs}" for own, theirs in request.on])
        lines = [
            f"lookup join with {self.pin.location.shown}, version {self.pin.version}",
            f"  keys     {pairs}, {request.how}",
        ]
        if request.filter is not None:
            lines.append(f"  filter   {request.filter}, checked on the rows found")
        if not self.uses_index:
            lines.append(f"  read     {plural(self.scanned_rows, 'row')}, and join them on Spark: {self.reason}")
            return in_lines([*lines, f"  tasks    {plural(len(self.scans), 'task')} to read, then Spark's own"])
        names = joined_names([f"{name} on {column}" for column, name in self.indices])
        lines.append(f"  index    {names}: {plural(self.covered_rows, 'row')} in {_fragments(self.covered)}")
        if self.scanned_rows:
            lines.append(f"  read     the keys of {plural(self.scanned_rows, 'row')} that no index covers, once")
        tasks = f"{plural(self.tasks, 'task')} by ranges of {request.on[self.by][1]}"
        lines.append(f"  tasks    {tasks}{f', {len(self.scans)} to read keys' if self.scans else ''}")
        lines.append(f"  memory   {human_bytes(self.memory_bytes)} a task, {plural(self.block_rows, 'row')} at once")
        return in_lines(lines)


def plan_lookup_join(
    catalog: Catalog, request: LookupRequest, memory_bytes: int, parallelism: Callable[[], int]
) -> LookupJoinPlan:
    """Opens the segments that it relies on. `parallelism` is called only if needed."""
    snapshot = catalog.snapshot
    on = [theirs for _, theirs in request.on]
    lookup = Lookup(catalog, on, request.columns, request.filter)
    coverage = lookup.open_indices()
    few = request.keys is not None and request.keys <= FEW_KEYS
    covered = coverage.exact | coverage.narrowed if few else coverage.exact
    reason = _why_read(snapshot, coverage, covered, request, on)
    rows = snapshot.manifest.rows_in
    if reason:
        parts = plan_parts(catalog, ScanRequest(request.filter))
        return LookupJoinPlan(
            snapshot.pin(), request, (), BitMap(), 0, rows(BitMap(snapshot.manifest.live)), tuple(parts), reason
        )
    uncovered = BitMap(snapshot.manifest.live) - covered
    held = -(-rows(uncovered) * HELD_BYTES // (memory_bytes // HELD_SHARE))
    tasks = whole_waves(max(held, WAVES * parallelism()), parallelism())
    by, cuts = choose_cuts(catalog, lookup, covered, tasks * PARTS_OF_RANGE)
    return LookupJoinPlan(
        snapshot.pin(),
        request,
        coverage.indices,
        covered,
        rows(covered),
        rows(uncovered),
        tuple(_scans(snapshot, uncovered)),
        by=by,
        cuts=cuts,
        tasks=tasks,
        block_rows=min(MOST_BLOCK_ROWS, max(1, memory_bytes // BLOCK_SHARE // ROW_BYTES)),
        memory_bytes=memory_bytes,
    )


def _why_read(
    snapshot: Snapshot, coverage: Coverage, covered: BitMap, request: LookupRequest, on: Sequence[str]
) -> str:
    """The reason why the table is read; empty if indices help."""
    columns = joined_names(on)
    if not covered:
        if coverage.narrowed:
            return f"the indices on {columns} only narrow values down, which pays for at most {FEW_KEYS:,} known keys"
        return f"no index finds values of {columns}"
    rows, own = snapshot.manifest.rows_in(BitMap(snapshot.manifest.live)), snapshot.manifest.rows_in(covered)
    if own < LEAST_COVERED * rows:
        return f"the indices on {columns} cover {own:,} of {rows:,} rows"
    if request.keys is not None and request.keys * KEY_COST > rows:
        return f"{request.keys:,} keys are a large share of {rows:,} rows"
    return ""


def _scans(snapshot: Snapshot, uncovered: BitMap) -> list[Part]:
    """Parts of fragments, about the rows of a task each."""
    parts: list[Part] = []
    chosen: list[int] = []
    rows = 0
    for fragment in uncovered:
        chosen.append(fragment)
        rows += snapshot.manifest.fragments[fragment].live_rows
        if rows >= ROWS_PER_TASK:
            parts.append(Part(tuple(chosen), rows))
            chosen, rows = [], 0
    return [*parts, Part(tuple(chosen), rows)] if chosen else parts


def _fragments(covered: BitMap) -> str:
    return plural(len(covered), "fragment")


@lru_cache(maxsize=1)
def _opened(pin: Pin, request: LookupRequest, memory_bytes: int) -> Lookup:
    """Keeps only one: a worker that runs another join frees the memory of the previous one."""
    catalog = Catalog.read(pin.open(), ByteCache(memory_bytes // CACHE_SHARE))
    return Lookup(catalog, [theirs for _, theirs in request.on], request.columns, request.filter)


def open_lookup(plan: LookupJoinPlan) -> Lookup:
    """The lookups of a join, shared by its tasks in one worker process."""
    return _opened(plan.pin, plan.request, plan.memory_bytes)
