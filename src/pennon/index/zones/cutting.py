"""Zones of a table: the live rows of a fragment in address order, cut every N rows.

A zone spans from its first to its last row, so deleted rows in between make it longer than N.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK, Addresses, fragment_of
from pennon.format.row_set import RowSet

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Zones:
    """The address of the first row of each zone, and the number of offsets it spans."""

    starts: Addresses
    lengths: Addresses

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.lengths.nbytes

    @property
    def fragments(self) -> npt.NDArray[np.uint32]:
        return fragment_of(self.starts)

    def chosen(self, mask: Mask) -> Zones:
        return Zones(self.starts[mask], self.lengths[mask])

    def in_order(self) -> Zones:
        order = np.argsort(self.starts, kind="stable")
        return Zones(self.starts[order], self.lengths[order])

    def overlapping(self) -> BitMap:
        """Fragments with a row that is in several zones."""
        zones = self.in_order()
        reached = np.maximum.accumulate(zones.starts + zones.lengths)
        # A zone ends before the addresses of the next fragment begin.
        return BitMap(np.unique(zones.fragments[1:][zones.starts[1:] < reached[:-1]]))

    def rows(self) -> RowSet:
        """All offsets of the zones, with neighboring zones joined into ranges."""
        if not len(self):
            return RowSet.none()
        zones = self.in_order()
        starts, stops, fragments = zones.starts, zones.starts + zones.lengths, zones.fragments
        reached = np.maximum.accumulate(stops)
        apart = np.flatnonzero((starts[1:] > reached[:-1]) | (fragments[1:] != fragments[:-1])) + 1
        firsts, lasts = np.append(0, apart), np.append(apart, len(starts)) - 1
        lows = (starts[firsts] & OFFSET_MASK).tolist()
        highs = (reached[lasts] - (fragments[firsts].astype(np.uint64) << OFFSET_BITS)).tolist()
        found: dict[int, BitMap | None] = {}
        for fragment, low, high in zip(fragments[firsts].tolist(), lows, highs, strict=True):
            rows = BitMap(range(low, high))
            known = found.get(fragment)
            found[fragment] = rows if known is None else known | rows
        return RowSet(found)


@dataclass
class ZoneCutter:
    """Cuts ascending live addresses, which come batch by batch, into zones of `rows_per_zone` rows.

    A batch is cut into pieces, each of one zone; a zone that continues in the next batch has pieces in both.
    """

    rows_per_zone: int
    count: int = 0
    _fragment: int = -1
    _filled: int = 0
    _firsts: list[Addresses] = field(default_factory=list)
    _lasts: list[Addresses] = field(default_factory=list)
    _owners: list[Positions] = field(default_factory=list)

    def cut(self, addresses: Addresses) -> tuple[Positions, Positions]:
        """The starts of the pieces of a batch, and the number of the zone of each. Rows of a fragment are
        consecutive."""
        heads: list[int] = []
        if addresses[0] >> OFFSET_BITS != addresses[-1] >> OFFSET_BITS:
            fragments = fragment_of(addresses)
            heads = (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
        edges: list[Positions] = []
        owners: list[Positions] = []
        for start, stop in zip([0, *heads], [*heads, len(addresses)], strict=True):
            fragment = int(addresses[start]) >> 32
            if fragment != self._fragment:
                self._fragment, self._filled = fragment, 0
            within, numbers = self._cut_fragment(stop - start)
            edges.append(within + start)
            owners.append(numbers)
        starts, numbers = np.concatenate(edges), np.concatenate(owners)
        self._firsts.append(addresses[starts])
        self._lasts.append(addresses[np.append(starts[1:], len(addresses)) - 1])
        self._owners.append(numbers)
        return starts, numbers

    def piece_edges(self) -> Positions:
        """The start of each zone among the pieces of all batches."""
        if not self._owners:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(np.diff(np.concatenate(self._owners), prepend=-1))

    def zones(self) -> Zones:
        """All zones so far."""
        if not self._owners:
            return Zones(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64))
        firsts, lasts, edges = np.concatenate(self._firsts), np.concatenate(self._lasts), self.piece_edges()
        ends = np.append(edges[1:], len(firsts)) - 1
        return Zones(firsts[edges], lasts[ends] - firsts[edges] + np.uint64(1))

    def _cut_fragment(self, rows: int) -> tuple[Positions, Positions]:
        """The next `rows` rows of the current fragment."""
        room = self.rows_per_zone - self._filled if self._filled else 0
        if room >= rows:
            self._filled += rows
            starts = np.zeros(1, dtype=np.int64)
            numbers = np.full(1, self.count - 1)
        else:
            fresh = np.arange(room, rows, self.rows_per_zone)
            starts = np.append(0, fresh) if room else fresh
            first = self.count - 1 if room else self.count
            numbers = np.arange(first, first + len(starts))
            self.count += len(fresh)
            self._filled = rows - int(fresh[-1])
        if self._filled == self.rows_per_zone:
            self._filled = 0
        return starts, numbers
