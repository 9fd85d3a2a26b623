"""Values of fixed width as unsigned words in the order of the values, and back: nothing else has to be sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.index.arrays import UInt64s
from pennon.index.value_order import fixed_keys

_SIGN = np.uint64(1 << 63)


def word_keys(values: pa.Array) -> UInt64s | None:
    """A word for each value; None for types of other widths. NULLs must have been separated."""
    if not _is_invertible(values.type):
        return None
    keys = fixed_keys(values)
    if keys is None:
        return None
    if keys.dtype.kind == "u":
        return keys.astype(np.uint64, copy=False)
    return keys.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN


def values_of(keys: UInt64s, type_: pa.DataType) -> pa.Array:
    """The values of words, to the bit."""
    if pa.types.is_boolean(type_):
        return pa.array(keys.astype(np.bool_))
    return pa.Array.from_buffers(type_, len(keys), [None, pa.py_buffer(_content(keys, type_))], null_count=0)


def _content(keys: UInt64s, type_: pa.DataType) -> npt.NDArray[Any]:
    width = type_.bit_width // 8
    if pa.types.is_floating(type_):
        unsigned = np.dtype(f"<u{width}")
        words, sign = keys.astype(unsigned, copy=False), unsigned.type(1 << (8 * width - 1))
        return np.where(words & sign, words ^ sign, ~words)
    if pa.types.is_unsigned_integer(type_):
        return keys.astype(f"<u{width}", copy=False)
    signed = (keys ^ _SIGN).view(np.int64)
    if not pa.types.is_decimal(type_):
        return signed.astype(f"<i{width}", copy=False)
    words = np.empty((len(keys), width // 8), dtype=np.int64)
    words[:, 0], words[:, 1:] = signed, (signed >> 63)[:, None]
    return words


def _is_invertible(type_: pa.DataType) -> bool:
    return not pa.types.is_decimal(type_) or type_.bit_width % 64 == 0
