"""Columns of a table: path, field id and Arrow type of every leaf that can be indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pennon.errors import ColumnNotFound, UnsupportedColumn
from pennon.format.pb import lance_pb2 as pb
from pennon.wording import did_you_mean, sql_identifier

# The start of the names of extension types of geometries.
GEOMETRIES = "geoarrow."
EXTENSION_KEY = b"ARROW:extension:name"


@dataclass(frozen=True, slots=True)
class Column:
    """One field of the schema. `path` is the name that users write: `user_id`, or `address.city` for a nested leaf.
    `type` is the type in filters and index files; for UUIDs and tensors, the schema declares another. `extension` is
    the name of the Arrow extension type in the metadata of the field, such as `geoarrow.point`."""

    path: str
    field_id: int
    type: pa.DataType
    is_leaf: bool
    declared: pa.DataType
    extension: str = ""


class Columns:
    """All columns of a table, by path and by field id."""

    def __init__(self, fields: Sequence[pb.Field], schema: pa.Schema) -> None:
        self._by_path: dict[str, Column] = {}
        self._by_id: dict[int, Column] = {}
        self._unreadable: set[int] = set()
        children: dict[int, list[pb.Field]] = {}
        for proto in fields:
            children.setdefault(proto.parent_id, []).append(proto)
        self._add(children, -1, "", {f.name: f for f in schema})

    def _add(self, children: dict[int, list[pb.Field]], parent: int, prefix: str, known: dict[str, pa.Field]) -> None:
        for proto in children.get(parent, []):
            arrow_field = known.get(proto.name)
            if arrow_field is None:
                continue
            path, arrow_type = prefix + quote_identifier(proto.name), arrow_field.type
            stored, extension = stored_type(arrow_type), _extension(arrow_field)
            is_struct = pa.types.is_struct(stored)
            # A point is a struct of numbers, and a value that filters name as a whole.
            is_leaf = not is_struct or extension.startswith(GEOMETRIES)
            column = Column(path, proto.id, stored, is_leaf, arrow_type, extension)
            self._by_path[path] = column
            self._by_id[proto.id] = column
            if "`" in proto.name or not proto.name or parent in self._unreadable:
                self._unreadable.add(proto.id)
            if is_struct:
                nested = {stored.field(i).name: stored.field(i) for i in range(stored.num_fields)}
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
    one dimension; for a geometry, the type of its coordinates. Any other type, including tensors of more dimensions, is
    unchanged."""
    vector = isinstance(type_, pa.FixedShapeTensorType) and len(type_.shape) == 1
    geometry = isinstance(type_, pa.BaseExtensionType) and type_.extension_name.startswith(GEOMETRIES)
    return type_.storage_type if vector or geometry or isinstance(type_, pa.UuidType) else type_


def stored_values(array: pa.Array) -> pa.Array:
    """Values in their `stored_type`."""
    return array if stored_type(array.type) == array.type else array.storage


def quote_identifier(name: str) -> str:
    """A name as Lance writes it in paths: in backticks if it would be parsed as more than one part."""
    return sql_identifier(name) if "." in name or "`" in name else name


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return field.type.extension_name
    return (field.metadata or {}).get(EXTENSION_KEY, b"").decode("utf-8", "replace")
