"""Tables with indices that Pennon built and kept, in every layout that it leaves behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import CompactionWarning
from pennon.index.vector.vectors import to_lists
from pennon.table import Table
from tests.support.tables import every_type
from tests.support.vectors import clustered

SCALARS = ("i64", "text", "f64", "ts_us")
DIM, PARTITIONS, K = 16, 6, 10
RQ_BITS = (1, 5)


@dataclass(frozen=True)
class VectorColumn:
    """A column of its own for each kind of index and metric, so that one history makes all of them."""

    kind: str
    metric: str
    options: dict[str, int]

    @property
    def label(self) -> str:
        bits = self.options.get("num_bits")
        return f"{self.kind}, {bits} bit{'s' * (bits > 1)}" if bits else self.kind

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.options.get('num_bits', '')}{self.metric}".lower()


def _columns() -> list[VectorColumn]:
    kinds: list[tuple[str, dict[str, int]]] = [
        ("IVF_FLAT", {}),
        ("IVF_PQ", {"num_sub_vectors": 8}),
        ("IVF_SQ", {}),
        *(("IVF_RQ", {"num_bits": bits}) for bits in RQ_BITS),
        ("IVF_HNSW_FLAT", {}),
        ("IVF_HNSW_PQ", {"num_sub_vectors": 8}),
        ("IVF_HNSW_SQ", {}),
    ]
    return [VectorColumn(kind, metric, options) for kind, options in kinds for metric in ("l2", "cosine")]


VECTORS = _columns()


def scalar_rows(count: int, start: int = 0) -> pa.Table:
    return every_type(count, seed=start, start=start).select(["id", *SCALARS])


def vector_rows(count: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + count)
    vectors = to_lists(clustered(count, DIM, seed=start).astype(np.float32))
    return pa.table({"id": ids} | {column.name: vectors for column in VECTORS})


def scalar_table(path: Path, *, ranges: int = 1, **options: Any) -> str:
    """Five fragments with deletions, and a tree on each column."""
    uri = str(path)
    lance.write_dataset(scalar_rows(2500), uri, max_rows_per_file=500, **options)
    lance.dataset(uri).delete("id % 13 = 5")
    for column in SCALARS:
        pennon.open(uri).create_index(column, batch_size=64, ranges=ranges)
    return uri


def vector_table(path: Path, **options: Any) -> str:
    """Four fragments with deletions, and an index of each kind and metric."""
    uri = str(path)
    lance.write_dataset(vector_rows(1600), uri, max_rows_per_file=400, **options)
    lance.dataset(uri).delete("id % 13 = 5")
    table = pennon.open(uri)
    for column in VECTORS:
        table.create_index(column.name, column.kind, metric=column.metric, num_partitions=PARTITIONS, **column.options)
    return uri


Append = Callable[[int, int], pa.Table]


def nothing(_: Table, __: Append) -> None:
    """As built."""


def appended(table: Table, rows: Append) -> None:
    lance.write_dataset(rows(300, 10_000), table.uri, mode="append")


def deltas(table: Table, rows: Append) -> None:
    for number in range(2):
        lance.write_dataset(rows(300, 10_000 + 1000 * number), table.uri, mode="append")
        table.optimize_indices(num_indices_to_merge=0)


def merged(table: Table, rows: Append) -> None:
    deltas(table, rows)
    lance.write_dataset(rows(200, 20_000), table.uri, mode="append")
    table.optimize_indices(num_indices_to_merge=9)


def compacted(table: Table, rows: Append) -> None:
    deltas(table, rows)
    table.compact(remap="immediate", target_rows_per_fragment=1500)


def deferred(table: Table, rows: Append) -> None:
    """Graphs are dropped: no pylance can search one of which a deferred compaction has dropped rows, and Pennon holds
    back the fragments under it."""
    deltas(table, rows)
    for number, size in enumerate((900, 5000)):
        lance.dataset(table.uri).delete(f"id % 17 = {number}")
        graphs = [index.name for index in table.indices() if "HNSW" in index.type]
        if graphs:
            with pytest.warns(CompactionWarning, match="HNSW"):
                table.compact(remap="deferred", target_rows_per_fragment=size)
            for name in graphs:
                table.drop_index(name)
        table.compact(remap="deferred", target_rows_per_fragment=size)


def caught_up(table: Table, rows: Append) -> None:
    deferred(table, rows)
    table.catch_up_indices()
    table.trim_fragment_reuse()


def changed_in_place(table: Table, _: Append) -> None:
    """Fragments that their segment no longer covers, though its files have their old values."""
    table.update_column("i64", "i64 + 1", where="id < 700 and id % 3 = 0")
    table.update_column("text", "concat(text, 'x')", where="id < 700 and id % 3 = 0")


def changed_and_covered(table: Table, rows: Append) -> None:
    changed_in_place(table, rows)
    table.optimize_indices()


# What becomes of an index of any kind.
HISTORIES: dict[str, Callable[[Table, Append], None]] = {
    "as built": nothing,
    "rows appended": appended,
    "deltas": deltas,
    "merged": merged,
    "compacted, immediate": compacted,
    "compacted, deferred": deferred,
    "deferred, caught up": caught_up,
}
CHANGES: dict[str, Callable[[Table, Append], None]] = {
    "changed in place": changed_in_place,
    "changed and covered again": changed_and_covered,
}
# With stable row ids, compaction leaves ids as they are and nothing is deferred.
STABLE = {"enable_stable_row_ids": True}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ranges": {"ranges": 4},
    "ranges, stable row ids": {"ranges": 4} | STABLE,
}
VECTOR_FORMS: dict[str, dict[str, Any]] = {"row addresses": {}, "stable row ids": STABLE}


def indexed(history: str) -> list[VectorColumn]:
    """The columns that have an index after a history."""
    return [column for column in VECTORS if "deferred" not in history or "HNSW" not in column.kind]


def histories(form: str) -> list[str]:
    return [name for name in HISTORIES if not (form.endswith("stable row ids") and "deferred" in name)]


def after(history: str, base: str, path: Path, rows: Append) -> str:
    """A copy of a table with that history behind it."""
    shutil.copytree(base, path)
    (HISTORIES | CHANGES)[history](pennon.open(path), rows)
    return str(path)


def external_moves(path: Path) -> str:
    """So many rows moved that the Fragment Reuse Index has a file of its own."""
    uri = str(path)
    rows = 30 * 8192
    ids = np.arange(rows)
    columns = {"id": ids, "i64": pa.array((ids * 7919 % 120 - 60) * 10**17)}
    lance.write_dataset(pa.table(columns), uri, max_rows_per_file=8192)
    table = pennon.open(uri)
    table.create_index("i64", ranges=3)
    lance.dataset(uri).delete("id % 2 = 0")
    table.compact(remap="deferred", target_rows_per_fragment=100_000)
    assert list(path.glob("_indices/*/details.binpb"))
    return uri
