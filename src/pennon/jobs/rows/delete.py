"""Delete rows: those that a filter selects are marked in the deletion vectors of their fragments. No data is written,
and indices need no change."""

from __future__ import annotations

from functools import partial

from pennon.engine import Engine
from pennon.format.row_changes import commit_deletions
from pennon.format.snapshot import Snapshot
from pennon.jobs.rows.change import RowChange, commit_rows, repeated
from pennon.jobs.rows.find import count_rows, find_rows
from pennon.jobs.rows.plan import RowsPlan
from pennon.query.filter.reading import read_filter
from pennon.wording import plural


def plan_delete(engine: Engine, snapshot: Snapshot, filter: str) -> RowsPlan:
    """What `delete_rows` would delete."""
    rows = find_rows(engine, snapshot, filter)
    return RowsPlan(rows_deleted=count_rows(rows), fragments=tuple(sorted(rows)))


def delete_rows(engine: Engine, snapshot: Snapshot, filter: str) -> tuple[Snapshot, RowsPlan]:
    """Delete the rows that a filter selects. Returns the new version and what was done.

    Raises:
        InvalidFilter: the filter makes no sense over this table.
        CommitConflict: other writers kept changing the same rows; nothing was deleted.
    """
    return repeated(snapshot, partial(_delete, engine, filter))


def _delete(engine: Engine, filter: str, snapshot: Snapshot) -> tuple[Snapshot, RowsPlan]:
    rows = find_rows(engine, snapshot, filter)
    done = RowsPlan(rows_deleted=count_rows(rows), fragments=tuple(sorted(rows)))
    if not rows:
        return snapshot, done
    sql = read_filter(filter, snapshot.column_types).sql
    what = f"delete {plural(done.rows_deleted, 'row')} of {plural(len(rows), 'fragment')}"
    change = RowChange(snapshot, rows, (), what, {"deleted": done.rows_deleted, "fragments": len(rows)})
    return commit_rows(engine, change, lambda base, deletions: commit_deletions(base, deletions, sql)), done
