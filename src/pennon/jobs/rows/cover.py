"""Cover the rows that a change has added by the indices of the table, where that pays."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from pennon.engine import Engine
from pennon.errors import CommitConflict, CoverageWarning
from pennon.format.snapshot import Snapshot
from pennon.jobs.kinds import PlanContext
from pennon.jobs.optimize.optimize import optimize
from pennon.jobs.optimize.plan import plan_optimize
from pennon.query.inventory import Index, list_indices

# Rows that a query scans in about the time that it takes to open a segment. Fewer are left for later changes to join.
SCANNED_ROWS = 100_000


def cover_changes(engine: Engine, snapshot: Snapshot, memory_bytes: int, maintain: bool | None) -> Snapshot:
    """Run `optimize` for the indices of which enough rows are not covered; `maintain=True`: for all, False: for none.

    The change is committed already: if another writer is changing the same index, its coverage is left to the next
    optimize, with a `CoverageWarning`.
    """
    if maintain is False:
        return snapshot
    names = [index.name for index in _uncovered(snapshot, 1 if maintain else SCANNED_ROWS)]
    if not names:
        return snapshot
    plan = plan_optimize(PlanContext.of(engine, snapshot, memory_bytes), names=names)
    try:
        return optimize(engine, snapshot, plan, memory_bytes) if plan.due else snapshot
    except CommitConflict as conflict:
        problem = f"the change of {snapshot.uri} is committed, and its rows are not covered yet: {conflict.problem}"
        warnings.warn(problem, CoverageWarning, stacklevel=2)
        return snapshot.latest()


def _uncovered(snapshot: Snapshot, rows: int) -> Iterable[Index]:
    fragments = snapshot.manifest.fragments
    for index in list_indices(snapshot):
        missing = (fragments[f].live_rows for f in index.uncovered_fragments if f in fragments)
        if index.segments and sum(missing) >= rows:
            yield index
