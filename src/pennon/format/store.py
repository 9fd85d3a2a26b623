"""Bytes of a table's own files, alike on a local path and on an object store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lance.file import LanceFileReader, LanceFileSession, LanceFileWriter

from pennon.errors import DamagedFile, InvalidArgument


@dataclass(frozen=True)
class Location:
    """Where a table is and how to reach it. Picklable, so that tasks can carry it to executors."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # repr hides credentials

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, str] | None = None) -> Location:
        return cls(uri, tuple(sorted((storage_options or {}).items())))

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    def __post_init__(self) -> None:
        if urlparse(self.uri).scheme == "memory":
            raise InvalidArgument(
                "memory:// tables are private to one handle and cannot carry an index",
                "Use a local path or an object store",
            )

    @property
    def local_root(self) -> Path | None:
        """The directory of a table on this machine's file system, None on an object store."""
        parsed = urlparse(self.uri)
        if parsed.scheme == "file":
            return Path(unquote(parsed.path))
        # A one-letter scheme is a Windows drive.
        return Path(self.uri) if len(parsed.scheme) <= 1 else None


class Store:
    """The files below one table's root, by relative path."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._root = location.local_root
        self._session = LanceFileSession(location.uri, storage_options=location.storage_options)

    def describe(self, path: str) -> str:
        return f"{self.location.uri.rstrip('/')}/{path}"

    def list(self, directory: str) -> list[str]:
        """Every file below a directory, as paths relative to the root; empty when there is none."""
        return self._session.list(directory)

    def exists(self, path: str) -> bool:
        return self._session.contains(path)

    def size(self, path: str) -> int | None:
        """Size of a local file; None on an object store, where asking would cost a request of its own."""
        return (self._root / path).stat().st_size if self._root is not None else None

    def read(self, path: str) -> bytes:
        """A whole small file (manifest, deletion vector, reuse details)."""
        try:
            if self._root is not None:
                return (self._root / path).read_bytes()
            with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
                copy = Path(scratch) / "file"
                self._session.download_file(path, str(copy))
                return copy.read_bytes()
        except OSError as error:
            raise DamagedFile(f"cannot read {self.describe(path)}: {_first_line(error)}") from error

    def write(self, path: str, content: bytes) -> None:
        """A whole small file, where there was none."""
        with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
            copy = Path(scratch) / "file"
            copy.write_bytes(content)
            self._session.upload_file(str(copy), path)

    def copy(self, source: str, target: str) -> int:
        """A file as it is, under another name where there was none; returns its size."""
        try:
            if self._root is not None:
                copy = self._root / target
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._root / source, copy)
                return copy.stat().st_size
            with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
                copy = Path(scratch) / "file"
                self._session.download_file(source, str(copy))
                self._session.upload_file(str(copy), target)
                return copy.stat().st_size
        except OSError as error:
            raise DamagedFile(f"cannot copy {self.describe(source)}: {_first_line(error)}") from error

    def delete(self, path: str) -> None:
        self._session.delete_file(path)

    def delete_directory(self, directory: str, keep: Container[str] = ()) -> None:
        """Remove the files below a directory, but for those whose names are kept."""
        for path in self.list(directory):
            if path.rpartition("/")[2] not in keep:
                self.delete(path)
        if self._root is not None:
            with suppress(OSError):  # not empty, or not there
                (self._root / directory).rmdir()

    def open_reader(self, path: str, columns: list[str] | None = None) -> LanceFileReader:
        return self._session.open_reader(path, columns)

    def open_writer(self, path: str, **options: Any) -> LanceFileWriter:
        return self._session.open_writer(path, **options)


@lru_cache(maxsize=32)
def open_store(location: Location) -> Store:
    """The store of a location; one connection is kept per process and set of options."""
    return Store(location)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
