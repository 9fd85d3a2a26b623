"""Random histories of a table of vectors, checked after every step against brute force."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import pennon
from pennon.errors import InvalidArgument
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import to_matrix
from tests.in_place import WAYS, change_in_place
from tests.maintenance import Maintenance

DIM, K = 8, 8
KINDS = ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ"]
REUSE = "__lance_frag_reuse"
# Every partition and every candidate measured again: the answer of any index is then exact.
EXACT: dict[str, Any] = {"nprobes": 1000, "refine_factor": 100, "ef": 100_000, "columns": ["id"]}


class VectorHistory(Maintenance):
    """`v` carries the vector index, `k` at times a B-tree for filters; `id` names the rows."""

    stable_row_ids = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pennon-vectors-"))
        self.uri = str(self.directory / "t.lance")
        self.next_id = 0
        self.moved_by_pylance = False

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def rows(self, count: int, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        start, self.next_id = self.next_id, self.next_id + count
        return pa.table(
            {
                "id": pa.array(range(start, start + count), pa.int64()),
                "k": pa.array(rng.integers(0, 10, count)),
                "v": vectors(count, seed, nulls=0.1),
            }
        )

    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def has_reuse(self) -> bool:
        return any(i.name == REUSE for i in self.dataset().describe_indices())

    def metric(self) -> str | None:
        """Of the index on `v`; None without one."""
        found = [i for i in self.dataset().describe_indices() if i.name == "v_idx"]
        return str(found[0].details["metric_type"]).lower() if found else None

    @initialize(fragments=st.integers(1, 8), seed=st.integers(0, 1000), kind=st.sampled_from([None, *KINDS]))
    def create(self, fragments: int, seed: int, kind: str | None) -> None:
        rows = self.rows(fragments * 25, seed)
        lance.write_dataset(rows, self.uri, max_rows_per_file=25, enable_stable_row_ids=self.stable_row_ids)
        if kind is not None:
            self.build(kind, Metric.L2, 2)

    @rule(count=st.integers(1, 60), seed=st.integers(0, 1000))
    def append(self, count: int, seed: int) -> None:
        lance.write_dataset(self.rows(count, seed), self.uri, mode="append")

    @rule(modulus=st.integers(3, 9), rest=st.integers(0, 8))
    def delete(self, modulus: int, rest: int) -> None:
        self.dataset().delete(f"id % {modulus} = {rest}")

    @rule(modulus=st.integers(3, 9))
    def update_rows(self, modulus: int) -> None:
        self.dataset().update({"k": "k + 1"}, where=f"id % {modulus} = 1")

    @rule(first=st.integers(0, 5), count=st.integers(1, 3), seed=st.integers(0, 1000), way=st.sampled_from(WAYS))
    def change_in_place(self, first: int, count: int, seed: int, way: str) -> None:
        for fragment in self.dataset().get_fragments()[first : first + count]:
            some = fragment.scanner(columns=["id"], with_row_id=True).to_table()["_rowid"][:6]
            if some:
                changed = pa.table({"_rowid": some, "v": vectors(len(some), seed)})
                change_in_place(self.uri, fragment, changed, way)

    @precondition(lambda self: not self.stable_row_ids)
    @rule(
        first=st.integers(0, 5),
        seed=st.integers(0, 1000),
        rows=st.sampled_from([60, 100, 1000]),
        ours=st.booleans(),
        then=st.sampled_from(["nothing", "optimize", "add a delta", "maintain"]),
    )
    def change_in_place_and_move(self, first: int, seed: int, rows: int, ours: bool, then: str) -> None:
        """Old vectors are now at addresses that no segment was written with, and someone covers those."""
        self.change_in_place(first, 2, seed, "update")  # one fragment alone is not compacted
        if ours:
            self.compact_deferred(rows, 0.1)
        else:
            self.stock_compact_deferred(rows)
        self.cover(then)

    @rule(count=st.integers(1, 20), seed=st.integers(0, 1000))
    def merge_insert(self, count: int, seed: int) -> None:
        incoming = self.rows(count, seed)
        # Half of the rows are known already.
        ids = pa.array([v.as_py() - count // 2 for v in incoming["id"]], pa.int64())
        incoming = incoming.set_column(0, "id", ids)
        self.dataset().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(incoming)

    @rule(kind=st.sampled_from(KINDS), metric=st.sampled_from(list(Metric)), partitions=st.integers(1, 5))
    def build(self, kind: str, metric: Metric, partitions: int) -> None:
        table = pennon.open(self.uri)
        options: dict[str, Any] = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
        try:
            table.create_index("v", kind, metric=metric.value, num_partitions=partitions, max_iters=3, **options)
        except InvalidArgument as error:
            # Deletions may have left fewer vectors than that.
            if "cannot be trained" not in str(error):
                raise
            return
        assert next(i for i in table.indices() if i.name == "v_idx").coverage == 1.0

    @rule(kind=st.sampled_from(KINDS))
    def build_delta(self, kind: str) -> None:
        table, metric = pennon.open(self.uri), self.metric()
        index = next((i for i in table.indices() if i.name == "v_idx"), None)
        if index is None or not index.uncovered_fragments:
            return
        try:
            table.create_index("v", index.type, metric=metric, fragment_ids=index.uncovered_fragments, max_iters=3)
        except InvalidArgument as error:
            if "old values" not in str(error):
                raise

    @rule()
    def build_filter_index(self) -> None:
        pennon.open(self.uri).create_index("k", batch_size=16)

    @rule()
    def drop(self) -> None:
        table = pennon.open(self.uri)
        if any(i.name == "v_idx" for i in table.indices()):
            table.drop_index("v_idx")

    @rule(metric=st.sampled_from(list(Metric)))
    def stock_build(self, metric: Metric) -> None:
        if self.dataset().count_rows("v is not null") > 20:
            self.dataset().create_index(
                "v", "IVF_FLAT", name="v_idx", metric=metric.value, num_partitions=2, replace=True
            )

    # Stock cannot remap graphs it does not know the rows of; it is only let at kinds and states it can handle.
    @precondition(lambda self: not self.has_reuse())
    @rule(merge=st.sampled_from([0, 1, 9]))
    def stock_optimize(self, merge: int) -> None:
        self.dataset().optimize.optimize_indices(num_indices_to_merge=merge)

    @precondition(lambda self: not self.has_reuse())
    @rule(rows=st.sampled_from([60, 100, 1000]))
    def stock_compact(self, rows: int) -> None:
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows)

    @precondition(lambda self: not self.stable_row_ids)
    @rule(rows=st.sampled_from([60, 100, 1000]))
    def stock_compact_deferred(self, rows: int) -> None:
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows, defer_index_remap=True)
        self.moved_by_pylance = self.moved_by_pylance or self.has_reuse()

    @invariant()
    def answers_equal_brute_force(self) -> None:
        if not Path(self.uri).exists():
            return
        table = pennon.open(self.uri)
        metric = Metric(self.metric() or "l2")
        note(f"version {table.version}, {metric}, {[(i.name, i.type, i.coverage) for i in table.indices()]}")
        queries = np.random.default_rng(table.version).standard_normal((3, DIM)).astype(np.float32)
        for filter in (None, "k < 4", "id % 3 = 0"):
            expected = brute_force(self.uri, queries, metric, filter)
            batch = table.search_batch("v", queries, K, filter=filter, **EXACT)
            for number, query in enumerate(queries):
                found = table.search("v", query, K, filter=filter, **EXACT)
                same_neighbours(found, *expected[number])
                own = np.flatnonzero(batch["query_index"].to_numpy() == number)
                same_neighbours(batch.take(own), *expected[number])
        if self.metric() is not None:
            for query, (ids, distances) in zip(queries, brute_force(self.uri, queries, metric, None), strict=True):
                try:
                    found = stock_neighbours(self.uri, query, metric)
                except pa.ArrowInvalid as error:
                    # Its own deferred compactions drop rows that graphs have; Pennon's never do.
                    if "HNSW graph has" not in str(error) or not self.moved_by_pylance:
                        raise
                    break
                if self.stable_row_ids:
                    none_is_old(found, ids, distances)  # it gives fewer answers than asked for
                else:
                    same_neighbours(found, ids, distances)


class StableVectorHistory(VectorHistory):
    stable_row_ids = True


def vectors(count: int, seed: int, nulls: float = 0.0) -> pa.Array:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, DIM)).astype(np.float32)
    gone = rng.random(count) < nulls
    return pa.array([None if g else v for v, g in zip(values, gone, strict=True)], pa.list_(pa.float32(), DIM))


Neighbours = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


def brute_force(uri: str, queries: npt.NDArray[Any], metric: Metric, filter: str | None) -> list[Neighbours]:
    """Ids and distances of all rows with a vector, nearest first."""
    rows = lance.dataset(uri).scanner(columns=["id", "v"], filter=filter, use_scalar_index=False).to_table()
    matrix, whole = to_matrix(rows["v"].combine_chunks())
    ids = rows["id"].to_numpy()[whole]
    distances = metric.distances(queries, matrix[whole])
    orders = np.argsort(distances, axis=1, kind="stable")
    return [(ids[order], row[order]) for order, row in zip(orders, distances, strict=True)]


def stock_neighbours(uri: str, query: npt.NDArray[np.float32], metric: Metric) -> pa.Table:
    """Stock's own search through the index; with stable row ids it gives fewer answers than asked for. Of an index that
    covers nothing any more it forgets the metric."""
    nearest = {"column": "v", "q": query, "k": K, "nprobes": 1000, "refine_factor": 100, "ef": 100_000}
    nearest["metric"] = metric.value
    return lance.dataset(uri).scanner(columns=["id", "_distance"], nearest=nearest).to_table()


def none_is_old(found: pa.Table, ids: npt.NDArray[np.int64], distances: npt.NDArray[np.float32]) -> None:
    """Every answer is a row of the table, at the distance it has."""
    order = np.argsort(ids)
    at = order[np.searchsorted(ids, found["id"].to_numpy(), sorter=order)]
    np.testing.assert_array_equal(ids[at], found["id"].to_numpy())
    np.testing.assert_allclose(found["_distance"].to_numpy(), distances[at], rtol=1e-4, atol=1e-4)


def same_neighbours(found: pa.Table, ids: npt.NDArray[np.int64], distances: npt.NDArray[np.float32]) -> None:
    assert found.num_rows == min(K, len(ids))
    np.testing.assert_allclose(found["_distance"].to_numpy(), distances[: found.num_rows], rtol=1e-4, atol=1e-4)
    far = distances[: found.num_rows].max(initial=-np.inf)
    # Rows that are nearer than the last by more than rounding must all be there.
    assert set(ids[distances < far - 1e-3].tolist()) <= set(found["id"].to_pylist())
