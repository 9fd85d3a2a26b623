"""Columns of a table: path, field id and Arrow type of every leaf that can be indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pennon.errors import ColumnNotFound, UnsupportedColumn
from pennon.format.pb import lance_pb2 as pb
from pennon.wording import did_you_mean, sql_identifier


@dataclass(frozen=True, slots=True)
class Column:
    """One field of the schema. `path` is the name that users write: `user_id`, or `address.city` for a nested leaf.
    `type` is the type in filters and index files; for UUIDs and tensors, the schema declares another."""

    path: str
    field_id: int
    type: pa.DataType
    is_leaf: bool
    declared: pa.DataType


class Columns:
    """All columns of a table, by path and by field id."""

    def __init__(self, fields: Sequence[pb.Field], schema: pa.Schema) -> None:
        self._by_path: dict[str, Column] = {}
        self._by_id: dict[int, Column] = {}
        self._unreadable: set[int] = set()
        children: dict[int, list[pb.Field]] = {}
        for proto in fields:
            children.setdefault(proto.parent_id, []).append(proto)
        self._add(children, -1, "", {f.name: f.type for f in schema})

    def _add(
        self, children: dict[int, list[pb.Field]], parent: int, prefix: str, types: dict[str, pa.DataType]
    ) -> None:
        for proto in children.get(parent, []):
            arrow_type = types.get(proto.name)
            if arrow_type is None:
                continue
            path = prefix + quote_identifier(proto.name)
            is_struct = pa.types.is_struct(arrow_type)
            column = Column(path, proto.id, stored_type(arrow_type), not is_struct, arrow_type)
            self._by_path[path] = column
            self._by_id[proto.id] = column
            if "`" in proto.name or not proto.name or parent in self._unreadable:
                self._unreadable.add(proto.id)
            if is_struct:
                nested = {arrow_type.field(i).name: arrow_type.field(i).type for i in range(arrow_type.num_fields)}
                self._add(children, proto.id, path + ".", nested)

    def __iter__(self):
        return iter(self._by_path.values())

    def by_id(self, field_id: int) -> Column | None:
        return self._by_id.get(field_id)

    def find(self, path: str) -> Column | None:
        """The column for a name given by a user: the canonical path, or the bare name of a top-level column."""
        return self._by_path.get(path) or self._by_path.get(quote_identifier(path))

    def get(self, path: str, table: str) -> Column:
        column = self.find(path)
        if column is None:
            raise ColumnNotFound(f"table {table} has no column {path!r}", did_you_mean(path, self._by_path))
        if column.field_id in self._unreadable:
            raise UnsupportedColumn(
                f"pylance cannot read a column named {path!r}: the name is empty or contains a backtick", "Rename it"
            )
        return column


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type that pylance stores in index files for values of a type: 16 bytes for a UUID, a vector for a tensor of
    one dimension. Any other type, including tensors of more dimensions, is unchanged."""
    vector = isinstance(type_, pa.FixedShapeTensorType) and len(type_.shape) == 1
    return type_.storage_type if vector or isinstance(type_, pa.UuidType) else type_


def stored_values(array: pa.Array) -> pa.Array:
    """Values in their `stored_type`."""
    return array if stored_type(array.type) == array.type else array.storage


def quote_identifier(name: str) -> str:
    """A name as Lance writes it in paths: in backticks if it would be parsed as more than one part."""
    return sql_identifier(name) if "." in name or "`" in name else name
