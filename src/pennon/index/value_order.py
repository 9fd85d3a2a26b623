"""The order of values in indices: numbers ascending, floats in IEEE 754 total order, strings and binaries by bytes.

NULLs come before all values. Callers handle them separately: arrays here contain none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.arrays import Bytes, Int64s, numbers_of
from pennon.index.sorting import Strings, kernels, order_of_keys, order_of_strings

Side = Literal["left", "right"]
Indices = npt.NDArray[np.intp]

_WORD = 8
# The largest number of rows out of order that is repaired by swapping pairs, and the number of attempts.
_FEW = 1000
_SWAP_PASSES = 3
# Rows that are looked at first.
_FIRST = 1 << 12
# All values are converted to Python's if at least one in this many is searched for.
_LISTED_SHARE = 64


def is_orderable(type_: pa.DataType) -> bool:
    """Whether a B-tree can index values of this type."""
    return _is_fixed(type_) or _is_bytes(type_) or pa.types.is_decimal(type_)


def exchange_type(type_: pa.DataType) -> pa.DataType:
    """The type in which values are sorted and exchanged. 64-bit offsets, since many runs are concatenated; views are
    expanded."""
    if type_ in (pa.string(), pa.string_view()):
        return pa.large_string()
    return pa.large_binary() if type_ in (pa.binary(), pa.binary_view()) else type_


def is_offset_type(type_: pa.DataType) -> bool:
    """Whether values are bytes with 64-bit offsets."""
    return pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)


def has_keys(type_: pa.DataType) -> bool:
    """Whether values of this type have the order of single machine words, which makes comparing and sorting cheap."""
    return fixed_keys(pa.array([], type_)) is not None


def fixed_keys(values: pa.Array) -> npt.NDArray[Any] | None:
    """Integers in the order of the values, if a machine word suffices; None for strings and wide decimals."""
    type_ = values.type
    if pa.types.is_boolean(type_):
        return numbers_of(values.cast(pa.uint8()))
    if pa.types.is_floating(type_):
        return _total_order(numbers_of(values))
    if pa.types.is_integer(type_):
        return numbers_of(values)
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return numbers_of(values.view(pa.int32() if type_.bit_width == 32 else pa.int64()))
    if pa.types.is_decimal(type_):
        # Up to 18 digits fit one word. The precision decides, not the values, so that keys of two arrays compare.
        return np.ascontiguousarray(_words(values)[:, 0]).view(np.int64) if type_.precision <= 18 else None
    return None


def argsort(values: pa.Array) -> Indices:
    """A permutation that sorts the values."""
    order = order_of(values)
    return np.arange(len(values)) if order is None else order


def order_of(values: pa.Array) -> Indices | None:
    """A permutation that sorts the values; None if they are already sorted."""
    if is_sorted(values):
        return None
    keys = fixed_keys(values)
    if keys is not None:
        return _argsort_unsorted(keys)
    strings = byte_layout(values)
    order = order_of_strings(strings)
    return _argsort_bytes(*strings) if order is None else order


def places(values: pa.Array, pivots: pa.Array, side: Side = "left") -> list[int]:
    """The number of ascending values before each of the pivots; with side 'right' also those equal to it."""
    keys, wanted = fixed_keys(values), fixed_keys(pivots)
    if keys is not None and wanted is not None:
        return keys.searchsorted(wanted, side).tolist()
    ascending = SortedValues(values)
    return [ascending.position(pivot, side) for pivot in pivots]


def is_sorted(values: pa.Array) -> bool:
    keys = fixed_keys(values)
    if keys is not None:
        start = keys[:_FIRST]  # of most arrays that are not sorted, these are not either
        return bool(np.all(start[1:] >= start[:-1])) and bool(np.all(keys[1:] >= keys[:-1]))
    if len(values) < 2:
        return True
    comparable = values.cast(exchange_type(values.type))
    found = kernels(len(values)) if is_offset_type(comparable.type) else None
    if found is not None:
        return found[1].is_ascending(*byte_layout(comparable))
    return bool(pc.all(pc.less_equal(comparable[:-1], comparable[1:])).as_py())


class SortedValues:
    """Ascending values for searching, held as keys if the type has keys. Copies, to keep no other memory alive."""

    def __init__(self, values: pa.Array) -> None:
        keys = fixed_keys(values)
        self.keys = None if keys is None else keys.copy()
        self._values: Any = None if keys is not None else _compacted(values)
        self._length = len(values)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes if self.keys is not None else self._values.nbytes

    def positions(self, wanted: SearchKeys, first: int, last: int) -> npt.NDArray[np.int64]:
        """The number of values before each of the wanted ones [first, last), or before its successor."""
        right = wanted.right[first:last]
        if self.keys is not None and wanted.keys is not None:
            keys = wanted.keys[first:last]
            if len(keys) == 1 or right.all() or not right.any():
                return self.keys.searchsorted(keys, "right" if len(keys) and right[0] else "left")
            return np.where(right, self.keys.searchsorted(keys, "right"), self.keys.searchsorted(keys, "left"))
        values, count = self._values, len(self)
        if len(right) * _LISTED_SHARE > count:
            # For many values it is faster to convert all values here once than some for each of those.
            listed = values.to_pylist()
            pairs = zip(wanted.values[first:last], right.tolist(), strict=True)
            sought = ((bisect_right if after else bisect_left)(listed, value) for value, after in pairs)
            return np.fromiter(sought, np.int64, len(right))
        found = [
            (bisect_right if after else bisect_left)(range(count), value, key=lambda i: values[i].as_py())
            for value, after in zip(wanted.values[first:last], right, strict=True)
        ]
        return np.array(found, dtype=np.int64)

    def position(self, value: pa.Scalar, side: Side) -> int:
        """The number of values before `value`; with side 'right' also those equal to it."""
        if self.keys is not None:
            # repeat keeps the bits of the scalar: a NaN's sign, nanoseconds.
            key = fixed_keys(pa.repeat(value, 1))
            assert key is not None
            return int(np.searchsorted(self.keys, key[0], side))
        find = bisect_left if side == "left" else bisect_right
        values = self._values
        return find(range(len(self)), value.as_py(), key=lambda i: values[i].as_py())


FEW_KEYS = 8


class SearchKeys:
    """Ascending values to search for, and for each whether to find the position after the values equal to it."""

    def __init__(self, values: Sequence[pa.Scalar], right: Sequence[bool], value_type: pa.DataType) -> None:
        # An array of scalars keeps their bits: a NaN's sign, nanoseconds. For few it is made without `pa.array`, whose
        # first call imports pandas.
        if not values:
            array = pa.nulls(0, value_type)
        elif len(values) <= FEW_KEYS:
            array = pa.concat_arrays([pa.repeat(value, 1) for value in values])
        else:
            array = pa.array(values, value_type)
        self.keys = fixed_keys(array)
        self.values: list[Any] = [] if self.keys is not None else [value.as_py() for value in values]
        self.right = np.array(right, dtype=np.bool_)

    @classmethod
    def of_array(cls, values: pa.Array, *, right: bool) -> SearchKeys:
        """The same for an array, all with the same side."""
        found = cls((), (), values.type)
        found.keys = fixed_keys(values)
        found.values = [] if found.keys is not None else values.to_pylist()
        found.right = np.full(len(values), right)
        return found


def same_value(left: pa.Scalar, right: pa.Scalar) -> bool:
    """Whether two values are equal to the bit, NaN and -0.0 included."""
    if pa.types.is_floating(left.type):
        left_key, right_key = fixed_keys(pa.repeat(left, 1)), fixed_keys(pa.repeat(right, 1))
        return left_key is not None and right_key is not None and left_key[0] == right_key[0]
    return left.equals(right)


def same_values(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays of one type, without NULLs, are equal to the bit."""
    left_keys, right_keys = fixed_keys(left), fixed_keys(right)
    if left_keys is None or right_keys is None:
        return left.equals(right)
    return np.array_equal(left_keys, right_keys)


