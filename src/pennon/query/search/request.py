"""What a search is asked, checked against the table before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.threads import cores
from pennon.index.vector.metric import Metric
from pennon.index.vector.several import gathered
from pennon.index.vector.vectors import VECTOR_TYPES, Positions, Vectors, VectorType, is_vector_type
from pennon.query.filter.reading import FilterLike
from pennon.query.scan.request import column_names
from pennon.query.search.expected import ExpectedRecall
from pennon.query.search.query_vectors import VectorLike, read_queries, read_several
from pennon.wording import plural

# Partitions probed of every segment by default; more while a query has too few answers.
DEFAULT_NPROBES = 20
# Candidates per answer that are measured again, where rows have several vectors.
SEVERAL_REFINE_FACTOR = 10


class SearchOptions(TypedDict, total=False):
    """The options of a search, in addition to column, queries and k.

    metric: `l2`, `cosine` or `dot`, or `hamming` for vectors of uint8; the index's own by default, and without an index
        l2, for uint8 hamming.
    nprobes: partitions to look at in every segment, exactly that many. It sets the two that follow.
    minimum_nprobes: partitions to look at in any case; 20 by default.
    maximum_nprobes: partitions to look at while there are fewer than k answers; all by default.
    refine_factor: keep k of k * refine_factor candidates, by the vectors of the table.
    ef: breadth of the walk through HNSW graphs; 1.5 times the candidates by default.
    filter: only rows it selects are candidates.
    prefilter: False finds the k nearest of all rows, and then leaves out those that the filter does not select.
    distance_range: only rows at a distance from the first bound on and below the second; None for no bound. With
        `k=None`, all of them.
    offset: neighbors to leave out first.
    distinct_by: a column; only the nearest row of each of its values, for k values. NULL counts as a value.
    columns: those to return, every one by default; `_distance` comes behind them.
    index: the name of the index to use; by default the one with the best expected recall among those that cover most.
    use_index: False measures every row.
    recall: the share of the true neighbors to find: chooses the index, nprobes, refine_factor and ef by measurement.
    """

    metric: str | None
    nprobes: int | None
    minimum_nprobes: int | None
    maximum_nprobes: int | None
    refine_factor: int | None
    ef: int | None
    filter: FilterLike | None
    prefilter: bool
    columns: Sequence[str] | None
    index: str | None
    with_row_id: bool
    with_row_address: bool
    use_index: bool
    distance_range: tuple[float | None, float | None] | None
    offset: int
    distinct_by: str | None
    recall: float | None


@dataclass(frozen=True)
class SearchRequest:
    """What the user requests."""

    column: str
    k: int | None = 10  # None: all rows of the distance range
    metric: str | None = None
    nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    filter: str | None = None
    columns: Sequence[str] | None = None
    index: str | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    use_index: bool = True
    prefilter: bool = True
    minimum_nprobes: int | None = None
    maximum_nprobes: int | None = None
    threads: int | None = None  # for a batch; as many as there are cores by default
    distance_range: tuple[float | None, float | None] | None = None
    offset: int = 0
    distinct_by: str | None = None
    recall: float | None = None
    measuring: bool = False  # how searches of a new handle are, not those after many others
    expected: ExpectedRecall | None = None  # once the options above follow from `recall`

    @property
    def is_plain(self) -> bool:
        """Whether no option is given that sets how the index is searched."""
        given = (self.nprobes, self.minimum_nprobes, self.maximum_nprobes, self.refine_factor, self.ef)
        return all(option is None for option in given)

    @property
    def reach(self) -> int:
        """Neighbors of a query up to the last one that is returned; 1 where their number is open."""
        return 1 if self.k is None else self.k + self.offset

    @property
    def lower(self) -> float | None:
        return None if self.distance_range is None else self.distance_range[0]

    @property
    def upper(self) -> float | None:
        return None if self.distance_range is None else self.distance_range[1]

    @property
    def shape_text(self) -> str:
        """What is returned for a query: `10 rows, one for each lang, at distances from 0.5 on`."""
        text = "all rows" if self.k is None else plural(self.k, "row")
        if self.offset:
            text += f" after the first {self.offset:,}"
        if self.distinct_by is not None:
            text += f", one for each {self.distinct_by},"
        bounds = [f"from {self.lower:g} on"] if self.lower is not None else []
        bounds += [f"below {self.upper:g}"] if self.upper is not None else []
        return f"{text} at distances {' and '.join(bounds)}" if bounds else text

    @property
    def wanted(self) -> int:
        """Candidates per query; a refined search keeps some of more."""
        return self.reach * (self.refine_factor or 1)

    @property
    def most_probes(self) -> int | None:
        """Partitions of a segment that may be looked at; None: all."""
        return self.maximum_nprobes or self.nprobes

    @property
    def least_probes(self) -> int:
        """Partitions of a segment that are looked at in any case."""
        given = self.minimum_nprobes or self.nprobes
        return given or min(DEFAULT_NPROBES, self.most_probes or DEFAULT_NPROBES)

    @classmethod
    def of(cls, column: str, k: int | None, options: Mapping[str, Any]) -> SearchRequest:
        check_option_names(options)
        for name in ("with_row_id", "with_row_address", "use_index", "prefilter"):
            if not isinstance(options.get(name, False), bool):
                raise InvalidArgument(f"{name} must be True or False, not {options[name]!r}")
        texts = {name: options.get(name) for name in ("metric", "index", "distinct_by")}
        for name, value in (("column", column), *texts.items()):
            if not isinstance(value, str) and (value is not None or name == "column"):
                raise InvalidArgument(f"{name} must be text, not {value!r}")
        if options.get("columns") is not None:
            options = {**options, "columns": column_names(options["columns"])}
        if options.get("distance_range") is not None:
            options = {**options, "distance_range": read_range(options["distance_range"])}
        offset = options.get("offset", 0)
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
            raise InvalidArgument(f"offset must be a whole number of at least 0, not {offset!r}")
        # Compiled code takes Python's own numbers only.
        plain: dict[str, Any] = {
            name: int(value) if isinstance(value, np.integer) else value for name, value in options.items()
        }
        return cls(column, int(k) if isinstance(k, np.integer) else k, **plain)


def check_option_names(names: Iterable[str]) -> None:
    """Whether searches take options of these names."""
    unknown = sorted(set(names) - SearchOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(SearchOptions.__annotations__)
        raise InvalidArgument(f"searches take no option {unknown[0]!r}", f"They take: {known}")


@dataclass(frozen=True, eq=False)
class Question:
    """A valid request with its queries, in the column's own type."""

    request: SearchRequest
    column: Column
    queries: Vectors
    metric: Metric | None
    starts: Positions | None = None  # the first vector of each query, where rows and queries have several
    refine: int | None = None  # in place of a refine_factor that is not given
    growth: int = 1  # of the candidates, where bounds and groups left too few

    @property
    def count(self) -> int:
        """The number of queries."""
        return len(self.queries) if self.starts is None else len(self.starts)

    def of_queries(self, chosen: Positions) -> Question:
        """The same for some of the queries."""
        if self.starts is None:
            return replace(self, queries=self.queries[chosen])
        vectors, starts = gathered(self.starts, len(self.queries), chosen)
        return replace(self, queries=self.queries[vectors], starts=starts)

    @property
    def k(self) -> int:
        """Neighbors to find, those that are left out at last included."""
        return self.request.reach * self.growth

    @property
    def wanted(self) -> int:
        """Candidates per query. Those of several vectors are always measured again."""
        if self.starts is not None and self.request.refine_factor is None:
            return self.k * SEVERAL_REFINE_FACTOR
        return self.request.wanted * (1 if self.request.refine_factor else self.refine or 1) * self.growth

    @property
    def threads(self) -> int:
        """One query is not worth dividing."""
        return 1 if self.count == 1 else self.request.threads or cores()


