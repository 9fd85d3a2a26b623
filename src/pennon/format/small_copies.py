"""Copies of small files of an object store, for as long as they are open.

pylance opens a file by asking for its size, reading its end and then what is needed: three requests or more, one after
another. A small file whose size is known is fetched as a whole in one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock

# A request takes about as long as reading this many bytes in it.
SMALL_BYTES = 2 << 20
# On the disk of this process at any time; further files are read where they are.
MOST_BYTES = 128 << 20


class SmallCopies:
    """A directory of this process."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pennon-"))
        self._process = os.getpid()
        self._lock = Lock()
        self._made = self._bytes = 0
        weakref.finalize(self, _remove_directory, self._directory, self._process)

    def of(self, owner: object, size_bytes: int, read: Callable[[], bytes]) -> Path | None:
        """A copy of what is read, until its owner goes; None if there is no space for it."""
        with self._lock:
            if self._bytes + size_bytes > MOST_BYTES:
                return None
            self._bytes += size_bytes
            self._made += 1
            copy = self._directory / str(self._made)
        try:
            copy.write_bytes(read())
        except BaseException:
            self._remove(copy, size_bytes)
            raise
        weakref.finalize(owner, self._remove, copy, size_bytes)
        return copy

    def _remove(self, copy: Path, size_bytes: int) -> None:
        with self._lock:
            self._bytes -= size_bytes
        if os.getpid() == self._process:
            copy.unlink(missing_ok=True)


def small_copies() -> SmallCopies:
    """Those of this process; a forked one has its own."""
    return _of_process(os.getpid())


@lru_cache(maxsize=1)
def _of_process(_: int) -> SmallCopies:
    return SmallCopies()


def _remove_directory(directory: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)
