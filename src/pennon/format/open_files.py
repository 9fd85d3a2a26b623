"""The files that this process keeps open. A system allows a process a number of them, often 1,024 or 256, and an index
may have more: those used least recently are closed, and opened again when they are read."""

from __future__ import annotations

import resource
import weakref
from collections import OrderedDict
from threading import Lock
from typing import Protocol

# Objects for each file that a process may open: one may have two open. And where there is no limit.
SHARE, MOST = 4, 1 << 14


class Closable(Protocol):
    """What can close its files, and opens them again when it reads."""

    def close_for_now(self) -> None: ...


class OpenFiles:
    """At most a number of objects with open files. They are not kept alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: OrderedDict[int, weakref.ref[Closable]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._files)

    def use(self, file: Closable) -> None:
        """The object has files open, and is reading them: others are closed first."""
        key, files = id(file), self._files
        unused: list[weakref.ref[Closable]] = []
        with self._lock:
            if key not in files:
                files[key] = weakref.ref(file, lambda _: files.pop(key, None))
                while len(files) > self._most:
                    unused.append(files.popitem(last=False)[1])
            else:
                files.move_to_end(key)
        for reference in unused:
            found = reference()
            if found is not None and found is not file:
                found.close_for_now()


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft // SHARE))


OPEN_FILES = OpenFiles(_most())
