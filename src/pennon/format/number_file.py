"""Lance files of which all columns that are wanted hold numbers: few rows of them are read without pylance.

The schema of a file is in its first global buffer, a FileDescriptor. Columns are those fields without fields below
them, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from google.protobuf.message import DecodeError

from pennon.format.footer import FileEnd
from pennon.format.local_file import LocalFile
from pennon.format.mini_blocks import NumberColumn
from pennon.format.pb import lance_pb2 as pb
from pennon.format.scattered_values import Numbers, OtherLayout, Places, ReadAt, Scratch

# The first version with mini-blocks.
OLDEST = (2, 1)
# More rows are read by pylance, which decodes pages in several threads.
MOST_READ, MOST_TAKEN = 1 << 15, 32

# A function of a column, and what gives its results for each column.
ReadColumn = Callable[[NumberColumn], bytes | Numbers]
ForEach = Callable[[ReadColumn, Iterable[NumberColumn]], Iterable[bytes | Numbers]]

EXTENSION = "ARROW:extension"
_TYPES = {
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
}


@dataclass(frozen=True, eq=False)
class NumberFile:
    """Some columns of a file. Reads return None where only pylance can read the rows."""

    schema: pa.Schema
    metadata: dict[str, str]
    num_rows: int
    _columns: tuple[NumberColumn, ...]

    def read(self, read_at: ReadAt, start: int, count: int, each: ForEach = map) -> pa.Table | None:
        """Neighboring rows. `each` may read several columns at once."""
        if not 0 < count <= MOST_READ or start < 0 or start + count > self.num_rows:
            return None
        return self._table(count, lambda column: column.read(read_at, start, count), each)

    def take(self, read_at: ReadAt, rows: Sequence[int]) -> pa.Table | None:
        """Few rows, in any order."""
        if not 0 < len(rows) <= MOST_TAKEN or min(rows) < 0 or max(rows) >= self.num_rows:
            return None
        return self._table(len(rows), lambda column: column.take(read_at, rows))

    def gather(self, file: LocalFile, rows: Places, scratch: Scratch) -> pa.Table | None:
        """Many ascending rows."""
        if not len(rows) or rows[0] < 0 or rows[-1] >= self.num_rows:
            return None
        return self._table(len(rows), lambda column: column.gather(file.read, file.read_into, rows, scratch))

    def _table(self, count: int, read: ReadColumn, each: ForEach = map) -> pa.Table | None:
        arrays: list[pa.Array] = []
        try:
            for content, kind in zip(each(read, self._columns), self.schema.types, strict=True):
                arrays.append(pa.Array.from_buffers(kind, count, [None, pa.py_buffer(content)]))
        except OtherLayout:
            return None
        return pa.Table.from_arrays(arrays, schema=self.schema)


def columns_by_name(end: FileEnd, names: Sequence[str] | None = None) -> NumberFile | None:
    """Columns of a file, all by default, by what its end describes; None if one of them does not hold numbers."""
    found = _leaves(end)
    if found is None:
        return None
    described, leaves = found
    by_name = {leaf.name: number for number, leaf in enumerate(leaves) if leaf.parent_id < 0}
    if names is None and len(by_name) != len(leaves):
        return None
    wanted = [by_name.get(name) for name in (by_name if names is None else names)]
    return _number_file(end, described, leaves, wanted)


def columns_by_id(end: FileEnd, types: Mapping[int, str]) -> NumberFile | None:
    """Columns of a data file, by their field ids and types; None if one of them does not hold numbers of its type."""
    found = _leaves(end)
    if found is None:
        return None
    described, leaves = found
    by_id = {leaf.id: number for number, leaf in enumerate(leaves) if types.get(leaf.id) == leaf.logical_type}
    return _number_file(end, described, leaves, [by_id.get(each) for each in types])


def _leaves(end: FileEnd) -> tuple[pb.FileDescriptor, list[pb.FileField]] | None:
    """The fields of the columns of a file, in the order of the columns."""
    if end.version < OLDEST or not end.descriptor:
        return None
    try:
        described = pb.FileDescriptor.FromString(end.descriptor)
    except DecodeError:
        return None
    fields = described.schema.fields
    # Fields that are stored in another way than others of their type are marked so.
    if any("packed" in key or "blob" in key for field in fields for key in field.metadata):
        return None
    parents = {field.parent_id for field in fields}
    leaves = [field for field in fields if field.id not in parents]
    # If not, a field has several columns, or several fields have one.
    return (described, leaves) if len(leaves) == len(end.columns) else None


def _number_file(
    end: FileEnd, described: pb.FileDescriptor, leaves: list[pb.FileField], wanted: list[int | None]
) -> NumberFile | None:
    columns: list[NumberColumn] = []
    fields: list[pa.Field] = []
    for number in wanted:
        field = None if number is None else leaves[number]
        kind = None if field is None else number_type(field.logical_type)
        if number is None or field is None or kind is None or any(key.startswith(EXTENSION) for key in field.metadata):
            return None
        column = NumberColumn(end.columns[number], kind.bit_width // 8)
        if column.rows != described.length:
            return None
        columns.append(column)
        fields.append(pa.field(field.name, kind, field.nullable, dict(field.metadata) or None))
    metadata = {key: value.decode("utf-8", "replace") for key, value in described.schema.metadata.items()}
    return NumberFile(pa.schema(fields), metadata, described.length, tuple(columns))


@lru_cache(maxsize=256)
def number_type(logical_type: str) -> pa.DataType | None:
    """The type of a column of numbers of a fixed size in whole bytes, as Lance writes it; None for any other."""
    name, *arguments = logical_type.split(":", 2)
    if name == "timestamp" and len(arguments) == 2 and arguments[0] in ("s", "ms", "us", "ns"):
        return pa.timestamp(arguments[0], None if arguments[1] == "-" else arguments[1])
    return _TYPES.get(logical_type)
