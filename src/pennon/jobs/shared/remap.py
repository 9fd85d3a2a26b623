"""Which rows of existing segments a rewritten one takes over, and under which ids.

A segment's files may know rows that are deleted by now, that moved, or that belong to fragments the segment no longer
answers for. Whoever rewrites files leaves those out: merging, remapping and catching up are all the same here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, FrozenBitMap

from pennon.format.addresses import Addresses, contains, fragment_of
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin
from pennon.index.fragment_reuse.reading import read_fragment_reuse, read_moves

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Source:
    """A segment to take rows from, and the fragments it answers for, by the ids they will have.

    `partitions` of a vector index, where those get other numbers: the old number of each of the first; others are left
    out.
    """

    segment: IndexSegment
    coverage: FrozenBitMap
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Carrying:
    """What goes into one new segment; small enough to travel with every task.

    `moves` names a file with a compaction that is not committed yet, whose rows are to be known by their new addresses
    already.
    """

    pin: Pin
    stores_addresses: bool
    sources: tuple[Source, ...] = field(repr=False)
    moves: str | None = None

    @property
    def coverage(self) -> BitMap:
        return BitMap().union(*(source.coverage for source in self.sources))

    def carrier(self, source: Source) -> Carrier:
        """Set up once per process."""
        return _carrier(self.pin, self.stores_addresses, self.moves, source.coverage)


class Carrier:
    """What becomes of the ids in one segment's files."""

    def __init__(self, pin: Pin, stores_addresses: bool, moves: str | None, coverage: FrozenBitMap) -> None:
        snapshot = pin.open()
        self._locate = None if stores_addresses else snapshot.address_of_id.locate
        self._reuse = read_fragment_reuse(snapshot) if stores_addresses else None
        if moves is not None:
            under_way = read_moves(snapshot.store, moves)
            self._reuse = under_way if self._reuse is None else self._reuse.followed_by(under_way)
        # By fragment id; the last place stands for all ids beyond.
        self._covered = np.zeros(max(coverage, default=0) + 2, dtype=np.bool_)
        self._covered[list(coverage)] = True
        self._deleted = snapshot.deleted_addresses(BitMap(coverage) & snapshot.manifest.live)

    def carry(self, ids: Addresses) -> tuple[Addresses, Mask]:
        """The new id of each stored one, and which rows are taken over."""
        addresses, kept = ids, np.ones(len(ids), dtype=np.bool_)
        if self._locate is not None:
            addresses, kept = self._locate(ids)
        elif self._reuse is not None:
            addresses, kept = self._reuse.remap(ids)
        if not self._covers_all(addresses):
            kept &= self._covered.take(fragment_of(addresses), mode="clip")
        if self._locate is None and len(self._deleted):
            kept &= ~contains(self._deleted, addresses)
        return (addresses if self._locate is None else ids), kept

    def _covers_all(self, addresses: Addresses) -> bool:
        """As a rule it does, and that is known from the lowest and the highest address."""
        if not len(addresses):
            return True
        low, high = int(addresses.min()) >> 32, int(addresses.max()) >> 32
        return high < len(self._covered) and bool(self._covered[low : high + 1].all())


@lru_cache(maxsize=256)
def _carrier(pin: Pin, stores_addresses: bool, moves: str | None, coverage: FrozenBitMap) -> Carrier:
    return Carrier(pin, stores_addresses, moves, coverage)
