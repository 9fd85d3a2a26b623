"""Keys of a lookup: values in the type of a table's column, and the condition that finds them.

Keys compare by value, as in SQL: NULL equals nothing. Floats compare as in Spark's joins, where NaN equals NaN and -0.0
equals 0.0; with `float_bits` they compare by their bits, as in pylance's `merge_insert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.schema import Column, stored_values
from pennon.index.conditions import ColumnRanges
from pennon.index.key_spans import Key, PointSpans, Spans, float_key, order_of, union
from pennon.index.value_order import argsort, exchange_type, fixed_keys

_NUMBERS, _ZONED = "whole numbers", "timestamps with a zone"
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True)
class KeyColumn:
    """A column of the table that keys are compared with."""

    column: Column
    float_bits: bool = False

    def __post_init__(self) -> None:
        if _family(self.column.type) is None:
            raise UnsupportedColumn(
                f"column {self.column.path!r} has type {self.column.type}, and rows are not looked up by such values",
                "Use a column of numbers, text, binary values, dates or timestamps",
            )

    def check(self, type_: pa.DataType, name: str) -> None:
        """Raises InvalidArgument unless keys of a type can be compared with the column."""
        own, given = _family(self.column.type), _family(type_)
        whole = own == _NUMBERS and pa.types.is_decimal(type_) and type_.scale == 0
        if given != own and not whole:
            raise InvalidArgument(
                f"the keys in {name!r} have type {type_}, and column {self.column.path!r} has type {self.column.type}",
                "Cast the keys to the type of the column",
            )

    def read(self, keys: pa.Array) -> pa.Array:
        """Keys in the type of the column; NULL for those that equal no value of that type."""
        return converted(stored_values(keys), self.column.type)

    def canonical(self, values: pa.Array) -> pa.Array:
        """Values of the column, equal ones with equal bits."""
        values = stored_values(values)
        if self.float_bits or not pa.types.is_floating(values.type):
            return values
        numbers = values.to_numpy(zero_copy_only=False)
        numbers = numbers + numbers.dtype.type(0)  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return pa.array(numbers, values.type, mask=~values.is_valid().to_numpy(zero_copy_only=False))

    def comparable(self, values: pa.Array) -> pa.Array:
        """Values of the column in a form in which Arrow finds equal ones."""
        values = self.canonical(values)
        if not pa.types.is_floating(values.type):
            return values.cast(exchange_type(values.type))
        words = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width]
        return values.view(words)

    def condition(self, keys: pa.Array) -> ColumnRanges:
        """Selects the rows with one of the keys, given in the column's type; NULLs are left out."""
        type_, values = self.column.type, keys.drop_null()
        if pa.types.is_floating(type_) and not self.float_bits:
            numbers = values.to_numpy(zero_copy_only=False)
            if (np.isnan(numbers) | (numbers == 0)).any():
                return ColumnRanges(self.column.path, type_, _float_spans(values))
        return ColumnRanges(self.column.path, type_, PointSpans(_ascending(values)))


def converted(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values of a comparable type in another; NULL for those that it does not have."""
    if values.type == type_:
        return values
    if pa.types.is_integer(type_) and pa.types.is_integer(values.type):
        own, other = _limits(values.type), _limits(type_)
        low, high = max(own[0], other[0]), min(own[1], other[1])
        fits = pc.and_(pc.greater_equal(values, pa.scalar(low, values.type)), pc.less_equal(values, high))
        return _kept(values, fits).cast(type_)
    if pa.types.is_floating(type_):
        narrow = values.cast(type_)
        numbers, again = (each.cast(pa.float64()).to_numpy(zero_copy_only=False) for each in (values, narrow))
        return _kept(narrow, pa.array(np.isnan(numbers) | (numbers == again)))
    if pa.types.is_decimal(type_):
        # Only the largest numbers of 64 bits have 20 digits.
        exact = values.cast(pa.decimal128(20, 0)) if pa.types.is_integer(values.type) else values
        narrow = exact.cast(type_, safe=False)
        largest = pa.scalar(Decimal((0, (9,) * type_.precision, -type_.scale)), type_)
        same = pc.equal(narrow.cast(exact.type, safe=False), exact)
        return _kept(narrow, pc.fill_null(pc.and_(same, pc.less_equal(pc.abs(narrow), largest)), True))
    if pa.types.is_fixed_size_binary(type_) and not pa.types.is_fixed_size_binary(values.type):
        fits = pc.equal(pc.binary_length(values), type_.byte_width)
        return _kept(values, fits).cast(type_)
    if pa.types.is_timestamp(type_):
        step = _PER_SECOND[values.type.unit] // _PER_SECOND[type_.unit]
        if step > 1:
            ticks = pc.fill_null(values.view(pa.int64()), 0).to_numpy()
            values = _kept(values, pa.array(ticks % step == 0))
    return _cast_each(values, type_)


def _family(type_: pa.DataType) -> str | None:
    """Types whose values can be compared have the same family."""
    if isinstance(type_, pa.UuidType):
        type_ = type_.storage_type
    if pa.types.is_integer(type_):
        return _NUMBERS
    if pa.types.is_timestamp(type_):
        return "timestamps" if type_.tz is None else _ZONED
    family = order_of(type_).family
    return None if family == "other" else family


def _limits(type_: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(type_.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _kept(values: pa.Array, fits: pa.Array) -> pa.Array:
    return values if pc.all(fits).as_py() else pc.if_else(fits, values, pa.scalar(None, values.type))


def _cast_each(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Halves an array that cannot be cast until the values that have no equal are found."""
    try:
        return values.cast(type_)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, type_)
    middle = len(values) // 2
    return pa.concat_arrays([_cast_each(values[:middle], type_), _cast_each(values[middle:], type_)])


def _ascending(values: pa.Array) -> pa.Array:
    """Each value once, in the order of indices."""
    keys = fixed_keys(values)
    if keys is not None:
        _, firsts = np.unique(keys, return_index=True)
        return values.take(pa.array(firsts))
    distinct = pc.unique(values.cast(exchange_type(values.type)))
    return distinct.take(pa.array(argsort(distinct))).cast(values.type)


def _float_spans(values: pa.Array) -> Spans:
    order = order_of(values.type)
    distinct = _ascending(values).to_numpy(zero_copy_only=False)
    numbers = distinct[~np.isnan(distinct)]
    # Both zeros are neighbors in the order; NaNs are all that is beyond infinity, on both sides.
    keys: set[Key] = {float_key(number, values.type) for number in numbers.tolist() if number != 0}
    spans = [order.between(key, key) for key in keys]
    if (numbers == 0).any():
        spans.append(order.between(float_key(-0.0, values.type), float_key(0.0, values.type)))
    if len(numbers) < len(distinct):
        spans.append((order.first, order.below(float_key(-np.inf, values.type))))
        spans.append((order.above(float_key(np.inf, values.type)), order.last))
    return union(spans)