def argsort_keys(keys: npt.NDArray[Any]) -> Indices:
    """Sort integers by packing each with its position into one word: numpy sorts plain words several times faster
    than it sorts indirectly."""
    if len(keys) < 2 or bool(np.all(keys[1:] >= keys[:-1])):
        return np.arange(len(keys))
    return _argsort_unsorted(keys)


def _argsort_unsorted(keys: npt.NDArray[Any]) -> Indices:
    n, low = len(keys), keys.min()
    # Differences are taken modulo 2**64, so that the full range of int64 fits.
    words = keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)
    words = words - np.uint64(int(low) % 2**64)
    order = order_of_keys(words)
    if order is not None:
        return order
    excess = max(0, int(words.max()).bit_length() + _position_bits(n) - 64)
    if not excess:
        return _sort_packed(words)
    sample = np.sort(words[:: max(1, n // 1024)] >> np.uint64(excess))
    if np.count_nonzero(sample[1:] == sample[:-1]) > len(sample) // 50:
        return _sort_halves(words)
    return _repair(keys, words, _sort_packed(words >> np.uint64(excess)))


def _repair(keys: npt.NDArray[Any], words: npt.NDArray[np.uint64], order: Indices) -> Indices:
    """Sort out rows whose keys differ only in the low bits that did not fit the packed word."""
    ordered = np.take(keys, order)
    wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
    # Random keys have a few such pairs, which swapping fixes.
    for _ in range(_SWAP_PASSES if len(wrong) <= _FEW else 0):
        swapped = wrong[np.diff(wrong, prepend=-2) > 1]
        order[swapped], order[swapped + 1] = order[swapped + 1], order[swapped]
        ordered[swapped], ordered[swapped + 1] = ordered[swapped + 1], ordered[swapped]
        wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
        if len(wrong) == 0:
            break
    if len(wrong) == 0:
        return order
    return _sort_halves(words)


def _sort_halves(words: npt.NDArray[np.uint64]) -> Indices:
    """For rows that share their high bits, as text does: sort by the low half, then by the high one."""
    order = _sort_packed(words & np.uint64(0xFFFF_FFFF))
    return np.take(order, _sort_packed(np.take(words, order) >> np.uint64(32)))


def _sort_packed(words: npt.NDArray[np.uint64]) -> Indices:
    """A stable permutation that sorts words with enough free low bits for a position."""
    bits = _position_bits(len(words))
    packed = words << np.uint64(bits)
    packed |= np.arange(len(words), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def _position_bits(count: int) -> int:
    return max(1, (count - 1).bit_length())


def _argsort_bytes(data: Bytes, offsets: Int64s) -> Indices:
    """Sort byte strings eight bytes at a time; only the next eight of tied rows are compared."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    order = np.arange(len(starts))
    if len(starts) < 2:
        return order
    # Eight bytes of padding, so that full words can be loaded up to the end.
    padded = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words = np.ndarray(len(data) + 1, dtype=">u8", buffer=padded, strides=(1,))
    longest = int(lengths.max())
    tied = np.arange(len(starts))  # positions in `order` that share everything so far with a neighbor
    group = np.zeros(len(starts), dtype=np.uint64)  # which tie each of them belongs to
    for depth in range(0, longest + _WORD, _WORD):
        rows = np.take(order, tied)
        left = np.take(lengths, rows) - depth
        # Past the longest, strings are equal up to zero padding and the shorter comes first.
        key = _word_at(words, np.take(starts, rows) + depth, left) if depth < longest else left.astype(np.uint64)
        inner = argsort_keys(key)
        if group[0] != group[-1]:
            inner = np.take(inner, _sort_packed(np.take(group, inner)))
        order[tied] = np.take(rows, inner)
        key, group = np.take(key, inner), np.take(group, inner)
        same = (key[1:] == key[:-1]) & (group[1:] == group[:-1])
        still = np.concatenate([same, [False]])
        still[1:] |= same
        if not still.any():
            break
        group = np.cumsum(np.concatenate([[True], ~same]), dtype=np.uint64)[still]
        tied = tied[still]
    return order


def _word_at(words: npt.NDArray[Any], at: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The next eight bytes of each string as a big-endian number, zero-padded past the `left` bytes it still has."""
    if int(left.min()) >= _WORD:
        return words[at].astype(np.uint64)
    loaded = words[np.where(left > 0, at, 0)].astype(np.uint64)
    # A shift by 64 is undefined; rows without a byte left become zero.
    drop = (np.clip(_WORD - left, 0, _WORD - 1) * 8).astype(np.uint64)
    return np.where(left > 0, (loaded >> drop) << drop, np.uint64(0))


def byte_layout(values: pa.Array) -> Strings:
    """The bytes and offsets of strings, binaries and wide decimals."""
    type_ = values.type
    if pa.types.is_decimal(type_):
        # Big-endian with the sign bit flipped orders two's complement numbers by bytes.
        flipped = _words(values)[:, ::-1].byteswap()
        raw = flipped.copy().view(np.uint8).reshape(len(values), -1)
        raw[:, 0] ^= 0x80
        return raw.reshape(-1), np.arange(len(values) + 1, dtype=np.int64) * raw.shape[1]
    if pa.types.is_fixed_size_binary(type_):
        width = type_.byte_width
        data = np.frombuffer(values.buffers()[1], dtype=np.uint8)[
            values.offset * width : (values.offset + len(values)) * width
        ]
        return data, np.arange(len(values) + 1, dtype=np.int64) * width
    spelled = values if is_offset_type(type_) else values.cast(pa.large_binary())
    _, offset_buffer, data_buffer = spelled.buffers()
    if not len(spelled):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[spelled.offset : spelled.offset + len(spelled) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.empty(0, dtype=np.uint8)
    return data, offsets


def _compacted(values: pa.Array) -> pa.Array:
    return values.cast(exchange_type(values.type)).take(pa.array(np.arange(len(values))))


def _words(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A decimal column as rows of little-endian words, least significant first."""
    width = values.type.bit_width // 64
    flat = np.frombuffer(values.buffers()[1], dtype="<u8") if len(values) else np.empty(0, dtype="<u8")
    return flat[values.offset * width : (values.offset + len(values)) * width].reshape(-1, width)


def _total_order(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """IEEE 754 total order: flip all bits of negative numbers, the sign bit of the others."""
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    bits = values.view(unsigned)
    sign = unsigned(1 << (8 * values.dtype.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _is_fixed(type_: pa.DataType) -> bool:
    return (
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_))
    )


def _is_bytes(type_: pa.DataType) -> bool:
    return (
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or type_ in (pa.string_view(), pa.binary_view())
    )
