"""Blocks give back what was packed, stay small, and are opened in place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from pennon.engine import blocks
from pennon.engine.blocks import BLOCK_BYTES, PACK_BYTES, Packer, pieces, unpack
from pennon.errors import BuildFailed

MIB = 1 << 20


def packed(*sent: tuple[int, pa.RecordBatch]) -> list[pa.RecordBatch]:
    packer = Packer()
    return [rows for destination, batch in sent for rows in packer.add(destination, batch)] + list(packer.flush())


def received(packs: list[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    by_destination: dict[int, list[pa.RecordBatch]] = {}
    for rows in packs:
        for number, destination in enumerate(rows.column("destination").to_pylist()):
            by_destination.setdefault(destination, []).extend(unpack(rows.slice(number, 1)))
    return by_destination


def columns() -> Iterator[pa.Array]:
    rows = 200_000
    numbers = pa.array(np.arange(rows))
    yield numbers
    yield pa.array([None, 1, 2, 3] * (rows // 4), pa.int8())
    yield pa.array([f"row {number}" for number in range(rows)])
    yield pa.array(["low", "high"] * (rows // 2)).dictionary_encode()
    yield pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 16, dtype=np.float32)), 16)
    yield pa.array([[1, 2], [], None, [3]] * (rows // 4), pa.list_(pa.int64()))
    # One row holds nearly everything.
    yield pa.array([b"x" * (3 * MIB)] + [b""] * (rows - 1))
    yield pa.nulls(rows)


@pytest.mark.parametrize("column", list(columns()), ids=lambda column: str(column.type))
def test_what_is_packed_is_received(column: pa.Array) -> None:
    batch = pa.record_batch([column, pa.array(np.arange(len(column)))], names=["value", "row"])
    sent = [(3, batch), (0, batch.slice(1000, 5)), (3, batch.slice(7, 50_001))]
    arrived = received(packed(*sent))
    assert pa.Table.from_batches(arrived[0]) == pa.Table.from_batches([sent[1][1]])
    assert pa.Table.from_batches(arrived[3]) == pa.Table.from_batches([sent[0][1], sent[2][1]])


def test_a_batch_without_rows_arrives() -> None:
    batch = pa.record_batch({"value": pa.array([], pa.int64())})
    assert received(packed((1, batch))) == {1: [batch]}


def test_blocks_and_packs_are_bounded() -> None:
    batch = pa.record_batch({"value": np.arange(5_000_000)})
    packs = packed((0, batch), (1, batch.slice(3)))
    sizes = [len(block.as_buffer()) for rows in packs for block in rows.column("block")]
    assert max(sizes) < BLOCK_BYTES + 4096
    assert min(sizes) > BLOCK_BYTES // 4
    assert max(rows.nbytes for rows in packs) <= PACK_BYTES + 4096
    assert len(packs) <= sum(sizes) / PACK_BYTES * 2


def test_a_batch_is_cut_only_where_that_makes_it_smaller() -> None:
    dictionary = pa.array([f"{number:0100d}" for number in range(50_000)])
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.arange(100_000) % 50_000, pa.int32()), dictionary)
    assert len(list(pieces(pa.record_batch({"value": repeated})))) == 1


def test_blocks_are_opened_in_place() -> None:
    batch = pa.record_batch({"value": np.arange(100_000), "other": np.arange(100_000, dtype=np.int32)})
    (rows,) = packed((0, batch), (1, batch), (2, batch))
    _, _, data = rows.column("block").buffers()
    for opened in (opened for arrived in received([rows]).values() for opened in arrived):
        for column in opened.columns:
            buffer = column.buffers()[1]
            assert data.address <= buffer.address < data.address + data.size
            assert buffer.address % 8 == 0


def test_large_binaries_are_opened_too() -> None:
    batch = pa.record_batch({"value": [1, 2, 3]})
    (rows,) = packed((0, batch), (0, batch))
    assert list(unpack(rows.set_column(2, "block", rows.column("block").cast(pa.large_binary())))) == [batch, batch]


def test_a_row_too_large_for_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LARGEST_BLOCK", 3 * MIB)
    batch = pa.record_batch({"value": pa.array([b"x" * (4 * MIB), b"y"])})
    with pytest.raises(BuildFailed, match=r"1 row\(s\) that cannot be cut further take 4,\d+,\d+ bytes"):
        packed((0, batch))
