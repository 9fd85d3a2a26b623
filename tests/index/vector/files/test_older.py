"""PQ as older writers and the seed have it, which stock no longer reads: elsewhere, in other shapes, but the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import DamagedFile
from pennon.format.pb import lance_pb2 as pb
from pennon.index.vector.files.storage import AUXILIARY_FILE, VectorFiles
from pennon.index.vector.ivf import Ivf
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.vectors import to_lists
from tests.support.damage import Change, damaged
from tests.support.vectors import PQ, PQ4, Case, clustered, open_files, stock_index, write_table


@pytest.fixture(scope="module", params=[PQ, PQ4], ids=str)
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    case: Case = request.param
    uri = write_table(tmp_path_factory.mktemp("older") / "t.lance", clustered(600, 16).astype(np.float32))
    stock_index(uri, case, "l2", 2)
    return uri


def said(metadata: dict[str, str]) -> dict[str, Any]:
    return json.loads(json.loads(metadata["storage_metadata"])[0])


def as_seed(codebook: bytes, num_sub_vectors: int) -> bytes:
    """[2^nbits, m, D / m], the values in that order."""
    tensor = pb.Tensor.FromString(codebook)
    size, dim = tensor.shape
    words = np.frombuffer(tensor.data, np.float32).reshape(num_sub_vectors, size, dim // num_sub_vectors)
    values = np.ascontiguousarray(words.transpose(1, 0, 2))
    return pb.Tensor(data_type=tensor.data_type, shape=values.shape, data=values.tobytes()).SerializeToString()


def wrapped(_: pa.Table, metadata: dict[str, str], __: list[bytes]) -> None:
    metadata["storage_metadata"] = json.dumps([json.dumps({"pq": said(metadata)})])


def under_the_old_key(_: pa.Table, metadata: dict[str, str], __: list[bytes]) -> None:
    metadata["lance:pq"] = json.loads(metadata.pop("storage_metadata"))[0]


def three_dimensions(_: pa.Table, metadata: dict[str, str], buffers: list[bytes]) -> None:
    buffers[1] = as_seed(buffers[1], said(metadata)["num_sub_vectors"])


def inside_the_metadata(_: pa.Table, metadata: dict[str, str], buffers: list[bytes]) -> None:
    inside = said(metadata) | {"codebook_position": 0, "codebook_tensor": list(buffers.pop())}
    metadata["storage_metadata"] = json.dumps([json.dumps(inside)])


def the_seeds_example(_: pa.Table, metadata: dict[str, str], buffers: list[bytes]) -> None:
    keys = ("num_sub_vectors", "nbits", "dimension", "transposed")
    example = {key: said(metadata)[key] for key in keys}
    buffers[1] = as_seed(buffers[1], example["num_sub_vectors"])
    metadata["storage_metadata"] = json.dumps([json.dumps({"pq": example})])


def row_by_row(table: pa.Table, metadata: dict[str, str], buffers: list[bytes]) -> pa.Table:
    known = said(metadata)
    del known["transposed"], known["codebook_tensor"]
    metadata["storage_metadata"] = json.dumps([json.dumps(known)])
    stored = np.array(table["__pq_code"].to_pylist(), dtype=np.uint8)
    pieces = np.split(stored, np.cumsum(pb.IVF.FromString(buffers[0]).lengths)[:-1])
    plain = np.concatenate([piece.reshape(piece.shape[::-1]).T for piece in pieces])
    return table.set_column(table.column_names.index("__pq_code"), "__pq_code", to_lists(plain))


@pytest.mark.parametrize(
    "change",
    [wrapped, under_the_old_key, three_dimensions, inside_the_metadata, the_seeds_example, row_by_row],
    ids=lambda change: change.__name__,
)
def test_older_forms_hold_the_same(stock: str, tmp_path: Path, change: Change) -> None:
    expected, found = open_files(stock), damaged(stock, tmp_path, AUXILIARY_FILE, change)
    np.testing.assert_array_equal(codebook(found), codebook(expected))
    for partition in range(2):
        ours, theirs = found.read_partition(partition), expected.read_partition(partition)
        np.testing.assert_array_equal(ours.row_ids, theirs.row_ids)
        np.testing.assert_array_equal(ours.columns["__pq_code"], theirs.columns["__pq_code"])


def codebook(files: VectorFiles) -> np.ndarray:
    assert isinstance(files.quantizer, ProductQuantizer)
    return files.quantizer.codebook


@pytest.mark.parametrize("shape", [[256, 4, 4], [256, 8, 2, 1], [8, 256, 2], [256, 32]])
def test_codebooks_of_other_shapes_are_damage(tmp_path: Path, shape: list[int]) -> None:
    uri = write_table(tmp_path / "t.lance", clustered(600, 16).astype(np.float32))
    stock_index(uri, PQ, "l2", 2)
    tensor = pb.Tensor(data_type=pb.Tensor.FLOAT32, shape=shape, data=bytes(4 * int(np.prod(shape))))

    def change(_: pa.Table, __: dict[str, str], buffers: list[bytes]) -> None:
        buffers[1] = tensor.SerializeToString()

    with pytest.raises(DamagedFile):
        damaged(uri, tmp_path, AUXILIARY_FILE, change)


@pytest.mark.parametrize("element", [np.float16, np.float64])
def test_a_codebook_of_three_dimensions_in_other_floats(element: Any) -> None:
    ivf = Ivf(Metric.L2, np.zeros((1, 12), dtype=element))
    values = np.random.default_rng(0).standard_normal((16, 4, 3)).astype(element)
    type_ = pb.Tensor.FLOAT16 if element is np.float16 else pb.Tensor.FLOAT64
    buffer = pb.Tensor(data_type=type_, shape=values.shape, data=values.tobytes()).SerializeToString()
    metadata = {"num_sub_vectors": 4, "nbits": 4, "dimension": 12, "codebook_position": 3}
    read = ProductQuantizer.from_metadata(metadata, ivf, {3: buffer}.__getitem__)
    np.testing.assert_array_equal(read.codebook, values.transpose(1, 0, 2))
    assert not read.transposed
