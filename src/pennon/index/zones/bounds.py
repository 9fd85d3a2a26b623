"""The minimum and maximum of zones, in the order of values (`value_order`).

For floats that is IEEE 754 total order, in which NaNs are above all numbers, or below them if they have a sign. pylance
excludes NaNs from its minimum, and then misses rows of zones with only NaNs and NaNs with a sign; with these bounds it
finds them. If the minimum is a NaN with a sign, pylance does not find zeros, so -infinity replaces it in zones that
have numbers: then pylance misses only values below -infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.value_order import exchange_type, fixed_keys, is_orderable
from pennon.index.zones.cutting import Mask, Positions

Keys = npt.NDArray[Any]
Counts = npt.NDArray[np.uint32]


def has_bounds(type_: pa.DataType) -> bool:
    """Whether zones of such a column have bounds; others record only their NULLs, as in pylance's files."""
    return is_orderable(type_) and not pa.types.is_fixed_size_binary(type_)


def bounds_of(values: pa.Array, edges: Positions) -> tuple[pa.Array, pa.Array]:
    """Minimum and maximum of the values from each edge to the next; NULL if there are none."""
    type_ = values.type
    if not has_bounds(type_):
        nothing = pa.nulls(len(edges), type_)
        return nothing, nothing
    if not len(edges):
        return values.slice(0, 0), values.slice(0, 0)
    if pa.types.is_decimal(type_) or fixed_keys(values.slice(0, 0)) is None:
        return _compared(values, edges)
    if values.null_count:
        present = pc.is_valid(values).to_numpy(zero_copy_only=False)
        counts = np.add.reduceat(present, edges, dtype=np.int64)
    else:
        counts = np.diff(edges, append=len(values))
    filled = counts > 0
    keys = fixed_keys(values.drop_null() if values.null_count else values)
    assert keys is not None
    if not len(keys):
        return pa.nulls(len(edges), type_), pa.nulls(len(edges), type_)
    starts = (np.cumsum(counts) - counts)[filled]
    least, most = np.zeros((2, len(edges)), dtype=keys.dtype)
    least[filled], most[filled] = np.minimum.reduceat(keys, starts), np.maximum.reduceat(keys, starts)
    return _values_of(least, ~filled, type_), _values_of(most, ~filled, type_)


def numbers_found(mins: pa.Array, maxs: pa.Array) -> pa.Array:
    """The minima, with -infinity instead of NaNs with a sign in zones that also have other values."""
    if not pa.types.is_floating(mins.type):
        return mins
    missing = pc.is_null(mins).to_numpy(zero_copy_only=False)
    low, high = _numbers(mins), _numbers(maxs)
    replaced = _is_signed_nan(low) & ~_is_signed_nan(high)
    return pa.array(np.where(replaced, low.dtype.type(-np.inf), low), mins.type, mask=missing)


def null_counts(values: pa.Array, edges: Positions) -> Counts:
    if not values.null_count:
        return np.zeros(len(edges), dtype=np.uint32)
    return np.add.reduceat(pc.is_null(values).to_numpy(zero_copy_only=False), edges, dtype=np.uint32)


def nan_counts(values: pa.Array, edges: Positions) -> Counts:
    if not pa.types.is_floating(values.type):
        return np.zeros(len(edges), dtype=np.uint32)
    present = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return np.add.reduceat(np.isnan(_numbers(values)) & present, edges, dtype=np.uint32)


def _numbers(values: pa.Array) -> npt.NDArray[np.floating]:
    """The floats, arbitrary for NULLs."""
    width = values.type.bit_width // 8
    content = values.buffers()[1]
    if content is None:
        return np.zeros(len(values), dtype=f"<f{width}")
    return np.frombuffer(content, dtype=f"<f{width}")[values.offset : values.offset + len(values)]


def _is_signed_nan(numbers: npt.NDArray[np.floating]) -> Mask:
    return np.isnan(numbers) & np.signbit(numbers)


def _compared(values: pa.Array, edges: Positions) -> tuple[pa.Array, pa.Array]:
    """Bounds of text, binary and decimals, by Arrow, zone by zone."""
    wide = values.cast(exchange_type(values.type))
    least: list[pa.Scalar] = []
    most: list[pa.Scalar] = []
    for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(wide)], strict=True):
        found = pc.min_max(wide.slice(start, stop - start))
        least.append(found["min"])
        most.append(found["max"])
    return pa.array(least, wide.type).cast(values.type), pa.array(most, wide.type).cast(values.type)


def _values_of(keys: Keys, missing: Mask, type_: pa.DataType) -> pa.Array:
    """The values that have these `fixed_keys`."""
    if pa.types.is_boolean(type_):
        return pa.array(keys.astype(np.bool_), mask=missing)
    if pa.types.is_floating(type_):
        sign = keys.dtype.type(1 << (8 * keys.dtype.itemsize - 1))
        bits = np.where(keys & sign, keys ^ sign, ~keys)
        return pa.array(bits.view(f"<f{keys.dtype.itemsize}"), type_, mask=missing)
    if pa.types.is_integer(type_):
        return pa.array(keys, type_, mask=missing)
    return pa.array(keys, mask=missing).view(type_)
