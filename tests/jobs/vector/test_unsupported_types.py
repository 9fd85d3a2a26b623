"""Types of vectors that pylance does not index are refused here as well, and by a name."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type

import pennon
from pennon.errors import UnsupportedColumn
from pennon.testing.engines import in_process

DIM, ROWS = 4, 20


def fixed(items: pa.Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(items, DIM)


NUMBERS = np.arange(ROWS * DIM)
FLOATS = fixed(pa.array(NUMBERS, pa.float32()))
OFFSETS = np.arange(ROWS + 1)
BFLOATS = pa.ExtensionArray.from_storage(BFloat16Type(), pa.array([b"\x00\x3f"] * len(NUMBERS), pa.binary(2)))
COLUMNS: dict[str, pa.Array] = {
    "int8": fixed(pa.array(NUMBERS, pa.int8())),
    "int32": fixed(pa.array(NUMBERS, pa.int32())),
    "bfloat16": fixed(BFLOATS),
    "several of uint8": pa.ListArray.from_arrays(pa.array(OFFSETS, pa.int32()), fixed(pa.array(NUMBERS, pa.uint8()))),
    "large lists": pa.LargeListArray.from_arrays(pa.array(OFFSETS, pa.int64()), FLOATS),
    "matrices": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 2]), FLOATS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_neither_pylance_nor_pennon_indexes_it(tmp_path: Path, name: str) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"v": COLUMNS[name]}), uri)
    metric = "hamming" if "uint8" in name else "cosine"
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        lance.dataset(uri).create_index("v", "IVF_FLAT", metric=metric, num_partitions=1)
    with in_process(), pytest.raises(UnsupportedColumn, match="which a vector index does not support"):
        pennon.open(uri).create_index("v", "IVF_FLAT")
    with pytest.raises(UnsupportedColumn, match="cannot be searched"):
        pennon.open(uri).search("v", [1.0] * DIM)
