"""Pairs of keys and rows, as indices that are sorted by value have them: rows need not be read to be matched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, fragment_bounds, offset_of
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Int64s
from pennon.index.kind import PointSegment, Precision
from pennon.query.catalog import Catalog, UnusableSegment, UsableSegment, attributing_errors
from pennon.query.lookup.keys import KeyColumn

# Pairs that are held at once; where there are more, rows are found as sets.
MOST_PAIRS = 1 << 23


@dataclass(frozen=True, eq=False)
class Pairs:
    """Live rows with given values, by ascending address, with the position of its value for each row; and the fragments
    in which all such rows are found."""

    values: pa.Array
    positions: Int64s
    addresses: Addresses
    fragments: BitMap

    def values_of(self, addresses: Addresses) -> pa.Array:
        """The values of some of the rows."""
        return self.values.take(pa.array(self.positions[np.searchsorted(self.addresses, addresses)]))


def find_pairs(
    catalog: Catalog, key: KeyColumn, values: pa.Array, fragments: BitMap, most: int = MOST_PAIRS
) -> Pairs | None:
    """The rows of some fragments that have one of the values: ascending, each once. None if no index finds pairs, or
    more than `most`. Damaged segments are left out."""
    while True:
        try:
            return _find(catalog, key, values, fragments, most)
        except UnusableSegment as unusable:
            catalog.exclude(unusable)


def _find(catalog: Catalog, key: KeyColumn, values: pa.Array, fragments: BitMap, most: int) -> Pairs | None:
    covered = BitMap()
    parts: list[tuple[Int64s, Addresses]] = []
    for usable, segment in _segments(catalog, key, values):
        own = (usable.coverage & fragments) - covered
        if own:
            covered |= own
            with attributing_errors(usable):
                found = _gathered(segment.find(values), most)
                if found is None:
                    return None
                parts.append(_located(catalog.snapshot, usable, *found, own))
    if not covered:
        return None
    positions, addresses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(addresses, kind="stable")
    return Pairs(values, positions[order], addresses[order], covered)


def _segments(catalog: Catalog, key: KeyColumn, values: pa.Array) -> Iterator[tuple[UsableSegment, PointSegment]]:
    for index in catalog.indices.get(key.column.path, ()):
        for usable in index.segments:
            if index.kind.answers(usable.segment, key.condition(values[:1])) is Precision.EXACT:
                with attributing_errors(usable):
                    opened = catalog.open(usable)
                if isinstance(opened, PointSegment):
                    yield usable, opened


def _gathered(found: Iterator[tuple[Int64s, Addresses]], most: int) -> tuple[Int64s, Addresses] | None:
    positions, ids = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    count = 0
    for at, some in found:
        positions.append(at)
        ids.append(some)
        count += len(some)
        if count > most:
            return None
    return np.concatenate(positions), np.concatenate(ids)


def _located(
    snapshot: Snapshot, usable: UsableSegment, positions: Int64s, ids: Addresses, fragments: BitMap
) -> tuple[Int64s, Addresses]:
    """Positions and addresses of the live rows of some fragments, each row once."""
    if not usable.kind.stores_addresses(usable.segment.index_version, snapshot.manifest.has_stable_row_ids):
        ids, alive = snapshot.address_of_id.locate(ids)
        positions, ids = positions[alive], ids[alive]
    order = np.argsort(ids, kind="stable")
    positions, addresses = positions[order], ids[order]
    kept = np.zeros(len(addresses), dtype=np.bool_)
    bounds = {number: span for number, span in fragment_bounds(addresses).items() if number in fragments}
    snapshot.read_deletions(bounds)
    for number, (start, stop) in bounds.items():
        fragment, offsets = snapshot.manifest.fragments[number], offset_of(addresses[start:stop])
        if int(offsets[-1]) >= fragment.physical_rows:
            problem = f"segment {usable.segment.uuid} names rows beyond the end of fragment {number}"
            raise DamagedFile(problem, "Rebuild the index")
        kept[start:stop] = True
        if fragment.deletion_file is not None:
            kept[start:stop] = ~np.isin(offsets, snapshot.deleted_offsets(number), kind="sort")
    # A row that a segment lists twice is found once.
    kept[1:] &= addresses[1:] != addresses[:-1]
    return positions[kept], addresses[kept]
