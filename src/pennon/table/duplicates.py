"""Rows of one table that are nearly the same, and the plan of the search for them. Both need Spark."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.engine import require_spark
from pennon.errors import InvalidArgument
from pennon.format.rows import ROW_ID
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.query.scan.request import ScanRequest, check_request, column_names
from pennon.table.arguments import check_flags, check_numbers
from pennon.table.handle import TableHandle

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.jobs.near_duplicates.join import near_duplicates
    from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan, plan_near_duplicates
    from pennon.query.search.request import SearchRequest
else:
    near_duplicates = deferred("pennon.jobs.near_duplicates.join", "near_duplicates")
    plan_near_duplicates = deferred("pennon.jobs.near_duplicates.plan", "plan_near_duplicates")
    SearchRequest = deferred("pennon.query.search.request", "SearchRequest")


class DuplicateVerbs(TableHandle):
    def near_duplicates(
        self,
        column: str,
        distance: float,
        *,
        metric: str | None = None,
        filter: FilterLike | None = None,
        columns: Sequence[str] | None = None,
        groups: bool = False,
        index: str | None = None,
        use_index: bool = True,
        task_memory_bytes: int | None = None,
    ) -> DataFrame:
        """All pairs of rows whose vectors are within a distance of each other. Lazy, and exact: the result is that of
        comparing every row with every other. `plan_near_duplicates` returns how it is done.

        A pair is returned once, the row that comes first in the table first. Rows without a vector, or with one that
        has no distance to anything, are in no pair.

        Args:
            column: the column of vectors.
            distance: the greatest distance of a pair, on the scale of `search`: squared for l2, 1 - cos for cosine.
            metric: `"l2"` or `"cosine"`. Default: the index's own, and l2 without an index.
            filter: SQL text, or a pyarrow expression; only rows that it selects are compared.
            columns: columns of both rows to return; `_rowid` and `_rowaddr` are possible. Default: `_rowid`.
            groups: return rows in groups instead of pairs. Two rows are in one group if pairs connect them, also by way
                of other rows.
            index: the name of the index that defines the metric. Default: the one that covers most.
            use_index: False ignores indices.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.

        Returns:
            A lazy DataFrame. Pairs: the columns of the first row with the suffix `_a`, those of the second with `_b`,
            and `_distance`. Groups: the columns of each row that has a near-duplicate, `_group`, which is the `_rowid`
            of the first row of its group, and `_group_rows`, the size of the group.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column has no vectors, or Spark lacks the type of a column.
            IndexNotFound: there is no index of that name.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: the metric dot, or an argument of another type or out of its range.
        """
        check_flags(groups=groups)
        engine = require_spark(self._engine, "near_duplicates")
        named = (ROW_ID,) if columns is None else column_names(columns)
        if not named:
            raise InvalidArgument("near_duplicates needs at least one column", 'Write columns=["_rowid"]')
        check_request(self._snapshot, ScanRequest(columns=named))
        options = (metric, filter, index, use_index, task_memory_bytes)
        return near_duplicates(
            engine, self._snapshot, self._plan_duplicates(column, distance, *options), named, groups=groups
        )

    def plan_near_duplicates(
        self,
        column: str,
        distance: float,
        *,
        metric: str | None = None,
        filter: FilterLike | None = None,
        index: str | None = None,
        use_index: bool = True,
        task_memory_bytes: int | None = None,
    ) -> NearDuplicatesPlan:
        """What `near_duplicates` would do. Reads a sample of the column.

        Args:
            column: as for `near_duplicates`, like the other arguments.
            distance: the greatest distance of a pair.
            metric: the metric.
            filter: a condition on rows.
            index: the name of the index.
            use_index: False ignores indices.
            task_memory_bytes: the memory a task may use.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column has no vectors.
            IndexNotFound: there is no index of that name.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: as for `near_duplicates`.
        """
        require_spark(self._engine, "plan_near_duplicates")
        return self._plan_duplicates(column, distance, metric, filter, index, use_index, task_memory_bytes)

    def _plan_duplicates(
        self,
        column: str,
        distance: float,
        metric: str | None,
        filter: FilterLike | None,
        index: str | None,
        use_index: bool,
        task_memory_bytes: int | None,
    ) -> NearDuplicatesPlan:
        check_numbers(0, distance=distance)
        if not isfinite(distance):
            raise InvalidArgument(f"distance must be finite, not {distance}", "Every pair would be within it")
        text = None if filter is None else filter_text(filter, self.schema)
        options = {"metric": metric, "filter": text, "index": index, "use_index": use_index}
        request = SearchRequest.of(column, 1, options)
        memory = task_memory(task_memory_bytes)
        return plan_near_duplicates(self._indices(), request, float(distance), memory, lambda: self._engine.parallelism)
