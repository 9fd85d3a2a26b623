"""Stock pylance as the oracle: tables of clustered vectors, the indices it builds, the neighbors it finds."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.dataset import Index, IndexFile

from pennon.format.store import Location, open_store
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.recorded import TYPE_URL
from pennon.index.vector.files.storage import Partition, VectorFiles, pack_partition, write_auxiliary, write_index
from pennon.index.vector.ivf import Ivf, Layout
from pennon.index.vector.kinds import VectorKind
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import Quantizer, take_columns
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.vectors import Vectors, to_lists

COLUMN = "v"


@dataclass(frozen=True)
class Case:
    """A kind of index as stock builds it."""

    kind: str
    options: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.kind, *(f"{name}{value}" for name, value in self.options)])


FLAT = Case("IVF_FLAT")
PQ = Case("IVF_PQ", (("num_sub_vectors", 8), ("num_bits", 8)))
PQ4 = Case("IVF_PQ", (("num_sub_vectors", 8), ("num_bits", 4)))
SQ = Case("IVF_SQ")
RQ = Case("IVF_RQ", (("num_bits", 1),))
RQ5 = Case("IVF_RQ", (("num_bits", 5),))
CASES = [FLAT, PQ, PQ4, SQ, RQ, RQ5]


def clustered(rows: int, dim: int, seed: int = 0, spread: float = 1.0) -> Vectors:
    """Vectors around 40 centres: what real embeddings look like more than noise does."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((40, dim)) * 2
    return centres[rng.integers(0, 40, rows)] + rng.standard_normal((rows, dim)) * spread


