"""How the kernels of this family are compiled: for given types, kept on disk, and run without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.types import Array, int16, int32, int64, uint8, uint32
from numba.types import bool_ as boolean

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]
Number = int | np.int64

F = TypeVar("F", bound=Callable[..., Any])


def _given(item: Any) -> Any:
    """An array that is only read, which writable ones may be passed for."""
    return Array(item, 1, "C", readonly=True)


GIVEN_U8, GIVEN_I16, GIVEN_I32, GIVEN_I64 = _given(uint8), _given(int16), _given(int32), _given(int64)
GIVEN_U32, GIVEN_FLAGS = _given(uint32), _given(boolean)
MADE_U8, MADE_I64, MADE_U32 = uint8[::1], int64[::1], uint32[::1]


def compiled(*signatures: Any) -> Callable[[F], F]:
    """Compile a function for the given signatures."""

    def compile_(function: F) -> F:
        try:
            return njit(list(signatures), cache=True, nogil=True)(function)
        except RuntimeError:  # no directory can hold the outcome: every process compiles it again
            return njit(list(signatures), nogil=True)(function)

    return compile_
