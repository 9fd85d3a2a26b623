"""Compiled sorts against Python's own, and against numpy where kernels are missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.index import sorting, value_order
from pennon.index.btree.boundaries import boundaries_from_sample
from pennon.index.btree.pages import Run, gather_run, sort_all, sort_or_merge, sort_run, take
from pennon.index.sorting import (
    MERGED_PARTS,
    WORTH_CALLING,
    Buckets,
    kernels,
    merged_rows,
    order_of_keys,
    order_of_strings,
)
from pennon.index.value_order import argsort, byte_layout, is_sorted
from pennon.index.word_keys import values_of, word_keys

ROWS = 40_000
WORDS = [b"carefully", b"careful", b"furiously", b"final", b"furious", b"deposits", b"the", b"accounts", b"above"]

Rng = np.random.Generator
KEYS: dict[str, Callable[[Rng], Any]] = {
    "random": lambda rng: rng.integers(0, 2**64, ROWS, dtype=np.uint64),
    "the highest bit alone": lambda rng: rng.integers(0, 2, ROWS, dtype=np.uint64) << np.uint64(63),
    "few": lambda rng: rng.integers(0, 7, ROWS).astype(np.uint64),
    "one": lambda rng: np.full(ROWS, 2**64 - 1, dtype=np.uint64),
    "sorted": lambda rng: np.sort(rng.integers(0, 2**64, ROWS, dtype=np.uint64)),
    "falling": lambda rng: np.arange(ROWS, 0, -1).astype(np.uint64),
    "clusters of low bits": lambda rng: (
        (rng.integers(0, 5, ROWS).astype(np.uint64) << np.uint64(60)) + rng.integers(0, 1 << 20, ROWS).astype(np.uint64)
    ),
    "skewed": lambda rng: rng.zipf(1.2, ROWS).clip(0, 2**62).astype(np.uint64),
}
STRINGS: dict[str, Callable[[Rng], list[bytes]]] = {
    "short, of few bytes": lambda rng: [bytes(rng.integers(0, 2, rng.integers(0, 4)).tolist()) for _ in range(ROWS)],
    "zeros": lambda rng: [b"\0" * int(length) for length in rng.integers(0, 30, ROWS)],
    "one prefix": lambda rng: [b"https://example.org/" + str(number).encode() for number in rng.integers(0, 999, ROWS)],
    "words": lambda rng: [b" ".join(rng.choice(WORDS, rng.integers(1, 7)).tolist()) for _ in range(ROWS)],
    "any bytes": lambda rng: [bytes(rng.integers(0, 256, 19).tolist()) for _ in range(ROWS)],
    "empty": lambda rng: [b""] * ROWS,
}


@pytest.fixture
def rng() -> Rng:
    return np.random.default_rng(7)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pennon.index.radix_kernels", None)
    monkeypatch.delattr("pennon.index.radix_kernels", raising=False)


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_sorted_and_equal_ones_keep_their_order(name: str, rng: Rng) -> None:
    keys = KEYS[name](rng)
    found = kernels(1 << 20)
    assert found is not None
    wanted = np.argsort(keys, kind="stable")
    order = order_of_keys(keys)
    assert order is not None
    assert np.array_equal(order, wanted)
    cut = 12_345
    ids = np.arange(len(keys), dtype=np.uint64)
    buckets = Buckets(found[0], [(keys[:cut], ids[:cut]), (keys[:0], ids[:0]), (keys[cut:], ids[cut:])])
    pieces = list(buckets.sorted_rows(1000))
    assert np.array_equal(np.concatenate([some for some, _ in pieces]), keys[wanted])
    assert np.array_equal(np.concatenate([some for _, some in pieces]), ids[wanted])


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("cuts", [(ROWS // 2,), (1, 2, 3), (0, 0, 9, ROWS - 1, ROWS), tuple(range(0, ROWS, 4999))])
def test_sorted_parts_are_merged_and_equal_keys_keep_their_order(name: str, cuts: tuple[int, ...], rng: Rng) -> None:
    keys, ids = KEYS[name](rng), np.arange(ROWS, dtype=np.uint64)
    kernels(1 << 20)
    edges = [0, *cuts, ROWS]
    orders = [np.argsort(keys[a:b], kind="stable") + a for a, b in pairwise(edges)]
    merged = merged_rows([(keys[order], ids[order]) for order in orders])
    assert merged is not None
    wanted = np.argsort(keys, kind="stable")
    assert np.array_equal(merged[0], keys[wanted])
    assert np.array_equal(merged[1], ids[wanted])


def test_many_parts_are_sorted_instead(rng: Rng) -> None:
    keys = np.sort(KEYS["random"](rng))
    assert merged_rows([(keys, keys)] * (MERGED_PARTS + 1)) is None


@pytest.mark.parametrize("name", STRINGS)
def test_strings_are_sorted_and_equal_ones_keep_their_order(name: str, rng: Rng) -> None:
    listed = STRINGS[name](rng)
    kernels(1 << 20)
    values = pa.array([b"before", *listed, b"after"], pa.large_binary()).slice(1, ROWS)
    order = order_of_strings(byte_layout(values))
    assert order is not None
    assert order.tolist() == sorted(range(ROWS), key=listed.__getitem__)
    assert is_sorted(values.take(pa.array(order)))
    assert is_sorted(values) == (listed == sorted(listed))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, True]),
        pa.array([-128, 0, 127], pa.int8()),
        pa.array([0, 2**64 - 1], pa.uint64()),
        pa.array([-(2**63), -1, 0, 2**63 - 1], pa.int64()),
        pa.array(np.array([0x7E01, 0xFE01, 0x8000, 0, 0x7C00], np.uint16).view(np.float16)),
        pa.array([-0.0, 0.0, float("inf"), -1.5, 2.5], pa.float32()),
        pa.array(np.array([0xFFF8_0000_0000_0001, 0x7FF8_0000_0000_0002, 1 << 63], np.uint64).view(np.float64)),
        pa.array([-1, 0, 20_000], pa.date32()),
        pa.array([-1, 0, 1 << 60], pa.timestamp("ns", "UTC")),
        pa.array([Decimal("-0.01"), Decimal("9999999999999999.99")], pa.decimal128(18, 2)),
        pa.array([Decimal(-(10**17)), Decimal(10**17)], pa.decimal256(18)),
    ],
    ids=lambda values: str(values.type),
)
def test_values_come_back_from_their_keys_to_the_bit(values: pa.Array) -> None:
    keys = word_keys(values)
    assert keys is not None
    found = values_of(keys, values.type)
    assert found.type == values.type
    assert found.buffers()[1].to_pybytes()[: found.nbytes] == values.buffers()[1].to_pybytes()[: values.nbytes]


def rows_of(runs: list[Run]) -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    for run in runs:
        found += [(None, int(i)) for i in run.null_ids]
        found += zip(run.values.to_pylist(), run.ids.tolist(), strict=True)
    return found


def columns(rng: Rng) -> list[pa.Array]:
    numbers, nulls = rng.integers(0, 3000, ROWS), rng.random(ROWS) < 0.1
    return [
        pa.array(numbers, mask=nulls),
        pa.array(numbers / 7 - 100, mask=nulls),
        pa.array([Decimal(int(n)) for n in numbers], pa.decimal128(15, 2)),
        pa.array([f"some text {n}" for n in numbers], mask=nulls),
        pa.array([Decimal(int(n) << 70) for n in numbers], pa.decimal128(38)),
    ]


@pytest.mark.parametrize("column", range(5))
def test_kernels_and_numpy_cut_and_sort_alike(column: int, rng: Rng, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels(1 << 20)
    array, ids = columns(rng)[column], np.arange(ROWS, dtype=np.uint64)
    boundaries = boundaries_from_sample(array.take(pa.array(rng.integers(0, ROWS, 1000))), 6)
    chunks = [(array[:9000], ids[:9000]), (array[9000:], ids[9000:])]
    found: list[list[Any]] = []
    for available in (True, False):
        if not available:
            monkeypatch.setattr(sorting, "WORTH_CALLING", 1 << 60)
            assert kernels(1 << 30) is None
        pieces = boundaries.scatter(gather_run(chunks, array.type))
        everything = [piece for _, piece in pieces]
        found.append(
            [
                [(number, rows_of([piece])) for number, piece in pieces],
                rows_of([sort_run(chunks, array.type)]),
                rows_of(list(sort_all(everything, array.type))),
                rows_of(list(sort_or_merge([sort_run([chunk], array.type) for chunk in chunks], array.type))),
                argsort(array.drop_null()).tolist(),
            ]
        )
    assert found[0] == found[1]
    rows = zip(array.to_pylist(), range(ROWS), strict=True)
    assert found[0][1] == sorted(rows, key=lambda row: (row[0] is not None, row[0] or 0))


def test_numpy_sorts_where_numba_does_not_load(without_kernels: None, rng: Rng) -> None:
    assert kernels(1 << 30) is None
    keys = KEYS["random"](rng)
    assert order_of_keys(keys) is None
    assert np.array_equal(value_order.argsort_keys(keys), np.argsort(keys, kind="stable"))


def test_a_small_sort_does_not_load_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert kernels(sorting.WORTH_LOADING - 1) is None


@pytest.mark.parametrize("type_", [pa.large_string(), pa.large_binary()])
@pytest.mark.parametrize("longest", [0, 3, 8, 40, 700])
def test_strings_are_taken_as_arrow_takes_them(type_: pa.DataType, longest: int) -> None:
    """The last strings of the data, where no whole word can be read, included; and those of a slice."""
    rng = np.random.default_rng(longest)
    count = WORTH_CALLING + 100
    texts = [bytes(rng.integers(97, 123, rng.integers(0, longest + 1), dtype=np.uint8)) for _ in range(count)]
    values = pa.array(texts, pa.large_binary()).cast(type_)
    assert sorting.kernels(1 << 20) is not None
    for given in (values, values.slice(7, count - 20)):
        for order in (rng.permutation(len(given)), np.arange(len(given))[::-1], rng.integers(0, len(given), 9000)):
            taken = take(given, order)
            taken.validate(full=True)
            assert taken.equals(given.take(pa.array(order)))
