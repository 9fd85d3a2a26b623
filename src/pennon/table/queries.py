"""The verbs that read a table: scans, counts, searches and their explanations. Only the join needs Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from pennon.engine import is_frame, require_spark
from pennon.errors import InvalidArgument
from pennon.jobs.knn_join.join import knn_join
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.reading import FilterLike
from pennon.query.scan import execute
from pennon.query.scan.explain import Explanation, explain
from pennon.query.scan.request import ColumnsLike, ScanOptions, ScanRequest
from pennon.query.search.explain import SearchExplanation, explain_search
from pennon.query.search.request import SearchOptions, SearchRequest, VectorLike
from pennon.query.search.run import search
from pennon.query.text.explain import TextExplanation
from pennon.query.text.request import TextLike
from pennon.table.arguments import check_flags, check_texts
from pennon.table.text_queries import TextVerbs

if TYPE_CHECKING:
    from pennon.engine import DataFrame


class QueryVerbs(TextVerbs):
    def scan(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        full_text: TextLike | None = None,
        **options: Unpack[ScanOptions],
    ) -> pa.Table:
        """The rows a filter selects, through indices where they help, in table order.

        Args:
            filter: SQL text, or a pyarrow expression such as `pyarrow.compute.field("id") > 7`.
            columns: names of columns, or SQL expressions by name: `{"double": "price * 2"}`. Every column by default.
            full_text: only rows that match this, the best first, with their `_score`: words to be found in any column
                that has an inverted index, a query of `pennon.text`, or `{"query": "words", "columns": ["title"]}`.
            **options: limit, offset, order_by, fragments, fast_search, include_deleted_rows, with_row_id and
                with_row_address, as in pylance.

        Raises:
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            ColumnNotFound: the table lacks a column that is to be returned or sorted by.
            InvalidArgument: an argument of another type, or out of its range.
        """
        request = self._request(filter, columns, options)
        if full_text is not None:
            return self._scan_text(full_text, request)
        return execute.scan(self._indices(), request)

    def scan_batches(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        batch_size: int | None = None,
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """The same rows, lazily. Rows found by indices come before those of scanned fragments, unless `order_by` or
        `offset` is given."""
        return execute.scan_batches(self._indices(), self._request(filter, columns, options, batch_size))

    def count(self, filter: FilterLike | None = None) -> int:
        """How many rows a filter selects; answered without touching the data where indices cover it."""
        return execute.count(self._indices(), self._text(filter))

    def count_rows(self, filter: FilterLike | None = None) -> int:
        """`count`, by pylance's name."""
        return self.count(filter)

    def search(self, column: str, query: VectorLike, k: int = 10, **options: Unpack[SearchOptions]) -> pa.Table:
        """The k rows whose vectors are nearest to a query, nearest first, with their `_distance`: squared l2, cosine
        distance or 1 - the inner product. (pylance reports cosine distances of PQ, SQ and RQ indices doubled.)"""
        return search(self._indices(), self._search_request(column, k, options), query)

    def search_batch(self, column: str, queries: VectorLike, k: int = 10, **options: Unpack[SearchOptions]) -> pa.Table:
        """The nearest rows of many queries at once, numbered by the column `query_index`."""
        return search(self._indices(), self._search_request(column, k, options), queries, many=True)

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
        of the table, by default all but vectors. Lazy, and the same neighbors as `search_batch` finds."""
        require_spark(self._engine, "knn_join")
        if not is_frame(df):
            given = f"{type(df).__module__}.{type(df).__name__}"
            remedy = "Make one with spark.createDataFrame(...); for vectors in this process use search_batch"
            raise InvalidArgument(f"knn_join takes a Spark DataFrame, not {given}", remedy)
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
        self, filter: FilterLike | None = None, *, full_text: TextLike, analyze: bool = False
    ) -> TextExplanation: ...

    @overload
    def explain(
        self, *, column: str, query: VectorLike, k: int = 10, analyze: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchExplanation: ...

    def explain(
        self,
        filter: FilterLike | None = None,
        columns: ColumnsLike | None = None,
        *,
        column: str | None = None,
        query: VectorLike = None,
        k: int = 10,
        full_text: TextLike | None = None,
        analyze: bool = False,
        **options: Any,
    ) -> Explanation | SearchExplanation | TextExplanation:
        """What `scan` would do, or with `column` and `query` what `search` would; with `analyze`, run it and say what
        it touched."""
        check_flags(analyze=analyze)
        if full_text is not None:
            return self.explain_search_text(None, full_text, None, analyze=analyze, filter=filter)
        if column is not None:
            options |= {"filter": filter, "columns": columns}
            return self.explain_search(column, query, k, analyze=analyze, **options)
        if query is not None or options:
            raise InvalidArgument("a search is explained with its column", "Give column=, or leave out its options")
        return explain(self._indices(), self._request(filter, columns, {}), analyze)

    def explain_search(
        self, column: str, query: VectorLike, k: int = 10, *, analyze: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchExplanation:
        """What `search` would do; with `analyze`, run it and say what it touched."""
        check_flags(analyze=analyze)
        return explain_search(self._indices(), self._search_request(column, k, options), query, analyze)

    def _request(
        self, filter: FilterLike | None, columns: object, options: Mapping[str, Any], batch_size: int | None = None
    ) -> ScanRequest:
        return ScanRequest.of(self._text(filter), columns, options, batch_size=batch_size)

    def _search_request(self, column: str, k: int, options: Mapping[str, Any]) -> SearchRequest:
        return SearchRequest.of(column, k, {**options, "filter": self._text(options.get("filter"))})
