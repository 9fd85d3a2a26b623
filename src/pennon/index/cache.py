"""A cache bounded by bytes, shared by all queries of a process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any, TypeVar

from pennon.display import Displayed, DisplayedFields
from pennon.format.disk_cache import DiskCacheStatistics
from pennon.wording import human_bytes, plural

T = TypeVar("T")

DEFAULT_CAPACITY = 512 << 20


def capacity_from_environment() -> int:
    setting = os.environ.get("PENNON_CACHE_BYTES", "")
    return int(setting) if setting.isdecimal() else DEFAULT_CAPACITY


@dataclass
class CacheUse(DisplayedFields):
    """What one query found in the cache and what it added to it."""

    hits: int = 0
    misses: int = 0
    loaded: int = 0
    loaded_bytes: int = 0
    evictions: int = 0
    refused: int = 0  # entries larger than the cache

    def __str__(self) -> str:
        found = f"{plural(self.hits, 'hit')}, {plural(self.misses, 'miss', 'misses')}"
        return f"{found}, {human_bytes(self.loaded_bytes)} loaded, {plural(self.evictions, 'eviction')}"


@dataclass(frozen=True)
class CacheStatistics(Displayed):
    """The state of the cache of a process, and its use since the process started."""

    capacity_bytes: int
    bytes: int
    entries: int
    hits: int
    misses: int
    loaded: int
    loaded_bytes: int
    evictions: int
    refused: int
    disk: DiskCacheStatistics | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        return asdict(self)

    def __str__(self) -> str:
        entries = plural(self.entries, "entry", "entries")
        held = f"{human_bytes(self.bytes)} of {human_bytes(self.capacity_bytes)} in {entries}"
        use = CacheUse(self.hits, self.misses, self.loaded, self.loaded_bytes, self.evictions)
        if self.disk is None:
            return f"{held}; {use}"
        disk = f"{human_bytes(self.disk.bytes)} of {human_bytes(self.disk.capacity_bytes)} on disk"
        return f"{held}; {use}; {disk}, {plural(self.disk.hits, 'hit')}, {plural(self.disk.misses, 'miss', 'misses')}"


_counter: ContextVar[CacheUse | None] = ContextVar("cache use", default=None)


@contextmanager
def counting_cache() -> Generator[CacheUse]:
    """Count what this thread, and those that take its context, do with caches."""
    use = CacheUse()
    token = _counter.set(use)
    try:
        yield use
    finally:
        _counter.reset(token)


class ByteCache:
    """Evicts the least recently used entries. Index files are immutable, so nothing is ever invalidated."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY) -> None:
        self.capacity_bytes = capacity_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._used = 0
        self._total = CacheUse()
        self._lock = Lock()

    def __contains__(self, key: Hashable) -> bool:
        """Whether there is an entry, without using it."""
        return key in self._entries

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._count(misses=1)
                return None
            self._entries.move_to_end(key)
            self._count(hits=1)
            return found[0]

    def get_all(self, keys: Sequence[Hashable]) -> list[Any | None]:
        with self._lock:
            entries, found = self._entries, []
            hits = 0
            for key in keys:
                entry = entries.get(key)
                if entry is not None:
                    entries.move_to_end(key)
                    hits += 1
                found.append(entry and entry[0])
            self._count(hits=hits, misses=len(keys) - hits)
            return found

    def holds(self, keys: Sequence[Hashable]) -> list[bool]:
        """Which of some entries are there; they do not count as used."""
        with self._lock:
            return [key in self._entries for key in keys]

    def put(self, key: Hashable, value: Any, size_bytes: int) -> None:
        with self._lock:
            if size_bytes > self.capacity_bytes:
                self._count(refused=1)
                return
            old = self._entries.pop(key, None)
            self._used += size_bytes - (old[1] if old else 0)
            self._entries[key] = (value, size_bytes)
            evictions = 0
            while self._used > self.capacity_bytes:
                self._used -= self._entries.popitem(last=False)[1][1]
                evictions += 1
            self._count(loaded=1, loaded_bytes=size_bytes, evictions=evictions)

    def get_or_load(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """The entry, loaded on demand. Two threads may load the same entry at once; both results are equal."""
        found = self.get(key)
        if found is not None:
            return found
        value, size_bytes = load()
        self.put(key, value, size_bytes)
        return value

    def statistics(self) -> CacheStatistics:
        with self._lock:
            use = asdict(self._total)
            return CacheStatistics(self.capacity_bytes, self._used, len(self._entries), **use)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._used = 0

    def _count(
        self,
        hits: int = 0,
        misses: int = 0,
        loaded: int = 0,
        loaded_bytes: int = 0,
        evictions: int = 0,
        refused: int = 0,
    ) -> None:
        """Called with the lock."""
        for use in (self._total, _counter.get()):
            if use is not None:
                use.hits += hits
                use.misses += misses
                use.loaded += loaded
                use.loaded_bytes += loaded_bytes
                use.evictions += evictions
                use.refused += refused


SHARED_CACHE = ByteCache(capacity_from_environment())
