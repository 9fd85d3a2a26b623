"""The verb that measures what settings of searches give a recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.deferred import deferred
from pennon.errors import InvalidArgument
from pennon.index.cache import SHARED_CACHE
from pennon.index.options import IndexOptions
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.table.arguments import bytes_of, check_flags, check_texts, check_whole_numbers
from pennon.table.handle import TableHandle
from pennon.table.verbs import runs_jobs

if TYPE_CHECKING:
    from pennon.jobs.tune.advice import IndexAdvice
    from pennon.jobs.tune.advise import advise_index, vector_request
    from pennon.jobs.tune.result import TuningResult
    from pennon.jobs.tune.tune import tune
    from pennon.query.search.query_vectors import VectorLike
    from pennon.query.search.request import SearchRequest
else:
    advise_index = deferred("pennon.jobs.tune.advise", "advise_index")
    vector_request = deferred("pennon.jobs.tune.advise", "vector_request")
    tune = deferred("pennon.jobs.tune.tune", "tune")
    SearchRequest = deferred("pennon.query.search.request", "SearchRequest")


class TuneVerbs(TableHandle):
    @runs_jobs("column")
    def tune(
        self,
        column: str,
        recall: float = 0.95,
        k: int = 10,
        *,
        filter: FilterLike | None = None,
        queries: VectorLike | None = None,
        sample: int = 1000,
        metric: str | None = None,
        index: str | None = None,
        store: bool = False,
    ) -> TuningResult:
        """Measure the recall and the time of every setting that matters, for each vector index on a column of the
        newest version, against exact search; recommend the fastest that has the recall with a confidence of 95%.

        Args:
            column: a column of vectors.
            recall: the share of the true neighbors that searches are to find, above 0 and at most 1.
            k: neighbors to find. What is stored also holds for smaller k, as far as their recall is no lower.
            filter: measure searches with this filter. Stored, it holds for filters that differ only in literals and
                select a similar share of rows.
            queries: vectors like those of your searches. Default: rows of the table, none of which is its own answer.
            sample: rows to take as queries.
            metric: `l2`, `cosine` or `dot`. Default: that of the index.
            index: measure only this index. Default: all of the metric.
            store: keep the measurement in the table's configuration, so that `search(..., recall=...)`, `search_batch`
                and `knn_join` use it.

        Returns:
            The settings, which of them to use and why, to print, or to read as `to_dict()`.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column holds no vectors.
            IndexNotFound: the table has no index of the name given as `index`.
            InvalidFilter: the filter does not parse, or has no meaning over this table.
            InvalidArgument: an argument of another type, out of its range, or too few queries with neighbors.
            CommitConflict: another writer changed the configuration at the same time, again and again.
        """
        check_flags(store=store)
        check_whole_numbers(10, sample=sample)
        if queries is not None and not hasattr(queries, "__len__"):
            raise InvalidArgument(
                f"queries takes vectors, not {queries!r}", "Pass sample= for the number of rows to take as queries"
            )
        if queries is not None and not len(queries):
            raise InvalidArgument("queries is empty", "Give some vectors, or none to take rows of the table")
        snapshot = self._snapshot.latest()
        text = None if filter is None else filter_text(filter, snapshot.schema)
        options = {"filter": text, "metric": metric, "index": index, "recall": recall}
        request = SearchRequest.of(column, k, options)
        self._move_to(snapshot)
        newest, result = tune(
            self._engine, Catalog.read(snapshot, SHARED_CACHE), request, queries, int(sample), store=store
        )
        self._move_to(newest)
        return result

    @runs_jobs("column")
    def advise_index(
        self,
        column: str,
        *,
        recall: float | None = None,
        memory: int | str | None = None,
        index_type: str | IndexOptions | None = None,
        **options: Any,
    ) -> IndexAdvice:
        """Which vector index to build for a recall within a budget of memory: candidates are built on a sample of the
        column, in this process, and measured. `create_index(recall=..., memory=...)` builds what this recommends.

        Args:
            column: a column of vectors.
            recall: the recall that searches are to reach. Default: 0.95.
            memory: what the index may take in memory when all of it is loaded: bytes, or text such as "4GiB". Default:
                any.
            index_type: a kind whose parameters are to be chosen. Default: the kind is chosen, too.
            **options: options of the index type that are given, such as `metric`.

        Returns:
            The candidates with their bytes, recall and time, the one to build and why, to print, or to read as
            `to_dict()`.

        Raises:
            ColumnNotFound: the table has no such column.
            UnsupportedColumn: the column holds no vectors.
            InvalidArgument: an argument of another type or out of its range, or no index fits the memory.
        """
        check_texts(column=column)
        kind, given = vector_request(index_type, options)
        return advise_index(
            self._engine,
            self._snapshot.latest(),
            column,
            recall=recall,
            memory_bytes=bytes_of("memory", memory),
            kind=kind,
            options=given,
        )
