"""Limits on threads: worker threads that process whole partitions use the cores, not the libraries they call.

numpy's OpenBLAS runs a single product on all cores, in threads that busy-wait for one another. Together with our own
worker threads, or on a busy machine, products of the size of a partition take a hundred times as long. faiss does the
same with OpenMP.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any

# Names of the functions in numpy's wheels, and in builds against a system library.
OPENBLAS_NAMES = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
)

_lock = Lock()
_own = local()
_users, _threads_before = 0, 0


def cores() -> int:
    """The number of cores that this thread may use: in a container fewer than the machine has, in a task those of the
    task."""
    if getattr(_own, "one_core", False):
        return 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(mine, int(limit)) if limit.isdecimal() and int(limit) else mine


@contextmanager
def one_thread() -> Generator[None]:
    """Keep products of numpy and loops of faiss in the calling thread.

    The limit of faiss applies to this thread, that of OpenBLAS to the process until the last such block ends.
    """
    global _users, _threads_before  # noqa: PLW0603 - OpenBLAS's setting is global too
    import faiss  # noqa: PLC0415 - a fifth of a second, and filters need none of it

    get, set_ = _openblas()
    loops = faiss.omp_get_max_threads()
    with _lock:
        if not _users:
            _threads_before = get()
            set_(1)
        _users += 1
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(loops)
        with _lock:
            _users -= 1
            if not _users:
                set_(_threads_before)


@contextmanager
def one_core() -> Generator[None]:
    """For one of several tasks that run in threads of this process: libraries it calls start no further threads, as in
    a Spark task of one core."""
    _own.one_core = True
    try:
        with one_thread():
            yield
    finally:
        _own.one_core = False


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], Any]]:
    """Functions that read and set OpenBLAS's number of threads; both do nothing if numpy uses another library."""
    # Symbols are also searched in the libraries that this one is linked against.
    library = ctypes.CDLL(importlib.import_module("numpy._core._multiarray_umath").__file__)
    for get, set_ in OPENBLAS_NAMES:
        if hasattr(library, get) and hasattr(library, set_):
            return getattr(library, get), getattr(library, set_)
    return lambda: 0, lambda _: None
