"""Vectors to measure on, indices over them, and how many true neighbors a search finds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import faiss
import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pennon
from bench.data import write_once
from bench.harness import fresh
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles
from pennon.table import Table

ROWS, DIM, CENTRES, FRAGMENTS = 500_000, 128, 2000, 8
PARTITIONS = 512
COLUMN = "v"
CHUNK = 100_000

Matrix = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """A kind of index with the parameters that both sides build it with."""

    index_type: str
    options: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        names = {"num_sub_vectors": "sub-vectors", "num_bits": "bits"}
        shown = [f", {value} {names[name]}" for name, value in self.options]
        return "".join([self.index_type, *shown]).replace(", 1 bits", ", 1 bit")


def chosen(kinds: Sequence[Kind], names: Sequence[str]) -> list[Kind]:
    """Those of the named index types, all when none is named."""
    unknown = set(names) - {kind.index_type for kind in kinds}
    if unknown:
        sys.exit(f"unknown kinds: {', '.join(unknown)}; there are: {', '.join(k.index_type for k in kinds)}")
    return [kind for kind in kinds if not names or kind.index_type in names]


def vector_table(rows: int) -> str:
    """`id` counts the rows, `v` lies around 2,000 centres; 8 fragments. Indices belong on a copy."""
    schema = pa.schema([("id", pa.int64()), (COLUMN, vector_type(DIM))])
    return write_once(f"vectors-{rows}", schema, _clustered, rows, FRAGMENTS)


def vector_type(dim: int) -> pa.DataType:
    return pa.list_(pa.float32(), dim)


def copied(uri: str, name: str) -> str:
    """A copy without indices, in place of one that an earlier run left."""
    path = fresh(f"{name}.lance")
    shutil.copytree(uri, path)
    return str(path)


def vector_queries(count: int) -> Matrix:
    """Vectors like those of the table that are not in it."""
    return _around_centres(np.random.default_rng(7), count)


def num_partitions(rows: int) -> int:
    """512 at full size; a trial has partitions of the same size."""
    return max(8, round(rows * PARTITIONS / ROWS))


def read_vectors(uri: str) -> Matrix:
    values = lance.dataset(uri).to_table(columns=[COLUMN])[COLUMN].combine_chunks()
    return values.flatten().to_numpy().reshape(len(values), -1)


def true_neighbors(vectors: Matrix, queries: Matrix, k: int, metric: str = "l2") -> Ids:
    """Positions of the nearest rows, by brute force."""
    if metric == "cosine":
        vectors, queries = normalized(vectors), normalized(queries)
    return faiss.knn(queries, vectors, k)[1]


def normalized(vectors: Matrix) -> Matrix:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def recall(found: Ids, truth: Ids) -> float:
    """Share of the true neighbors among those found."""
    return float((found[:, :, None] == truth[:, None, :]).any(axis=1).mean())


def create_pylance(uri: str, kind: Kind, partitions: int, metric: str = "l2", **more: Any) -> None:
    options: dict[str, Any] = {"num_partitions": partitions, **dict(kind.options), **more}
    lance.dataset(uri).create_index(COLUMN, kind.index_type, metric=metric, replace=True, **options)


def create_pennon(table: Table, kind: Kind, partitions: int, metric: str = "l2", **more: Any) -> None:
    options: dict[str, Any] = {"num_partitions": partitions, **dict(kind.options), **more}
    table.create_index(COLUMN, kind.index_type, metric=metric, **options)


def check_partitions(uri: str, partitions: int) -> None:
    """pylance trains fewer than asked for where there are few rows, which would make recalls incomparable."""
    built = vector_files(uri).ivf.num_partitions
    assert built == partitions, f"the index of {uri} has {built} partitions, not {partitions}"


def vector_files(uri: str) -> VectorFiles:
    """Of the only index of a table."""
    [index] = pennon.open(uri).indices()
    return VectorFiles(open_store(Location.of(uri)), f"_indices/{index.segments[0].uuid}")


def index_mib(uri: str) -> float:
    [index] = pennon.open(uri).indices()
    return index.size_bytes / 2**20


def drop_files_of_old_versions(uri: str) -> None:
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def pylance_scanner(dataset: Any, query: Matrix, k: int, nprobes: int, refine_factor: int | None = None) -> Any:
    """For one query or, given a matrix, for many. pylance warns of every query that does not name `_distance`."""
    nearest = {"column": COLUMN, "q": query, "k": k, "nprobes": nprobes, "refine_factor": refine_factor}
    return dataset.scanner(columns=["id", "_distance"], nearest=nearest)


def pylance_search(uri: str, queries: Matrix, k: int, nprobes: int, refine_factor: int | None = None) -> Ids:
    scanner = pylance_scanner(lance.dataset(uri), queries, k, nprobes, refine_factor)
    assert "ANN" in scanner.explain_plan()
    return ids_by_query(scanner.to_table(), len(queries), k)


def ids_by_query(found: pa.Table, count: int, k: int) -> Ids:
    """A row per query, -1 where it found fewer than k."""
    ids = np.full((count, k), -1)
    numbers = found["query_index"].to_numpy()
    ids[numbers, np.arange(len(numbers)) - np.searchsorted(numbers, numbers)] = found["id"].to_numpy()
    return ids


def _clustered(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(6)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        values = pa.array(_around_centres(rng, count).ravel())
        vectors = pa.FixedSizeListArray.from_arrays(values, type=vector_type(DIM))
        yield pa.record_batch({"id": pa.array(np.arange(start, start + count)), COLUMN: vectors})


def _around_centres(rng: np.random.Generator, count: int) -> Matrix:
    centres = 2 * np.random.default_rng(5).standard_normal((CENTRES, DIM), dtype=np.float32)
    return centres[rng.integers(0, CENTRES, count)] + rng.standard_normal((count, DIM), dtype=np.float32)
