"""Vector indices in random histories: exact searches compared with brute force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st

import pennon
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.vectors import to_matrix
from pennon.table import Table
from pennon.testing.cases import Build, Column, IndexCase
from pennon.testing.duplicates import check_duplicates
from pennon.testing.writers import Writers

# All partitions are read and all candidates are measured again: the answer of any index is then exact.
EXACT: dict[str, Any] = {"nprobes": 1000, "refine_factor": 100, "ef": 100_000}
TOO_FEW, TOO_MANY = "cannot be trained", "segments cannot be made of"
Neighbors = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]
DIM = 8


@dataclass(frozen=True)
class VectorShape:
    """What the vectors of a column are like: how to draw them, and the distances of rows by brute force."""

    draw: Callable[[np.random.Generator], npt.NDArray[Any]]
    type: pa.DataType
    metrics: tuple[Metric, ...]
    measure: Callable[[npt.NDArray[Any], pa.Array, Metric], npt.NDArray[np.float32]]
    """Of one query to the rows of a column without NULLs; infinite for rows that have no distance."""


def _measure_floats(query: npt.NDArray[Any], rows: pa.Array, metric: Metric) -> npt.NDArray[np.float32]:
    return metric.distances(query[None], to_matrix(rows)[0])[0]


def _measure_bits(query: npt.NDArray[Any], rows: pa.Array, metric: Metric) -> npt.NDArray[np.float32]:
    differing: npt.NDArray[np.uint8] = np.bitwise_xor(to_matrix(rows)[0], query)
    return np.unpackbits(differing, axis=1).sum(axis=1, dtype=np.float32)


FLOATS = VectorShape(
    lambda rng: rng.standard_normal(DIM).astype(np.float32), pa.list_(pa.float32(), DIM), FLOAT_METRICS, _measure_floats
)
BITS = VectorShape(
    lambda rng: rng.integers(0, 256, DIM, dtype=np.uint8), pa.list_(pa.uint8(), DIM), (Metric.HAMMING,), _measure_bits
)


def _measure_several(query: npt.NDArray[Any], rows: pa.Array, metric: Metric) -> npt.NDArray[np.float32]:
    found = np.full(len(rows), np.inf, dtype=np.float32)
    for number, row in enumerate(rows.to_pylist()):
        if row:
            found[number] = metric.distances(query, np.array(row, dtype=np.float32)).min(axis=1).sum()
    return found


SEVERAL = VectorShape(
    lambda rng: rng.standard_normal((rng.integers(1, 4), DIM)).astype(np.float32),
    pa.list_(pa.list_(pa.float32(), DIM)),
    (Metric.COSINE,),
    _measure_several,
)


def vectors(shape: VectorShape = FLOATS, nulls: float = 0.1) -> Column:
    """A column of vectors, some of them NULL."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        rows = [None if rng.random() < nulls else shape.draw(rng).tolist() for _ in range(count)]
        return pa.array(rows, shape.type)

    return Column(values)


def vector_index(
    column: str,
    index_types: tuple[str, ...],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    prefilters: tuple[str | None, ...] = (None,),
    shape: VectorShape = FLOATS,
) -> IndexCase:
    """One index on a column of vectors, of one of these types at a time, with any metric.

    Args:
        column: One of the columns of the history, of `vectors(shape)`.
        index_types: As `Table.create_index` takes them.
        options: Options of `Table.create_index` that a type needs in addition to metric and number of partitions.
        prefilters: Each search is made once with each of them.
        shape: What its vectors are like.
    """
    name = f"{column}_idx"

    def build(index_type: str, metric: str, partitions: int, segments: int | None) -> Build:
        more = (options or {}).get(index_type, {})
        shape = {"num_partitions": partitions, "num_segments": segments}
        return index_type, {"metric": metric, "max_iters": 3, **shape, **more}

    def delta_options(dataset: lance.LanceDataset) -> dict[str, Any]:
        return {"metric": _metric(dataset, name), "max_iters": 3}

    def pylance_build(dataset: lance.LanceDataset, number: int) -> None:
        if dataset.count_rows(f"{column} is not null") > 20:
            metric = shape.metrics[number % len(shape.metrics)].value
            dataset.create_index(column, "IVF_FLAT", name=name, metric=metric, num_partitions=2, replace=True)

    return IndexCase(
        column,
        st.builds(
            build,
            st.sampled_from(index_types),
            st.sampled_from(shape.metrics).map(str),
            st.integers(1, 5),
            st.sampled_from([None, None, 2, 3]),
        ),
        name,
        delta_options=delta_options,
        pylance_build=pylance_build,
        refusals=(TOO_FEW, TOO_MANY),
        check=NeighborCheck(column, name, shape, prefilters),
    )


