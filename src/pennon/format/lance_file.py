"""Lance files of an index: written in one piece, read by row range. Every read is counted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from pennon.errors import DamagedFile, PennonError, StoreUnavailable
from pennon.format.failures import answering, store_failure
from pennon.format.index_metadata import IndexFile
from pennon.format.number_file import columns_by_name
from pennon.format.open_files import OPEN_FILES
from pennon.format.requests import request_all
from pennon.format.scattered_values import ReadAt
from pennon.format.small_copies import SMALL_BYTES, small_copies
from pennon.format.store import Location, Store, open_store

if TYPE_CHECKING:
    from lance.file import LanceFileReader, ReaderResults

READ_BATCH = 1 << 17
# Columns of numbers that are read from an object store without pylance: each takes requests of its own.
REMOTE_COLUMNS = 2
# Global buffers that end within this many bytes are read together from an object store.
AHEAD_BYTES = 1 << 20

R = TypeVar("R")


@dataclass
class ReadCounter:
    """Counts reads from storage; cache hits are not counted."""

    files: int = 0
    reads: int = 0
    rows: int = 0


_counter: ContextVar[ReadCounter | None] = ContextVar("reads", default=None)


@contextmanager
def counting_reads(counter: ReadCounter) -> Generator[None]:
    """Count the reads of this thread into `counter` within the context."""
    token = _counter.set(counter)
    try:
        yield
    finally:
        _counter.reset(token)


def _count(files: int = 0, reads: int = 0, rows: int = 0) -> None:
    counter = _counter.get()
    if counter is not None:
        counter.files += files
        counter.reads += reads
        counter.rows += rows


class LanceFile:
    """An open Lance file. Every error of pylance becomes `DamagedFile`, or `StoreUnavailable` if the store does not
    answer."""

    def __init__(
        self,
        store: Store,
        path: str,
        size_bytes: int | None = None,
        columns: list[str] | None = None,
    ) -> None:
        self.where = store.describe(path)
        self._reading = Lock()
        self._origin: tuple[Store, str, int | None, list[str] | None] | None = store, path, size_bytes, columns
        copy = store.cached_copy(path, size_bytes) or self._small_copy(store, path, size_bytes)
        if copy is None or not self._open_copy(copy, size_bytes, columns):
            self._open_origin()

    def _small_copy(self, store: Store, path: str, size_bytes: int | None) -> Path | None:
        """A copy of a small index file of an object store, which takes one request."""
        if store.is_local or not size_bytes or size_bytes > SMALL_BYTES:
            return None
        try:
            copy = small_copies().of(self, size_bytes, lambda: store.read_range(path, 0, size_bytes))
        except (DamagedFile, OSError):
            return None  # which is reported where the file itself is opened
        if copy is not None:
            _count(files=1)
        return copy

    def _open_copy(self, copy: Path, size_bytes: int | None, columns: list[str] | None) -> bool:
        """Open a copy in the disk cache instead; False if another process has just deleted it."""
        try:
            self._open(open_store(Location.of(str(copy.parent))), copy.name, size_bytes, columns)
            _ = self._reader  # opened now: the copy may be deleted before it is read
        except (DamagedFile, StoreUnavailable):
            return False
        return True

    def _open_origin(self) -> None:
        if self._origin is not None:
            origin, self._origin = self._origin, None
            self._open(*origin)
            _count(files=1)

    def _from_copy_or_origin(self, read: Callable[[], R]) -> R:
        """A copy may be damaged after it was verified, and while it is open: then the file itself is read."""
        try:
            return read()
        except DamagedFile:
            if self._origin is None:
                raise
        self._open_origin()
        return read()

    def _open(self, store: Store, path: str, size_bytes: int | None, columns: list[str] | None) -> None:
        self._store, self._path, self._columns = store, path, columns
        self._opened: LanceFileReader | None = None
        self._read_at: ReadAt | None = None
        self._ahead: dict[int, bytes] = {}
        with _Damage(self.where):
            actual = store.size(path)
            if size_bytes and actual is not None and actual != size_bytes:
                raise DamagedFile(f"{self.where} has {actual} bytes, but its index recorded {size_bytes}")
            found = store.check_container(path, (size_bytes or None) if actual is None else actual)
            self._checked_buffers = None if found is None else found.buffers
            self._numbers = None if found is None else columns_by_name(found, columns)
            if actual is None and self._numbers is not None and len(self._numbers.schema) > REMOTE_COLUMNS:
                self._numbers = None
            if self._numbers is None:
                self.num_rows: int = self._reader.num_rows()
            else:
                _ = self._bytes  # open from now on: the file may be deleted before it is read
                self.num_rows = self._numbers.num_rows

    @property
    def _reader(self) -> LanceFileReader:
        """pylance's reader, opened when it is needed."""
        opened = self._opened
        if opened is None:
            with _Damage(self.where):
                self._opened = opened = self._store.open_reader(self._path, self._columns)
        OPEN_FILES.use(self)
        return opened

    @property
    def _bytes(self) -> ReadAt:
        """Reads without pylance. Only a file of this machine is kept open for them."""
        read_at = self._read_at
        if read_at is None:
            self._read_at = read_at = self._store.reader(self._path)
        if self._store.is_local:
            OPEN_FILES.use(self)
        return read_at

    def close_for_now(self) -> None:
        """Reads that have begun go on; the next one opens the file again."""
        self._opened = self._read_at = None

    @cached_property
    def _described(self) -> tuple[pa.Schema, list[tuple[int, int]]]:
        """The schema, and the global buffers. pylance describes every page of the file with them, so they are asked for
        when they are needed."""
        with _Damage(self.where), self._reading:
            metadata = self._reader.metadata()
            return metadata.schema, [(buffer.position, buffer.size) for buffer in metadata.global_buffers]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns, without metadata."""
        return self._described[0].remove_metadata() if self._numbers is None else self._numbers.schema

    @cached_property
    def metadata(self) -> dict[str, str]:
        """What the writer recorded in the metadata of the schema."""
        if self._numbers is not None:
            return self._numbers.metadata
        found = self._described[0].metadata or {}
        return {key.decode(): value.decode("utf-8", "replace") for key, value in found.items()}

    @property
    def _buffers(self) -> list[tuple[int, int]]:
        return self._described[1] if self._checked_buffers is None else self._checked_buffers

    def read(self, start: int = 0, count: int | None = None) -> pa.Table:
        count = self.num_rows - start if count is None else count
        _count(reads=1, rows=count)
        if count == 0:
            return self.schema.empty_table()
        return self._from_copy_or_origin(lambda: self._read(start, count))

    def _read(self, start: int, count: int) -> pa.Table:
        with _Damage(self.where):
            found = self._read_numbers(start, count)
            if found is not None:
                return found
            results = self._results(start, count, min(count, READ_BATCH))
        return self._finish_read(results, count)

    def begin_read(self, start: int, count: int) -> Callable[[], pa.Table]:
        """Start to read rows, and return what waits for them. pylance reads several files at once, if all have begun.
        Not for files with a copy in the disk cache, which may have to be read twice."""
        _count(reads=1, rows=count)
        if count == 0:
            return self.schema.empty_table
        with _Damage(self.where):
            found = self._read_numbers(start, count)
            if found is not None:
                return lambda: found
            results = self._results(start, count, min(count, READ_BATCH))
        return lambda: self._finish_read(results, count)

    def _finish_read(self, results: ReaderResults, count: int) -> pa.Table:
        with _Damage(self.where):
            table = results.to_table()
        if table.num_rows != count:
            raise DamagedFile(f"{self.where} returned {table.num_rows} of {count} requested rows")
        return table

    def take(self, rows: Sequence[int]) -> pa.Table:
        """Single rows, ascending."""
        _count(reads=1, rows=len(rows))
        if not rows:
            return self.schema.empty_table()
        return self._from_copy_or_origin(lambda: self._take(rows))

    def _take(self, rows: Sequence[int]) -> pa.Table:
        with _Damage(self.where):
            if self._numbers is not None and self._store.is_local:
                found = self._numbers.take(self._bytes, rows)
                if found is not None:
                    return found
            with self._reading:
                results = self._reader.take_rows(list(rows))
            table = results.to_table()
        if table.num_rows != len(rows):
            raise DamagedFile(f"{self.where} returned {table.num_rows} of {len(rows)} requested rows")
        return table

    def read_global_buffer(self, number: int) -> bytes:
        """Bytes stored outside the columns. Number 0 is the schema of the file; a writer's first buffer is number 1.

        Not read by pylance, which keeps the GIL while it waits for its threads: as soon as all of those wait for the
        GIL, as they do at the start of scans, the process deadlocks.
        """
        _count(reads=1)
        if not 0 <= number < len(self._buffers):
            raise DamagedFile(f"{self.where} has {len(self._buffers)} global buffers, but no number {number}")
        return self._from_copy_or_origin(lambda: self._read_buffer(number))

    def _read_buffer(self, number: int) -> bytes:
        """Those that follow a buffer are read with it from an object store, and kept until they are asked for."""
        if (held := self._ahead.pop(number, None)) is not None:
            return held
        position, size = self._buffers[number]
        near = [number]
        for following, (start, length) in enumerate(self._buffers[number + 1 :], number + 1):
            if self._store.is_local or not position + size <= start <= start + length <= position + AHEAD_BYTES:
                break
            near.append(following)
            size = start + length - position
        content = self._store.read_range(self._path, position, size)
        places = {each: self._buffers[each][0] - position for each in near}
        self._ahead |= {each: content[places[each] :][: self._buffers[each][1]] for each in near[1:]}
        return content[: self._buffers[number][1]]

    @property
    def last_buffer(self) -> int:
        """The number of the last global buffer."""
        return len(self._buffers) - 1

    def batches(self, start: int, count: int, batch_rows: int = READ_BATCH) -> Iterator[pa.RecordBatch]:
        """A row range as a stream, for jobs that must not hold all of it in memory."""
        yield from self.begin_batches(start, count, batch_rows)

    def begin_batches(self, start: int, count: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The same stream, whose reading starts now: pylance reads several ranges at once, if all have begun."""
        _count(reads=1, rows=count)
        if not count:
            return iter(())
        with _Damage(self.where):
            results = self._results(start, count, batch_rows)
        return self._finish_batches(results)

    def _finish_batches(self, results: ReaderResults) -> Iterator[pa.RecordBatch]:
        with _Damage(self.where):
            yield from results.to_batches()

    def _read_numbers(self, start: int, count: int) -> pa.Table | None:
        if self._numbers is None:
            return None
        return self._numbers.read(self._bytes, start, count, partial(request_all, self._store))

    def _results(self, start: int, count: int, batch_rows: int) -> ReaderResults:
        # pylance's reader refuses a second thread while it sets up a read; the results can be fetched concurrently.
        with self._reading:
            return self._reader.read_range(start, count, batch_size=batch_rows)


def write_lance_file(
    store: Store,
    directory: str,
    name: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    storage_version: str,
    metadata: Mapping[str, str] | None = None,
    buffers: Iterable[bytes] = (),
) -> IndexFile:
    """Write one file and return its name and size.

    `buffers` become global buffers 1, 2, ...; they are read after the last batch, so they may depend on the data, and
    `metadata` is read last.
    """
    path = f"{directory}/{name}"
    with answering(store.describe(path)):
        writer = store.open_writer(path, schema=schema, version=storage_version)
        try:
            for batch in batches:
                writer.write_batch(batch)
            for buffer in buffers:
                writer.add_global_buffer(buffer)
            for key, value in (metadata or {}).items():
                writer.add_schema_metadata(key, value)
        finally:
            writer.close()
        return IndexFile(name, writer.size_bytes or 0)


class _Damage:
    """Raise DamagedFile. pylance reports a bad file in many ways, including a Rust panic (a BaseException)."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, PennonError | KeyboardInterrupt | SystemExit | GeneratorExit):
            return
        failure = store_failure(error, self._where)
        if failure is not None:
            raise failure from error
        line = (str(error).splitlines() or [""])[0]
        raise DamagedFile(f"{self._where} cannot be read: {type(error).__name__}: {line}") from error
