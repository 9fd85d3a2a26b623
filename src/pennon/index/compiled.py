"""Compilation of kernels: cached on disk, without the GIL, and with exact floats unless a kernel allows otherwise.

Importing a module of kernels compiles it, unless an earlier process has cached the result on disk. numba takes a second
to import, so queries that need no kernel import none.

numba's cache holds a kernel together with those that it calls, and compares the source file of the first alone: after
an upgrade it would go on to run old callees. Here the sources of all modules that a kernel may call into count.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable
from functools import cache
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


def compiled(
    *signatures: Any, fastmath: frozenset[str] = frozenset(), inline: bool = False, raising: bool = True
) -> Callable[[F], F]:
    """Compile a function for the given signatures, or without any for the types of its first call.

    Floats are added and rounded in the order that is written, except for what `fastmath` permits LLVM to change. With
    `inline` the code becomes a part of every kernel that calls it: arrays cost more to pass than small bodies to run.
    Without `raising`, a division by zero gives what numpy has for it, and needs no check.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath), "forceinline": inline}
    options["error_model"] = "python" if raising else "numpy"

    def compile_(function: F) -> F:
        kernel: Any
        try:
            kernel = njit(cache=True, **options)(function)
            kernel._cache._cache_file._source_stamp = sources_digest(function.__module__)
        except RuntimeError:  # no writable cache directory: every process compiles again
            kernel = njit(**options)(function)
        for signature in signatures:
            kernel.compile(signature)
        if signatures:
            kernel.disable_compile()
        return kernel

    return compile_


@cache
def sources_digest(module: str) -> str:
    """Changes with the source of a module and of all modules of this package that it imports, directly or not."""
    found, left = dict[str, str](), [module]
    while left:
        name = left.pop()
        if name in found:
            continue
        found[name] = source_of(name)
        left += [other for other in _imports(found[name]) if other in sys.modules]
    text = "\0".join(f"{name}\0{found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()


# Modules of kernels import the same modules again and again, and parsing takes most of the time.
@cache
def _imports(source: str) -> list[str]:
    """The modules of this package that a source imports, or imports names from, among other names."""
    package, found = __name__.partition(".")[0], list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == package:
            found += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return found


def source_of(module: str) -> str:
    """Also of a module in an archive."""
    spec = sys.modules[module].__spec__
    get_source: Callable[[str], str | None] | None = getattr(spec and spec.loader, "get_source", None)
    return (get_source and get_source(module)) or ""