def read_request(snapshot: Snapshot, request: SearchRequest, queries: VectorLike, *, many: bool) -> Question:
    column = snapshot.column(request.column)
    if not is_vector_type(column.type):
        raise UnsupportedColumn(
            f"column {column.path!r} of {snapshot.uri} is of type {column.type}, which cannot be searched",
            f"Searches need {VECTOR_TYPES}",
        )
    if request.k is None and request.upper is None:
        remedy = "Give k, or distance_range with an upper bound for all rows within it"
        raise InvalidArgument("a search without k has no end", remedy)
    for label in ("k", "nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef"):
        _check_number(label, getattr(request, label), optional=label != "k" or request.k is None)
    _check_shape(snapshot, request)
    if request.most_probes is not None and request.least_probes > request.most_probes:
        raise InvalidArgument(
            f"at least {request.least_probes} partitions and at most {request.most_probes} exclude each other",
            "Give minimum_nprobes <= maximum_nprobes, or nprobes alone",
        )
    metric = None if request.metric is None else _read_metric(request.metric, column)
    if VectorType.of(column.type).several:
        vectors, starts = read_several(queries, column, many)
        question = Question(request, column, vectors, metric, starts)
    else:
        question = Question(request, column, read_queries(queries, column, many), metric)
    if request.ef is not None and request.ef < question.wanted:
        refined = " times refine_factor" if request.refine_factor else ""
        raise InvalidArgument(f"ef={request.ef} is less than k{refined}", f"Use ef >= {question.wanted}")
    return question


