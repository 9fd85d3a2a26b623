"""Stage the rows of a source in files next to the table's, so that they are evaluated once: a merge reads them several
times, and a source that returns other rows each time must not change a table twice. A few rows that this process holds
are not written: tasks receive them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pennon.engine import Engine, is_frame, require_spark
from pennon.engine.frames import arrow_schema, numbered_columns
from pennon.errors import InvalidArgument
from pennon.format.failures import first_line
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.new_rows import conformed_array
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, open_store

if TYPE_CHECKING:
    from pennon.engine import DataFrame

# Keys of each file from which the ranges of the tasks are chosen.
SAMPLED = 1000
# Rows that a task reads from a file.
ROWS_PER_SLICE = 1 << 20
# Bytes of a source that tasks receive instead of a file.
FEW_BYTES = 1 << 20


@dataclass(frozen=True)
class StagedFile:
    """Rows of the source; columns are named by position. `sample` holds keys of some rows, as an Arrow stream, and
    `content` all rows, if they are few: there is no file then."""

    path: str
    rows: int
    nbytes: int
    sample: bytes
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Staged:
    """A source in files, with the names of its columns."""

    location: Location
    schema: pa.Schema
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    def slices(self) -> list[StagedSlice]:
        return [
            StagedSlice(self.location, file.path, start, min(ROWS_PER_SLICE, file.rows - start), file.content)
            for file in self.files
            for start in range(0, file.rows, ROWS_PER_SLICE)
        ]

    def sample(self) -> pa.Table | None:
        """Keys of some rows, in the order of `on`."""
        found = [pa.ipc.open_stream(file.sample).read_all() for file in self.files]
        return pa.concat_tables(found).combine_chunks() if found else None

    def read(self, part: StagedSlice, columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a part under the names of the source; all columns, or some in the order given."""
        names = self.schema.names if columns is None else list(columns)
        numbers = [str(self.schema.get_field_index(name)) for name in names]
        for batch in part.batches(numbers):
            yield pa.record_batch([batch.column(number) for number in numbers], names=names)


@dataclass(frozen=True)
class StagedSlice:
    location: Location
    path: str
    start: int
    rows: int
    content: bytes | None = field(default=None, repr=False)

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self.content is None:
            file = LanceFile(open_store(self.location), self.path, columns=columns)
            return file.batches(self.start, self.rows)
        held = pa.ipc.open_stream(self.content).read_all()
        return iter(held.slice(self.start, self.rows).to_batches())


def source_schema(source: object) -> pa.Schema:
    """The columns of a source.

    Raises:
        InvalidArgument: it is nothing that rows can be read from, or has a column that PySpark cannot pass.
    """
    if is_frame(source):
        try:
            return arrow_schema(cast("DataFrame", source))
        except ValueError as error:
            raise InvalidArgument(f"Spark does not convert column {str(error)!r} to Arrow", "Cast it") from error
    if isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return cast(pa.Table, source).schema
    given = f"{type(source).__module__}.{type(source).__name__}"
    raise InvalidArgument(
        f"merge takes a Spark DataFrame, a pyarrow table or a pandas DataFrame, not {given}",
        "Make one with spark.createDataFrame(...)",
    )


def arrow_source(source: object) -> object:
    """A source as it is, or the rows of a frame of pandas (without its index), Polars or another library.

    Raises:
        InvalidArgument: Arrow has no type for a column.
    """
    ours = is_frame(source) or isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader)
    if ours or not hasattr(source, "__arrow_c_stream__"):
        return source
    try:
        if type(source).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(source, preserve_index=False)
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(
            f"the source does not convert to Arrow: {first_line(error)}", "Cast the column"
        ) from error


def stage_source(
    engine: Engine, snapshot: Snapshot, source: object, staged: pa.Schema, on: tuple[str, ...], directory: str
) -> Staged:
    """Write the rows of a source to files in a directory of the table, with the columns of `staged`."""
    write = partial(_stage, snapshot.location, snapshot.storage_version, directory, staged, on)
    files: Sequence[StagedFile | None]
    if is_frame(source):
        frame = numbered_columns(cast("DataFrame", source))
        files = require_spark(engine, "merge").map_frame("read the source", frame, write)
    else:
        with engine.stage("read the source"):
            files = [write(_batches(source), FEW_BYTES)]
    return Staged(snapshot.location, staged, tuple(file for file in files if file is not None))


def _batches(source: object) -> Iterator[pa.RecordBatch]:
    if isinstance(source, pa.RecordBatch):
        return iter([source])
    return iter(
        cast(pa.Table, source).to_batches() if isinstance(source, pa.Table) else cast(Iterable[pa.RecordBatch], source)
    )


def _stage(
    location: Location,
    version: str,
    directory: str,
    schema: pa.Schema,
    on: tuple[str, ...],
    rows: Iterator[pa.RecordBatch],
    held_bytes: int = 0,
) -> StagedFile | None:
    """Task: writes the rows of one partition to one file of a new name; up to `held_bytes` it returns them instead."""
    places = [schema.get_field_index(key) for key in on]
    numbered = pa.schema([pa.field(str(number), field.type) for number, field in enumerate(schema)])
    keys: list[pa.RecordBatch] = []
    count = 0

    def converted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in rows:
            if batch.num_rows:
                columns = [_converted(batch.column(n), field) for n, field in enumerate(schema)]
                _sample(keys, pa.record_batch([columns[n] for n in places], names=list(on)), count)
                count += batch.num_rows
                yield pa.record_batch(columns, schema=numbered)

    found = converted()
    first: list[pa.RecordBatch] = []
    for batch in found:
        first.append(batch)
        if sum(each.nbytes for each in first) > held_bytes:
            break
    else:
        if not first:
            return None
        content = _stream(first)
        return StagedFile("", count, len(content), _stream(keys), content)
    name = f"source-{uuid4()}.lance"
    file = write_lance_file(open_store(location), directory, name, numbered, chain(first, found), version)
    return StagedFile(f"{directory}/{name}", count, file.size_bytes, _stream(keys))


def _converted(values: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return conformed_array(values, field.type)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"column {field.name!r} of the source has a value that does not fit type {field.type}: {first_line(error)}",
            "Nothing was written",
        ) from error


def _sample(sample: list[pa.RecordBatch], keys: pa.RecordBatch, before: int) -> None:
    """Some rows of every batch; fewer of later ones, so that the sample stays small."""
    share = max(1, SAMPLED * keys.num_rows // max(1, before + keys.num_rows))
    picks = np.unique(np.linspace(0, keys.num_rows - 1, min(share, keys.num_rows)).astype(np.int64))
    sample.append(keys.take(pa.array(picks)))


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
