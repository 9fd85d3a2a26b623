"""Files that do not fit are called damaged when they are opened or read, never answered from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import DamagedFile, UnknownIndexType, UnsupportedTable
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.storage import AUXILIARY_FILE, INDEX_FILE
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import VECTOR_KINDS, vector_kind
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from tests.support.damage import Change, damaged, reopened, set_metadata, with_nulls
from tests.support.vectors import PQ, RQ5, SQ, clustered, stock_index, write_table


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    vectors = clustered(600, 16).astype(np.float32)
    made: dict[str, str] = {}
    for case in (PQ, SQ, RQ5):
        uri = write_table(tmp_path_factory.mktemp("sound") / "t.lance", vectors)
        stock_index(uri, case, "l2", 2)
        made[case.kind] = uri
    return made


def set_storage(**changes: Any) -> Change:
    def change(_: pa.Table, metadata: dict[str, str], __: list[bytes]) -> None:
        said = json.loads(json.loads(metadata["storage_metadata"])[0]) | changes
        metadata["storage_metadata"] = json.dumps([json.dumps(said)])

    return change


def set_ivf(**changes: Any) -> Change:
    def change(_: pa.Table, __: dict[str, str], buffers: list[bytes]) -> None:
        message = pb.IVF.FromString(buffers[0])
        for name, value in changes.items():
            message.ClearField(name)  # pyright: ignore[reportArgumentType]
            message.MergeFrom(pb.IVF(**{name: value}))
        buffers[0] = message.SerializeToString()

    return change


def set_buffer(number: int, content: bytes) -> Change:
    def change(_: pa.Table, __: dict[str, str], buffers: list[bytes]) -> None:
        buffers[number - 1] = content

    return change


def signed_ids(table: pa.Table, *_: Any) -> pa.Table:
    return table.set_column(0, "_rowid", table["_rowid"].cast(pa.int64()))


def narrower(name: str) -> Change:
    def change(table: pa.Table, *_: Any) -> pa.Table:
        cut = np.array(table[name].to_pylist(), dtype=np.uint8)[:, :-1]
        lists = pa.FixedSizeListArray.from_arrays(pa.array(cut.reshape(-1)), cut.shape[1])
        return table.set_column(table.column_names.index(name), name, lists)

    return change


def without(name: str) -> Change:
    return lambda table, *_: table.drop_columns([name])


LAST_ROW_GONE: Change = lambda table, *_: table.slice(0, table.num_rows - 1)  # noqa: E731
TENSOR = pb.Tensor(data_type=pb.Tensor.FLOAT32, shape=[2, 2], data=bytes(16))

DAMAGE: dict[str, tuple[str, str, Change]] = {
    "no index type": ("IVF_PQ", INDEX_FILE, set_metadata("lance:index", None)),
    "an index type that is no JSON": ("IVF_PQ", INDEX_FILE, set_metadata("lance:index", "{")),
    "a metric that is none": (
        "IVF_PQ",
        INDEX_FILE,
        set_metadata("lance:index", '{"type":"IVF_PQ","distance_type":"l3"}'),
    ),
    "two metrics": ("IVF_PQ", AUXILIARY_FILE, set_metadata("distance_type", "dot")),
    "no metric of the codes": ("IVF_PQ", AUXILIARY_FILE, set_metadata("distance_type", None)),
    "another quantizer": (
        "IVF_PQ",
        INDEX_FILE,
        set_metadata("lance:index", '{"type":"IVF_SQ","distance_type":"l2"}'),
    ),
    "no clusters": ("IVF_PQ", INDEX_FILE, set_metadata("lance:ivf", None)),
    "clusters in a buffer that is not there": ("IVF_PQ", INDEX_FILE, set_metadata("lance:ivf", "9")),
    "clusters that cannot be parsed": ("IVF_PQ", INDEX_FILE, set_buffer(1, b"\xff\xff\xff")),
    "no centroids": ("IVF_PQ", INDEX_FILE, set_ivf(centroids_tensor=pb.Tensor())),
    "centroids of another shape": ("IVF_PQ", INDEX_FILE, set_ivf(centroids_tensor=TENSOR)),
    "no storage metadata": ("IVF_PQ", AUXILIARY_FILE, set_metadata("storage_metadata", None)),
    "storage metadata of two": ("IVF_PQ", AUXILIARY_FILE, set_metadata("storage_metadata", '["{}","{}"]')),
    "storage metadata of nothing": ("IVF_PQ", AUXILIARY_FILE, set_metadata("storage_metadata", '["{}"]')),
    "lengths that do not add up": ("IVF_PQ", AUXILIARY_FILE, set_ivf(lengths=[1, 2])),
    "offsets that overlap": ("IVF_PQ", AUXILIARY_FILE, set_ivf(offsets=[0, 0])),
    "lengths of other partitions": ("IVF_PQ", AUXILIARY_FILE, set_ivf(offsets=[0], lengths=[600])),
    "a row too few": ("IVF_PQ", AUXILIARY_FILE, LAST_ROW_GONE),
    "row ids of another type": ("IVF_PQ", AUXILIARY_FILE, signed_ids),
    "no row ids": ("IVF_PQ", AUXILIARY_FILE, without("_rowid")),
    "PQ: no codes": ("IVF_PQ", AUXILIARY_FILE, without("__pq_code")),
    "PQ: codes too narrow": ("IVF_PQ", AUXILIARY_FILE, narrower("__pq_code")),
    "PQ: another dimension": ("IVF_PQ", AUXILIARY_FILE, set_storage(dimension=32)),
    "PQ: odd bits": ("IVF_PQ", AUXILIARY_FILE, set_storage(nbits=5)),
    "PQ: a codebook of another shape": ("IVF_PQ", AUXILIARY_FILE, set_buffer(2, TENSOR.SerializeToString())),
    "PQ: a codebook elsewhere": ("IVF_PQ", AUXILIARY_FILE, set_storage(codebook_position=1)),
    "SQ: no bounds": ("IVF_SQ", AUXILIARY_FILE, set_storage(bounds=None)),
    "SQ: reversed bounds": ("IVF_SQ", AUXILIARY_FILE, set_storage(bounds={"start": 1, "end": -1})),
    "SQ: endless bounds": ("IVF_SQ", AUXILIARY_FILE, set_storage(bounds={"start": -np.inf, "end": 1})),
    "SQ: other bits": ("IVF_SQ", AUXILIARY_FILE, set_storage(num_bits=4)),
    "SQ: another dimension": ("IVF_SQ", AUXILIARY_FILE, set_storage(dim=8)),
    "RQ: too few signs": ("IVF_RQ", AUXILIARY_FILE, set_storage(fast_rotation_signs=[1, 2])),
    "RQ: signs that are no bytes": ("IVF_RQ", AUXILIARY_FILE, set_storage(fast_rotation_signs=[300] * 8)),
    "RQ: a matrix that is not there": ("IVF_RQ", AUXILIARY_FILE, set_storage(rotation_type="matrix")),
    "RQ: too many bits": ("IVF_RQ", AUXILIARY_FILE, set_storage(num_bits=10)),
    "RQ: bits that are not stored": ("IVF_RQ", AUXILIARY_FILE, set_storage(num_bits=6)),
    "RQ: an unknown estimator": ("IVF_RQ", AUXILIARY_FILE, set_storage(query_estimator="guess")),
    "RQ: no factors": ("IVF_RQ", AUXILIARY_FILE, without("__scale_factors_ex")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_seen_at_opening(tables: dict[str, str], tmp_path: Path, name: str) -> None:
    kind, file, change = DAMAGE[name]
    with pytest.raises(DamagedFile) as raised:
        damaged(tables[kind], tmp_path, file, change)
    assert "Not found" not in str(raised.value)


def test_nulls_are_seen_when_their_partition_is_read(tables: dict[str, str], tmp_path: Path) -> None:
    files = damaged(tables["IVF_PQ"], tmp_path, AUXILIARY_FILE, with_nulls)
    with pytest.raises(DamagedFile, match="NULLs in the column _rowid"):
        files.read_partition(0)
    assert len(files.read_partition(1))


@pytest.mark.parametrize("file", [INDEX_FILE, AUXILIARY_FILE])
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_RQ"])
def test_truncated_and_missing_files(tables: dict[str, str], tmp_path: Path, kind: str, file: str) -> None:
    damaged(tables[kind], tmp_path, file, lambda *_: None)
    path = tmp_path / "segment" / file
    content = path.read_bytes()
    for damage in (content[:-100], content[: len(content) // 2], content[:-40] + bytes(40), b""):
        path.write_bytes(damage)
        with pytest.raises(DamagedFile):
            reopened(tmp_path)
    path.unlink()
    with pytest.raises(DamagedFile):
        reopened(tmp_path)


def test_a_file_of_another_size_than_recorded(tables: dict[str, str], tmp_path: Path) -> None:
    damaged(tables["IVF_SQ"], tmp_path, INDEX_FILE, lambda *_: None)
    with pytest.raises(DamagedFile, match="recorded 5"):
        reopened(tmp_path, auxiliary=5)


@pytest.mark.parametrize(
    "said",
    [
        '{"type":"IVF_MAGIC","distance_type":"l2"}',
        '{"type":"IVF_PQ","distance_type":"hamming"}',
    ],
)
def test_what_pennon_does_not_know_is_not_called_damage(tables: dict[str, str], tmp_path: Path, said: str) -> None:
    with pytest.raises(UnsupportedTable):
        damaged(tables["IVF_PQ"], tmp_path, INDEX_FILE, set_metadata("lance:index", said))


def test_metadata_where_the_older_specification_has_it(tables: dict[str, str], tmp_path: Path) -> None:
    def older(_: pa.Table, metadata: dict[str, str], __: list[bytes]) -> None:
        metadata["lance:rabit"] = json.loads(metadata.pop("storage_metadata"))[0]

    assert damaged(tables["IVF_RQ"], tmp_path, AUXILIARY_FILE, older).kind.name == "IVF_RQ"


def test_the_seven_kinds() -> None:
    assert set(VECTOR_KINDS) == {
        "IVF_FLAT",
        "IVF_PQ",
        "IVF_SQ",
        "IVF_RQ",
        "IVF_HNSW_FLAT",
        "IVF_HNSW_PQ",
        "IVF_HNSW_SQ",
    }
    assert vector_kind("ivf_hnsw_sq") is VECTOR_KINDS["IVF_HNSW_SQ"]
    with pytest.raises(UnknownIndexType, match="IVF_HNSW_SQ"):
        vector_kind("IVF_HNSW_RQ")


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
def test_details_survive_a_round_trip(kind: str, metric: Metric) -> None:
    graph = HnswParams(5, 12, 60) if "HNSW" in kind else None
    bits = None if kind.endswith("FLAT") else 8
    details = VectorDetails(
        vector_kind(kind), metric, bits, 4 if kind.endswith("PQ") else None, kind == "IVF_RQ", graph, 1250
    )
    assert VectorDetails.from_bytes(details.to_bytes()) == details


def test_details_that_say_nothing_and_details_that_cannot_be_read() -> None:
    assert VectorDetails.from_bytes(b"") is None
    with pytest.raises(DamagedFile):
        VectorDetails.from_bytes(b"\xff\xff")
