"""The verbs that read a table: scans, counts, searches and their explanations. Only the join needs Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from pennon.deferred import deferred
from pennon.engine import require_spark
from pennon.errors import InvalidArgument
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.reading import FilterLike
from pennon.query.scan import execute
from pennon.query.scan.request import ColumnsLike, ScanOptions, ScanRequest
from pennon.table.arguments import check_flags, check_is_frame, check_texts
from pennon.table.text_queries import TextVerbs, check_no_index

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.jobs.knn_join.join import knn_join
    from pennon.query.scan.explain import Explanation, explain
    from pennon.query.search.explain import SearchExplanation, explain_search
    from pennon.query.search.query_vectors import VectorLike
    from pennon.query.search.request import SearchOptions, SearchRequest
    from pennon.query.search.run import search
    from pennon.query.search.tuning.resolve import with_recall
    from pennon.query.text.explain import TextExplanation
    from pennon.query.text.request import TextLike
else:
    knn_join = deferred("pennon.jobs.knn_join.join", "knn_join")
    explain = deferred("pennon.query.scan.explain", "explain")
    explain_search = deferred("pennon.query.search.explain", "explain_search")
    SearchRequest = deferred("pennon.query.search.request", "SearchRequest")
    search = deferred("pennon.query.search.run", "search")
    with_recall = deferred("pennon.query.search.tuning.resolve", "with_recall")


class QueryVerbs(TextVerbs):
    def scan(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        full_text: TextLike | None = None,
        index: str | None = None,
        **options: Unpack[ScanOptions],
    ) -> pa.Table:
        """The rows a filter selects, through indices where they help, in table order.

        Args:
            filter: SQL text, or a pyarrow expression such as `pyarrow.compute.field("id") > 7`.
            columns: names of columns, or SQL expressions by name: `{"double": "price * 2"}`. Every column by default.
            full_text: only rows that match this, the best first, with their `_score`: words to be found in any column
                that has an inverted index, a query of `pennon.text`, or `{"query": "words", "columns": ["title"]}`.
            index: the name of the index for `full_text`, where a column has several.
            **options: limit, offset, order_by, fragments, fast_search, include_deleted_rows, with_row_id and
                with_row_address, as in pylance; `pennon.ScanOptions` describes them.

        Returns:
            The rows, in memory.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            ColumnNotFound: the table lacks a column that is to be returned or sorted by.
            InvalidArgument: an argument of another type, or out of its range.
        """
        request = self._request(filter, columns, options)
        if full_text is not None:
            return self._scan_text(full_text, request, index)
        check_no_index(index)
        return execute.scan(self._indices(), request)

    def scan_batches(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        batch_size: int | None = None,
        full_text: TextLike | None = None,
        index: str | None = None,
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """The same rows, lazily. Rows found by indices come before those of scanned fragments, unless `order_by` or
        `offset` is given. Matches of `full_text` come by their scores: all are found before the first batch, and
        their columns are read batch by batch.

        Args:
            filter: as for `scan`, like the other arguments.
            columns: names of columns, or SQL expressions by name.
            batch_size: the most rows of a batch. Default: pylance's.
            full_text: as for `scan`.
            index: as for `scan`.
            **options: as for `scan`.

        Returns:
            Batches of rows, read as they are asked for.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            ColumnNotFound: the table lacks a column that is to be returned or sorted by.
            InvalidArgument: an argument of another type, or out of its range.
        """
        request = self._request(filter, columns, options, batch_size)
        if full_text is not None:
            return self._scan_text_batches(full_text, request, index)
        check_no_index(index)
        return execute.scan_batches(self._indices(), request)

    def count(
        self, filter: FilterLike | None = None, *, full_text: TextLike | None = None, index: str | None = None
    ) -> int:
        """How many rows a filter selects; answered without touching the data where indices cover it.

        Args:
            filter: SQL text, or a pyarrow expression. Default: every row.
            full_text: only rows that match this, as for `scan`.
            index: as for `scan`.

        Returns:
            The number of rows.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: the filter is neither text nor an expression.
        """
        if full_text is not None:
            return self._count_text(full_text, self._text(filter), index)
        check_no_index(index)
        return execute.count(self._indices(), self._text(filter))

    def count_rows(self, filter: FilterLike | None = None) -> int:
        """`count`, by pylance's name.

        Args:
            filter: SQL text, or a pyarrow expression. Default: every row.

        Returns:
            The number of rows.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
        """
        return self.count(filter)

    def search(self, column: str, query: VectorLike, k: int | None = 10, **options: Unpack[SearchOptions]) -> pa.Table:
        """The k rows whose vectors are nearest to a query, nearest first, with their `_distance`: squared l2, cosine
        distance or 1 - the inner product. (pylance reports cosine distances of PQ, SQ and RQ indices doubled.)

        Args:
            column: a column of vectors, or such a field within structs.
            query: one vector: a list, a numpy array, an Arrow array or scalar.
            k: neighbors to find; None for all rows of `distance_range`.
            **options: metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, filter, prefilter, columns,
                index, use_index, recall, distance_range, offset, distinct_by, with_row_id and with_row_address, as
                `pennon.SearchOptions` describes them.

        Returns:
            At most k rows, nearest first.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column holds no vectors.
            IndexNotFound: the table has no index of the name given as `index`.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: an argument of another type, out of its range, or a vector of another dimension.
            RecallUnknown: a recall that nothing is stored for, on a table too large to be measured for one search.
        """
        return search(self._indices(), self._search_request(column, k, options), query)

    def search_batch(
        self, column: str, queries: VectorLike, k: int | None = 10, **options: Unpack[SearchOptions]
    ) -> pa.Table:
        """The nearest rows of many queries at once, numbered by the column `query_index`.

        Args:
            column: a column of vectors, or such a field within structs.
            queries: a list of vectors, a matrix with a row for each, or an Arrow column.
            k: neighbors to find for each; None for all rows of `distance_range`.
            **options: metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, filter, prefilter, columns,
                index, use_index, recall, distance_range, offset, distinct_by, with_row_id and with_row_address, as
                `pennon.SearchOptions` describes them.

        Returns:
            At most k rows for each query, query by query, nearest first.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column holds no vectors.
            IndexNotFound: the table has no index of the name given as `index`.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: an argument of another type, out of its range, or a vector of another dimension.
            RecallUnknown: a recall that nothing is stored for, on a table too large to be measured for one search.
        """
        return search(self._indices(), self._search_request(column, k, options), queries, many=True)

    def knn_join(
        self,
        df: DataFrame,
        column: str,
        query_column: str | None = None,
        k: int | None = 10,
        *,
        how: str = "inner",
        prefix: str = "",
        task_memory_bytes: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> DataFrame:
        """Every row of a Spark DataFrame with its k nearest rows: its columns, `_rank` from 1, `_distance` and columns
        of the table, by default all but vectors. Lazy, and the same neighbors as `search_batch` finds;
        with a filter, and an index that exceeds a task, it may find fewer of the nearest.

        Args:
            df: a Spark DataFrame, of a classic or a Connect session.
            column: the table's column of vectors.
            query_column: the DataFrame's column of vectors. Default: the same name.
            k: neighbors of each row; None for all rows of `distance_range`.
            how: `"inner"`, or `"left"` to keep rows without neighbors.
            prefix: goes before the names of the table's columns.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            **options: metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, filter, prefilter, columns,
                index, use_index, recall, distance_range, offset, distinct_by, with_row_id and with_row_address, as
                `pennon.SearchOptions` describes them.

        Returns:
            A lazy DataFrame with a row for each neighbor.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table or the DataFrame has no such column.
            UnsupportedColumn: a column holds no vectors.
            InvalidArgument: an argument of another type, or out of its range.
        """
        require_spark(self._engine, "knn_join")
        check_is_frame("knn_join", df, "for vectors in this process use search_batch")
        check_texts(query_column=column if query_column is None else query_column, how=how, prefix=prefix)
        request = self._search_request(column, k, options)
        memory = task_memory(task_memory_bytes)
        return knn_join(
            self._indices(), df, request, query_column or column, how=how, prefix=prefix, memory_bytes=memory
        )

    @overload
    def explain(
        self, filter: FilterLike | None = None, columns: ColumnsLike | None = None, *, analyze: bool = False
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        filter: FilterLike | None = None,
        *,
        full_text: TextLike,
        columns: ColumnsLike | None = None,
        index: str | None = None,
        analyze: bool = False,
    ) -> TextExplanation: ...

    @overload
    def explain(
        self,
        *,
        column: str,
        query: VectorLike,
        k: int | None = 10,
        analyze: bool = False,
        **options: Unpack[SearchOptions],
    ) -> SearchExplanation: ...

    def explain(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        column: str | None = None,
        query: VectorLike = None,
        k: int | None = 10,
        full_text: TextLike | None = None,
        analyze: bool = False,
        **options: Any,
    ) -> Explanation | SearchExplanation | TextExplanation:
        """What `scan` would do, or with `column` and `query` what `search` would, or with
        `full_text` what `search_text` would.

        Args:
            filter: as for `scan`, or for `search`.
            columns: as for `scan`, or for `search`.
            column: the column of a search.
            query: the vector of a search.
            k: neighbors to find.
            full_text: what is searched for in texts, as for `scan`.
            analyze: run it, and report what it touched.
            **options: other options of a search, such as `index`.

        Returns:
            An explanation to print, or to read as `to_dict()`.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: options of a search without its column, or a value of another type.
        """
        check_flags(analyze=analyze)
        if full_text is not None:
            options |= {"filter": filter} if columns is None else {"filter": filter, "columns": columns}
            return self.explain_search_text(None, full_text, None, analyze=analyze, **options)
        if column is not None:
            options |= {"filter": filter, "columns": columns}
            return self.explain_search(column, query, k, analyze=analyze, **options)
        if query is not None or options:
            raise InvalidArgument("a search is explained with its column", "Give column=, or leave out its options")
        return explain(self._indices(), self._request(filter, columns, {}), analyze)

    def explain_search(
        self,
        column: str,
        query: VectorLike,
        k: int | None = 10,
        *,
        analyze: bool = False,
        **options: Unpack[SearchOptions],
    ) -> SearchExplanation:
        """What `search` would do.

        Args:
            column: as for `search`, like the other arguments.
            query: one vector.
            k: neighbors to find.
            analyze: run it, and report what it touched.
            **options: metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, filter, prefilter, columns,
                index, use_index, recall, distance_range, offset, distinct_by, with_row_id and with_row_address, as
                `pennon.SearchOptions` describes them.

        Returns:
            An explanation to print, or to read as `to_dict()`.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column holds no vectors.
            IndexNotFound: the table has no index of the name given as `index`.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: an argument of another type, out of its range, or a vector of another dimension.
            RecallUnknown: a recall that nothing is stored for, on a table too large to be measured for one search.
        """
        check_flags(analyze=analyze)
        return explain_search(self._indices(), self._search_request(column, k, options), query, analyze)

    def _request(
        self, filter: FilterLike | None, columns: object, options: Mapping[str, Any], batch_size: int | None = None
    ) -> ScanRequest:
        return ScanRequest.of(self._text(filter), columns, options, batch_size=batch_size)

    def _search_request(self, column: str, k: int | None, options: Mapping[str, Any]) -> SearchRequest:
        request = SearchRequest.of(column, k, {**options, "filter": self._text(options.get("filter"))})
        return with_recall(self._indices(), request)