def read_range(given: object) -> tuple[float | None, float | None]:
    """Bounds as floats. Raises InvalidArgument if they are none, or the first is above the second."""
    problem = InvalidArgument(
        f"distance_range must be a pair of numbers, the first not above the second, not {given!r}",
        "Give (lower, upper), with None for a bound that is open",
    )
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise problem
    bounds: list[float | None] = []
    for bound in given:
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float | np.number)):
            raise problem
        bounds.append(None if bound is None else float(bound))
    lower, upper = bounds
    if any(bound is not None and np.isnan(bound) for bound in bounds):
        raise problem
    if lower is not None and upper is not None and lower > upper:
        raise problem
    return lower, upper


def _check_shape(snapshot: Snapshot, request: SearchRequest) -> None:
    """Bounds and groups."""
    if request.k is None:
        for name in ("nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef"):
            if getattr(request, name) is not None:
                problem = f"{name} has no meaning for all rows within a distance, which are all found"
                raise InvalidArgument(problem, f"Leave out {name}, or give k")
    if request.distinct_by is not None:
        type_ = snapshot.column(request.distinct_by).type
        if pa.types.is_nested(type_):
            raise UnsupportedColumn(
                f"column {request.distinct_by!r} of {snapshot.uri} is of type {type_}, whose values form no groups",
                "Name a column of plain values",
            )


def check_length(question: Question, metric: Metric) -> None:
    """Some vectors have no distance to anything, which depends on the metric."""
    valid = metric.indexable(question.queries)
    if not valid.all():
        which = f"query {np.argmin(valid)}" if len(valid) > 1 else "the query"
        what = "length 0" if not question.queries[np.argmin(valid)].any() else "a length beyond what float32 holds"
        raise InvalidArgument(f"{which} has {what} and thus no {metric} distance to anything", "Leave it out")


def _read_metric(name: str, column: Column) -> Metric:
    metric, held = Metric.named(name), VectorType.of(column.type)
    if not metric.measures(held.element):
        fitting = "hamming" if held.element == np.uint8 else "l2, cosine or dot"
        raise InvalidArgument(
            f"the metric {metric} does not measure the {held.item} vectors of column {column.path!r}", f"Use {fitting}"
        )
    return metric


def _check_number(label: str, value: object, *, optional: bool) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidArgument(f"{label} must be a whole number of at least 1, not {value!r}")
