"""Bytes of a table's own files, alike on a local path and on an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Container, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote, urlparse

from pennon.errors import DamagedFile, DamagedTable, InvalidArgument, PennonError
from pennon.format.compiled_lance import file_session
from pennon.format.disk_cache import DiskCache, disk_cache
from pennon.format.failures import answering, first_line, store_failure
from pennon.format.footer import FileEnd, check_footer
from pennon.format.local_file import OWN_READS, LocalFile, whole, write_whole
from pennon.secrets import redact_address, redact_exception, register_secrets

if TYPE_CHECKING:
    from lance.file import LanceFileReader, LanceFileSession, LanceFileWriter

P = ParamSpec("P")
R = TypeVar("R")
INDEX_DIRECTORY = "_indices/"
# Around the root of another table, in a path of one of its files. No file has it in its name.
_ROOT_MARK = "\0"


def below_root(root: str, path: str) -> str:
    """A file of another table, as every `Store` reads it and none writes it."""
    return f"{_ROOT_MARK}{root}{_ROOT_MARK}{path}"


@dataclass(frozen=True)
class Location:
    """Where a table is and how to reach it. Picklable, so that tasks can take it to executors. `uri` may hold
    credentials; `shown`, which is what texts are made of, does not."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()
    disk_cache: str | None = None  # a directory for copies of index files

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, str] | None = None, disk_cache: str | None = None) -> Location:
        # Tasks, and this process after a change of directory, find a relative path elsewhere or not at all.
        absolute = uri if urlparse(uri).scheme else str(Path(uri).absolute())
        return cls(absolute, tuple(sorted((storage_options or {}).items())), disk_cache)

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    @property
    def shown(self) -> str:
        return redact_address(self.uri)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """What distinguishes stores that have buckets of the same name, without credentials."""
        return tuple(value for key, value in self.options if "endpoint" in key or "account_name" in key)

    @property
    def store_identity(self) -> tuple[str, ...]:
        """Equal for tables in one store: the same scheme and bucket at the same endpoints."""
        address = urlparse(self.uri)
        return address.scheme, address.netloc, *self.endpoints

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"

    def __reduce__(self) -> tuple[type[Location], tuple[str, tuple[tuple[str, str], ...], str | None]]:
        # By way of the constructor, so that executors know what to hide.
        return Location, (self.uri, self.options, self.disk_cache)

    def __post_init__(self) -> None:
        register_secrets(self.uri, dict(self.options))
        if urlparse(self.uri).scheme == "memory":
            raise InvalidArgument(
                "memory:// tables are private to one handle and cannot have an index",
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


def _in_any_table(
    method: Callable[Concatenate[Store, str, P], R],
) -> Callable[Concatenate[Store, str, P], R]:
    """A method that reads a file, also where it is one of another table."""

    @wraps(method)
    def read(self: Store, path: str, *args: P.args, **options: P.kwargs) -> R:
        other, inside = self.at(path)
        return method(other, inside, *args, **options)

    return read


class Store:
    """The files below one table's root, by relative path. Everything raises `StoreUnavailable` where the store does not
    answer. Files of another table (`below_root`) are read with the same options, and never written or deleted."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._root = location.local_root
        self._shown = location.shown.rstrip("/")
        self._base = f"{self._root}/"
        if self._root is None:
            _ = self._session  # an address or options that it refuses are reported now

    @cached_property
    def _session(self) -> LanceFileSession:
        """pylance's connection. Few rows of a table on this machine are found without it."""
        with answering(self.location.shown):
            return file_session(self.location.uri, self.location.storage_options)

    @_in_any_table
    def describe(self, path: str) -> str:
        return f"{self._shown}/{path}"

    @_in_any_table
    def list(self, directory: str) -> list[str]:
        """Every file below a directory, as paths relative to the root; empty when there is none."""
        with answering(self.describe(directory)):
            return self._session.list(directory)

    @_in_any_table
    def files_in(self, directory: str) -> list[str]:
        """Every file in a directory, as `list` returns it; those in directories below it need not be among them."""
        if self._root is None:
            return self.list(directory)
        with answering(self.describe(directory)):
            try:
                return [f"{directory}/{entry.name}" for entry in os.scandir(self._base + directory) if entry.is_file()]
            except FileNotFoundError:
                return []

    def directories(self, directory: str) -> set[str]:
        """Names of the directories in a directory, on this machine's file system also of those that hold nothing or
        what a writer that was killed has left: those files have no names that `list` would show."""
        if self._root is not None:
            there = self._root / directory
            with answering(self.describe(directory)):
                return {path.name for path in there.iterdir() if path.is_dir()} if there.is_dir() else set()
        depth = directory.count("/") + 1
        return {path.split("/")[depth] for path in self.list(directory) if path.count("/") > depth}

    @_in_any_table
    def exists(self, path: str) -> bool:
        with answering(self.describe(path)):
            return self._session.contains(path) if self._root is None else (self._root / path).is_file()

    @_in_any_table
    def size(self, path: str) -> int | None:
        """Size of a local file; None on an object store, where asking would cost a request of its own. DamagedFile
        where the file is not there."""
        with self._using("read", path):
            return os.stat(self._base + path).st_size if self._root is not None else None  # noqa: PTH116 - much faster

    @property
    def is_local(self) -> bool:
        return self._root is not None

    @_in_any_table
    def check_container(self, path: str, size_bytes: int | None) -> FileEnd | None:
        """What the end of a Lance file of this size describes; None if the size is unknown. DamagedFile if that end is
        impossible: pylance allocates the length it gives before it checks whether that is there, and Rust ends the
        process if that fails."""
        if size_bytes is None:
            return None
        return check_footer(self.reader(path), size_bytes, self.describe(path))

    @_in_any_table
    def read_range(self, path: str, position: int, length: int) -> bytes:
        """Some bytes of a file, all of them or DamagedFile."""
        return self.reader(path)(position, length)

    @_in_any_table
    def reader(self, path: str) -> Callable[[int, int], bytes]:
        """Reads of a file by position and length: all of the bytes or DamagedFile. A local file stays open, and can be
        read when it is deleted, for as long as the result is kept."""
        return partial(self._read_remote, path) if self._root is None else self.local_file(path).read

    @_in_any_table
    def local_file(self, path: str) -> LocalFile:
        """An open file of this machine."""
        with self._using("read", path):
            return LocalFile(self._base + path, self.describe(path))

    def _read_remote(self, path: str, position: int, length: int) -> bytes:
        with self._using("read", path):
            content = self._session.read_range(path, position, length)
        OWN_READS.add(len(content))
        return whole(content, self.describe(path), position, length)

    @_in_any_table
    def read(self, path: str) -> bytes:
        """A whole small file (manifest, deletion vector, reuse details)."""
        with self._using("read", path):
            if self._root is not None:
                with open(self._base + path, "rb") as file:  # noqa: PTH123 - much faster
                    return file.read()
            with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
                copy = Path(scratch) / "file"
                self._session.download_file(path, str(copy))
                return copy.read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """A whole small file, where there was none."""
        path = self._own(path)
        with answering(self.describe(path)):
            if self._root is not None:
                write_whole(self._base + path, content)
                return
            with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
                copy = Path(scratch) / "file"
                copy.write_bytes(content)
                self._session.upload_file(str(copy), path)

    def copy(self, source: str, target: str) -> int:
        """A file as it is, under another name where there was none; returns its size."""
        other, source = self.at(source)
        target = self._own(target)
        with other._using("copy", source):
            if self._root is not None and other._root is not None:
                copy = self._root / target
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(other._root / source, copy)
                return copy.stat().st_size
            with tempfile.TemporaryDirectory(prefix="pennon-") as scratch:
                copy = Path(scratch) / "file"
                other._session.download_file(source, str(copy))
                self._session.upload_file(str(copy), target)
                return copy.stat().st_size

    def delete(self, path: str) -> None:
        with answering(self.describe(path)):
            self._session.delete_file(self._own(path))

    def delete_directory(self, directory: str, keep: Container[str] = ()) -> list[str]:
        """Remove the files below a directory, but for those whose names are kept. Links are removed, and what they lead
        to belongs to others. Returns the names of the files, or the directory where it goes as a whole."""
        directory = self._own(directory)
        removed: list[str] = []
        if self._root is None:
            for path in self.list(directory):
                if path.rpartition("/")[2] not in keep:
                    self.delete(path)
                    removed.append(path.rpartition("/")[2])
            return removed
        there = self._root / directory
        if there.is_symlink():
            there.unlink()
            removed.append(directory)
        elif not keep:
            removed += [directory] if there.exists() else []
            shutil.rmtree(there, ignore_errors=True)
        else:
            for base, _, names in os.walk(there):
                for name in names:
                    if name not in keep:
                        Path(base, name).unlink(missing_ok=True)
                        removed.append(name)
            with suppress(OSError):  # not empty, or not there
                there.rmdir()
        return removed

    @property
    def disk_cache(self) -> DiskCache | None:
        """Where copies of index files are kept, if anywhere."""
        return disk_cache(self.location.disk_cache, self.is_local)

    @_in_any_table
    def cached_copy(self, path: str, size_bytes: int | None) -> Path | None:
        """A copy of an index file in the disk cache, which is made if there is none; None without such a cache, and for
        files that it does not hold. Everything that goes wrong here goes wrong again, and is reported, where the file
        is read."""
        cache = self.disk_cache
        if cache is None or not size_bytes or not path.startswith(INDEX_DIRECTORY):
            return None
        identity = "\0".join([self.location.shown.rstrip("/"), *self.location.endpoints, path])
        return cache.copy_of(identity, size_bytes, lambda copy: self._fetch(path, copy))

    def _fetch(self, path: str, copy: str) -> None:
        try:
            if self._root is not None:
                shutil.copyfile(self._root / path, copy)
            else:
                self._session.download_file(path, copy)
        except OSError:
            raise
        except Exception as error:
            redact_exception(error)
            raise OSError(first_line(error)) from error

    @_in_any_table
    def open_reader(self, path: str, columns: list[str] | None = None) -> LanceFileReader:
        with answering(self.describe(path)):
            return self._session.open_reader(path, columns)

    def open_writer(self, path: str, **options: Any) -> LanceFileWriter:
        with answering(self.describe(path)):
            return self._session.open_writer(self._own(path), **options)

    def at(self, path: str) -> tuple[Store, str]:
        """The store of a path, and the path in it."""
        if not path.startswith(_ROOT_MARK):
            return self, path
        _, root, inside = path.split(_ROOT_MARK, 2)
        return open_store(Location(root, self.location.options, self.location.disk_cache)), inside

    def _own(self, path: str) -> str:
        if path.startswith(_ROOT_MARK):
            raise AssertionError(f"a file of another table would be changed: {self.describe(path)}")
        return path

    @contextmanager
    def _using(self, verb: str, path: str) -> Generator[None]:
        """A file that is not there, or cannot be read, becomes `DamagedFile`."""
        try:
            with answering(self.describe(path)):
                yield
        except PennonError:
            raise
        except OSError as error:
            raise DamagedFile(f"cannot {verb} {self.describe(path)}: {first_line(error)}") from error


@lru_cache(maxsize=32)
def open_store(location: Location) -> Store:
    """The store of a location; one connection is kept per process and set of options."""
    return Store(location)


@contextmanager
def translate_panics(what: str) -> Generator[None]:
    """Raise `DamagedTable` for a Rust panic, which is not an Exception; errors of pylance pass unchanged."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        redact_exception(error)
        raise
    except BaseException as error:
        redact_exception(error)
        failure = store_failure(error, what)
        raise failure or DamagedTable(f"{what} cannot be read: {first_line(error)}", "Restore its files") from error


@contextmanager
def translate_read_errors(what: str) -> Generator[None]:
    """Raise `DamagedTable` for any error that pylance and Arrow raise on invalid files, including Rust panics, and
    `StoreUnavailable` where the store did not answer."""
    try:
        yield
    except (PennonError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        redact_exception(error)
        failure = store_failure(error, what)
        if failure is not None:
            raise failure from error
        problem = f"{what} cannot be read: {type(error).__name__}: {first_line(error)}"
        raise DamagedTable(problem, "Check the table's files") from error