def write_table(path: Path, vectors: Vectors, fragments: int = 3) -> str:
    table = pa.table({"id": pa.array(np.arange(len(vectors))), COLUMN: to_lists(vectors)})
    lance.write_dataset(table, str(path), max_rows_per_file=-(-len(vectors) // fragments))
    return str(path)


def row_ids(uri: str) -> np.ndarray:
    return lance.dataset(uri).to_table(columns=[], with_row_id=True)["_rowid"].to_numpy()


def stock_index(uri: str, case: Case, metric: str, partitions: int, **options: Any) -> VectorFiles:
    dataset = lance.dataset(uri)
    dataset.create_index(
        COLUMN,
        case.kind,
        name="x",
        metric=metric,
        num_partitions=partitions,
        replace=True,
        **dict(case.options),
        **options,
    )
    return open_files(uri)


def model_for_stock(case: Case, vectors: Vectors, metric: Metric, partitions: int) -> dict[str, Any]:
    """Options that spare stock the training of PQ, which takes it many times longer than all the rest of a build."""
    if case.kind != "IVF_PQ":
        return {}
    prepared = metric.prepare(vectors)
    ivf = Ivf.train(prepared, metric, partitions, max_iters=10)
    codebook = ProductQuantizer.train(prepared, ivf, **dict(case.options), max_iters=5).codebook
    return {"ivf_centroids": ivf.centroids, "pq_codebook": codebook}


def open_files(uri: str) -> VectorFiles:
    (index,) = lance.dataset(uri).describe_indices()
    return VectorFiles(open_store(Location.of(uri)), f"_indices/{index.segments[0].uuid}")


def stock_nearest(uri: str, query: Vectors, k: int, nprobes: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row ids and distances, from the index: the plan is checked."""
    scanner = _scanner(lance.dataset(uri), query, k, nprobes, **options)
    assert "ANN" in scanner.explain_plan()
    found = scanner.to_table()
    return found["_rowid"].to_numpy(), found["_distance"].to_numpy()


def _scanner(dataset: Any, query: Vectors, k: int, nprobes: int, **options: Any) -> Any:
    nearest = {"column": COLUMN, "q": query, "k": k, "nprobes": nprobes, **options}
    return dataset.scanner(columns=["_distance"], nearest=nearest, with_row_id=True)


def pennon_nearest(files: VectorFiles, queries: Vectors, k: int, nprobes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row ids and distances per query, one query and partition at a time."""
    prepared = files.metric.prepare(queries)
    probes, _ = files.ivf.rank(prepared, nprobes)
    asked = files.quantizer.prepare(prepared)
    loaded = {int(p): files.read_partition(int(p)) for p in np.unique(probes)}
    scorers = {p: files.quantizer.scorer(part.columns, files.ivf.centroids[p]) for p, part in loaded.items()}
    results: list[tuple[np.ndarray, np.ndarray]] = []
    for number, partitions in enumerate(probes):
        ids, distances = [], []
        for p in map(int, partitions):
            values, positions = scorers[p].nearest(asked[number : number + 1], k)
            ids.append(loaded[p].row_ids[positions[positions >= 0]])
            distances.append(values[positions >= 0])
        order = np.argsort(np.concatenate(distances), kind="stable")[:k]
        results.append((np.concatenate(ids)[order], np.concatenate(distances)[order]))
    return results


def write_segment(
    uri: str,
    kind: VectorKind,
    ivf: Ivf,
    quantizer: Quantizer,
    vectors: Vectors,
    ids: np.ndarray,
    storage_version: str = "2.1",
) -> str:
    """An index over all vectors, written by Pennon and committed in place of whatever was there."""
    prepared = ivf.metric.prepare(vectors)
    partitions, distances = ivf.assign(prepared)
    columns = quantizer.encode(prepared, ivf.centroids, partitions)
    ivf = Ivf(ivf.metric, ivf.centroids, float(distances.sum()))
    parts = [np.flatnonzero(partitions == p) for p in range(ivf.num_partitions)]
    runs = (pack_partition(quantizer, Partition(ids[rows], take_columns(columns, rows))) for rows in parts if len(rows))
    layout = Layout.of([len(rows) for rows in parts])
    store, name = open_store(Location.of(uri)), str(uuid.uuid4())
    directory = f"_indices/{name}"
    auxiliary = write_auxiliary(store, directory, quantizer, layout, runs, storage_version)
    index = write_index(store, directory, kind, ivf, storage_version)
    commit(uri, name, kind.index_version, VectorDetails.of(kind, quantizer).to_bytes(), [auxiliary, index])
    return name


def commit(uri: str, name: str, index_version: int, details: bytes, files: Sequence[Any]) -> None:
    dataset = lance.dataset(uri)
    for existing in dataset.describe_indices():
        dataset.drop_index(existing.name)
    dataset = lance.dataset(uri)
    index = Index(
        uuid=name,
        name="x",
        fields=[dataset.lance_schema.field(COLUMN).id()],
        dataset_version=dataset.version,
        fragment_ids={fragment.fragment_id for fragment in dataset.get_fragments()},
        index_version=index_version,
        files=[IndexFile(file.path, file.size_bytes) for file in files],
        index_details=(TYPE_URL, details),
    )
    lance.LanceDataset.commit(uri, lance.LanceOperation.CreateIndex([index], []), read_version=dataset.version)


def true_neighbors(vectors: Vectors, queries: Vectors, metric: Metric, k: int) -> np.ndarray:
    """Positions of the k nearest, in double precision."""
    rows, asked = vectors.astype(np.float64), queries.astype(np.float64)
    if metric is Metric.COSINE:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        asked = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    distances = -(asked @ rows.T)
    if metric is Metric.L2:
        distances = 2 * distances + (rows * rows).sum(axis=1)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def stock_recall(uri: str, queries: Vectors, truth: np.ndarray, nprobes: int) -> float:
    ids, k, dataset = row_ids(uri), truth.shape[1], lance.dataset(uri)
    assert "ANN" in _scanner(dataset, queries[0], k, nprobes).explain_plan()
    found = [_scanner(dataset, query, k, nprobes).to_table()["_rowid"].to_numpy() for query in queries]
    hits = [len(np.intersect1d(f, ids[expected])) for f, expected in zip(found, truth, strict=True)]
    return sum(hits) / truth.size
