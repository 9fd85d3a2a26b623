"""Bytes of a partition: what is packed is unpacked again, and lies where the format says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.pq.quantizer import COLUMN as PQ_CODE
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.index.vector.quantizers.rabitq.layout import (
    ORDER,
    blocked_width,
    pack_blocked,
    pack_rows,
    unpack_blocked,
    unpack_rows,
    unpack_stream,
)
from pennon.index.vector.quantizers.rabitq.quantizer import ERROR, EXTRA, EXTRA_STREAM, SIGNS, RabitQuantizer
from pennon.index.vector.quantizers.rabitq.rotation import FastRotation
from pennon.index.vector.vectors import Codes

ROWS = st.integers(0, 100)


@st.composite
def codes(draw: st.DrawFn, widths: st.SearchStrategy[int]) -> Codes:
    return draw(arrays(np.uint8, (draw(ROWS), draw(widths))))


@given(codes(st.integers(1, 20)))
def test_sign_codes_survive_packing(plain: Codes) -> None:
    packed = pack_rows(plain)
    assert packed.shape == plain.shape
    np.testing.assert_array_equal(unpack_rows(packed), plain)


@given(codes(st.integers(1, 12)))
def test_pq_codes_survive_packing(plain: Codes) -> None:
    quantizer = ProductQuantizer(Metric.L2, np.zeros((plain.shape[1], 256, 1), dtype=np.float32))
    packed = quantizer.pack({PQ_CODE: plain})
    assert packed[PQ_CODE].tobytes() == plain.T.tobytes()
    np.testing.assert_array_equal(quantizer.unpack(packed)[PQ_CODE], plain)


@given(codes(st.sampled_from([8, 40, 64, 72, 128])), st.integers(1, 8))
def test_extra_codes_survive_packing(values: Codes, bits: int) -> None:
    values = values & np.uint8((1 << bits) - 1)
    packed = pack_blocked(values, bits)
    assert packed.shape == (len(values), blocked_width(values.shape[1], bits))
    np.testing.assert_array_equal(unpack_blocked(packed, bits, values.shape[1]), values)


@given(codes(st.sampled_from([8, 40, 64])), st.integers(1, 8))
def test_a_stream_of_bits_is_read_in_order(values: Codes, bits: int) -> None:
    values = values & np.uint8((1 << bits) - 1)
    planes = np.unpackbits(values[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    stream = np.packbits(planes.reshape(len(values), values.shape[1] * bits), axis=1, bitorder="little")
    np.testing.assert_array_equal(unpack_stream(stream, bits, values.shape[1]), values)


def test_a_block_of_sign_codes_lies_where_the_format_says() -> None:
    plain = np.random.default_rng(0).integers(0, 256, (37, 3)).astype(np.uint8)
    packed = pack_rows(plain).reshape(-1)
    for byte in range(3):
        block = packed[32 * byte : 32 * byte + 32]
        for j, row in enumerate(ORDER):
            assert block[j] == plain[row, byte] & 15 | (plain[row + 16, byte] & 15) << 4
            assert block[16 + j] == plain[row, byte] >> 4 | plain[row + 16, byte] & 0xF0
    np.testing.assert_array_equal(packed[96:].reshape(3, 5), plain[32:].T)


@pytest.mark.parametrize("bits", [3, 7])
def test_older_columns_of_rabitq_become_the_present_ones(bits: int) -> None:
    rng = np.random.default_rng(0)
    quantizer = RabitQuantizer(Metric.L2, FastRotation.random(16, 0), bits + 1)
    values = rng.integers(0, 1 << bits, (9, 16)).astype(np.uint8)
    planes = np.unpackbits(values[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    stream = np.packbits(planes.reshape(9, -1), axis=1, bitorder="little")
    signs = rng.integers(0, 256, (9, 2)).astype(np.uint8)
    plain = quantizer.unpack({SIGNS: pack_rows(signs), EXTRA_STREAM: stream})
    np.testing.assert_array_equal(plain[EXTRA], pack_blocked(values, bits))
    np.testing.assert_array_equal(plain[SIGNS], signs)


def test_one_bit_rabitq_does_without_errors() -> None:
    quantizer = RabitQuantizer(Metric.L2, FastRotation.random(16, 0), 1, packed=False)
    signs, ones = np.zeros((4, 2), dtype=np.uint8), np.ones(4, dtype=np.float32)
    plain = quantizer.unpack({SIGNS: signs, "__add_factors": ones, "__scale_factors": ones})
    assert plain[ERROR].tolist() == [0, 0, 0, 0]
