"""The verbs that change the rows of a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, cast, overload

from pennon.deferred import deferred
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.jobs.results import RowsResult
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.opaque_text import check_expression
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.table.arguments import check_flags, check_texts, condition_sql
from pennon.table.handle import TableHandle
from pennon.table.verbs import runs_jobs

if TYPE_CHECKING:
    from pennon.jobs.rows.cover import cover_changes
    from pennon.jobs.rows.delete import delete_rows, plan_delete
    from pennon.jobs.rows.plan import RowsPlan
    from pennon.jobs.rows.update import RowsUpdate, plan_update, update_rows
    from pennon.jobs.update_column import ColumnUpdate, count_update, update_column
else:
    cover_changes = deferred("pennon.jobs.rows.cover", "cover_changes")
    delete_rows = deferred("pennon.jobs.rows.delete", "delete_rows")
    plan_delete = deferred("pennon.jobs.rows.delete", "plan_delete")
    RowsPlan = deferred("pennon.jobs.rows.plan", "RowsPlan")
    RowsUpdate = deferred("pennon.jobs.rows.update", "RowsUpdate")
    plan_update = deferred("pennon.jobs.rows.update", "plan_update")
    update_rows = deferred("pennon.jobs.rows.update", "update_rows")
    ColumnUpdate = deferred("pennon.jobs.update_column", "ColumnUpdate")
    count_update = deferred("pennon.jobs.update_column", "count_update")
    update_column = deferred("pennon.jobs.update_column", "update_column")


class ChangeVerbs(TableHandle):
    def plan_delete(self, filter: FilterLike) -> RowsPlan:
        """How many rows `delete` would delete from the newest version.

        Args:
            filter: SQL text, or a pyarrow expression.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            InvalidFilter: the filter makes no sense over this table.
        """
        snapshot = self._snapshot.latest()
        return plan_delete(self._engine, snapshot, filter_text(filter, snapshot.schema))

    @overload
    def delete(self, filter: FilterLike, *, dry_run: Literal[False] = False) -> RowsResult[RowsPlan]: ...

    @overload
    def delete(self, filter: FilterLike, *, dry_run: bool) -> RowsResult[RowsPlan] | RowsPlan: ...

    @runs_jobs()
    def delete(self, filter: FilterLike, *, dry_run: bool = False) -> RowsResult[RowsPlan] | RowsPlan:
        """Delete the rows that a filter selects, found through indices. Indices need no change: deleted rows are left
        out of every answer. Older versions of the table still have them.

        Args:
            filter: SQL text, `"user_id = 42"`, or a pyarrow expression; `"true"` deletes all rows.
            dry_run: count only.

        Returns:
            What was done, with `rows_deleted`; with `dry_run` the plan.

        Raises:
            InvalidFilter: the filter makes no sense over this table.
            CommitConflict: other writers kept changing the same rows; nothing was deleted.
        """
        check_flags(dry_run=dry_run)
        if dry_run:
            return self.plan_delete(filter)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        newest, done = delete_rows(self._engine, snapshot, filter_text(filter, snapshot.schema))
        return self._changed("delete", done, snapshot, newest, started)

    def plan_update(
        self, values: Mapping[str, str], *, where: FilterLike | None = None, in_place: bool = False
    ) -> RowsPlan:
        """How many rows `update` would change in the newest version.

        Args:
            values: as for `update`, like all arguments.
            where: only rows that this filter selects.
            in_place: change a column in place.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            ColumnNotFound: the table has no such column.
            InvalidFilter: the SQL makes no sense over this table.
        """
        check_flags(in_place=in_place)
        snapshot = self._snapshot.latest()
        update = _update_of(values, where, snapshot)
        if not in_place:
            return plan_update(self._engine, snapshot, update)
        found = count_update(self._engine, snapshot, _in_place(update, snapshot))
        return RowsPlan(rows_updated=found.rows, fragments=found.fragments)

    @overload
    def update(
        self,
        values: Mapping[str, str],
        *,
        where: FilterLike | None = None,
        in_place: bool = False,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: Literal[False] = False,
    ) -> RowsResult[RowsPlan]: ...

    @overload
    def update(
        self,
        values: Mapping[str, str],
        *,
        where: FilterLike | None = None,
        in_place: bool = False,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: bool,
    ) -> RowsResult[RowsPlan] | RowsPlan: ...

    @runs_jobs()
    def update(
        self,
        values: Mapping[str, str],
        *,
        where: FilterLike | None = None,
        in_place: bool = False,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: bool = False,
    ) -> RowsResult[RowsPlan] | RowsPlan:
        """Give the rows that a filter selects new values. They are written as new rows, and the old ones are marked
        deleted; on a table with stable row ids they keep their ids.

        Args:
            values: SQL over the columns of a row, by column: `{"price": "price * 1.1"}`.
            where: only rows that this filter selects: SQL text, or a pyarrow expression. Default: all.
            in_place: write new values of one column for whole fragments instead, as `update_column` does: less to write
                where many rows change, and indices on other columns are not touched.
            maintain: cover the new rows by the indices. Default: those of which many rows are not covered.
            task_memory_bytes: the memory a task of that may use. Default: PENNON_TASK_MEMORY of the environment, or
                1 GiB.
            dry_run: count only.

        Returns:
            What was done, with `rows_updated`; with `dry_run` the plan.

        Raises:
            ColumnNotFound: the table has no such column.
            InvalidFilter: the SQL makes no sense over this table; nothing was written.
            CommitConflict: other writers kept changing the same rows; nothing was updated.
        """
        check_flags(dry_run=dry_run, in_place=in_place, maintain=bool(maintain) if maintain is None else maintain)
        if dry_run:
            return self.plan_update(values, where=where, in_place=in_place)
        started, snapshot, memory = time.monotonic(), self._snapshot.latest(), task_memory(task_memory_bytes)
        update = _update_of(values, where, snapshot)
        if in_place:
            newest, found = update_column(self._engine, snapshot, _in_place(update, snapshot))
            done, written = RowsPlan(rows_updated=found.rows, fragments=found.fragments), 0
        else:
            newest, done, written = update_rows(self._engine, snapshot, update)
        if done.rows:
            newest = cover_changes(self._engine, newest, memory, maintain)
        return self._changed("update", done, snapshot, newest, started, written)

    def _changed(
        self, verb: str, done: RowsPlan, before: Snapshot, after: Snapshot, started: float, written: int = 0
    ) -> RowsResult[RowsPlan]:
        self._move_to(after)
        result = partial(RowsResult[RowsPlan].between, verb, done, before, after, started)
        return result(
            rows_deleted=done.rows_deleted,
            rows_updated=done.rows_updated,
            rows_inserted=done.rows_inserted,
            fragments=done.fragments,
            data_bytes_written=written,
        )


def _update_of(values: object, where: FilterLike | None, snapshot: Snapshot) -> RowsUpdate:
    if not isinstance(values, Mapping):
        raise InvalidArgument(
            f"update takes SQL expressions by column, not {type(values).__name__}", 'Write {"price": "price * 1.1"}'
        )
    for name, expression in cast(Mapping[str, object], values).items():
        check_texts(column=name)
        if not isinstance(expression, str):
            problem = f"the new value of {name!r} must be SQL text, not {expression!r}"
            raise InvalidArgument(problem, f'Write {{"{name}": "{expression}"}}')
        check_expression(expression)
    given = cast(Mapping[str, str], values)
    return RowsUpdate.of(given, None if where is None else filter_text(where, snapshot.schema))


def _in_place(update: RowsUpdate, snapshot: Snapshot) -> ColumnUpdate:
    if len(update.values) != 1:
        raise InvalidArgument(
            f"one column at a time can be changed in place, not {len(update.values)}", "Omit in_place, or update twice"
        )
    [(column, expression)] = update.values
    return ColumnUpdate(column, expression, condition_sql(update.where, snapshot))
