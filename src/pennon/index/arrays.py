"""Arrays that kernels and their callers exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# A 64-bit integer in a kernel; outside it may be a Python int.
Int = int | np.int64
# An unsigned one.
Word = int | np.uint64
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt16s = npt.NDArray[np.uint16]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Float32s = npt.NDArray[np.float32]

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    **{pa.from_numpy_dtype(f"{sign}{size}"): np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)},
    **{pa.from_numpy_dtype(f"f{size}"): np.dtype(f"f{size}") for size in (2, 4, 8)},
}


def numbers_of(values: pa.Array) -> npt.NDArray[Any]:
    """Integers or floats without NULLs, not copied: `to_numpy`, without the import of pandas that its first call costs
    a process."""
    dtype, content = _DTYPES.get(values.type), values.buffers()[1]
    if dtype is None or content is None or values.null_count:
        return values.to_numpy()
    return np.frombuffer(content, dtype, len(values), values.offset * dtype.itemsize)


def array_of(numbers: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Numbers as values of a type of their size, not copied: `pa.array`, which imports pandas as well."""
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
