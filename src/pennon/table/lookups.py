"""The join by keys, and its plan. Both need Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.engine import require_spark
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.query.scan.request import column_names
from pennon.table.arguments import check_is_frame, check_texts, check_whole_numbers
from pennon.table.handle import TableHandle

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.jobs.lookup_join.join import OnLike, lookup_join, lookup_request, planned
    from pennon.jobs.lookup_join.plan import LookupJoinPlan, LookupRequest
else:
    lookup_join = deferred("pennon.jobs.lookup_join.join", "lookup_join")
    lookup_request = deferred("pennon.jobs.lookup_join.join", "lookup_request")
    planned = deferred("pennon.jobs.lookup_join.join", "planned")


class LookupVerbs(TableHandle):
    def lookup_join(
        self,
        df: DataFrame,
        on: OnLike,
        how: str = "inner",
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        prefix: str = "",
        keys: int | None = None,
        task_memory_bytes: int | None = None,
    ) -> DataFrame:
        """Every row of a Spark DataFrame with the rows of the table that have the same keys, as Spark's own join
        returns them. Lazy; the DataFrame is computed once, and only rows with its keys are read, through indices on the
        key columns. `plan_lookup_join` returns how it is done.

        Keys compare by value: NULL equals nothing, NaN equals NaN, -0.0 equals 0.0.

        Args:
            df: a Spark DataFrame, of a classic or a Connect session.
            on: a column that both have; several of them; or columns of the DataFrame with those of the table:
                `{"uid": "user_id"}`.
            how: `"inner"`, `"left"` to keep rows without a match, `"semi"` or `"anti"` to keep only rows with or
                without one, and no columns of the table.
            columns: columns of the table to add; `_rowid` and `_rowaddr` are possible. Default: all but the keys.
            filter: SQL text, or a pyarrow expression, that rows of the table must satisfy.
            prefix: goes before the names of the table's columns.
            keys: about how many different keys the DataFrame has, if known: where that is a large share of the table,
                the table is read instead.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.

        Returns:
            A lazy DataFrame: the columns of the DataFrame, then those of the table.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table or the DataFrame has no such column.
            UnsupportedColumn: rows are not looked up by values of such a type, or Spark lacks the type of a column.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: keys of another type than the column, two columns of one name, or an argument of another
                type or out of its range.
        """
        require_spark(self._engine, "lookup_join")
        request = self._lookup_request("lookup_join", df, on, how, columns, filter, prefix, keys)
        return lookup_join(self._indices(), df, request, prefix=prefix, memory_bytes=task_memory(task_memory_bytes))

    def plan_lookup_join(
        self,
        df: DataFrame,
        on: OnLike,
        how: str = "inner",
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        prefix: str = "",
        keys: int | None = None,
        task_memory_bytes: int | None = None,
    ) -> LookupJoinPlan:
        """What `lookup_join` would do: look keys up in indices, or read the table, and why. Computes nothing of the
        DataFrame.

        Args:
            df: as for `lookup_join`, like the other arguments.
            on: the key columns.
            how: the way to join.
            columns: columns of the table to add.
            filter: a condition on rows of the table.
            prefix: goes before the names of the table's columns.
            keys: about how many different keys the DataFrame has.
            task_memory_bytes: the memory a task may use.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table or the DataFrame has no such column.
            UnsupportedColumn: rows are not looked up by values of such a type.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: as for `lookup_join`.
        """
        require_spark(self._engine, "plan_lookup_join")
        request = self._lookup_request("plan_lookup_join", df, on, how, columns, filter, prefix, keys)
        return planned(self._indices(), df, request, prefix, task_memory(task_memory_bytes))

    def _lookup_request(
        self,
        verb: str,
        df: DataFrame,
        on: OnLike,
        how: str,
        columns: Sequence[str] | None,
        filter: FilterLike | None,
        prefix: str,
        keys: int | None,
    ) -> LookupRequest:
        check_is_frame(verb, df, "for a few keys use scan with a filter")
        check_texts(how=how, prefix=prefix)
        check_whole_numbers(0, keys=keys)
        named = None if columns is None else column_names(columns)
        text = None if filter is None else filter_text(filter, self.schema)
        return lookup_request(self._snapshot, on, how, named, text, keys)
