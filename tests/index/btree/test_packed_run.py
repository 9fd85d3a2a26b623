"""A run that is packed, cut and unpacked is the same run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pennon.engine.blocks import block_of, pieces
from pennon.index.btree.packed_run import pack_run, unpack_run, unpacked_bytes
from pennon.index.btree.pages import Run

ROWS = 300_000
IDS = {
    "rows of one fragment": np.arange(ROWS, dtype=np.uint64) * np.uint64(3),
    "rows of the last fragment": np.arange(ROWS, dtype=np.uint64) + np.uint64(0xFFFFFFFE << 32),
    "many fragments": (np.arange(ROWS, dtype=np.uint64) // np.uint64(1000) << np.uint64(32))
    | np.arange(ROWS, dtype=np.uint64) % np.uint64(1000),
    "more fragments than a block has kilobytes": (np.arange(ROWS, dtype=np.uint64) // np.uint64(20) << np.uint64(32))
    | np.arange(ROWS, dtype=np.uint64) % np.uint64(20),
    "any order": np.random.default_rng(1).permutation(ROWS).astype(np.uint64) << np.uint64(20),
}
TEXTS = [f"text {number * 7919 % 1000}" for number in range(ROWS)]
VALUES = {
    "int64": pa.array(np.random.default_rng(2).integers(0, 1 << 60, ROWS)),
    "bool": pa.array(np.arange(ROWS) % 3 == 0),
    "string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array([text.encode() for text in TEXTS], pa.large_binary()),
    "fixed": pa.array([text.encode()[:6] for text in TEXTS], pa.binary(6)),
}


CASES = [
    *((ids, values, nulls) for ids in IDS for values in ("int64", "string") for nulls in (0, 70_000)),
    *(("rows of one fragment", values, 1) for values in VALUES),
]


@pytest.mark.parametrize(("ids", "values", "nulls"), CASES)
def test_a_run_survives(ids: str, values: str, nulls: int) -> None:
    run = Run(IDS[ids][:nulls], VALUES[values][nulls:], IDS[ids][nulls:])
    sent = pack_run(run)
    received = [
        unpack_run(batch)
        for piece in pieces(sent)
        for batch in pa.ipc.open_stream(block_of(piece)).read_all().to_batches()
    ]
    assert len(received) > 1 or values == "bool"
    assert {one.values.type for one in received} == {VALUES[values].type}
    np.testing.assert_array_equal(np.concatenate([one.null_ids for one in received]), run.null_ids)
    np.testing.assert_array_equal(np.concatenate([one.ids for one in received]), run.ids)
    assert pa.concat_arrays([one.values for one in received]).equals(run.values)


@pytest.mark.parametrize(
    ("ids", "row_bytes"), [("rows of one fragment", 11.1), ("many fragments", 14.1), ("any order", 16)]
)
def test_the_bytes_of_a_row(ids: str, row_bytes: float) -> None:
    sent = pack_run(Run(IDS[ids][:0], VALUES["int64"], IDS[ids]))
    assert sent.nbytes <= row_bytes * ROWS
    assert unpacked_bytes(sent) == 16 * ROWS


def test_strings_are_sent_with_short_offsets() -> None:
    sent = pack_run(Run(IDS["any order"][:0], VALUES["string"], IDS["any order"]))
    assert sent.column(0).type == pa.string()
    assert unpacked_bytes(sent) - sent.nbytes == pytest.approx(4 * ROWS, abs=8)


def test_a_part_of_a_longer_run() -> None:
    run = Run(IDS["any order"][:0], VALUES["string"], IDS["rows of one fragment"])
    found = unpack_run(pack_run(run.slice(1000, 200_000)))
    assert found.values.equals(run.values.slice(1000, 199_000))
    np.testing.assert_array_equal(found.ids, run.ids[1000:200_000])


def test_no_rows() -> None:
    for values in VALUES.values():
        found = unpack_run(pack_run(Run(IDS["any order"][:0], values[:0], IDS["any order"][:0])))
        assert (found.rows, found.values.type) == (0, values.type)
