"""Sets of values of one column, as spans between cuts of the column's order.

A cut is a place between values, never a value, so `<` and `<=` need no special cases: every set is a sorted list of
disjoint half-open spans, and union and complement are the only operations. Cuts compare as plain tuples:

    (0,)           before every value            FIRST
    (1, key, 0)    just below the value `key`
    (1, key, 1)    just above the value `key`
    (2,)           after every value             LAST

The key of a value compares as the B-tree sorts it: integers for numbers, bytes for text and binary, and for floats the
bits of IEEE-754 total order. Where keys are dense integers, `above(5)` is `below(6)`, so neighboring points merge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import takewhile
from typing import Any, overload

import numpy as np
import pyarrow as pa

from pennon.index.arrays import array_of, numbers_of

Key = int | bytes
Cut = tuple[Any, ...]
Span = tuple[Cut, Cut]

FIRST: Cut = (0,)
LAST: Cut = (2,)

_FLOATS: dict[str, tuple[str, str, int]] = {
    "halffloat": ("<e", "<h", 0x7FFF),
    "float": ("<f", "<i", 0x7FFFFFFF),
    "double": ("<d", "<q", 0x7FFFFFFFFFFFFFFF),
}


class PointSpans(Sequence[Span]):
    """The spans of single values, which are given as an array of exactly the column's type: ascending in its order,
    each once, without NULLs.

    Searches use the array. Spans are made only where they are asked for, since there may be a million values.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...

    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        if isinstance(index, slice):
            order = order_of(self.values.type)
            return tuple(order.between(key, key) for key in _keys_of(self.values[index], order.family))
        return self[index : index + 1 or None][0]


Spans = tuple[Span, ...] | PointSpans


@dataclass(frozen=True)
class Order:
    """The order of the values of one Arrow type, and the conversion of their keys to Arrow scalars."""

    type: pa.DataType
    family: str
    first: Cut = FIRST
    last: Cut = LAST

    @property
    def dense(self) -> bool:
        """Keys are integers of a known range and every one of them is a value."""
        return self.first != FIRST

    @property
    def everything(self) -> Spans:
        """All values; NULL is not a value."""
        return ((self.first, self.last),)

    def below(self, key: Key) -> Cut:
        return (1, key, 0)

    def above(self, key: Key) -> Cut:
        return (1, key + 1, 0) if self.dense and isinstance(key, int) else (1, key, 1)

    def between(self, low: Key, high: Key) -> Span:
        """The values from `low` to `high`, both included."""
        return (self.below(low), self.above(high))

    def complement(self, spans: Spans) -> Spans:
        """Every value that is in none of the spans, which must be sorted and disjoint."""
        edges = [self.first, *(cut for span in spans for cut in span), self.last]
        return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)

    def low(self, span: Span) -> tuple[Key, bool] | None:
        """The lowest value of the span and whether it belongs to it; None if it is unbounded below."""
        cut = span[0]
        return None if cut == self.first else (cut[1], cut[2] == 0)

    def high(self, span: Span) -> tuple[Key, bool] | None:
        """The highest value of the span and whether it belongs to it; None if it is unbounded above."""
        cut = span[1]
        if cut == self.last:
            return None
        if self.dense:
            return (cut[1] - 1, True)
        return (cut[1], cut[2] == 1)

    def scalars(self, keys: Sequence[Key]) -> list[pa.Scalar]:
        """The values of the keys."""
        values = self._values(keys)
        return list(array_of(values, self.type) if isinstance(values, np.ndarray) else pa.array(values, self.type))

    def _values(self, keys: Sequence[Key]) -> Sequence[object] | np.ndarray:
        if self.family == "bool":
            return [key != 0 for key in keys]
        if self.family == "string":
            return [key.decode() for key in keys if isinstance(key, bytes)]
        if self.family == "float":
            signed = np.array(keys, dtype=f"<i{self.type.bit_width // 8}")
            bits = np.where(signed < 0, signed ^ np.iinfo(signed.dtype).max, signed)
            return bits.view(f"<f{self.type.bit_width // 8}")
        if self.family == "decimal":
            return [Decimal((key < 0, _digits(key), -self.type.scale)) for key in keys if isinstance(key, int)]
        if self.family in ("binary", "other"):
            return keys
        sign = "u" if pa.types.is_unsigned_integer(self.type) else "i"
        return np.array(keys, dtype=f"<{sign}{self.type.bit_width // 8}")


@lru_cache(maxsize=256)
def order_of(type_: pa.DataType) -> Order:
    """The order of a column type; for types that no literal can be compared with, one that only supports
    `everything`."""
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        low = 0 if pa.types.is_unsigned_integer(type_) else -(1 << (bits - 1))
        return Order(type_, "int", (1, low, 0), (1, low + (1 << bits), 0))
    if pa.types.is_boolean(type_):
        return Order(type_, "bool", (1, 0, 0), (1, 2, 0))
    if pa.types.is_date32(type_):
        return Order(type_, "date", (1, -(1 << 31), 0), (1, 1 << 31, 0))
    for family, belongs in _FAMILIES.items():
        if belongs(type_):
            return Order(type_, family)
    return Order(type_, "other")


_FAMILIES = {
    "float": pa.types.is_floating,
    "decimal": lambda type_: pa.types.is_decimal128(type_) or pa.types.is_decimal256(type_),
    "date": pa.types.is_date64,
    "timestamp": pa.types.is_timestamp,
    "string": lambda type_: str(type_) in ("string", "large_string", "string_view"),
    "binary": lambda type_: str(type_) in ("binary", "large_binary") or pa.types.is_fixed_size_binary(type_),
}


def union(spans: Iterable[Span]) -> Spans:
    """The values that are in any of the spans, which may come in any order and overlap."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        elif low < high:
            merged.append((low, high))
    return tuple(merged)


def beyond(prefix: str) -> str:
    """The least text above everything that starts with the prefix; empty if there is none."""
    stem = prefix.rstrip(chr(0x10FFFF))
    if not stem:
        return ""
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if last == 0xD800 else last)


def common_prefix(order: Order, span: Span) -> str:
    """The text that all texts of a span start with."""
    low, high = order.low(span), order.high(span)
    if low is None or high is None or not isinstance(low[0], bytes) or not isinstance(high[0], bytes):
        return ""
    first, last = low[0].decode(), high[0].decode()
    if first == last:
        return first
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(character for character, _ in same)
    longer = first[: len(shared) + 1]
    return longer if not high[1] and beyond(longer) == last else shared


def float_key(value: float, type_: pa.DataType) -> int:
    """The position of a float in IEEE-754 total order: by the sign bit, -NaN is the smallest and -0.0 less than 0.0."""
    as_float, as_int, magnitude = _FLOATS[str(type_)]
    bits: int = struct.unpack(as_int, struct.pack(as_float, value))[0]
    return bits ^ magnitude if bits < 0 else bits


def _keys_of(values: pa.Array, family: str) -> Iterable[Key]:
    if family == "bool":
        return values.cast(pa.uint8()).to_pylist()
    if family in ("string", "binary"):
        return values.cast(pa.large_binary()).to_pylist()
    if family == "float":
        bits = values.to_numpy(zero_copy_only=False).view(f"<i{values.type.bit_width // 8}")
        return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).tolist()
    if family == "decimal":
        width = values.type.bit_width // 8
        data = values.buffers()[1].to_pybytes()[values.offset * width : (values.offset + len(values)) * width]
        return [int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)]
    if family == "int":
        return numbers_of(values).tolist()
    return numbers_of(values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())).tolist()


def _digits(key: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(key))))
