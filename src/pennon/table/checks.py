"""The verbs that look at the indices of a table: the report and the audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.jobs.audit.report import RECALL_QUERIES, AuditReport
from pennon.jobs.shared.budget import task_memory
from pennon.table.arguments import check_flags, check_names, check_numbers
from pennon.table.handle import TableHandle
from pennon.table.verbs import runs_jobs

if TYPE_CHECKING:
    from pennon.jobs.audit.audit import audit
    from pennon.report.data import ReportData, to_data
    from pennon.report.facts import collect
    from pennon.report.page import page
else:
    audit = deferred("pennon.jobs.audit.audit", "audit")
    to_data = deferred("pennon.report.data", "to_data")
    collect = deferred("pennon.report.facts", "collect")
    page = deferred("pennon.report.page", "page")


class CheckVerbs(TableHandle):
    def report(self) -> str:
        """An HTML page of this version's fragments and indices, and of what `maintain` would do. Starts no Spark.

        Returns:
            One HTML document that needs no other file.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
        """
        return page(collect(self._snapshot))

    def report_data(self) -> ReportData:
        """The figures of the report as values for JSON: `status` is good, warn or bad. Starts no Spark.

        Returns:
            Rows, fragments, every index with its coverage, segments and their measures, what `maintain` would do, and
            the history of the indices, as `pennon report --output json` prints them.

        Raises:
            TableNotFound: the table, or this version of it, is gone.
        """
        return to_data(collect(self._snapshot))

    @runs_jobs()
    def audit(
        self,
        sample: float = 1.0,
        *,
        repair: bool = False,
        index_names: Sequence[str] | None = None,
        recall_queries: int = RECALL_QUERIES,
        task_memory_bytes: int | None = None,
    ) -> AuditReport:
        """Compare every index of the newest version with the table, on Spark: files, layout, rows, codes, recall.

        Args:
            sample: the share of the fragments to compare, above 0 and at most 1.
            repair: build what is wrong from the data, and look again.
            index_names: only these indices. Default: all.
            recall_queries: vectors to measure recall with; 0 measures none.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.

        Returns:
            What was found, with a remedy for each finding; `ok` where every index agrees with the table.

        Raises:
            IndexNotFound: the table has no index of one of these names.
            InvalidArgument: an argument of another type, or out of its range.
        """
        check_numbers(sample=sample)
        check_flags(repair=repair)
        check_names(index_names=index_names)
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
