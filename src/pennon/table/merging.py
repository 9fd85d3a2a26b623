"""The verb that merges rows into a table by key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, overload

import pyarrow as pa

from pennon.deferred import deferred
from pennon.jobs.merge.clauses import Clauses, Delete, Insert, Matched
from pennon.jobs.results import RowsResult
from pennon.jobs.shared.budget import task_memory
from pennon.table.arguments import check_flags
from pennon.table.changing import ChangeVerbs
from pennon.table.verbs import runs_jobs

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.jobs.merge.merge import merge_rows, plan_merge
    from pennon.jobs.rows.cover import cover_changes
    from pennon.jobs.rows.plan import RowsPlan
else:
    merge_rows = deferred("pennon.jobs.merge.merge", "merge_rows")
    plan_merge = deferred("pennon.jobs.merge.merge", "plan_merge")
    cover_changes = deferred("pennon.jobs.rows.cover", "cover_changes")


class ArrowStream(Protocol):
    """A frame of pandas, Polars or another library that exports its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


SourceLike: TypeAlias = "DataFrame | ArrowStream | pa.Table | pa.RecordBatch | pa.RecordBatchReader"
MatchedLike = str | Matched | Sequence[str | Matched] | None
InsertLike = str | Insert | Sequence[str | Insert] | None
DeleteLike = str | Delete | Sequence[str | Delete] | None


class MergeVerbs(ChangeVerbs):
    def plan_merge(
        self,
        source: SourceLike,
        on: str | Sequence[str],
        *,
        when_matched: MatchedLike = "update",
        when_not_matched: InsertLike = "insert",
        when_not_matched_by_source: DeleteLike = None,
    ) -> RowsPlan:
        """What `merge` would do to the newest version, counted by matching the source with the table.

        Args:
            source: as for `merge`, like all arguments.
            on: the key columns.
            when_matched: what to do with a row of the table that a row of the source matches.
            when_not_matched: what to do with a row of the source that matches none.
            when_not_matched_by_source: what to do with a row of the table that no row of the source matches.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            InvalidArgument: the source has a key twice, or a column or value that does not fit.
        """
        clauses = Clauses.of(on, when_matched, when_not_matched, when_not_matched_by_source)
        return plan_merge(self._engine, self._snapshot.latest(), source, clauses)

    @overload
    def merge(
        self,
        source: SourceLike,
        on: str | Sequence[str],
        *,
        when_matched: MatchedLike = "update",
        when_not_matched: InsertLike = "insert",
        when_not_matched_by_source: DeleteLike = None,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: Literal[False] = False,
    ) -> RowsResult[RowsPlan]: ...

    @overload
    def merge(
        self,
        source: SourceLike,
        on: str | Sequence[str],
        *,
        when_matched: MatchedLike = "update",
        when_not_matched: InsertLike = "insert",
        when_not_matched_by_source: DeleteLike = None,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: bool,
    ) -> RowsResult[RowsPlan] | RowsPlan: ...

    @runs_jobs()
    def merge(
        self,
        source: SourceLike,
        on: str | Sequence[str],
        *,
        when_matched: MatchedLike = "update",
        when_not_matched: InsertLike = "insert",
        when_not_matched_by_source: DeleteLike = None,
        maintain: bool | None = None,
        task_memory_bytes: int | None = None,
        dry_run: bool = False,
    ) -> RowsResult[RowsPlan] | RowsPlan:
        """Merge rows into the table by key, in one commit: by default an upsert. Rows of the table are found through
        an index on the key. The source is evaluated once, and refused if it has a key twice. Two merges that run at
        the same time never both insert a key.

        Args:
            source: a Spark DataFrame; a pyarrow table, batch or reader; or a frame of pandas or Polars. Only the first
                needs Spark if there is little to merge.
            on: the key column, or columns. A key with NULL in it matches nothing.
            when_matched: `"update"`, `"delete"`, `pennon.Update(...)`, `pennon.Delete(...)`, a list of which the first
                whose condition holds is applied, or None.
            when_not_matched: `"insert"`, `pennon.Insert(...)`, or None.
            when_not_matched_by_source: `"delete"`, `pennon.Delete(...)`, or None.
            maintain: cover the new rows by the indices. Default: those of which many rows are not covered.
            task_memory_bytes: the memory a task of that may use. Default: PENNON_TASK_MEMORY of the environment, or
                1 GiB.
            dry_run: match and count only.

        Returns:
            What was done, with `rows_updated`, `rows_inserted` and `rows_deleted`; with `dry_run` the plan.

        Raises:
            ColumnNotFound: the table or the source lacks a key, or the source has a column that is not used.
            InvalidArgument: the source has a key twice, or a column or value that does not fit; nothing was written.
            InvalidFilter: SQL of a clause makes no sense.
            CommitConflict: other writers kept changing rows of the same keys; nothing was committed.
        """
        check_flags(dry_run=dry_run, maintain=bool(maintain) if maintain is None else maintain)
        clauses = Clauses.of(on, when_matched, when_not_matched, when_not_matched_by_source)
        started, snapshot, memory = time.monotonic(), self._snapshot.latest(), task_memory(task_memory_bytes)
        if dry_run:
            return plan_merge(self._engine, snapshot, source, clauses)
        newest, done, written = merge_rows(self._engine, snapshot, source, clauses)
        if done.rows_updated or done.rows_inserted:
            newest = cover_changes(self._engine, newest, memory, maintain)
        return self._changed("merge", done, snapshot, newest, started, written)
