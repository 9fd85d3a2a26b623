"""Sorted addresses without repetition, by any way that is chosen for their number and span."""

from __future__ import annotations

import numpy as np
import pytest

from pennon.format.addresses import MANY, sorted_unique


@pytest.mark.parametrize("count", [0, 1, 2, MANY - 1, MANY, 3 * MANY])
@pytest.mark.parametrize("offsets", [50, 40_000, 1 << 32])
@pytest.mark.parametrize("fragments", [1, 3, 1 << 20])
def test_sorted_unique(count: int, offsets: int, fragments: int) -> None:
    rng = np.random.default_rng(count)
    offset = rng.integers(0, offsets, count, dtype=np.uint64)
    fragment = rng.integers(0, fragments, count, dtype=np.uint64)
    addresses = fragment << np.uint64(32) | offset
    np.testing.assert_array_equal(sorted_unique(addresses), np.unique(addresses))
    rows = sorted_unique(offset.astype(np.uint32))
    assert rows.dtype == np.uint32
    np.testing.assert_array_equal(rows, np.unique(offset.astype(np.uint32)))