@dataclass(frozen=True)
class NeighborCheck:
    """The k nearest rows by `Table.search`, by `Table.search_batch` and by pylance are those of brute force, and so are
    near-duplicates."""

    column: str
    index_name: str
    shape: VectorShape
    prefilters: tuple[str | None, ...]
    k: int = 8

    def __call__(self, history: Writers) -> None:
        """Compare the answers to a few queries."""
        table = pennon.open(history.uri)
        built = _metric(history.dataset(), self.index_name)
        metric = Metric(built) if built else self.shape.metrics[0]
        note(f"metric {metric.value}")
        rng = np.random.default_rng(table.version)
        queries = [self.shape.draw(rng) for _ in range(3)]
        for prefilter in self.prefilters:
            expected = self.brute_force(history.uri, queries, metric, prefilter)
            options: dict[str, Any] = {**EXACT, "metric": metric.value, "filter": prefilter, "columns": ["id"]}
            batch = table.search_batch(self.column, queries, self.k, **options)
            for number, query in enumerate(queries):
                self.same(table.search(self.column, query, self.k, **options), *expected[number])
                own = np.flatnonzero(batch["query_index"].to_numpy() == number)
                self.same(batch.take(own), *expected[number])
            self.compare_shapes(table, queries, expected, metric, prefilter)
            if self.shape is FLOATS and metric is not Metric.DOT:
                check_duplicates(history.uri, self.column, metric.value, prefilter)
        if built is not None:
            self.compare_pylance(history, queries, metric)

    def compare_shapes(
        self,
        table: Table,
        queries: Sequence[npt.NDArray[Any]],
        expected: list[Neighbors],
        metric: Metric,
        prefilter: str | None,
    ) -> None:
        """Bounds, offsets, groups, all rows within a distance, and as many neighbors as there are rows without tuning
        of any kind."""
        ids, distances = expected[0]
        options: dict[str, Any] = {"metric": metric.value, "filter": prefilter, "columns": ["id"]}
        every = table.search(self.column, queries[0], max(1, len(ids)), **options)
        assert sorted(every["id"].to_pylist()) == sorted(ids.tolist())
        if len(ids) < 6:
            return
        # Between distances, so that rounding does not decide.
        at = np.flatnonzero(np.diff(distances) > 1e-3)
        if len(at) < 2:
            return
        first, last = at[0], at[len(at) // 2]
        lower, upper = (float(distances[place : place + 2].mean()) for place in (first, last))
        kept = slice(first + 1, last + 1)
        within = table.search(self.column, queries[0], None, distance_range=(lower, upper), **options)
        assert sorted(within["id"].to_pylist()) == sorted(ids[kept].tolist())
        near = table.search(self.column, queries[0], self.k, distance_range=(lower, upper), **options, **EXACT)
        self.same(near, ids[kept], distances[kept])
        grouped = table.search(self.column, queries[0], self.k, distinct_by="id", offset=2, **options, **EXACT)
        self.same(grouped, ids[2:], distances[2:])

    def compare_pylance(self, history: Writers, queries: Sequence[npt.NDArray[Any]], metric: Metric) -> None:
        """pylance reads the same index."""
        expected = self.brute_force(history.uri, queries, metric, None)
        for query, (ids, distances) in zip(queries, expected, strict=True):
            # pylance does not read the metric of an index that covers nothing.
            nearest = {"column": self.column, "q": query, "k": self.k, "metric": metric.value, **EXACT}
            try:
                found = history.dataset().scanner(columns=["id", "_distance"], nearest=nearest).to_table()
            except pa.ArrowInvalid as error:
                # Its own deferred compactions drop rows that graphs have; those of Pennon never do.
                if "HNSW graph has" not in str(error) or not history.compacted_by_pylance:
                    raise
                return
            if history.stable_row_ids:
                none_is_old(found, ids, distances)  # it returns fewer rows than asked for
            else:
                self.same(found, ids, distances)

    def same(self, found: pa.Table, ids: npt.NDArray[np.int64], distances: npt.NDArray[np.float32]) -> None:
        """The answer has the nearest distances, and all rows that are nearer than the last by more than rounding."""
        assert found.num_rows == min(self.k, len(ids))
        np.testing.assert_allclose(found["_distance"].to_numpy(), distances[: found.num_rows], rtol=1e-4, atol=1e-4)
        far = distances[: found.num_rows].max(initial=-np.inf)
        assert set(ids[distances < far - 1e-3].tolist()) <= set(found["id"].to_pylist())

    def brute_force(
        self, uri: str, queries: Sequence[npt.NDArray[Any]], metric: Metric, filter: str | None
    ) -> list[Neighbors]:
        """Ids and distances of all rows with a vector, nearest first, for each query."""
        scanner = lance.dataset(uri).scanner(columns=["id", self.column], filter=filter, use_scalar_index=False)
        rows = scanner.to_table().combine_chunks()
        rows = rows.filter(rows[self.column].is_valid()).combine_chunks()
        ids, values = rows["id"].to_numpy(), rows[self.column].combine_chunks()
        found: list[Neighbors] = []
        for query in queries:
            distances = self.shape.measure(query, values, metric)
            order = np.argsort(distances, kind="stable")
            order = order[np.isfinite(distances[order])]
            found.append((ids[order], distances[order]))
        return found


def none_is_old(found: pa.Table, ids: npt.NDArray[np.int64], distances: npt.NDArray[np.float32]) -> None:
    """Every row of the answer is a row of the table, at the distance it has."""
    order = np.argsort(ids)
    at = order[np.searchsorted(ids, found["id"].to_numpy(), sorter=order)]
    np.testing.assert_array_equal(ids[at], found["id"].to_numpy())
    np.testing.assert_allclose(found["_distance"].to_numpy(), distances[at], rtol=1e-4, atol=1e-4)


def _metric(dataset: lance.LanceDataset, name: str) -> str | None:
    """Of the index of that name; None without one."""
    found = [index for index in dataset.describe_indices() if index.name == name]
    return str(found[0].details["metric_type"]).lower() if found else None
