"""Sorting, cutting and merging against Python's own sort."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.index import value_order as order
from pennon.index.btree import pages
from pennon.index.btree.boundaries import boundaries_from_sample
from pennon.index.btree.pages import Run, gather_run, merge_runs, sort_all, sort_run
from pennon.index.value_order import argsort, argsort_keys, is_sorted

integers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))
texts = st.text(alphabet="ab\0é😀", max_size=20)


def total_order(value: float) -> int:
    """IEEE 754 total order, by its definition."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF


ORACLES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {
    "int64": (pa.int64(), integers, lambda v: v),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), lambda v: v),
    "float64": (pa.float64(), st.floats(), total_order),
    "bool": (pa.bool_(), st.booleans(), lambda v: v),
    "string": (pa.string(), texts, lambda v: v.encode()),
    "binary": (pa.binary(), st.binary(max_size=20), lambda v: v),
    "fixed": (pa.binary(11), st.binary(min_size=11, max_size=11), lambda v: v),
    "decimal": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2), lambda v: v),
    "wide decimal": (
        pa.decimal128(38, 0),
        st.integers(-(10**37), 10**37).map(Decimal),
        lambda v: v,
    ),
}


@pytest.mark.parametrize("name", ORACLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_argsort_is_the_order_of_the_values(name: str, data: st.DataObject) -> None:
    type_, values, key = ORACLES[name]
    drawn = data.draw(st.lists(values, max_size=60))
    array = pa.array(drawn, type_).slice(len(drawn) // 5)
    listed = array.to_pylist()
    ordered = [listed[i] for i in argsort(array)]
    assert [key(v) for v in ordered] == sorted(key(v) for v in listed)
    assert is_sorted(array.cast(order.exchange_type(type_)).take(pa.array(argsort(array))))


@pytest.mark.parametrize("spread", [1, 1 << 10, 1 << 40, 1 << 62])
def test_large_sorts_with_few_and_many_distinct_keys(spread: int) -> None:
    rng = np.random.default_rng(spread % 97)
    for keys in (
        rng.integers(-spread, spread, 300_000),
        rng.integers(0, 1 << 20, 300_000) * (spread | 1) + rng.integers(0, 3, 300_000),
        np.sort(rng.integers(-spread, spread, 300_000)),
        np.concatenate([np.sort(rng.integers(-spread, spread, 100_000)) for _ in range(3)]),
    ):
        permutation = argsort_keys(keys)
        assert np.array_equal(keys[permutation], np.sort(keys))
        assert np.array_equal(np.sort(permutation), np.arange(len(keys)))


def rows_of(run: Run) -> list[tuple[Any, int]]:
    return [(None, int(i)) for i in run.null_ids] + list(zip(run.values.to_pylist(), run.ids.tolist(), strict=True))


def sort_key(row: tuple[Any, int]) -> tuple[bool, Any]:
    return (row[0] is not None, row[0] if not isinstance(row[0], str) else row[0].encode())


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cutting_loses_nothing_and_keeps_ranges_apart(type_: pa.DataType, data: st.DataObject) -> None:
    values = st.none() | (st.integers(0, 6) if type_ == pa.int64() else st.sampled_from(["", "a", "ab", "b", "é"]))
    drawn = data.draw(st.lists(values, min_size=1, max_size=80))
    ranges = data.draw(st.integers(1, 7))
    array = pa.array(drawn, type_)
    ids = np.arange(len(drawn), dtype=np.uint64)
    boundaries = boundaries_from_sample(array.slice(0, max(1, len(array) // 2)), ranges)
    for pieces in (
        boundaries.cut(sort_run([(array, ids)], type_)),
        boundaries.scatter(gather_run([(array, ids)], type_)),
    ):
        found = [row for _, piece in pieces for row in rows_of(piece)]
        assert sorted(found, key=lambda r: r[1]) == list(zip(drawn, range(len(drawn)), strict=True))
        assert [number for number, _ in pieces] == sorted({number for number, _ in pieces})
        previous: Any = None
        for _, piece in pieces:
            keys = [sort_key(row) for row in rows_of(piece)]
            if previous is not None:
                assert (not previous[0]) or (min(keys)[0] and previous[1] <= min(keys)[1])
            previous = max(keys)


def test_a_hot_value_spreads_over_ranges() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(40_000) < 0.6, 777, rng.integers(0, 2000, 40_000))
    nulls = rng.random(40_000) < 0.2
    for array in (pa.array(values, mask=nulls), pa.array([f"v{v:05d}" for v in values], mask=nulls)):
        boundaries = boundaries_from_sample(array.take(pa.array(rng.integers(0, 40_000, 5000))), 10)
        ids = np.arange(40_000, dtype=np.uint64)
        for pieces in (
            boundaries.cut(sort_run([(array, ids)], array.type)),
            boundaries.scatter(gather_run([(array, ids)], array.type)),
        ):
            assert len(pieces) == 10
            # Ranges balance bytes, and a NULL takes few.
            assert max(piece.rows for _, piece in pieces) < 2.5 * 40_000 / 10


@pytest.mark.parametrize("small", [3, 1 << 20])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_merging_runs_is_sorting_them(small: int, data: st.DataObject) -> None:
    lists = data.draw(st.lists(st.lists(st.none() | st.integers(-5, 5), max_size=20), max_size=5))
    runs, start = [], 0
    for drawn in lists:
        ids = np.arange(start, start + len(drawn), dtype=np.uint64)
        runs.append(sort_run([(pa.array(drawn, pa.int64()), ids)], pa.int64()))
        start += len(drawn)
    before, pages.MERGE_ROWS = pages.MERGE_ROWS, small
    try:
        merged = [row for run in merge_runs(runs) for row in rows_of(run)]
        sorted_once = [row for run in sort_all(runs, pa.int64()) for row in rows_of(run)]
    finally:
        pages.MERGE_ROWS = before
    everything = sorted((row for run in runs for row in rows_of(run)), key=sort_key)
    for found in (merged, sorted_once):
        assert [row[0] for row in found] == [row[0] for row in everything]
        assert sorted(row[1] for row in found) == list(range(start))


def test_nan_of_both_signs_stand_at_the_ends() -> None:
    negative = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]
    array = pa.array([math.nan, 0.0, -0.0, negative, math.inf, -math.inf])
    assert [int(i) for i in argsort(array)] == [3, 5, 2, 1, 4, 0]
