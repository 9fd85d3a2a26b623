"""Small real tables to be damaged, and what they answer while they are whole."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pennon
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import ByteCache
from pennon.index.inverted.kind import INVERTED
from pennon.index.inverted.query import Match, Phrase
from pennon.index.inverted.search.compound import TextSearch
from pennon.index.inverted.search.leaves import TextIndex
from pennon.index.vector.vectors import to_lists
from pennon.testing.cases import labels
from pennon.testing.engines import in_process
from tests.support.geometries import POSITION, rectangle
from tests.support.manifests import edit_newest
from tests.support.vectors import clustered

DIM = 16
K = 8
KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
OPTIONS: dict[str, dict[str, int]] = {"IVF_PQ": {"num_sub_vectors": 4}, "IVF_HNSW_PQ": {"num_sub_vectors": 4}}

WORDS = ("bird", "birds", "house", "tree", "stone", "river", "boat", "light", "night", "star", "moon")
# Queries of words on the column `t`, all of whose rows have the words of one of them.
TEXT_QUERIES = ("bird", "house river", '"of the moon"', "stone 81")

FILTERS = (
    "i = 40",
    "i < 12",
    "i >= 200",
    "i between 60 and 75",
    "i in (3, 77, 151, 9999)",
    "i is null",
    "i != 40",
    "s = 'k033'",
    "s like 'k01%'",
    "s is null",
    "s > 'k15' and i < 100",
    "array_has(l, 'a')",
    "NOT array_has_any(l, ['b', NULL])",
    "contains(s, 'k03')",
    "s ilike '%K01%' or contains(s, '123')",
    f"st_intersects(p, {rectangle(20, 20, 90, 60)})",
    f"st_within(p, {rectangle(0, 0, 300, 9)}) or p is null",
)


@dataclass(frozen=True)
class Victim:
    """`rows` are the ids that each filter answers; `live` the ids of all rows and `vectors` those of their vectors."""

    name: str
    uri: str
    indices: tuple[str, ...]
    rows: dict[str, list[int]]
    live: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    texts: dict[str, dict[int, float]]  # row ids and scores that each query of words finds
    digests: bool  # whether Pennon wrote the index files

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self))


def make_victims(directory: Path) -> list[Victim]:
    with in_process():
        return [
            _trees(directory / "trees.lance"),
            _bitmaps(directory / "bitmaps.lance"),
            _vectors(directory / "vectors.lance"),
            _ngrams(directory / "ngrams.lance"),
            _boxes(directory / "boxes.lance"),
            _moved(directory / "moved.lance", external=False),
            _moved(directory / "moved_external.lance", external=True),
            _stable(directory / "stable.lance"),
            _many_deleted(directory / "deleted.lance"),
            _stock(directory / "stock.lance"),
            _zones(directory / "zones.lance"),
            _texts(directory / "texts.lance"),
            _others(directory / "others.lance"),
        ]


def rows(count: int, start: int = 0, *, vectors: bool = True) -> pa.Table:
    rng = np.random.default_rng(start)
    draw = rng.integers(0, 240, count)
    gone = rng.random(count) < 0.06
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(start, start + count)),
        "i": pa.array(draw, pa.int64(), mask=gone),
        "s": pa.array([f"k{v:03d}" for v in draw], pa.string(), mask=gone),
    }
    columns["l"] = labels("l").values(rng, count)
    columns["t"] = pa.array([f"row {v % 7} of the {WORDS[v % 11]} {v}" for v in draw], pa.string(), mask=gone)
    if vectors:
        columns["v"] = to_lists(clustered(count, DIM, start).astype(np.float32))
    points = pa.array(
        [None if v % 17 == 3 else {"x": v * 1.0, "y": v * 7 % 100 * 1.0} for v in draw.tolist()], POSITION
    )
    geometry = pa.field("p", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"})
    return pa.table(columns).append_column(geometry, points)


def _written(path: Path, **options: Any) -> str:
    lance.write_dataset(rows(1200), str(path), max_rows_per_file=300, **options)
    lance.dataset(str(path)).delete("id % 11 = 3")
    return str(path)


def _trees(path: Path) -> Victim:
    uri = _written(path)
    pennon.open(uri).create_index("i", ranges=3, batch_size=64)
    pennon.open(uri).create_index("s", batch_size=64)
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    pennon.open(uri).create_index("i", fragment_ids=[4], batch_size=64)
    lance.dataset(uri).delete("id % 13 = 5")
    return _victim(uri, ())


def _zones(path: Path) -> Victim:
    """Zone maps and Bloom filters; rows of the first segments have moved."""
    uri = _written(path)
    _zone_segments(uri, None)
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=600)
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    _zone_segments(uri, [max(f.fragment_id for f in lance.dataset(uri).get_fragments())])
    lance.dataset(uri).delete("id % 13 = 5")
    return _victim(uri, ())


def _zone_segments(uri: str, fragments: list[int] | None) -> None:
    for column in ("i", "s"):
        table = pennon.open(uri)
        table.create_index(column, "ZONEMAP", f"{column}_zones", fragment_ids=fragments, rows_per_zone=64)
        table.create_index(column, "BLOOMFILTER", f"{column}_bloom", fragment_ids=fragments, number_of_items=64)


def _bitmaps(path: Path) -> Victim:
    uri = _written(path)
    pennon.open(uri).create_index("i", "BITMAP")
    pennon.open(uri).create_index("s", "BITMAP")
    pennon.open(uri).create_index("l", "LABEL_LIST")
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    pennon.open(uri).create_index("i", "BITMAP", fragment_ids=[4])
    lance.dataset(uri).delete("id % 13 = 5")
    return _victim(uri, ())


def _vectors(path: Path) -> Victim:
    uri = _written(path)
    for kind in KINDS:
        options: dict[str, Any] = OPTIONS.get(kind, {})
        pennon.open(uri).create_index("v", kind, name=kind, num_partitions=3, **options)
    lance.dataset(uri).delete("id % 13 = 5")
    return _victim(uri, KINDS)


def _others(path: Path) -> Victim:
    """Vectors of bits, `b`, and several vectors a row, `m`; what each is compared with is `v`."""
    table = rows(600)
    vectors = clustered(600, DIM, 0).astype(np.float32)
    table = table.append_column("b", to_lists(as_bits(vectors)))
    table = table.append_column("m", pa.array([[each.tolist()] for each in vectors], pa.list_(list_of(pa.float32()))))
    lance.write_dataset(table, str(path), max_rows_per_file=200)
    uri = str(path)
    pennon.open(uri).create_index("b", "IVF_FLAT", name="bits", num_partitions=3)
    pennon.open(uri).create_index("m", "IVF_FLAT", name="several", metric="cosine", num_partitions=3)
    lance.dataset(uri).delete("id % 13 = 5")
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=300)
    return _victim(uri, ())


def as_bits(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The signs of vectors, eight to a byte."""
    return np.packbits(vectors > 0, axis=1)


