"""A look into the files of a segment: whether they are all there, with which parameters, and how even."""

from __future__ import annotations

from dataclasses import dataclass, field

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.description import Description
from pennon.index.file_health import file_damage
from pennon.index.registry import kind_of, why_unusable


@dataclass(frozen=True)
class Inspection:
    """`unsupported` is what only the files record: an index for a metric that Pennon does not support."""

    opened: bool
    damage: str | None = None
    unsupported: str | None = None
    description: Description = field(default_factory=Description)


def inspect(snapshot: Snapshot, segment: IndexSegment, *, open_: bool) -> Inspection:
    """Reads what a query reads first: a lookup, or centroids. Never from the cache, which outlives the files."""
    if not open_:
        return Inspection(opened=False)
    damage = file_damage(snapshot.store, segment)
    if damage:
        return Inspection(opened=True, damage=damage)
    try:
        return _open(snapshot, segment)
    except DamagedFile as error:
        return Inspection(opened=True, damage=error.problem)
    except UnsupportedTable as error:
        return Inspection(opened=True, unsupported=error.problem)


def _open(snapshot: Snapshot, segment: IndexSegment) -> Inspection:
    kind = kind_of(segment)
    column = snapshot.columns.by_id(segment.field_id)
    if kind is None or column is None or why_unusable(snapshot, segment):
        return Inspection(opened=True)
    return Inspection(True, description=kind.open(snapshot, segment, column, None, ByteCache(0)).describe())
