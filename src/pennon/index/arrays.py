"""Types of arrays that kernels and their callers exchange."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# A 64-bit integer in a kernel; outside it may be a Python int.
Int = int | np.int64
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt16s = npt.NDArray[np.uint16]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Float32s = npt.NDArray[np.float32]