def list_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(item, DIM)


def _ngrams(path: Path) -> Victim:
    uri = _written(path)
    pennon.open(uri).create_index("s", "NGRAM")
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    pennon.open(uri).create_index("s", "NGRAM", fragment_ids=[4])
    lance.dataset(uri).delete("id % 13 = 5")
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=600)
    return _victim(uri, ())


def _boxes(path: Path) -> Victim:
    """R-trees of several levels in two segments; rows of both have moved."""
    uri = _written(path)
    pennon.open(uri).create_index("p", "RTREE", page_size=16)
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    pennon.open(uri).create_index("p", "RTREE", fragment_ids=[4], page_size=64)
    lance.dataset(uri).delete("id % 13 = 5")
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=600)
    return _victim(uri, ())


def _texts(path: Path) -> Victim:
    """Words in two segments of several partitions, of which the first has been through a compaction."""
    uri = _written(path)
    pennon.open(uri).create_index("t", "INVERTED", with_position=True, rows_per_task=400)
    pennon.open(uri).compact(target_rows_per_fragment=600)
    lance.write_dataset(rows(200, 1200), uri, mode="append")
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id % 13 = 5")
    return _victim(uri, ())


def _moved(path: Path, *, external: bool) -> Victim:
    uri = _written(path)
    table = pennon.open(uri)
    table.create_index("i", ranges=2, batch_size=64)
    table.create_index("v", "IVF_SQ", name="IVF_SQ", num_partitions=3)
    table.compact(remap="deferred", target_rows_per_fragment=600)
    lance.dataset(uri).delete("id % 13 = 5")
    pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=2000)
    if external:
        edit_newest(Path(uri), _to_external(Path(uri)))
    return _victim(uri, ("IVF_SQ",))


