"""The verbs that search texts. They need no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from pennon.engine import require_spark
from pennon.errors import InvalidArgument
from pennon.jobs.shared.budget import task_memory
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.query.scan.request import ScanRequest, check_request
from pennon.table.arguments import check_is_frame, check_texts
from pennon.table.handle import TableHandle

if TYPE_CHECKING:
    from pennon.engine import DataFrame
    from pennon.query.hybrid.run import HybridOptions
    from pennon.query.search.query_vectors import VectorLike
    from pennon.query.text.explain import TextExplanation
    from pennon.query.text.request import TextColumnsLike, TextLike, TextOptions, TextQuery, TextRequest


# Imported when texts are searched: the kernels of inverted indices take seconds to load, and every table imports this.


class TextVerbs(TableHandle):
    def search_text(
        self, column: TextColumnsLike, query: TextQuery, k: int = 10, **options: Unpack[TextOptions]
    ) -> pa.Table:
        """The k rows that match a query best, the best first, with their BM25 `_score` as pylance computes it.

        Rows that the index does not cover are read and found, too. Without an index on a named column all rows are
        read, and words are compared as they are written, as pylance does.

        Args:
            column: a column of text; several, of which the best score counts; or None for all that have an index.
            query: words, a phrase in double quotes, or a query of `pennon.text`.
            k: how many rows.
            **options: filter, columns, operator, fuzziness, max_expansions, prefix_length, index, fast_search,
                with_row_id and with_row_address.

        Returns:
            The columns, then `_score`. No row where the query has no term, such as one of stop words only.

        Raises:
            ColumnNotFound: the table has no such column.
            IndexNotFound: the table has no index of the name given as `index`.
            UnsupportedColumn: the column does not hold text.
            UnsupportedTable: its index analyzes text in a way that Pennon does not reproduce.
            InvalidArgument: a value out of its range, a phrase on an index without positions, or no column is named
                and none has an index.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
        """
        from pennon.query.text.run import search_text  # noqa: PLC0415

        return search_text(self._indices(), self._text_request(k, options), column, query, options)

    def search_text_batch(
        self, column: TextColumnsLike, queries: Sequence[TextQuery], k: int = 10, **options: Unpack[TextOptions]
    ) -> pa.Table:
        """The best rows of many queries at once, numbered by the column `query_index`. Posting lists are read once for
        all queries, and so are the rows that no index covers.

        Args:
            column: as for `search_text`, like all arguments.
            queries: words, phrases in double quotes, and queries of `pennon.text`.
            k: how many rows of each query.
            **options: those of `search_text`, the same for all queries.

        Returns:
            `query_index`, the columns, then `_score`; the rows of the first query come first.

        Raises:
            InvalidArgument: one query instead of several, and as for `search_text`.
        """
        from pennon.query.text.run import search_text_batch  # noqa: PLC0415

        return search_text_batch(self._indices(), self._text_request(k, options), column, queries, options)

    def text_join(
        self,
        df: DataFrame,
        column: TextColumnsLike,
        query_column: str | None = None,
        k: int = 10,
        *,
        how: str = "inner",
        prefix: str = "",
        task_memory_bytes: int | None = None,
        **options: Unpack[TextOptions],
    ) -> DataFrame:
        """Every row of a Spark DataFrame with the k rows of this version of the table that match its query best, as
        `search_text` finds them.

        The result has the columns of the DataFrame, then `_rank` (1 is the best), `_score` and the columns of the
        table; it is lazy. A row whose query is NULL, or has no word, has no matches. Queries in double quotes are
        phrases.

        Args:
            df: the rows to match; the join runs on its session.
            column: as for `search_text`.
            query_column: the DataFrame's column of strings; by default the name of `column`.
            k: how many rows for each.
            how: `"inner"`, or `"left"` to keep rows without matches.
            prefix: goes before the names of the table's columns.
            task_memory_bytes: the memory a task may use. Default: PENNON_TASK_MEMORY of the environment, or 1 GiB.
            **options: those of `search_text`, the same for all queries.

        Returns:
            A lazy DataFrame with a row for each match.

        Raises:
            SparkUnavailable: the table was opened with the local engine, or the session was stopped.
            ColumnNotFound: the table or the DataFrame has no such column.
            UnsupportedColumn: a column does not hold text.
            InvalidArgument: an argument of another type, or out of its range.
        """
        require_spark(self._engine, "text_join")
        check_is_frame("text_join", df, "for queries in this process use search_text_batch")
        if query_column is None and not isinstance(column, str):
            raise InvalidArgument(f"with {column!r} as columns, the queries have none", "Give query_column=")
        check_texts(query_column=column if query_column is None else query_column, how=how, prefix=prefix)
        from pennon.jobs.text_join.join import text_join  # noqa: PLC0415
        from pennon.query.text.request import words_of  # noqa: PLC0415

        asked = str(column) if query_column is None else query_column
        return text_join(
            self._indices(),
            df,
            self._text_request(k, options),
            column,
            asked,
            words_of(options),
            how=how,
            prefix=prefix,
            memory_bytes=task_memory(task_memory_bytes),
        )

    def search_hybrid(
        self,
        vector: tuple[str, VectorLike],
        text: tuple[TextColumnsLike, TextQuery],
        k: int = 10,
        **options: Unpack[HybridOptions],
    ) -> pa.Table:
        """The k rows that are best by vector and by text together, the best first.

        Both searches find candidates, which are fused. With `"rrf"`, reciprocal rank fusion as LanceDB has it, a row's
        score is the sum of 1 / (60 + rank) over the searches that found it, the first rank being 1. With `"linear"` it
        is the sum of weights times how good the row is in each search, from 1 for the best to 0 for the worst.

        Args:
            vector: a column and a vector, as `search` takes them.
            text: a column and a query, as `search_text` takes them.
            k: how many rows.
            **options: fusion, weights, candidates, filter, columns, with_row_id, with_row_address; metric, nprobes,
                refine_factor, ef and recall of `search`; operator, fuzziness, max_expansions and prefix_length of
                `search_text`; vector_index and text_index, names of the indices.

        Returns:
            The columns, then `_distance` and `_score`, `_vector_rank` and `_text_rank`, NULL where a search did not
            find the row, and `_relevance_score`.

        Raises:
            IndexNotFound: the table has no index of a name given as `vector_index` or `text_index`.
            InvalidArgument: an option that does not exist, or a value that it does not allow.
            RecallUnknown: a recall is given, nothing is stored for it, and the table is too large to be measured.
        """
        return self._search_hybrid(vector, text, k, options, many=False)

    def search_hybrid_batch(
        self,
        vectors: tuple[str, VectorLike],
        texts: tuple[TextColumnsLike, Sequence[TextQuery]],
        k: int = 10,
        **options: Unpack[HybridOptions],
    ) -> pa.Table:
        """The best rows of many pairs of a vector and a text, numbered by the column `query_index`.

        Args:
            vectors: a column and a matrix with one query per row.
            texts: a column and a query for each of the vectors.
            k: how many rows of each pair.
            **options: those of `search_hybrid`, the same for all pairs.

        Returns:
            `query_index`, then what `search_hybrid` returns.

        Raises:
            InvalidArgument: another number of texts than of vectors, and as for `search_hybrid`.
        """
        return self._search_hybrid(vectors, texts, k, options, many=True)

    def explain_search_text(
        self,
        column: TextColumnsLike,
        query: TextLike,
        k: int | None = 10,
        *,
        analyze: bool = False,
        **options: Unpack[TextOptions],
    ) -> TextExplanation:
        """What `search_text` would do: terms and how many documents have them, partitions, fragments to be scanned;
        with `analyze`, run it and report the blocks that it read and skipped.

        Args:
            column: as for `search_text`.
            query: as for `search_text`.
            k: how many rows; None for all matches.
            analyze: run the search.
            **options: as for `search_text`.

        Returns:
            A plan to print, or to read as `to_dict()`.

        Raises:
            InvalidArgument: a query or an option that a search does not take.
            UnsupportedColumn: a column that does not hold text.
        """
        from pennon.query.text.explain import explain_text  # noqa: PLC0415

        request = self._text_request(k, options)
        return explain_text(self._indices(), request, column, query, options, analyze)

    def _search_hybrid(
        self, vector: object, text: object, k: int, options: Mapping[str, Any], *, many: bool
    ) -> pa.Table:
        from pennon.query.hybrid.run import HybridRequest, search_hybrid  # noqa: PLC0415

        (column, query), (text_column, words) = _pair("vector", vector), _pair("text", text)
        options = {**options, "filter": self._text(options.get("filter"))}
        request = HybridRequest.of(column, text_column, k, options)
        return search_hybrid(self._indices(), request, query, words, many=many)

    def _scan_text(self, full_text: TextLike, scan: ScanRequest, index: str | None) -> pa.Table:
        """All matches, or those that limit and offset leave."""
        from pennon.query.text.run import search_text  # noqa: PLC0415

        return search_text(self._indices(), self._matching(scan, index), None, full_text, {})

    def _scan_text_batches(self, full_text: TextLike, scan: ScanRequest, index: str | None) -> Iterator[pa.RecordBatch]:
        from pennon.query.text.run import scan_text  # noqa: PLC0415

        yield from scan_text(self._indices(), self._matching(scan, index), full_text, scan.batch_size)

    def _count_text(self, full_text: TextLike, filter: str | None, index: str | None) -> int:
        from pennon.query.text.run import count_text  # noqa: PLC0415

        return count_text(self._indices(), self._matching(ScanRequest(filter), index), full_text)

    def _matching(self, scan: ScanRequest, index: str | None) -> TextRequest:
        """The request of a scan as one for matches."""
        from pennon.query.text.request import TextRequest  # noqa: PLC0415

        if scan.order_by or scan.fragments is not None or scan.include_deleted_rows or scan.expressions is not None:
            raise InvalidArgument(
                "full_text does not combine with order_by, fragments, include_deleted_rows or SQL expressions",
                "Matches come by their scores; sort or select from what the scan returns",
            )
        check_request(self._snapshot, replace(scan, columns=None))
        if index is not None:
            check_texts(index=index)
        offset = scan.offset or 0
        return TextRequest(
            k=None if scan.limit is None else scan.limit + offset,
            filter=scan.filter,
            columns=scan.columns,
            fast_search=scan.fast_search,
            with_row_id=scan.with_row_id,
            with_row_address=scan.with_row_address,
            offset=offset,
            index=index,
        )

    def _text_request(self, k: int | None, options: Mapping[str, Any]) -> TextRequest:
        from pennon.query.text.request import TextRequest  # noqa: PLC0415

        return TextRequest.of(k, {**options, "filter": self._text(options.get("filter"))})

    def _text(self, filter: FilterLike | None) -> str | None:
        return None if filter is None else filter_text(filter, self._snapshot.schema)


def check_no_index(index: object) -> None:
    """Scans choose the indices for their filter; a name is for that of `full_text`."""
    if index is not None:
        raise InvalidArgument(f"index={index!r} is for full_text", "Leave it out, or give full_text")


def _pair(name: str, given: object) -> tuple[Any, Any]:
    if not isinstance(given, tuple | list) or len(given) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidArgument(f"{name} takes a column and a query, not {given!r}", f'Write {name}=("column", query)')
    return given[0], given[1]  # pyright: ignore[reportUnknownVariableType]
