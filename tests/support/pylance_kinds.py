"""Every kind of index that pylance builds, each with a question that its index answers, and with one for Pennon."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.indices import IndexConfig
from lance.query import DocumentGranularity, MinHashQuery

import pennon

DIM = 16
WORDS = ("alpha", "beta", "gamma", "delta", "omega", "kappa", "sigma", "theta")
NAME = "x"

Answer = list[Any]
PylanceAsk = Callable[[lance.LanceDataset], Answer]
PennonAsk = Callable[[pennon.Table], Answer]


def rows(start: int, count: int, columns: tuple[str, ...] | None = None) -> pa.Table:
    """A column of each type that an index can be built on; only `id` and those named, where some are."""
    ids = np.arange(start, start + count)
    random = np.random.default_rng(start + 1)
    vectors = random.standard_normal((count, DIM)).astype(np.float32)
    texts = [f"{WORDS[i % 8]} {WORDS[i // 8 % 8]} row{i}" for i in ids]
    pairs = pa.array(np.arange(0, 2 * count + 1, 2), pa.int32())
    tensor = pa.fixed_shape_tensor(pa.float32(), [DIM])
    documents = pa.array([json.dumps({"n": int(i % 7), "s": WORDS[i % 8]}) for i in ids])
    point = pa.StructArray.from_arrays([pa.array(ids * 0.1), pa.array(ids * 0.2)], ["x", "y"])
    arrays: dict[str, pa.Array] = {
        "id": pa.array(ids),
        "k": pa.array(ids % 7),
        "flag": pa.ExtensionArray.from_storage(pa.bool8(), pa.array(ids % 2, pa.int8())),
        "text": pa.array(texts),
        "labels": pa.array([[WORDS[i % 8], WORDS[(i + 1) % 8]] for i in ids]),
        "vector": _fixed(vectors, DIM),
        "bits": _fixed(random.integers(0, 256, (count, DIM), dtype=np.uint8), DIM),
        "several": pa.ListArray.from_arrays(pairs, _fixed(vectors, DIM // 2)),
        "tensor": pa.ExtensionArray.from_storage(tensor, _fixed(vectors, DIM)),
        "json": pa.ExtensionArray.from_storage(pa.json_(), documents),
        "point": point,
    }
    taken = [name for name in arrays if columns is None or name in ("id", *columns)]
    metadata = {"point": {"ARROW:extension:name": "geoarrow.point"}}
    fields = [pa.field(name, arrays[name].type, metadata=metadata.get(name)) for name in taken]
    return pa.Table.from_arrays([arrays[name] for name in taken], schema=pa.schema(fields))


def _fixed(values: np.ndarray[Any, Any], width: int) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)


@dataclass(frozen=True)
class PylanceKind:
    """An index as pylance builds it. The answers are ids; those of a vector index are measured exactly."""

    column: str
    type: Any
    ask: PylanceAsk
    ask_pennon: PennonAsk
    options: Mapping[str, Any] = field(default_factory=dict)
    stable_row_ids: bool = True  # whether pylance builds it on a table with them

    def build(self, uri: str) -> None:
        dataset = lance.dataset(uri)
        if isinstance(self.type, str) and self.type.startswith("IVF"):
            dataset.create_index(self.column, self.type, name=NAME, num_partitions=2, **self.options)
        else:
            dataset.create_scalar_index(self.column, self.type, name=NAME, **self.options)


def _filtered(filter: str) -> tuple[PylanceAsk, PennonAsk]:
    def ask(dataset: lance.LanceDataset) -> Answer:
        return sorted(dataset.to_table(filter=filter, columns=["id"])["id"].to_pylist())

    def ask_pennon(table: pennon.Table) -> Answer:
        return sorted(table.scan(filter, ["id"])["id"].to_pylist())

    return ask, ask_pennon


def _nearest(column: str, query: Any, **options: Any) -> tuple[PylanceAsk, PennonAsk]:
    def ask(dataset: lance.LanceDataset) -> Answer:
        asked = {"column": column, "q": query, "k": 5, "nprobes": 2, "refine_factor": 60, **options}
        if "hnsw" in options:
            asked["ef"] = asked.pop("hnsw")
        return dataset.to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist()

    def ask_pennon(table: pennon.Table) -> Answer:
        metric = options.get("metric")
        found = table.search(column, query, 5, nprobes=2, refine_factor=60, metric=metric, columns=["id"])
        return found["id"].to_pylist()

    return ask, ask_pennon


def _words(column: str, words: str) -> tuple[PylanceAsk, PennonAsk]:
    def ask(dataset: lance.LanceDataset) -> Answer:
        found = dataset.to_table(full_text_query={"query": words, "columns": [column]}, columns=["id"], limit=10_000)
        return sorted(found["id"].to_pylist())

    return ask, _counted


def _similar(dataset: lance.LanceDataset) -> Answer:
    asked = MinHashQuery("alpha beta row8", "text")
    return sorted(dataset.to_table(nearest=asked, columns=["id"], limit=5)["id"].to_pylist())


def _counted(table: pennon.Table) -> Answer:
    """Where Pennon has no question for such an index: the rows, which another index must not lose either."""
    return [table.count("id % 7 = 3")]


QUERY = np.linspace(-1, 1, DIM).astype(np.float32)
BITS = np.arange(DIM, dtype=np.uint8) * 16
BOX = "st_geomfromtext('POLYGON((2 4, 12 4, 12 24, 2 24, 2 4))')"
EQUAL, SIZES = _filtered("k = 3"), _filtered("k > 4")
TEXT, LABELS = _filtered("contains(text, 'gamma')"), _filtered("array_has(labels, 'alpha')")
NEAREST, ALPHA = _nearest("vector", QUERY), _words("text", "alpha")
GRAPH = _nearest("vector", QUERY, hnsw=300)
WHOLE = _words("text", "alpha beta row8")
HAMMING = _nearest("bits", BITS, metric="hamming")[0]
PAIR = _nearest("several", QUERY.reshape(2, -1), metric="cosine")


def _inverted(**options: Any) -> PylanceKind:
    return PylanceKind("text", "INVERTED", *ALPHA, options)


KINDS: dict[str, PylanceKind] = {
    "BTREE": PylanceKind("k", "BTREE", *EQUAL),
    "BTREE on bool8": PylanceKind("flag", "BTREE", _filtered("flag = 1")[0], _counted),
    "BITMAP": PylanceKind("k", "BITMAP", *EQUAL),
    "LABEL_LIST": PylanceKind("labels", "LABEL_LIST", *LABELS),
    "ZONEMAP": PylanceKind("k", "ZONEMAP", *SIZES),
    "ZONEMAP on lists": PylanceKind("labels", "ZONEMAP", *_filtered("labels is null")),
    "BLOOMFILTER": PylanceKind("k", "BLOOMFILTER", *EQUAL),
    "NGRAM": PylanceKind("text", "NGRAM", *TEXT),
    "RTREE": PylanceKind("point", "RTREE", _filtered(f"st_intersects(point, {BOX})")[0], _counted),
    "FM": PylanceKind("text", IndexConfig("fm", {}), *TEXT),
    "MINHASHLSH": PylanceKind("text", "MINHASHLSH", _similar, _counted),
    "JSON": PylanceKind(
        "json",
        IndexConfig("json", {"target_index_type": "btree", "path": "n"}),
        _filtered("json_get_int(json, 'n') = 3")[0],
        _counted,
        stable_row_ids=False,
    ),
    "INVERTED": _inverted(),
    "INVERTED with positions": _inverted(with_position=True),
    "INVERTED, ngram tokenizer": _inverted(base_tokenizer="ngram"),
    "INVERTED, raw tokenizer": PylanceKind(
        "text", "INVERTED", *_words("text", "alpha beta row8"), {"base_tokenizer": "raw"}
    ),
    "INVERTED, ICU tokenizer": _inverted(base_tokenizer="icu"),
    "INVERTED, code tokenizer": _inverted(base_tokenizer="code"),
    "INVERTED, format 1": _inverted(format_version=1),
    "INVERTED, format 3": _inverted(format_version=3, block_size=256),
    "INVERTED on lists": PylanceKind("labels", "INVERTED", *_words("labels", "alpha")),
    "INVERTED on elements": PylanceKind(
        "labels", "INVERTED", *_words("labels", "alpha"), {"document_granularity": DocumentGranularity.LIST_ELEMENT}
    ),
    "INVERTED on JSON": PylanceKind("json", "INVERTED", *_words("json", "s,str,alpha")),
    "IVF_FLAT": PylanceKind("vector", "IVF_FLAT", *NEAREST),
    "IVF_SQ": PylanceKind("vector", "IVF_SQ", *NEAREST),
    "IVF_PQ": PylanceKind("vector", "IVF_PQ", *NEAREST, {"num_sub_vectors": 4}),
    "IVF_RQ": PylanceKind("vector", "IVF_RQ", *NEAREST),
    "IVF_HNSW_FLAT": PylanceKind("vector", "IVF_HNSW_FLAT", *GRAPH),
    "IVF_HNSW_SQ": PylanceKind("vector", "IVF_HNSW_SQ", *GRAPH),
    "IVF_HNSW_PQ": PylanceKind("vector", "IVF_HNSW_PQ", *GRAPH, {"num_sub_vectors": 4}),
    "IVF_FLAT, hamming": PylanceKind(
        "bits", "IVF_FLAT", *_nearest("bits", BITS, metric="hamming"), {"metric": "hamming"}
    ),
    "IVF_PQ on tensors": PylanceKind("tensor", "IVF_PQ", *_nearest("tensor", QUERY), {"num_sub_vectors": 4}),
    "IVF_FLAT, multi-vector": PylanceKind("several", "IVF_FLAT", PAIR[0], _counted, {"metric": "cosine"}),
    "IVF_PQ, multi-vector": PylanceKind(
        "several", "IVF_PQ", PAIR[0], _counted, {"metric": "cosine", "num_sub_vectors": 2}
    ),
    "IVF_HNSW_SQ, multi-vector": PylanceKind("several", "IVF_HNSW_SQ", PAIR[0], _counted, {"metric": "cosine"}),
    "IVF_PQ, legacy files": PylanceKind(
        "vector", "IVF_PQ", *NEAREST, {"num_sub_vectors": 4, "index_file_version": "LEGACY"}
    ),
    "IVF_HNSW_SQ, legacy files": PylanceKind("vector", "IVF_HNSW_SQ", *GRAPH, {"index_file_version": "LEGACY"}),
}
