"""The verbs that keep the indices of a table small and whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack, overload

from pennon.deferred import deferred
from pennon.errors import InvalidArgument
from pennon.format.cleanup import ORPHAN_AGE
from pennon.jobs.results import Result, TrimResult
from pennon.jobs.shared.budget import task_memory
from pennon.table.arguments import check_durations, check_flags, check_names
from pennon.table.handle import TableHandle
from pennon.table.verbs import runs_jobs

if TYPE_CHECKING:
    from pennon.jobs.clean_orphans import CleanedOrphans, clean_orphans
    from pennon.jobs.compact.compact import compact
    from pennon.jobs.compact.plan import CompactionChoices, CompactPlan, check_compaction, plan_compact
    from pennon.jobs.fragment_reuse.catch_up import CatchUpPlan, catch_up, plan_catch_up
    from pennon.jobs.fragment_reuse.trim import TrimPlan, plan_trim, trim
    from pennon.jobs.kinds import PlanContext
    from pennon.jobs.maintain import MaintenancePolicy, MaintenanceReport, maintain
    from pennon.jobs.optimize.optimize import optimize
    from pennon.jobs.optimize.plan import plan_optimize
    from pennon.jobs.optimize.steps import OptimizePlan
else:
    clean_orphans = deferred("pennon.jobs.clean_orphans", "clean_orphans")
    compact = deferred("pennon.jobs.compact.compact", "compact")
    check_compaction = deferred("pennon.jobs.compact.plan", "check_compaction")
    plan_compact = deferred("pennon.jobs.compact.plan", "plan_compact")
    catch_up = deferred("pennon.jobs.fragment_reuse.catch_up", "catch_up")
    plan_catch_up = deferred("pennon.jobs.fragment_reuse.catch_up", "plan_catch_up")
    plan_trim = deferred("pennon.jobs.fragment_reuse.trim", "plan_trim")
    trim = deferred("pennon.jobs.fragment_reuse.trim", "trim")
    PlanContext = deferred("pennon.jobs.kinds", "PlanContext")
    MaintenancePolicy = deferred("pennon.jobs.maintain", "MaintenancePolicy")
    maintain = deferred("pennon.jobs.maintain", "maintain")
    optimize = deferred("pennon.jobs.optimize.optimize", "optimize")
    plan_optimize = deferred("pennon.jobs.optimize.plan", "plan_optimize")


class MaintenanceVerbs(TableHandle):
    def plan_optimize(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        task_memory_bytes: int | None = None,
    ) -> OptimizePlan:
        """What `optimize_indices` would do to the newest version, and why: tasks, memory and files of every step. No
        Spark session is started: this machine's cores are counted when there is none yet.

        Args:
            index_names: as for `optimize_indices`, like all arguments.
            num_indices_to_merge: how many of the newest segments to merge.
            retrain: build everything again.
            task_memory_bytes: the memory a task may use.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            IndexNotFound: the table has no index of one of these names.
            InvalidArgument: an argument of another type, or arguments that exclude each other.
        """
        _check_choice(index_names, retrain)
        memory = task_memory(task_memory_bytes)
        return plan_optimize(
            PlanContext.without_starting(self._engine, self._snapshot.latest(), memory),
            names=index_names,
            num_indices_to_merge=num_indices_to_merge,
            retrain=retrain,
        )

    @overload
    def optimize_indices(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        task_memory_bytes: int | None = None,
        dry_run: Literal[False] = False,
    ) -> Result[OptimizePlan]: ...

    @overload
    def optimize_indices(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        task_memory_bytes: int | None = None,
        dry_run: bool,
    ) -> Result[OptimizePlan] | OptimizePlan: ...

    @runs_jobs()
    def optimize_indices(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        task_memory_bytes: int | None = None,
        dry_run: bool = False,
    ) -> Result[OptimizePlan] | OptimizePlan:
        """Cover new fragments and merge segments.

        Args:
            index_names: only these indices. Default: all.
            num_indices_to_merge: 0 only adds a delta, N merges the newest N segments with what is new. Default: merge
                by size.
            retrain: build everything again, with models trained on the current rows.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            dry_run: plan only.

        Returns:
            What was done; with `dry_run` the plan.

        Raises:
            IndexNotFound: the table has no index of one of the names.
            CommitConflict: another writer replaced the same segments; nothing was committed for that index.
        """
        _check_choice(index_names, retrain)
        check_flags(dry_run=dry_run)
        started, memory, snapshot = time.monotonic(), task_memory(task_memory_bytes), self._snapshot.latest()
        planned = partial(plan_optimize, names=index_names, num_indices_to_merge=num_indices_to_merge, retrain=retrain)
        plan = planned(PlanContext.without_starting(self._engine, snapshot, memory))
        if dry_run:
            return plan
        self._move_to(snapshot)
        if plan.needs_engine and self._learns_parallelism():
            # The first plan found what is due before Spark was started; this one knows the cluster.
            plan = planned(PlanContext.of(self._engine, snapshot, memory))
        self._move_to(optimize(self._engine, snapshot, plan, memory))
        return Result.between("optimize_indices", plan, snapshot, self._snapshot, started)

    def plan_compact(self, *, remap: str = "immediate", **options: Unpack[CompactionChoices]) -> CompactPlan:
        """What `compact` would do to the newest version.

        Args:
            remap: how indices follow, as for `compact`.
            **options: those of `compact`.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            InvalidArgument: an option that does not exist, or a value that it does not allow.
            UnsupportedTable: Lance does not support this `remap` for the table.
        """
        check_compaction(options)
        return plan_compact(self._snapshot.latest(), options, remap)

    @overload
    def compact(
        self,
        *,
        remap: str = "immediate",
        task_memory_bytes: int | None = None,
        dry_run: Literal[False] = False,
        **options: Unpack[CompactionChoices],
    ) -> Result[CompactPlan]: ...

    @overload
    def compact(
        self,
        *,
        remap: str = "immediate",
        task_memory_bytes: int | None = None,
        dry_run: bool,
        **options: Unpack[CompactionChoices],
    ) -> Result[CompactPlan] | CompactPlan: ...

    @runs_jobs()
    def compact(
        self,
        *,
        remap: str = "immediate",
        task_memory_bytes: int | None = None,
        dry_run: bool = False,
        **options: Unpack[CompactionChoices],
    ) -> Result[CompactPlan] | CompactPlan:
        """Join small fragments and drop deleted rows, on Spark, and update the indices.

        Args:
            remap: how the indices are updated. `"immediate"` rewrites them in the same transaction, and records the
                compaction in the Fragment Reuse Index for those that cannot be rewritten; `"deferred"` only records
                it; `"drop"` gives up coverage of the rewritten fragments.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            dry_run: plan only.
            **options: those of pylance's compaction: `target_rows_per_fragment`, `materialize_deletions`,
                `materialize_deletions_threshold`, ...

        Returns:
            What was done; with `dry_run` the plan.

        Raises:
            InvalidArgument: an option that does not exist, or a value that it does not allow.
            CommitConflict: another writer changed the same fragments; nothing was committed.
        """
        check_flags(dry_run=dry_run)
        check_compaction(options)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        plan = plan_compact(snapshot, options, remap)
        if dry_run:
            return plan
        self._move_to(compact(self._engine, snapshot, plan, task_memory(task_memory_bytes)))
        return Result.between("compact", plan, snapshot, self._snapshot, started)

    def plan_catch_up(self) -> CatchUpPlan:
        """What `catch_up_indices` would do to the newest version, by the addresses in the files; read on Spark where
        there are compactions to follow.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
        """
        return plan_catch_up(self._engine, self._snapshot.latest())

    @overload
    def catch_up_indices(
        self, *, task_memory_bytes: int | None = None, dry_run: Literal[False] = False
    ) -> Result[CatchUpPlan]: ...

    @overload
    def catch_up_indices(
        self, *, task_memory_bytes: int | None = None, dry_run: bool
    ) -> Result[CatchUpPlan] | CatchUpPlan: ...

    @runs_jobs()
    def catch_up_indices(
        self, *, task_memory_bytes: int | None = None, dry_run: bool = False
    ) -> Result[CatchUpPlan] | CatchUpPlan:
        """Rewrite every index segment whose files name rows by addresses from before a deferred compaction.

        Args:
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            dry_run: plan only.

        Returns:
            What was done, `segments_written` among it; with `dry_run` the plan.

        Raises:
            CommitConflict: another writer replaced the same segments.
        """
        check_flags(dry_run=dry_run)
        started, snapshot = time.monotonic(), self._snapshot.latest()
        plan = plan_catch_up(self._engine, snapshot)
        if dry_run:
            return plan
        self._move_to(catch_up(self._engine, snapshot, task_memory(task_memory_bytes), plan)[0])
        return Result.between("catch_up_indices", plan, snapshot, self._snapshot, started)

    def plan_trim(self) -> TrimPlan:
        """What `trim_fragment_reuse` would do to the newest version, by the addresses in the files; read on Spark where
        there are compactions to follow.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            UnsupportedTable: the Fragment Reuse Index has the newer tagged form.
        """
        return plan_trim(self._engine, self._snapshot.latest())

    @overload
    def trim_fragment_reuse(self, *, dry_run: Literal[False] = False) -> TrimResult[TrimPlan]: ...

    @overload
    def trim_fragment_reuse(self, *, dry_run: bool) -> TrimResult[TrimPlan] | TrimPlan: ...

    @runs_jobs()
    def trim_fragment_reuse(self, *, dry_run: bool = False) -> TrimResult[TrimPlan] | TrimPlan:
        """Remove the versions of the Fragment Reuse Index that no index file needs any more, by the addresses in the
        files.

        Args:
            dry_run: plan only.

        Returns:
            What was done, with `versions_removed` and `versions_left`; with `dry_run` the plan.

        Raises:
            UnsupportedTable: the Fragment Reuse Index has the newer tagged form.
            CommitConflict: another writer changed the Fragment Reuse Index again and again.
        """
        check_flags(dry_run=dry_run)
        if dry_run:
            return self.plan_trim()
        started, snapshot = time.monotonic(), self._snapshot.latest()
        newest, plan = trim(self._engine, snapshot)
        self._move_to(newest)
        counts = {"versions_removed": len(plan.removable), "versions_left": len(plan.needed)}
        return TrimResult.between("trim_fragment_reuse", plan, snapshot, newest, started, **counts)

    @runs_jobs()
    def maintain(
        self,
        policy: MaintenancePolicy | None = None,
        *,
        dry_run: bool = False,
        task_memory_bytes: int | None = None,
    ) -> MaintenanceReport:
        """One pass that does what is due: compact, optimize, catch up, trim, clean. Safe to run twice and next to
        writers.

        Args:
            policy: when a step is due. Default: `pennon.MaintenancePolicy()`.
            dry_run: decide only.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.

        Returns:
            For every step why it was due or not, and what came of it. A step that fails is among them (`failed`), and
            does not keep the others from being done.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
            InvalidArgument: an argument of another type.
        """
        check_flags(dry_run=dry_run)
        if policy is not None and not isinstance(policy, MaintenancePolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            remedy = "Write maintain(pennon.MaintenancePolicy(remap='deferred'))"
            raise InvalidArgument(f"policy must be a MaintenancePolicy, not {type(policy).__name__}", remedy)
        memory = task_memory(task_memory_bytes)
        newest, report = maintain(self._engine, self._snapshot, policy or MaintenancePolicy(), memory, dry_run=dry_run)
        self._move_to(newest)
        return report

    def clean_orphans(
        self,
        older_than: timedelta = timedelta(seconds=ORPHAN_AGE),
        *,
        no_jobs_running: bool = False,
        dry_run: bool = False,
    ) -> CleanedOrphans:
        """Delete index directories and data files that no version, branch or tag names, and that nothing was written to
        for `older_than`. Files that only a shallow clone in another place still uses cannot be known, and are deleted.

        Args:
            older_than: the least age: longer than any job may run, since what it writes is named only by its commit.
            no_jobs_running: your word that no job is running on this table: less than a day will do then, and orphans
                of unknown age (on object stores other than S3) are deleted, too.
            dry_run: list only.

        Returns:
            What was deleted, and what was kept because a running job may have written it.

        Raises:
            InvalidArgument: an age of less than a day without `no_jobs_running`.
            StoreReadOnly: something cannot be deleted.
        """
        check_durations(older_than=older_than)
        check_flags(no_jobs_running=no_jobs_running, dry_run=dry_run)
        return clean_orphans(self._snapshot, older_than, no_jobs_running=no_jobs_running, dry_run=dry_run)


def _check_choice(index_names: object, retrain: object) -> None:
    check_names(index_names=index_names)
    check_flags(retrain=retrain)
