"""The facade: one short method a verb."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from pennon.engine import Engine, ProgressListener, choose_engine, require_spark
from pennon.errors import InvalidArgument
from pennon.format.cleanup import ORPHAN_AGE
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.threads import one_core
from pennon.jobs.audit.audit import RECALL_QUERIES, audit
from pennon.jobs.audit.report import AuditReport
from pennon.jobs.clean_orphans import CleanedOrphans, clean_orphans
from pennon.jobs.compact import CompactionChoices, CompactPlan, compact, plan_compact
from pennon.jobs.create_index import IndexOptions, create_index, plan_index
from pennon.jobs.fragment_reuse import catch_up, trim
from pennon.jobs.kinds import BuildPlan
from pennon.jobs.knn_join.join import knn_join
from pennon.jobs.maintain import MaintenancePolicy, MaintenanceReport, maintain
from pennon.jobs.optimize import OptimizePlan, optimize, plan_optimize
from pennon.jobs.plan_fragment_reuse import CatchUpPlan, TrimPlan, plan_catch_up, plan_trim
from pennon.jobs.shared.commit import drop_index, publish
from pennon.jobs.shared.tasks import task_memory
from pennon.jobs.update_column import ColumnUpdate, Updated, count_update, update_column
from pennon.query.catalog import Catalog
from pennon.query.inventory import Index, ReuseInfo, describe_reuse, list_indices
from pennon.query.scan import execute
from pennon.query.scan.execute import ScanRequest
from pennon.query.scan.explain import Explanation, explain
from pennon.query.search.explain import SearchExplanation, explain_search
from pennon.query.search.request import SearchOptions, SearchRequest, VectorLike
from pennon.query.search.run import search
from pennon.report.facts import gather
from pennon.report.page import page

if TYPE_CHECKING:
    from pennon.engine import DataFrame, SparkSession


class Table:
    """A Lance table at one version. Verbs that commit move the handle to what they committed; `refresh()` moves it
    to the newest version."""

    def __init__(self, snapshot: Snapshot, engine: Engine) -> None:
        self._snapshot = snapshot
        self._engine = engine
        self._catalog: Catalog | None = None

    @property
    def uri(self) -> str:
        return self._snapshot.uri

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def engine(self) -> Engine:
        """What runs the tasks of its jobs."""
        return self._engine

    @property
    def schema(self) -> pa.Schema:
        return self._snapshot.dataset.schema

    def refresh(self) -> Table:
        """Move to the newest version."""
        self._move_to(self._snapshot.latest())
        return self

    def indices(self) -> list[Index]:
        """Every index: type, columns, segments, coverage, sizes."""
        return list_indices(self._snapshot)

    def plan_index(
        self,
        column: str,
        index_type: str = "BTREE",
        name: str | None = None,
        *,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        **options: Unpack[IndexOptions],
    ) -> BuildPlan:
        """What `create_index` would do to the newest version. Starts no Spark session: it counts this machine's cores
        when there is none yet."""
        return self._plan_index(
            self._snapshot.latest(),
            column,
            index_type,
            name,
            fragment_ids=fragment_ids,
            rows_per_task=rows_per_task,
            task_memory_bytes=task_memory_bytes,
            **options,
        )

    def create_index(
        self,
        column: str,
        index_type: str = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        fragment_ids: Sequence[int] | None = None,
        rows_per_task: int | None = None,
        task_memory_bytes: int | None = None,
        **options: Unpack[IndexOptions],
    ) -> Index:
        """Build an index on Spark and commit it: a `BTREE`, or one of the vector indices `IVF_FLAT`, `IVF_PQ`,
        `IVF_SQ`, `IVF_RQ`, `IVF_HNSW_FLAT`, `IVF_HNSW_PQ` and `IVF_HNSW_SQ`. With `fragment_ids`, one segment over
        those fragments, beside the segments the index already has. The options of each type are in the docs."""
        planned = partial(
            self._plan_index,
            self.refresh()._snapshot,
            column,
            index_type,
            name,
            fragment_ids=fragment_ids,
            rows_per_task=rows_per_task,
            task_memory_bytes=task_memory_bytes,
            **options,
        )
        plan = planned()
        if not self._engine.attached and self._engine.parallelism != os.cpu_count():
            # The first plan only checked the input, before Spark was started; this one knows the cluster.
            plan = planned()
        self._move_to(
            create_index(self._engine, self._snapshot, index_type, plan, replace=replace, whole=fragment_ids is None)
        )
        return next(index for index in self.indices() if index.name == plan.name)

    def plan_optimize(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
    ) -> OptimizePlan:
        """What `optimize` would do to the newest version, and why."""
        return plan_optimize(
            self._snapshot.latest(), names=index_names, num_indices_to_merge=num_indices_to_merge, retrain=retrain
        )

    def optimize(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        task_memory_bytes: int | None = None,
    ) -> OptimizePlan:
        """Cover new fragments and merge segments, of all indices or the named ones. By default segments are merged by
        size; 0 only adds a delta, N merges the newest N with what is new, and `retrain` builds everything anew. Returns
        what was done."""
        self.refresh()
        plan = plan_optimize(
            self._snapshot, names=index_names, num_indices_to_merge=num_indices_to_merge, retrain=retrain
        )
        self._move_to(optimize(self._engine, self._snapshot, plan, task_memory(task_memory_bytes)))
        return plan

    def plan_compact(self, *, remap: str = "immediate", **options: Unpack[CompactionChoices]) -> CompactPlan:
        """What `compact` would do to the newest version."""
        return plan_compact(self._snapshot.latest(), options, remap)

    def compact(
        self,
        *,
        remap: str = "immediate",
        task_memory_bytes: int | None = None,
        **options: Unpack[CompactionChoices],
    ) -> CompactPlan:
        """Join small fragments and drop deleted rows, on Spark. Indices follow: `immediate` rewrites them in the same
        transaction, `deferred` records where rows went in the Fragment Reuse Index, `drop` gives up coverage of what
        was rewritten. Returns what was done."""
        self.refresh()
        plan = plan_compact(self._snapshot, options, remap)
        self._move_to(compact(self._engine, self._snapshot, plan, task_memory(task_memory_bytes)))
        return plan

    def fragment_reuse(self) -> ReuseInfo | None:
        """The Fragment Reuse Index: how many compactions index files have yet to follow, and its size. None: none."""
        return describe_reuse(self._snapshot)

    def plan_catch_up(self) -> CatchUpPlan:
        """What `catch_up_indices` would do to the newest version, by the addresses in the files; read on Spark where
        there are moves."""
        return plan_catch_up(self._engine, self._snapshot.latest())

    def catch_up_indices(self, *, task_memory_bytes: int | None = None) -> int:
        """Rewrite every index segment whose files name rows by addresses from before a deferred compaction. Returns
        how many there were."""
        self.refresh()
        newest, done = catch_up(self._engine, self._snapshot, task_memory(task_memory_bytes))
        self._move_to(newest)
        return done

    def plan_trim(self) -> TrimPlan:
        """What `trim_fragment_reuse` would do to the newest version, by the addresses in the files; read on Spark where
        there are moves."""
        return plan_trim(self._engine, self._snapshot.latest())

    def trim_fragment_reuse(self) -> int:
        """Remove the versions of the Fragment Reuse Index that no index file needs any more, by the addresses in the
        files. Returns how many there were."""
        self.refresh()
        newest, done = trim(self._engine, self._snapshot)
        self._move_to(newest)
        return done

    def maintain(
        self,
        policy: MaintenancePolicy | None = None,
        *,
        dry_run: bool = False,
        task_memory_bytes: int | None = None,
    ) -> MaintenanceReport:
        """One pass that does what is due: compact, optimize, catch up, trim, clean. Says of every step why it was due
        or not, and what came of it. Safe to run twice and beside writers."""
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
        """Delete index directories and data files that no version, branch or tag names and that nothing was written to
        for `older_than`: longer than any job may run, since what it writes is named only by its commit. With
        `no_jobs_running`, less than a day will do, and what an object store has, which reports no ages, goes too. Files
        that only a shallow clone in another place still uses cannot be known, and go."""
        return clean_orphans(self._snapshot, older_than, no_jobs_running=no_jobs_running, dry_run=dry_run)

    def report(self) -> str:
        """An HTML page of this version's fragments and indices, and of what `maintain` would do. Starts no Spark."""
        return page(gather(self._snapshot))

    def audit(
        self,
        sample: float = 1.0,
        *,
        repair: bool = False,
        index_names: Sequence[str] | None = None,
        recall_queries: int = RECALL_QUERIES,
        task_memory_bytes: int | None = None,
    ) -> AuditReport:
        """Compare every index of the newest version with the table, on Spark: files, layout, rows, codes, recall. A
        `sample` below 1 compares that share of the fragments; `repair` builds what is wrong from the data."""
        self.refresh()
        newest, report = audit(
            self._engine,
            self._snapshot,
            sample=sample,
            repair=repair,
            names=index_names,
            recall_queries=recall_queries,
            memory_bytes=task_memory(task_memory_bytes),
        )
        self._move_to(newest)
        return report

    def update_column(
        self, column: str, expression: str, *, where: str | None = None, dry_run: bool = False
    ) -> Updated:
        """Change a top-level column in place: an SQL expression for all rows, or for those a condition selects. Rows
        stay where they are. Indices on the column no longer cover the fragments that changed, until `optimize`."""
        update = ColumnUpdate(column, expression, where)
        if dry_run:
            return count_update(self._engine, self._snapshot.latest(), update)
        self.refresh()
        newest, done = update_column(self._engine, self._snapshot, update)
        self._move_to(newest)
        return done

    def drop_index(self, name: str, *, dry_run: bool = False) -> Index:
        """Remove an index from the newest version; its files go when old versions are cleaned up. Returns what it
        was."""
        newest, leave = self._snapshot.latest(), drop_index(name)
        leave(newest)
        dropped = next(index for index in list_indices(newest) if index.name == name)
        if not dry_run:
            self._move_to(publish(newest, leave))
        return dropped

    def scan(
        self,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> pa.Table:
        """The rows a filter selects, through indices where they help."""
        return execute.scan(self._indices(), _request(filter, columns, limit, with_row_id, with_row_address))

    def scan_batches(
        self,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        batch_size: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same rows, lazily; rows found by indices come before those of scanned fragments."""
        request = _request(filter, columns, limit, with_row_id, with_row_address, batch_size)
        return execute.scan_batches(self._indices(), request)

    def count(self, filter: str | None = None) -> int:
        """How many rows a filter selects; answered without touching the data where indices cover it."""
        return execute.count(self._indices(), filter)

    def search(self, column: str, query: VectorLike, k: int = 10, **options: Unpack[SearchOptions]) -> pa.Table:
        """The k rows whose vectors are nearest to a query, nearest first, with their `_distance`: squared l2, cosine
        distance or 1 - the inner product. (Stock reports cosine distances of PQ, SQ and RQ indices doubled.)"""
        return search(self._indices(), SearchRequest.of(column, k, options), query)

    def search_batch(self, column: str, queries: VectorLike, k: int = 10, **options: Unpack[SearchOptions]) -> pa.Table:
        """The nearest rows of many queries at once, told apart by the column `query_index`."""
        return search(self._indices(), SearchRequest.of(column, k, options), queries, many=True)

    def knn_join(
        self,
        df: DataFrame,
        column: str,
        query_column: str | None = None,
        k: int = 10,
        *,
        how: str = "inner",
        prefix: str = "",
        task_memory_bytes: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> DataFrame:
        """Every row of a Spark DataFrame with its k nearest rows: its columns, `_rank` from 1, `_distance` and columns
        of the table, by default all but vectors. Lazy, and the same neighbours as `search_batch` finds."""
        require_spark(self._engine, "knn_join")
        request = SearchRequest.of(column, k, options)
        memory = task_memory(task_memory_bytes)
        return knn_join(
            self._indices(), df, request, query_column or column, how=how, prefix=prefix, memory_bytes=memory
        )

    @overload
    def explain(
        self, filter: str | None = None, columns: Sequence[str] | None = None, *, analyze: bool = False
    ) -> Explanation: ...

    @overload
    def explain(
        self, *, column: str, query: VectorLike, k: int = 10, analyze: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchExplanation: ...

    def explain(
        self,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        column: str | None = None,
        query: VectorLike = None,
        k: int = 10,
        analyze: bool = False,
        **options: Any,
    ) -> Explanation | SearchExplanation:
        """What `scan` would do, or with `column` and `query` what `search` would; with `analyze`, run it and say what
        it touched."""
        if column is not None:
            return self.explain_search(column, query, k, analyze=analyze, filter=filter, columns=columns, **options)
        if query is not None or options:
            raise InvalidArgument("a search is explained with its column", "Give column=, or leave out its options")
        return explain(self._indices(), _request(filter, columns), analyze)

    def explain_search(
        self, column: str, query: VectorLike, k: int = 10, *, analyze: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchExplanation:
        """What `search` would do; with `analyze`, run it and say what it touched."""
        return explain_search(self._indices(), SearchRequest.of(column, k, options), query, analyze)

    def _plan_index(
        self,
        snapshot: Snapshot,
        column: str,
        index_type: str,
        name: str | None,
        *,
        fragment_ids: Sequence[int] | None,
        rows_per_task: int | None,
        task_memory_bytes: int | None,
        **options: Unpack[IndexOptions],
    ) -> BuildPlan:
        """On a given version: what is built must be what was planned, whoever commits in between."""
        return plan_index(
            snapshot,
            column,
            index_type,
            options,
            name=name,
            fragment_ids=fragment_ids,
            parallelism=self._engine.parallelism if self._engine.attached else os.cpu_count() or 1,
            memory_bytes=task_memory(task_memory_bytes),
            rows_per_task=rows_per_task,
        )

    def _indices(self) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog.read(self._snapshot, SHARED_CACHE)
        return self._catalog

    def _move_to(self, snapshot: Snapshot) -> None:
        if snapshot is not self._snapshot:
            self._snapshot, self._catalog = snapshot, None

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self.version})"


def open_table(
    uri: str | os.PathLike[str],
    version: int | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    engine: str | None = None,
    progress: ProgressListener | None = None,
) -> Table:
    """Open a Lance table. Starts nothing: a Spark session is looked for when a verb needs one. With `engine="local"`,
    or `PENNON_ENGINE=local` in the environment, tasks run in threads of this process, without Spark."""
    chosen = choose_engine(engine, spark, progress=progress, around=one_core)
    return Table(Snapshot.open(Location.of(os.fspath(uri), storage_options), version), chosen)


def _request(
    filter: str | None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    batch_size: int | None = None,
) -> ScanRequest:
    chosen = None if columns is None else tuple(columns)
    return ScanRequest(filter, chosen, limit, with_row_id, with_row_address, batch_size)
