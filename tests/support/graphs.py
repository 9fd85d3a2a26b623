"""HNSW indices as stock builds them, read with nothing but pylance and numpy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.dataset import Index
from lance.file import LanceFileReader, LanceFileWriter

from pennon.format.pb import lance_pb2 as pb

KINDS = ("IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
METRICS = ("l2", "cosine", "dot")
SUB_VECTORS = 8


@dataclass(frozen=True)
class StockPartition:
    row_ids: np.ndarray
    rows: pa.Table
    metadata: str
    codes: np.ndarray
    points: np.ndarray
    centroid: np.ndarray


@dataclass(frozen=True)
class StockIndex:
    """The points of a partition and of a query are such that their l2, or 1 - their product, is stock's distance."""

    uri: str
    kind: str
    metric: str
    partitions: list[StockPartition]
    model: dict[str, Any]

    @property
    def by_l2(self) -> bool:
        return self.metric == "l2" or (self.metric == "cosine" and self.kind != "IVF_HNSW_FLAT")

    def query_points(self, queries: np.ndarray, partition: StockPartition) -> np.ndarray:
        if self.metric == "cosine":
            queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        if self.kind == "IVF_HNSW_SQ" and self.by_l2:
            low, step = self.model["low"], self.model["step"]
            queries = np.clip(np.trunc((queries.astype(np.float64) - low) / step), 0, 255) * step + low
        if self.kind == "IVF_HNSW_PQ" and self.by_l2:
            queries = queries - partition.centroid
        return queries.astype(np.float32)

    def nearest(self, query: np.ndarray, k: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        """Row ids and distances as stock finds them in all partitions."""
        nearest = {"column": "v", "q": query, "k": k, "nprobes": len(self.partitions), **options}
        prefilter = "filter" in nearest
        scanner = lance.dataset(self.uri).scanner(
            columns=["_distance"],
            filter=nearest.pop("filter", None),
            prefilter=prefilter,
            nearest=nearest,
            with_row_id=True,
        )
        assert "ANN" in scanner.explain_plan()
        found = scanner.to_table()
        return found["_rowid"].to_numpy(), found["_distance"].to_numpy()


def clusters(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((30, dim))
    return (centres[rng.integers(0, 30, rows)] + 0.7 * rng.standard_normal((rows, dim))).astype(np.float32)


def build_stock(path: Path, vectors: np.ndarray, kind: str, metric: str, partitions: int) -> StockIndex:
    if not path.exists():
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        lance.write_dataset(pa.table({"id": pa.array(np.arange(len(vectors))), "v": column}), str(path))
    options = {"num_sub_vectors": SUB_VECTORS} if kind == "IVF_HNSW_PQ" else {}
    dataset = lance.dataset(str(path))
    dataset.create_index("v", kind, name="x", metric=metric, num_partitions=partitions, replace=True, **options)
    return read_stock(str(path), kind, metric)


def read_stock(uri: str, kind: str, metric: str) -> StockIndex:
    (description,) = lance.dataset(uri).describe_indices()
    directory = f"{uri}/_indices/{description.segments[0].uuid}"
    index, auxiliary = LanceFileReader(f"{directory}/index.idx"), LanceFileReader(f"{directory}/auxiliary.idx")
    graphs = json.loads(index.metadata().schema.metadata[b"lance:hnsw"])
    (text,) = json.loads(auxiliary.metadata().schema.metadata[b"storage_metadata"])
    said = json.loads(text)
    runs, clustering = (pb.IVF.FromString(file.read_global_buffer(1)) for file in (auxiliary, index))
    rows, stored = index.read_all().to_table(), auxiliary.read_all().to_table()
    centroids = _tensor(clustering.centroids_tensor)
    model: dict[str, Any] = {}
    if kind == "IVF_HNSW_SQ":
        model["low"], model["step"] = said["bounds"]["start"], (said["bounds"]["end"] - said["bounds"]["start"]) / 255
    if kind == "IVF_HNSW_PQ":
        codebook = _tensor(pb.Tensor.FromString(auxiliary.read_global_buffer(said["codebook_position"])))
        model["words"] = codebook.reshape(SUB_VECTORS, 256, -1)
    partitions: list[StockPartition] = []
    for number, metadata in enumerate(graphs):
        own = stored.slice(runs.offsets[number], runs.lengths[number])
        items = own[own.column_names[-1]].combine_chunks().flatten().to_numpy()
        codes = items.reshape(own.num_rows, -1)
        if kind == "IVF_HNSW_PQ":
            codes = items.reshape(-1, own.num_rows).T
        graph = rows.slice(clustering.offsets[number], clustering.lengths[number])
        row_ids = own["_rowid"].to_numpy()
        points = _points(codes, kind, model)
        partitions.append(StockPartition(row_ids, graph, metadata, codes, points, centroids[number]))
    return StockIndex(uri, kind, metric, partitions, model)


def replace_graphs(index: StockIndex, graphs: Sequence[tuple[pa.RecordBatch, str]]) -> None:
    """Let stock search other graphs over the same codes: a copy of the index with another `index.idx`."""
    dataset = lance.dataset(index.uri)
    (description,) = dataset.describe_indices()
    name = str(uuid.uuid4())
    old, new = (Path(index.uri) / "_indices" / folder for folder in (description.segments[0].uuid, name))
    new.mkdir()
    (new / "auxiliary.idx").write_bytes((old / "auxiliary.idx").read_bytes())
    reader = LanceFileReader(str(old / "index.idx"))
    clustering = pb.IVF.FromString(reader.read_global_buffer(1))
    lengths = [batch.num_rows for batch, _ in graphs]
    clustering.lengths[:] = lengths
    clustering.offsets[:] = np.cumsum([0, *lengths[:-1]]).tolist()
    with LanceFileWriter(str(new / "index.idx"), graphs[0][0].schema) as writer:
        for batch, _ in graphs:
            writer.write_batch(batch)
        writer.add_schema_metadata("lance:index", reader.metadata().schema.metadata[b"lance:index"].decode())
        writer.add_schema_metadata("lance:ivf", str(writer.add_global_buffer(clustering.SerializeToString())))
        writer.add_schema_metadata("lance:hnsw", json.dumps([metadata for _, metadata in graphs]))
    dataset.drop_index("x")
    dataset = lance.dataset(index.uri)
    replacement = Index(
        uuid=name,
        name="x",
        fields=[dataset.lance_schema.field("v").id()],
        dataset_version=dataset.version,
        fragment_ids={fragment.fragment_id for fragment in dataset.get_fragments()},
        index_version=1,
    )
    operation = lance.LanceOperation.CreateIndex([replacement], [])
    lance.LanceDataset.commit(index.uri, operation, read_version=dataset.version)


def _points(codes: np.ndarray, kind: str, model: dict[str, Any]) -> np.ndarray:
    if kind == "IVF_HNSW_SQ":
        return (codes * model["step"] + model["low"]).astype(np.float32)
    if kind == "IVF_HNSW_PQ":
        return np.concatenate([words[column] for words, column in zip(model["words"], codes.T, strict=True)], axis=1)
    return codes


def _tensor(tensor: pb.Tensor) -> np.ndarray:
    assert tensor.data_type == pb.Tensor.FLOAT32
    return np.frombuffer(tensor.data, dtype=np.float32).reshape(tuple(tensor.shape))
