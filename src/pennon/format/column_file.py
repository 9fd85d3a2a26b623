"""Columns of a fragment read from its data file, without the cost of planning a scan.

Names in a data file are those of the day it was written; columns may have been renamed since. So a column is read here
only if the field of its name has its field id in the file, too. The schema of a file is its first global buffer:

    FileDescriptor  schema = 1 { fields = 1 { name = 2, id = 3, parent_id = 4 }, ... }, length = 2
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.fragments import Fragment
from pennon.format.index_metadata import is_plain_path
from pennon.format.lance_file import LanceFile
from pennon.format.pb import lance_pb2 as pb
from pennon.format.protobuf_wire import fields
from pennon.format.store import Store

DATA = "data"


def open_columns(store: Store, fragment: Fragment, columns: Mapping[str, int], schema: pa.Schema) -> LanceFile | None:
    """The data file with all of some top-level columns, given by name and field id; None if only a scan can read
    them: they are in several files, were renamed, or are stored with another type than the schema declares."""
    paths = {fragment.field_files.get(field_id) for field_id in columns.values()}
    path = paths.pop() if len(paths) == 1 else None
    if path is None or not is_plain_path(path):
        return None
    file = LanceFile(store, f"{DATA}/{path}", columns=list(columns))
    held = _top_level(file.read_global_buffer(0))
    if file.num_rows != fragment.physical_rows or any(held.get(name) != columns[name] for name in columns):
        return None
    same = all(file.schema.field(name).type == schema.field(name).type for name in columns)
    return file if same else None


def _top_level(descriptor: bytes) -> dict[str, int]:
    """Names and ids of the columns in the schema of a file."""
    try:
        schemas = [content for number, content in fields(descriptor) if number == 1]
        protos = [pb.Field.FromString(_bytes(p)) for s in schemas for number, p in fields(_bytes(s)) if number == 1]
    except ValueError as error:
        raise DamagedFile(f"the schema of a data file cannot be read: {error}") from error
    return {proto.name: proto.id for proto in protos if proto.parent_id < 0}


def _bytes(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise ValueError("expected a message, found a number")
    return content
