"""Every kind of index Pennon knows. A new kind is a package and a line here."""

from __future__ import annotations

from pennon.errors import UnknownIndexType
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.btree.kind import BTREE
from pennon.index.kind import IndexKind
from pennon.index.vector.kind import VECTOR

KINDS: tuple[IndexKind, ...] = (BTREE, VECTOR)


def kind_named(name: str) -> IndexKind:
    for kind in KINDS:
        if name.upper() in kind.names:
            return kind
    known = ", ".join(name for kind in KINDS for name in kind.names)
    raise UnknownIndexType(f"unknown index type {name!r}", f"Pennon builds: {known}")


def kind_of(segment: IndexSegment) -> IndexKind | None:
    """The kind a segment is of, None when no kind here claims its type."""
    return next((kind for kind in KINDS if kind.claims(segment)), None)


def why_unusable(snapshot: Snapshot, segment: IndexSegment) -> str | None:
    """Why a segment must be skipped and its fragments scanned, None when it can be used. Only the manifest is read."""
    kind = kind_of(segment)
    if segment.damage is not None:
        return segment.damage
    if kind is None:
        return f"unknown index type {segment.type_url or '(none)'}"
    if segment.index_version not in kind.versions:
        return f"unsupported {kind.names[0]} version {segment.index_version}"
    if segment.base_id is not None:
        return "files in another table (base path)"
    column = snapshot.columns.by_id(segment.field_id)
    if column is None:
        return "not on one column of the table"
    objection = kind.objection(segment)
    if objection is None and not kind.supports(column.type):
        return f"Pennon does not support {kind.family.value} indices on columns of type {column.type}"
    return objection
