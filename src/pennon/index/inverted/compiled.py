"""How the kernels of this family are compiled: for given types, kept on disk, without the GIL and with exact floats.

Importing a module of kernels compiles it, unless an earlier process has left the outcome on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.types import Array, float32, int32, int64, uint8, uint32, uint64
from numba.types import bool_ as boolean

# A number in a kernel: 64 bits, however Python has it.
Int = int | np.int64
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Float32s = npt.NDArray[np.float32]

F = TypeVar("F", bound=Callable[..., Any])


def _given(item: Any) -> Any:
    """An array that is only read, which writable ones may be passed for."""
    return Array(item, 1, "C", readonly=True)


GIVEN_U8, GIVEN_I32, GIVEN_I64 = _given(uint8), _given(int32), _given(int64)
GIVEN_U32, GIVEN_U64, GIVEN_F32, GIVEN_FLAGS = _given(uint32), _given(uint64), _given(float32), _given(boolean)
MADE_U8, MADE_I32, MADE_I64 = uint8[::1], int32[::1], int64[::1]
MADE_U32, MADE_U64, MADE_F32, MADE_FLAGS = uint32[::1], uint64[::1], float32[::1], boolean[::1]


def compiled(*signatures: Any, inline: bool = False) -> Callable[[F], F]:
    """Compile a function for the given signatures. Floats are added and rounded in the order that is written. With
    `inline` its code becomes a part of every kernel that calls it: arrays cost more to pass than small bodies to run.
    """

    def compile_(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "forceinline": inline}
        try:
            return njit(list(signatures), cache=True, **options)(function)
        except RuntimeError:  # no directory can hold the outcome: every process compiles it again
            return njit(list(signatures), **options)(function)

    return compile_
