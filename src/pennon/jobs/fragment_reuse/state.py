"""Which recorded compactions index files still need, and which segments name rows by old addresses.

A version of the Fragment Reuse Index is needed as long as a file names a row by an address that it maps, or by one that
older versions map to such an address. Metadata does not record it: bitmaps advance with every commit, files stay. So
the ids themselves are read, on executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import kind_of, why_unusable


@dataclass(frozen=True)
class ReuseState:
    """What a table's Fragment Reuse Index holds, and which segments need it. `behind` have old addresses."""

    versions: tuple[int, ...]  # of the table, that each recorded compaction read
    size_bytes: int
    needed: tuple[bool, ...]
    behind: tuple[IndexSegment, ...]
    followable: tuple[IndexSegment, ...]  # those behind that Pennon can rewrite

    @property
    def left_behind(self) -> tuple[IndexSegment, ...]:
        """Those that it cannot."""
        return tuple(segment for segment in self.behind if segment not in self.followable)

    @property
    def removable(self) -> int:
        return sum(not needed for needed in self.needed)


def read_state(engine: Engine, snapshot: Snapshot) -> ReuseState | None:
    """None where the table has no Fragment Reuse Index."""
    reuse = read_fragment_reuse(snapshot)
    if reuse is None:
        return None
    held = _held_fragments(engine, snapshot, reuse)
    old = BitMap(reuse.old_fragments)
    behind = tuple(s for s in snapshot.manifest.user_segments if s.uuid in held and held[s.uuid] & old)
    followable = tuple(segment for segment in behind if why_unusable(snapshot, segment) is None)
    versions = tuple(version.dataset_version for version in reuse.versions)
    return ReuseState(versions, reuse.size_bytes, _needed(reuse, held.values()), behind, followable)


def coverage_of(snapshot: Snapshot, segment: IndexSegment, reuse: FragmentReuse | None) -> BitMap:
    """The fragments a segment covers among the others of its index."""
    siblings = [s for s in snapshot.manifest.user_segments if s.name == segment.name]
    return effective_coverage(segment, snapshot, reuse, siblings)


def _held_fragments(engine: Engine, snapshot: Snapshot, reuse: FragmentReuse) -> dict[str, BitMap]:
    """By segment that covers something, the fragments of the addresses in its files. Where files cannot be read: of all
    that ever were."""
    stable = snapshot.manifest.has_stable_row_ids
    held: dict[str, BitMap] = {}
    readable: list[IndexSegment] = []
    for segment in snapshot.manifest.user_segments:
        kind = kind_of(segment)
        if not coverage_of(snapshot, segment, reuse):
            continue  # no query takes a row of it
        if kind is None or why_unusable(snapshot, segment) is not None:
            held[segment.uuid] = BitMap(reuse.old_fragments)
        elif kind.stores_addresses(segment.index_version, stable):
            readable.append(segment)
    if readable:
        rows = sum(snapshot.manifest.rows_in(coverage_of(snapshot, segment, reuse)) for segment in readable)
        found = engine.map("addresses", partial(_fragments_in, snapshot.pin()), readable, rows=rows)
        everything = BitMap(reuse.old_fragments)
        held |= {s.uuid: everything if f is None else f for s, f in zip(readable, found, strict=True)}
    return held


def _fragments_in(pin: Pin, segment: IndexSegment) -> BitMap | None:
    """Task: None where the files cannot be read."""
    snapshot = pin.open()
    kind, column = kind_of(segment), snapshot.columns.by_id(segment.field_id)
    if kind is None or column is None:
        return None
    held = BitMap()
    try:
        for ids in kind.open(snapshot, segment, column, None, ByteCache(0)).stored_ids():
            held |= BitMap(np.unique(fragment_of(ids)))
    except (DamagedFile, UnsupportedTable):
        return None
    return held


def _needed(reuse: FragmentReuse, held: Iterable[BitMap]) -> tuple[bool, ...]:
    """Which versions map an address that a file holds, or that earlier versions map it to."""
    reached = BitMap().union(*held)
    needed: list[bool] = []
    for version in reuse.versions:
        met = [group for group in version.groups if reached & BitMap(d.id for d in group.old)]
        needed.append(bool(met))
        for group in met:
            reached |= BitMap(d.id for d in group.new)
    return tuple(needed)