def _to_external(root: Path) -> Any:
    """Stock writes a file only for content of more than 200 KiB."""

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        [entry] = [index for index in indices.indices if index.name == "__lance_frag_reuse"]
        content = pb.FragmentReuseDetails.FromString(entry.index_details.value).inline.SerializeToString()
        directory = root / "_indices" / str(UUID(bytes=entry.uuid.value))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "details.binpb").write_bytes(content)
        details = pb.FragmentReuseDetails(external=pb.ExternalFile(path="details.binpb", offset=0, size=len(content)))
        entry.index_details.value = details.SerializeToString()

    return edit


def _stable(path: Path) -> Victim:
    uri = _written(path, enable_stable_row_ids=True)
    table = pennon.open(uri)
    table.create_index("i", ranges=2, batch_size=64)
    table.create_index("v", "IVF_PQ", name="IVF_PQ", num_partitions=3, num_sub_vectors=4)
    lance.dataset(uri).update({"s": "'k007'"}, where="id % 17 = 2")
    return _victim(uri, ("IVF_PQ",))


def _many_deleted(path: Path) -> Victim:
    """So many that they are kept as a bitmap."""
    uri = str(path)
    lance.write_dataset(rows(12_000, vectors=False), uri)
    lance.dataset(uri).delete("id % 2 = 1 and id < 11000")
    pennon.open(uri).create_index("i", ranges=2, batch_size=1024)
    return _victim(uri, ())


def _stock(path: Path) -> Victim:
    uri = _written(path)
    lance.dataset(uri).create_scalar_index("i", "BTREE")
    for kind in ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ"):
        options: dict[str, Any] = OPTIONS.get(kind, {})
        lance.dataset(uri).create_index("v", kind, name=kind, num_partitions=3, replace=False, **options)
    return _victim(uri, ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ"), digests=False)


def _victim(uri: str, indices: tuple[str, ...], *, digests: bool = True) -> Victim:
    dataset = lance.dataset(uri)
    answers = {f: stock_rows(dataset, f) for f in FILTERS}
    names = [name for name in ("id", "v") if name in dataset.schema.names]
    table = dataset.to_table(columns=names)
    vectors = np.zeros((len(table), 0), dtype=np.float32)
    if "v" in names:
        vectors = table["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIM)
    texts = text_answers(uri) if _has_words(uri) else {}
    return Victim(Path(uri).stem, uri, indices, answers, table["id"].to_numpy(), vectors, texts, digests)


def _has_words(uri: str) -> bool:
    return any(INVERTED.claims(segment) for segment in Snapshot.open(Location.of(uri)).manifest.segments)


def text_answers(uri: str) -> dict[str, dict[int, float]]:
    """What the files of the segments hold for each query: row ids, those of deleted rows included, and scores."""
    snapshot = Snapshot.open(Location.of(uri))
    chosen = [segment for segment in snapshot.manifest.segments if INVERTED.claims(segment)]
    cache, column = ByteCache(), snapshot.column("t")
    index = TextIndex([INVERTED.open(snapshot, segment, column, None, cache) for segment in chosen])
    found: dict[str, dict[int, float]] = {}
    for query in TEXT_QUERIES:
        asked = Phrase(query.strip('"')) if query.startswith('"') else Match(query)
        hits = TextSearch({"t": index}, "t").best(asked, None)
        found[query] = dict(zip(hits.row_ids.tolist(), hits.scores.tolist(), strict=True))
    return found


def stock_rows(dataset: lance.LanceDataset, filter: str) -> list[int]:
    """What a scan without any index finds."""
    scanner = dataset.scanner(columns=["id"], filter=filter, use_scalar_index=False)
    return sorted_ids(scanner.to_table())


def sorted_ids(found: pa.Table) -> list[Any]:
    """In a table whose schema was tampered with, ids may be missing."""
    return sorted(found["id"].to_pylist(), key=lambda id: (id is None, id))
