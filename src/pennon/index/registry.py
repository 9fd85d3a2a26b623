"""Every kind of index Pennon knows. A new kind is a package and a line here."""

from __future__ import annotations

from pennon.errors import UnknownIndexType
from pennon.format.index_metadata import IndexSegment
from pennon.index.btree.kind import BTREE
from pennon.index.kind import IndexKind

KINDS: tuple[IndexKind, ...] = (BTREE,)


def kind_named(name: str) -> IndexKind:
    for kind in KINDS:
        if kind.name == name.upper():
            return kind
    known = ", ".join(kind.name for kind in KINDS)
    raise UnknownIndexType(f"unknown index type {name!r}", f"Pennon builds: {known}")


def kind_of(segment: IndexSegment) -> IndexKind | None:
    """The kind a segment is of, None when no kind here claims its type."""
    return next((kind for kind in KINDS if segment.type_name in kind.type_names), None)


def why_unusable(segment: IndexSegment) -> str | None:
    """Why a segment must be skipped and its fragments scanned, None when it can be used."""
    kind = kind_of(segment)
    if kind is None:
        return f"unknown index type {segment.type_url or '(none)'}"
    if segment.index_version not in kind.versions:
        return f"unsupported {kind.name} version {segment.index_version}"
    if segment.base_id is not None:
        return "files in another table (base path)"
    return None
