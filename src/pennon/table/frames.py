"""Rows as Spark DataFrames: the filter and the columns go through the planner before the DataFrame is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from pennon.deferred import deferred
from pennon.display import DisplayedFields
from pennon.engine import require_spark
from pennon.errors import InvalidArgument
from pennon.query.filter.reading import FilterLike, conjunction, filter_text
from pennon.query.scan.execute import parse
from pennon.query.scan.explain import Explanation
from pennon.query.scan.request import ScanOptions, column_names
from pennon.table.arguments import check_flags, check_whole_numbers
from pennon.table.queries import QueryVerbs

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.jobs.dataframe import dataframe
else:
    dataframe = deferred("pennon.jobs.dataframe", "dataframe")


class FrameVerbs(QueryVerbs):
    def dataframe(
        self,
        filter: FilterLike | None = None,
        columns: list[str] | tuple[str, ...] | None = None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        rows_per_partition: int | None = None,
    ) -> DataFrame:
        """The rows of this version that a filter selects, as a Spark DataFrame. Indices find them now, and tasks read
        only those, and only the named columns.

        Args:
            filter: SQL text, or a pyarrow expression. Default: every row.
            columns: names of columns. Default: all.
            with_row_id: add the column `_rowid`.
            with_row_address: add the column `_rowaddr`.
            rows_per_partition: rows that a partition of the DataFrame has. Default: at most 262,144, and about
                128 MiB.

        Returns:
            A lazy DataFrame with a partition for each part of the scan.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            ColumnNotFound: the table lacks a column.
            UnsupportedColumn: Spark has no type for a column.
            SparkUnavailable: the table was opened with the local engine.
        """
        check_flags(with_row_id=with_row_id, with_row_address=with_row_address)
        check_whole_numbers(1, rows_per_partition=rows_per_partition)
        engine = require_spark(self._engine, "dataframe")
        request = self._request(filter, columns, {})
        if request.expressions is not None:
            raise InvalidArgument("columns must be names", "Compute others from the DataFrame, with selectExpr")
        request = replace(request, with_row_id=with_row_id, with_row_address=with_row_address)
        return dataframe(engine, self._indices(), request, rows_per_partition)

    def where(self, filter: FilterLike) -> Selection:
        """The rows that a filter selects, to be narrowed further and then read in one of several ways.

        Args:
            filter: SQL text, or a pyarrow expression.

        Returns:
            A selection: `table.where("user_id = 42").select("id", "name").dataframe()`.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
        """
        return Selection(self).where(filter)

    def select(self, *columns: str) -> Selection:
        """Some columns of the rows, to be filtered and then read in one of several ways.

        Args:
            *columns: names of columns.

        Returns:
            A selection: `table.select("id", "name").where("user_id = 42").dataframe()`.

        Raises:
            ColumnNotFound: the table lacks a column.
        """
        return Selection(self).select(*columns)


@dataclass(frozen=True)
class Selection(DisplayedFields):
    """Rows and columns of one version of a table, of which nothing is read until `dataframe` is called."""

    table: FrameVerbs
    filter: str | None = None
    columns: tuple[str, ...] | None = None

    def where(self, filter: FilterLike) -> Selection:
        """The rows that a further filter selects as well.

        Args:
            filter: SQL text, or a pyarrow expression.

        Returns:
            A smaller selection.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
        """
        snapshot = self.table._snapshot  # pyright: ignore[reportPrivateUsage]  a part of the handle
        text = filter_text(filter, snapshot.schema)
        parse(snapshot, text)
        return replace(self, filter=conjunction(self.filter, text))

    def select(self, *columns: str) -> Selection:
        """Only these columns; a filter may still name others.

        Args:
            *columns: names of columns.

        Returns:
            A smaller selection.

        Raises:
            ColumnNotFound: the table lacks a column.
            InvalidArgument: no names, or something that is none.
        """
        names = column_names(columns)
        if not names:
            raise InvalidArgument("select needs at least one column", "count() counts rows without reading any")
        for name in names:
            self.table._snapshot.column(name)  # pyright: ignore[reportPrivateUsage]
        return replace(self, columns=names)

    def dataframe(
        self, *, with_row_id: bool = False, with_row_address: bool = False, rows_per_partition: int | None = None
    ) -> DataFrame:
        """The selection as a Spark DataFrame.

        Args:
            with_row_id: add the column `_rowid`.
            with_row_address: add the column `_rowaddr`.
            rows_per_partition: rows that a partition of the DataFrame has. Default: at most 262,144, and about
                128 MiB.

        Returns:
            A lazy DataFrame.

        Raises:
            SparkUnavailable: the table was opened with the local engine.
        """
        return self.table.dataframe(
            self.filter,
            self.columns,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            rows_per_partition=rows_per_partition,
        )

    def scan(self, **options: Unpack[ScanOptions]) -> pa.Table:
        """The selection in memory.

        Args:
            **options: as for `Table.scan`.

        Returns:
            The rows, in table order.

        Raises:
            InvalidArgument: an option of another type.
        """
        return self.table.scan(self.filter, self.columns, **options)

    def count(self) -> int:
        """The number of its rows; no column is read where indices answer the filter."""
        return self.table.count(self.filter)

    def explain(self) -> Explanation:
        """Which indices find its rows, and what is read."""
        return self.table.explain(self.filter)
