"""Compilation of kernels: cached on disk, without the GIL, and with exact floats unless a kernel allows otherwise.

Importing a module of kernels compiles it, unless an earlier process has cached the result on disk. numba takes a second
to import, so queries that need no kernel import none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.types import Array, float32, int16, int32, int64, uint8, uint32, uint64
from numba.types import bool_ as boolean

F = TypeVar("F", bound=Callable[..., Any])


def given(item: Any, dimensions: int = 1) -> Any:
    """The type of a read-only array; writable ones are accepted too."""
    return Array(item, dimensions, "C", readonly=True)


GIVEN_U8, GIVEN_I16, GIVEN_I32, GIVEN_I64 = given(uint8), given(int16), given(int32), given(int64)
GIVEN_U32, GIVEN_U64, GIVEN_F32, GIVEN_FLAGS = given(uint32), given(uint64), given(float32), given(boolean)
MADE_U8, MADE_I32, MADE_I64 = uint8[::1], int32[::1], int64[::1]
MADE_U32, MADE_U64, MADE_F32, MADE_FLAGS = uint32[::1], uint64[::1], float32[::1], boolean[::1]


def compiled(*signatures: Any, fastmath: frozenset[str] = frozenset(), inline: bool = False) -> Callable[[F], F]:
    """Compile a function for the given signatures, or without any for the types of its first call.

    Floats are added and rounded in the order that is written, except for what `fastmath` permits LLVM to change. With
    `inline` the code becomes a part of every kernel that calls it: arrays cost more to pass than small bodies to run.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath), "forceinline": inline}

    def compile_(function: F) -> F:
        given_types = (list(signatures),) if signatures else ()
        try:
            return njit(*given_types, cache=True, **options)(function)
        except RuntimeError:  # no writable cache directory: every process compiles again
            return njit(*given_types, **options)(function)

    return compile_
