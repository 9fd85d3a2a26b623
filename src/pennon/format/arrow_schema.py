"""The Arrow schema of a manifest.

pylance translates it; a table of common types is translated here, so that a process that only looks up rows need not
import pylance, which takes longer than the lookup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.deferred import deferred
from pennon.format.number_file import number_type
from pennon.format.pb import lance_pb2 as pb
from pennon.format.protobuf_wire import fields

if TYPE_CHECKING:
    from lance.schema import LanceSchema
else:
    LanceSchema = deferred("lance.schema", "LanceSchema")

# Fields of the message Field whose meaning is known here: type, name, id, parent_id, logical_type, nullable, encoding.
KNOWN = frozenset(range(1, 8))
# More columns are translated faster by pylance.
MOST_COLUMNS = 64
_OTHER_TYPES = {
    "bool": pa.bool_(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
}


def arrow_schema(outline: pb.ManifestOutline) -> pa.Schema | None:
    """The schema of a manifest, as pylance translates it; None if one of its types is Lance's own, such as JSON, which
    only a handle of pylance shows as Arrow's."""
    protos = [proto.SerializeToString() for proto in outline.fields]
    found = _plain(outline.fields, protos)
    if found is not None and not outline.schema_metadata:
        return pa.schema(found)
    if any(b"lance" in proto for proto in protos):
        return None
    metadata = json.dumps({key: list(value) for key, value in outline.schema_metadata.items()})
    return LanceSchema._from_protos(metadata, *protos).to_pyarrow()  # pyright: ignore[reportPrivateUsage]


def _plain(columns: Sequence[pb.Field], protos: list[bytes]) -> list[pa.Field] | None:
    """Columns of common types without fields below them; None if there are others."""
    if len(protos) > MOST_COLUMNS:
        return None
    found: list[pa.Field] = []
    for column, proto in zip(columns, protos, strict=True):
        kind = _common_type(column.logical_type) if column.parent_id == -1 else None
        try:
            if kind is None or any(number not in KNOWN for number, _ in fields(proto)):
                return None
        except ValueError:
            return None
        found.append(pa.field(column.name, kind, column.nullable))
    return found


@lru_cache(maxsize=256)
def _common_type(logical_type: str) -> pa.DataType | None:
    name, *arguments = logical_type.split(":")
    if name == "fixed_size_list" and len(arguments) == 2 and arguments[1].isdecimal():
        item = number_type(arguments[0])
        return None if item is None else pa.list_(item, int(arguments[1]))
    return number_type(logical_type) or _OTHER_TYPES.get(logical_type)
