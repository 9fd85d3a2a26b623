"""Every kind of index that pylance builds, each with a question that its index answers, and with one for Pennon."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
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
PylanceAsk = Callable[[lance.LanceDataset, str], Answer]
PennonAsk = Callable[[pennon.Table, str], Answer]


def rows(start: int, count: int, columns: Iterable[str] | Mapping[str, str]) -> pa.Table:
    """Columns `id`, and those of `SOURCES` that are named; with a mapping, name -> source, under other names."""
    ids = np.arange(start, start + count)
    named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    arrays = {source: SOURCES[source](ids) for source in set(named.values())}
    fields, values = [pa.field("id", pa.int64())], [pa.array(ids)]
    for name, source in named.items():
        metadata = {"ARROW:extension:name": f"geoarrow.{source}"} if source in ("point", "wkb") else None
        fields.append(pa.field(name, arrays[source].type, metadata=metadata))
        values.append(arrays[source])
    return pa.Table.from_arrays(values, schema=pa.schema(fields))


Ids = np.ndarray[Any, np.dtype[np.int64]]


def _vectors(ids: Ids) -> np.ndarray[Any, Any]:
    return np.random.default_rng(int(ids[0]) + 1).standard_normal((len(ids), DIM)).astype(np.float32)


def _fixed(values: np.ndarray[Any, Any], width: int) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)


def _pairs(ids: Ids) -> pa.Array:
    offsets = pa.array(np.arange(0, 2 * len(ids) + 1, 2), pa.int32())
    return pa.ListArray.from_arrays(offsets, _fixed(_vectors(ids), DIM // 2))


def _documents(ids: Ids) -> pa.Array:
    texts = [json.dumps({"n": int(i % 7), "s": WORDS[i % 8]}) for i in ids]
    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))


def _points(ids: Ids) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(ids * 0.1), pa.array(ids * 0.2)], ["x", "y"])


def _wkb(ids: Ids) -> pa.Array:
    return pa.array([struct.pack("<BIdd", 1, 1, i * 0.1, i * 0.2) for i in ids.tolist()])


def _tensors(ids: Ids) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [DIM]), _fixed(_vectors(ids), DIM))


# Values of a column by the ids of its rows.
SOURCES: dict[str, Callable[[Ids], pa.Array]] = {
    "k": lambda ids: pa.array(ids % 7),
    "flag": lambda ids: pa.ExtensionArray.from_storage(pa.bool8(), pa.array(ids % 2, pa.int8())),
    "text": lambda ids: pa.array([f"{WORDS[i % 8]} {WORDS[i // 8 % 8]} row{i}" for i in ids]),
    "labels": lambda ids: pa.array([None if i % 10 == 3 else [WORDS[i % 8], WORDS[(i + 1) % 8]] for i in ids]),
    "vector": lambda ids: _fixed(_vectors(ids), DIM),
    "bits": lambda ids: _fixed((_vectors(ids) * 50).astype(np.int8).view(np.uint8), DIM),
    "several": _pairs,
    "tensor": _tensors,
    "json": _documents,
    "point": _points,
    "wkb": _wkb,
}


@dataclass(frozen=True)
class PylanceKind:
    """An index as pylance builds it. The answers are ids; those of a vector index are measured exactly."""

    source: str
    type: Any
    asked: tuple[PylanceAsk, PennonAsk]
    options: Mapping[str, Any] = field(default_factory=dict)
    stable_row_ids: bool = True  # whether pylance builds it on a table with them
    needs_coverage: bool = False  # whether pylance answers only from what the index covers

    def build(self, uri: str, column: str | None = None, name: str = NAME) -> None:
        dataset, column = lance.dataset(uri), column or self.source
        if isinstance(self.type, str) and self.type.startswith("IVF"):
            dataset.create_index(column, self.type, name=name, num_partitions=2, **self.options)
        else:
            type_: Any = self.type
            dataset.create_scalar_index(column, type_, name=name, **self.options)

    def ask(self, dataset: lance.LanceDataset, column: str | None = None) -> Answer:
        """What pylance finds through its index."""
        return self.asked[0](dataset, column or self.source)

    def ask_pennon(self, table: pennon.Table, column: str | None = None) -> Answer:
        """What Pennon finds."""
        return self.asked[1](table, column or self.source)


def _filtered(filter: str, *, pylance_only: bool = False) -> tuple[PylanceAsk, PennonAsk]:
    """`{}` in the filter is the column."""

    def ask(dataset: lance.LanceDataset, column: str) -> Answer:
        return sorted(dataset.to_table(filter=filter.format(column), columns=["id"])["id"].to_pylist())

    def ask_pennon(table: pennon.Table, column: str) -> Answer:
        return sorted(table.scan(filter.format(column), ["id"])["id"].to_pylist())

    return ask, _counted if pylance_only else ask_pennon


def _nearest(
    query: Any, *, ef: int | None = None, metric: str | None = None, k: int = 5, refine: int = 60
) -> tuple[PylanceAsk, PennonAsk]:
    """The five nearest of k."""

    def ask(dataset: lance.LanceDataset, column: str) -> Answer:
        asked = {"column": column, "q": query, "k": k, "nprobes": 2, "refine_factor": refine}
        asked |= {"ef": ef} if ef else {}
        asked |= {"metric": metric} if metric else {}
        return dataset.to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist()[:5]

    def ask_pennon(table: pennon.Table, column: str) -> Answer:
        found = table.search(column, query, k, nprobes=2, refine_factor=refine, metric=metric, columns=["id"])
        return found["id"].to_pylist()[:5]

    return ask, ask_pennon


def _words(words: str) -> tuple[PylanceAsk, PennonAsk]:
    def ask(dataset: lance.LanceDataset, column: str) -> Answer:
        asked = {"query": words, "columns": [column]}
        found = dataset.to_table(full_text_query=asked, columns=["id", "_score"], limit=10_000)
        return sorted(found["id"].to_pylist())

    return ask, _counted


def _similar(dataset: lance.LanceDataset, column: str) -> Answer:
    asked = MinHashQuery("alpha beta row8", column)
    try:
        return sorted(dataset.to_table(nearest=asked, columns=["id", "_distance"], limit=5)["id"].to_pylist())
    except ValueError:
        return []  # the index covers nothing


def _counted(table: pennon.Table, column: str) -> Answer:
    """Where Pennon has no question for such an index: the rows, which another index must not lose either."""
    return [table.count("id % 7 = 3")]


QUERY = np.linspace(-1, 1, DIM).astype(np.float32)
BITS = np.arange(DIM, dtype=np.uint8) * 16
BOX = "st_geomfromtext('POLYGON((2 4, 12 4, 12 24, 2 24, 2 4))')"
EQUAL, CONTAINS, ALPHA = _filtered("{} = 3"), _filtered("contains({}, 'gamma')"), _words("alpha")
# Every vector is a candidate: with fewer, answers depend on how pylance trained the codebook. A vector of a query with
# several finds 10 times k vectors, whatever is measured again, and a row has two.
NEAREST, GRAPH = _nearest(QUERY, refine=100), _nearest(QUERY, ef=300)
PAIR = _nearest(QUERY.reshape(2, -1), metric="cosine", k=80, refine=5)
COSINE = {"metric": "cosine"}
LEGACY = {"index_file_version": "LEGACY"}


def _inverted(**options: Any) -> PylanceKind:
    return PylanceKind("text", "INVERTED", ALPHA, options)


KINDS: dict[str, PylanceKind] = {
    "BTREE": PylanceKind("k", "BTREE", EQUAL),
    "BTREE on bool8": PylanceKind("flag", "BTREE", _filtered("{} = 1", pylance_only=True)),
    "BITMAP": PylanceKind("k", "BITMAP", EQUAL),
    "LABEL_LIST": PylanceKind("labels", "LABEL_LIST", _filtered("array_has({}, 'alpha')")),
    "ZONEMAP": PylanceKind("k", "ZONEMAP", _filtered("{} > 4")),
    "ZONEMAP on lists": PylanceKind("labels", "ZONEMAP", _filtered("{} is null")),
    "BLOOMFILTER": PylanceKind("k", "BLOOMFILTER", EQUAL),
    "NGRAM": PylanceKind("text", "NGRAM", CONTAINS),
    "RTREE": PylanceKind("point", "RTREE", _filtered(f"st_intersects({{}}, {BOX})")),
    "RTREE on WKB": PylanceKind("wkb", "RTREE", _filtered(f"st_intersects({{}}, {BOX})")),
    "FM": PylanceKind("text", IndexConfig("fm", {}), CONTAINS),
    "MINHASHLSH": PylanceKind("text", "MINHASHLSH", (_similar, _counted), needs_coverage=True),
    "JSON": PylanceKind(
        "json",
        IndexConfig("json", {"target_index_type": "btree", "path": "n"}),
        _filtered("json_get_int({}, 'n') = 3", pylance_only=True),
        stable_row_ids=False,
    ),
    "INVERTED": _inverted(),
    "INVERTED with positions": _inverted(with_position=True),
    "INVERTED, ngram tokenizer": _inverted(base_tokenizer="ngram"),
    "INVERTED, raw tokenizer": PylanceKind("text", "INVERTED", _words("alpha beta row8"), {"base_tokenizer": "raw"}),
    "INVERTED, ICU tokenizer": _inverted(base_tokenizer="icu"),
    "INVERTED, code tokenizer": _inverted(base_tokenizer="code"),
    "INVERTED, format 1": _inverted(format_version=1),
    "INVERTED, format 3": _inverted(format_version=3, block_size=256),
    "INVERTED on lists": PylanceKind("labels", "INVERTED", ALPHA),
    "INVERTED on elements": PylanceKind(
        "labels", "INVERTED", ALPHA, {"document_granularity": DocumentGranularity.LIST_ELEMENT}
    ),
    "INVERTED on JSON": PylanceKind("json", "INVERTED", _words("s,str,alpha")),
    "IVF_FLAT": PylanceKind("vector", "IVF_FLAT", NEAREST),
    "IVF_SQ": PylanceKind("vector", "IVF_SQ", NEAREST),
    "IVF_PQ": PylanceKind("vector", "IVF_PQ", NEAREST, {"num_sub_vectors": 4}),
    "IVF_RQ": PylanceKind("vector", "IVF_RQ", NEAREST),
    "IVF_HNSW_FLAT": PylanceKind("vector", "IVF_HNSW_FLAT", GRAPH),
    "IVF_HNSW_SQ": PylanceKind("vector", "IVF_HNSW_SQ", GRAPH),
    "IVF_HNSW_PQ": PylanceKind("vector", "IVF_HNSW_PQ", GRAPH, {"num_sub_vectors": 4}),
    "IVF_FLAT, hamming": PylanceKind("bits", "IVF_FLAT", _nearest(BITS, metric="hamming"), {"metric": "hamming"}),
    "IVF_PQ on tensors": PylanceKind("tensor", "IVF_PQ", NEAREST, {"num_sub_vectors": 4}),
    "IVF_FLAT, multi-vector": PylanceKind("several", "IVF_FLAT", PAIR, COSINE),
    "IVF_PQ, multi-vector": PylanceKind("several", "IVF_PQ", PAIR, COSINE | {"num_sub_vectors": 2}),
    "IVF_HNSW_SQ, multi-vector": PylanceKind("several", "IVF_HNSW_SQ", PAIR, COSINE),
    "IVF_PQ, legacy files": PylanceKind("vector", "IVF_PQ", NEAREST, LEGACY | {"num_sub_vectors": 4}),
    "IVF_HNSW_SQ, legacy files": PylanceKind("vector", "IVF_HNSW_SQ", GRAPH, LEGACY),
}
