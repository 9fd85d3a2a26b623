"""The registry of index kinds. A new kind is a package and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pennon.errors import InvalidArgument, UnknownIndexType
from pennon.format.base_paths import why_refused
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.kind import BITMAP, LABEL_LIST
from pennon.index.btree.kind import BTREE
from pennon.index.foreign import foreign_kind
from pennon.index.inverted.kind import INVERTED
from pennon.index.kind import IndexKind
from pennon.index.ngram.kind import NGRAM
from pennon.index.options import IndexOptions
from pennon.index.rtree.kind import RTREE
from pennon.index.vector.kind import VECTOR
from pennon.index.zones.kind import BLOOM_FILTER, ZONE_MAP

KINDS: tuple[IndexKind, ...] = (BTREE, ZONE_MAP, BLOOM_FILTER, BITMAP, LABEL_LIST, NGRAM, RTREE, INVERTED, VECTOR)


def kind_named(name: str) -> IndexKind:
    for kind in KINDS:
        if name.upper() in kind.names:
            return kind
    raise UnknownIndexType(f"unknown index type {name!r}", f"Pennon builds: {', '.join(index_types())}")


def index_types() -> dict[str, type[IndexOptions]]:
    """The options of every index type that Pennon builds, by the name of the type."""
    return {name: cls for kind in KINDS for name, cls in kind.options.items()}


def index_options(requested: str | IndexOptions, given: Mapping[str, Any]) -> IndexOptions:
    """The options of an index to build, from an object or from the name of a type and keyword arguments.

    Args:
        requested: an options object, or the name of an index type in any case.
        given: keyword arguments; None means not given.

    Raises:
        UnknownIndexType: Pennon does not build this type.
        InvalidArgument: the type does not have an option, or does not allow a value.
    """
    if isinstance(requested, IndexOptions):
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise InvalidArgument(
                f"{', '.join(extra)} given in addition to {type(requested).__name__}(...)",
                f"Pass all options to {type(requested).__name__}(...)",
            )
        return requested.settled()
    if not isinstance(requested, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            f"{requested!r} is not an index type", f"Use one of {', '.join(index_types())}, or an options object"
        )
    return kind_named(requested).options[requested.upper()].of(given)


def kind_of(segment: IndexSegment) -> IndexKind | None:
    """The kind of a segment; None if no kind claims it."""
    return next((kind for kind in KINDS if kind.claims(segment)), None)


def stores_addresses(snapshot: Snapshot, segment: IndexSegment) -> bool:
    """Whether the ids in a segment's files are row addresses, which compactions change; they are stable row ids
    otherwise. For unknown kinds the safe answer is addresses."""
    stable, kind = snapshot.manifest.has_stable_row_ids, kind_of(segment)
    if kind is not None:
        return kind.stores_addresses(segment.index_version, stable)
    foreign = foreign_kind(segment)
    return not (stable and foreign is not None and segment.index_version in foreign.by_row_id)


def label_of(snapshot: Snapshot, segment: IndexSegment) -> str:
    """What the type of a segment is called."""
    kind = kind_of(segment)
    if kind is not None:
        return kind.label(snapshot, segment)
    foreign = foreign_kind(segment)
    return foreign.name if foreign else segment.type_url.rpartition(".")[2] or "unknown"


def why_unusable(snapshot: Snapshot, segment: IndexSegment) -> str | None:
    """The reason to skip a segment and scan its fragments; None if it can be used. Reads only the manifest."""
    kind = kind_of(segment)
    if segment.damage is not None:
        return segment.damage
    if kind is None:
        foreign = foreign_kind(segment)
        name = f"{foreign.name}, which Pennon does not read" if foreign else segment.type_url or "(none)"
        return f"unknown index type {name}"
    if segment.index_version not in kind.versions:
        return f"unsupported {kind.names[0]} version {segment.index_version}"
    if segment.base_id is not None and segment.root is None:
        base = snapshot.manifest.base_paths.get(segment.base_id)
        return f"its files are not read: {why_refused(snapshot.location, segment.base_id, base)}"
    column = snapshot.columns.by_id(segment.field_id)
    if column is None:
        return "not on one column of the table"
    objection = kind.objection(segment)
    if objection is None and not kind.supports(column.type):
        return f"Pennon does not support such an index on columns of type {column.type}"
    return objection
