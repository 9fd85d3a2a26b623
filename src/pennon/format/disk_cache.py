"""Copies of index files on a local disk, for tables in an object store. Off unless it is asked for.

An index file never changes: its directory has a UUID of its own. So a copy is identified by the table, the path and the
size. It is a file `<key>-<digest>` below `files/`, where the key is a hash of those three and the digest that of the
content. It gets that name when it is complete, by one rename, so that processes share the directory without locks.

A copy is verified when a process opens it for the first time, and one that is not as it was written is deleted. When
the copies exceed their limit, those that were opened the longest ago are deleted; a process that has one open can read
it to the end. If anything goes wrong with the disk, files are read from the store instead.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from pennon.display import DisplayedFields
from pennon.errors import InvalidArgument

DIRECTORY_VARIABLE, BYTES_VARIABLE = "PENNON_DISK_CACHE", "PENNON_DISK_CACHE_BYTES"
DEFAULT_BYTES = 10 << 30
# A file that takes more than this fraction of the limit is not copied.
LARGEST_SHARE = 2
# Copies that a killed process left unfinished are deleted after an hour. After a failure, none is made for a minute.
UNFINISHED_SECONDS, PAUSE_SECONDS = 3600, 60
DIGEST_BYTES, KEY_BYTES, READ_BYTES = 20, 20, 1 << 20


@dataclass(frozen=True)
class DiskCacheStatistics(DisplayedFields):
    """The copies in a directory, and how this process used them."""

    directory: str
    capacity_bytes: int
    bytes: int = 0
    entries: int = 0
    hits: int = 0
    misses: int = 0
    discarded: int = 0  # copies that were not as they were written
    failures: int = 0  # copies that could not be written


class _Entry(NamedTuple):
    path: Path
    size: int
    used: float


class DiskCache:
    """The copies in one directory, of at most `capacity_bytes`."""

    def __init__(self, directory: Path, capacity_bytes: int) -> None:
        self.directory, self.capacity_bytes = directory, capacity_bytes
        self._files = directory / "files"
        self._lock = Lock()
        self._use = DiskCacheStatistics(str(directory), capacity_bytes)
        # By name: modification time and size when it was verified.
        self._verified: dict[str, tuple[int, int]] = {}
        self._paused_until = 0.0

    def copy_of(self, identity: str, size: int, fetch: Callable[[str], object]) -> Path | None:
        """A verified copy of a file, which `fetch` writes to a path if there is none. None if there can be none."""
        if not 0 < size <= self.capacity_bytes // LARGEST_SHARE:
            return None
        key = hashlib.blake2b(f"{identity}\0{size}".encode(), digest_size=KEY_BYTES).hexdigest()
        with suppress(OSError):
            for path in self._files.glob(f"{key}-*"):
                if self._is_valid(path, size):
                    self._count(hits=1)
                    return path
                self.discard(path)
        self._count(misses=1)
        return self._add(key, size, fetch)

    def discard(self, path: Path) -> None:
        """Delete a copy that cannot be used."""
        self._count(discarded=1)
        self._verified.pop(path.name, None)
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def statistics(self) -> DiskCacheStatistics:
        entries = list(self._entries())
        return replace(self._use, bytes=sum(entry.size for entry in entries), entries=len(entries))

    def _is_valid(self, path: Path, size: int) -> bool:
        found = path.stat()
        if found.st_size != size:
            return False
        seen = found.st_mtime_ns, found.st_size
        if self._verified.get(path.name) != seen:
            if _digest(path) != path.name.partition("-")[2]:
                return False
            self._verified[path.name] = seen
        # The time of the last access, explicitly: file systems are often mounted without it.
        os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
        return True

    def _add(self, key: str, size: int, fetch: Callable[[str], object]) -> Path | None:
        if time.monotonic() < self._paused_until:
            return None
        unfinished = self._files / f"unfinished-{secrets.token_hex(8)}"
        try:
            self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Room first: the disk may be as small as the limit.
            self._make_room(size)
            fetch(str(unfinished))
            if unfinished.stat().st_size != size:
                return None  # the file itself has another size, which is reported where it is read
            path = self._files / f"{key}-{_digest(unfinished)}"
            unfinished.replace(path)
            found = path.stat()
            self._verified[path.name] = found.st_mtime_ns, found.st_size
            return path
        except OSError:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            self._count(failures=1)
            return None
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Delete what was used the longest ago, until one more file fits."""
        entries = sorted(self._entries(), key=lambda entry: entry.used)
        used = sum(entry.size for entry in entries)
        for entry in entries:
            if used + size <= self.capacity_bytes:
                break
            entry.path.unlink(missing_ok=True)
            used -= entry.size

    def _entries(self) -> Iterator[_Entry]:
        with suppress(OSError):
            for each in os.scandir(self._files):
                with suppress(OSError):
                    found = each.stat()
                    if not each.name.startswith("unfinished-"):
                        yield _Entry(Path(each.path), found.st_size, found.st_atime)
                    elif found.st_mtime < time.time() - UNFINISHED_SECONDS:
                        Path(each.path).unlink(missing_ok=True)

    def _count(self, hits: int = 0, misses: int = 0, discarded: int = 0, failures: int = 0) -> None:
        with self._lock:
            use = self._use
            self._use = replace(
                use,
                hits=use.hits + hits,
                misses=use.misses + misses,
                discarded=use.discarded + discarded,
                failures=use.failures + failures,
            )


def disk_cache(asked: str | None, is_local: bool) -> DiskCache | None:
    """The cache of a table: in the directory that was asked for, or for tables that are not on this machine in that of
    the environment.

    Raises:
        InvalidArgument: the environment has something else than a number of bytes.
    """
    directory = asked or (None if is_local else os.environ.get(DIRECTORY_VARIABLE))
    if not directory:
        return None
    configured = os.environ.get(BYTES_VARIABLE, str(DEFAULT_BYTES))
    if not configured.isdecimal():
        raise InvalidArgument(f"{BYTES_VARIABLE} is {configured!r}", "Set it to a number of bytes")
    return _open(directory, int(configured))


@lru_cache(maxsize=8)
def _open(directory: str, capacity_bytes: int) -> DiskCache:
    return DiskCache(Path(directory).absolute(), capacity_bytes)


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()
