"""A cache bounded by bytes, shared by all queries of a process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

DEFAULT_CAPACITY = 512 << 20


def capacity_from_environment() -> int:
    setting = os.environ.get("PENNON_CACHE_BYTES", "")
    return int(setting) if setting.isdecimal() else DEFAULT_CAPACITY


class ByteCache:
    """Evicts the least recently used entries. Index files are immutable, so nothing is ever invalidated."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY) -> None:
        self.capacity_bytes = capacity_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._used = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def get_all(self, keys: Sequence[Hashable]) -> list[Any | None]:
        with self._lock:
            entries, found = self._entries, []
            for key in keys:
                entry = entries.get(key)
                if entry is not None:
                    entries.move_to_end(key)
                found.append(entry and entry[0])
            return found

    def holds(self, keys: Sequence[Hashable]) -> list[bool]:
        """Which of some entries are there; they do not count as used."""
        with self._lock:
            return [key in self._entries for key in keys]

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        if size_bytes > self.capacity_bytes:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._used += size_bytes - (old[1] if old else 0)
            self._entries[key] = (value, size_bytes)
            while self._used > self.capacity_bytes:
                self._used -= self._entries.popitem(last=False)[1][1]

    def get_or_load(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """The entry, loaded on demand. Two threads may load the same entry at once; both results are equal."""
        found = self.get(key)
        if found is not None:
            return found
        value, size_bytes = load()
        self.put(key, value, size_bytes)
        return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0


SHARED_CACHE = ByteCache(capacity_from_environment())
