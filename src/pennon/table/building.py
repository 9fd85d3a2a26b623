"""The verbs that build and drop indices, and change the column under one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from pennon.deferred import deferred
from pennon.format.snapshot import Snapshot
from pennon.index.options import IndexOptions
from pennon.index.registry import index_options
from pennon.jobs.results import IndexResult, UpdateResult
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.opaque_text import check_expression
from pennon.query.filter.reading import FilterLike
from pennon.table.arguments import bytes_of, check_flags, check_texts, condition_sql, ids_of
from pennon.table.handle import TableHandle
from pennon.table.option_help import documents_options
from pennon.table.verbs import DEFAULT_TYPE, runs_jobs

if TYPE_CHECKING:
    from pennon.jobs.create_index import create_index, plan_index
    from pennon.jobs.drop_index import DropPlan, drop_index, plan_drop
    from pennon.jobs.kinds import BuildPlan
    from pennon.jobs.shared.placement import in_process
    from pennon.jobs.tune.advice import IndexAdvice
    from pennon.jobs.tune.advise import advise_index, advised_plan, vector_request
    from pennon.jobs.update_column import ColumnUpdate, UpdatePlan, count_update, update_column
else:
    create_index = deferred("pennon.jobs.create_index", "create_index")
    plan_index = deferred("pennon.jobs.create_index", "plan_index")
    drop_index = deferred("pennon.jobs.drop_index", "drop_index")
    plan_drop = deferred("pennon.jobs.drop_index", "plan_drop")
    in_process = deferred("pennon.jobs.shared.placement", "in_process")
    advise_index = deferred("pennon.jobs.tune.advise", "advise_index")
    advised_plan = deferred("pennon.jobs.tune.advise", "advised_plan")
    vector_request = deferred("pennon.jobs.tune.advise", "vector_request")
    ColumnUpdate = deferred("pennon.jobs.update_column", "ColumnUpdate")
    count_update = deferred("pennon.jobs.update_column", "count_update")
    update_column = deferred("pennon.jobs.update_column", "update_column")


class BuildVerbs(TableHandle):
    @documents_options
    def plan_index(
        self,
        column: str,
        index_type: str | IndexOptions | None = None,
        name: str | None = None,
        *,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        recall: float | None = None,
        memory: int | str | None = None,
        **options: Any,
    ) -> BuildPlan:
        """What `create_index` would do to the newest version. Starts no Spark session: it counts this machine's cores
        when there is none yet.

        Args:
            column: as for `create_index`, like all arguments.
            index_type: the index type, by name or as an options object.
            name: the name of the index.
            fragment_ids: plan one segment over these fragments.
            rows_per_task: rows that a task reads.
            task_memory_bytes: the memory a task may use.
            recall: as for `create_index`; builds small indices on a sample, in this process.
            memory: as for `create_index`, likewise.
            **options: options of the index type, listed below.

        Returns:
            A plan to print, or to read as `to_dict()`: rows, tasks, memory of a task, size of the files.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column has a type that such an index cannot hold.
            UnknownIndexType: Pennon builds no index of this type.
            InvalidArgument: an option that the type does not take, or a value that it does not allow.
        """
        _check_names(column, name)
        fragments, snapshot = ids_of("fragment_ids", fragment_ids), self._snapshot.latest()
        chosen, advice = self._chosen(snapshot, column, index_type, options, recall, memory)
        plan = self._plan_index(
            snapshot,
            column,
            chosen,
            name,
            fragment_ids=fragments,
            rows_per_task=rows_per_task,
            task_memory_bytes=task_memory_bytes,
        )
        return plan if advice is None else advised_plan(plan, advice)

    @overload
    def create_index(
        self,
        column: str,
        index_type: str | IndexOptions | None = None,
        name: str | None = None,
        *,
        replace: bool = True,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        recall: float | None = None,
        memory: int | str | None = None,
        dry_run: Literal[False] = False,
        **options: Any,
    ) -> IndexResult[BuildPlan]: ...

    @overload
    def create_index(
        self,
        column: str,
        index_type: str | IndexOptions | None = None,
        name: str | None = None,
        *,
        replace: bool = True,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        recall: float | None = None,
        memory: int | str | None = None,
        dry_run: bool,
        **options: Any,
    ) -> IndexResult[BuildPlan] | BuildPlan: ...

    @runs_jobs("column", "index_type")
    @documents_options
    def create_index(
        self,
        column: str,
        index_type: str | IndexOptions | None = None,
        name: str | None = None,
        *,
        replace: bool = True,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        recall: float | None = None,
        memory: int | str | None = None,
        dry_run: bool = False,
        **options: Any,
    ) -> IndexResult[BuildPlan] | BuildPlan:
        """Build an index of the newest version on Spark and commit it.

        Args:
            column: a column, or a leaf field within structs: `"address.city"`.
            index_type: the name of an index type in any case, with its options as keyword arguments; or an options
                object, `pennon.IvfPq(metric="cosine")`. Default: BTREE; with `recall` or `memory` the vector index
                that serves them best.
            name: the name of the index. Default: `<column>_idx`.
            replace: replace an index of that name; with False it is an error.
            fragment_ids: build one segment over these fragments, next to the segments that the index has already.
                Default: the whole index, over all fragments.
            rows_per_task: rows that a task reads. Default: chosen by the memory of a task.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            recall: of a vector index: the recall that searches are to reach. Candidates are built on a sample of the
                column and measured; the plan has them with the reason for the choice. Default with `memory`: 0.95.
            memory: of a vector index: what it may take in memory when all of it is loaded: bytes, or text such as
                "4GiB". Default: any.
            dry_run: plan only.
            **options: options of the index type, listed below; None is as good as none. Options that pylance ignores
                for a type are accepted with an IgnoredOptionWarning.

        Returns:
            What was done, with the `index` as `indices` lists it; with `dry_run` the plan.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column has a type that such an index cannot hold.
            UnknownIndexType: Pennon builds no index of this type.
            InvalidArgument: an option that the type does not take, or a value that it does not allow.
            IndexExists: there is an index of this name and `replace` is False.
            CommitConflict: another writer changed the table so that the index cannot be committed.
        """
        check_flags(replace=replace, dry_run=dry_run)
        _check_names(column, name)
        fragments = ids_of("fragment_ids", fragment_ids)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        chosen, advice = self._chosen(snapshot, column, index_type, options, recall, memory)

        def planned() -> BuildPlan:
            plan = self._plan_index(
                snapshot,
                column,
                chosen,
                name,
                fragment_ids=fragments,
                rows_per_task=rows_per_task,
                task_memory_bytes=task_memory_bytes,
            )
            return plan if advice is None else advised_plan(plan, advice)

        plan = planned()
        if dry_run:
            return plan
        self._move_to(snapshot)
        if not in_process(plan) and self._learns_parallelism():
            # The first plan only checked the input, before Spark was started; this one knows the cluster.
            plan = planned()
        whole = fragment_ids is None
        self._move_to(create_index(self._engine, snapshot, chosen.index_type, plan, replace=replace, whole=whole))
        index = next(index for index in self.indices() if index.name == plan.name)
        return IndexResult.between("create_index", plan, snapshot, self._snapshot, started, index=index)

    def plan_drop_index(self, name: str) -> DropPlan:
        """What `drop_index` would remove from the newest version.

        Args:
            name: the name of the index.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            IndexNotFound: the table has no index of this name.
        """
        check_texts(name=name)
        return plan_drop(self._snapshot.latest(), name)

    @overload
    def drop_index(self, name: str, *, dry_run: Literal[False] = False) -> IndexResult[DropPlan]: ...

    @overload
    def drop_index(self, name: str, *, dry_run: bool) -> IndexResult[DropPlan] | DropPlan: ...

    @runs_jobs("name")
    def drop_index(self, name: str, *, dry_run: bool = False) -> IndexResult[DropPlan] | DropPlan:
        """Remove an index from the newest version; its files go when old versions are cleaned up.

        Args:
            name: the name of the index.
            dry_run: plan only.

        Returns:
            What was done, with the `index` as it was; with `dry_run` the plan.

        Raises:
            IndexNotFound: the table has no index of this name.
        """
        check_texts(name=name)
        check_flags(dry_run=dry_run)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        plan = plan_drop(snapshot, name)
        if dry_run:
            return plan
        self._move_to(drop_index(snapshot, plan))
        return IndexResult.between("drop_index", plan, snapshot, self._snapshot, started, index=plan.index)

    def plan_update_column(self, column: str, expression: str, *, where: FilterLike | None = None) -> UpdatePlan:
        """How many rows `update_column` would change in the newest version; counted on Spark where there is a
        condition.

        Args:
            column: the column that gets new values.
            expression: SQL over the columns of a row.
            where: only rows that this filter selects. Default: all.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            ColumnNotFound: the table has no such column.
            InvalidFilter: the SQL makes no sense over this table.
        """
        return count_update(self._engine, self._snapshot.latest(), self._update(column, expression, where))

    @overload
    def update_column(
        self, column: str, expression: str, *, where: FilterLike | None = None, dry_run: Literal[False] = False
    ) -> UpdateResult[UpdatePlan]: ...

    @overload
    def update_column(
        self, column: str, expression: str, *, where: FilterLike | None = None, dry_run: bool
    ) -> UpdateResult[UpdatePlan] | UpdatePlan: ...

    @runs_jobs("column")
    def update_column(
        self, column: str, expression: str, *, where: FilterLike | None = None, dry_run: bool = False
    ) -> UpdateResult[UpdatePlan] | UpdatePlan:
        """Change a top-level column in place. Rows stay where they are. Indices on the column no longer cover the
        fragments that changed, until `optimize_indices`.

        Args:
            column: the column that gets new values.
            expression: SQL over the columns of a row: `"price * 1.1"`.
            where: only rows that this filter selects: SQL text, or a pyarrow expression. Default: all.
            dry_run: count only.

        Returns:
            What was done, with the number of `rows` and their `fragments`; with `dry_run` the plan.

        Raises:
            InvalidFilter: the SQL makes no sense over this table; nothing was written.
            CommitConflict: another writer changed the same fragments.
        """
        check_flags(dry_run=dry_run)
        if dry_run:
            return self.plan_update_column(column, expression, where=where)
        update = self._update(column, expression, where)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        newest, done = update_column(self._engine, snapshot, update)
        self._move_to(newest)
        counts = {"rows": done.rows, "fragments": done.fragments}
        return UpdateResult.between("update_column", done, snapshot, newest, started, **counts)

    def _update(self, column: str, expression: str, where: FilterLike | None) -> ColumnUpdate:
        check_texts(column=column, expression=expression)
        check_expression(expression)
        return ColumnUpdate(column, expression, condition_sql(where, self._snapshot))

    def _chosen(
        self,
        snapshot: Snapshot,
        column: str,
        index_type: str | IndexOptions | None,
        options: Mapping[str, Any],
        recall: float | None,
        memory: int | str | None,
    ) -> tuple[IndexOptions, IndexAdvice | None]:
        """The options to build with, and where they follow from a recall or a budget, why."""
        if recall is None and memory is None:
            return index_options(DEFAULT_TYPE if index_type is None else index_type, options), None
        kind, given = vector_request(index_type, options)
        advice = advise_index(
            self._engine,
            snapshot,
            column,
            recall=recall,
            memory_bytes=bytes_of("memory", memory),
            kind=kind,
            options=given,
        )
        return advice.options, advice

    def _plan_index(
        self,
        snapshot: Snapshot,
        column: str,
        options: IndexOptions,
        name: str | None,
        *,
        fragment_ids: Sequence[int] | None,
        rows_per_task: int | None,
        task_memory_bytes: int | None,
    ) -> BuildPlan:
        """On a given version: what is built must be what was planned, even if others commit in between."""
        return plan_index(
            snapshot,
            column,
            options,
            name=name,
            fragment_ids=fragment_ids,
            parallelism=self._parallelism,
            memory_bytes=task_memory(task_memory_bytes),
            rows_per_task=rows_per_task,
        )


def _check_names(column: object, name: object) -> None:
    check_texts(column=column, name="" if name is None else name)
