"""Selects the rows of existing segments that a rewritten one keeps, and their new ids.

A segment's files may list rows that have been deleted, that compaction moved, or that belong to fragments the segment
no longer covers. Every rewrite of files drops or remaps those: merging, remapping and catching up are the same here.
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
from pennon.index.fragment_reuse.reading import read_address_map, read_fragment_reuse

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergeSource:
    """A source segment, and the fragments it covers, by their new ids.

    `partitions` renumbers those of a vector index: the old number of each new one; others are dropped.
    """

    segment: IndexSegment
    coverage: FrozenBitMap
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class RemapPlan:
    """The sources of one new segment; small enough to be sent with every task.

    `address_map` is the path of a file with the address map of a running compaction: rows get the addresses that they
    will have once it is committed.
    """

    pin: Pin
    stores_addresses: bool
    sources: tuple[MergeSource, ...] = field(repr=False)
    address_map: str | None = None

    @property
    def coverage(self) -> BitMap:
        return BitMap().union(*(source.coverage for source in self.sources))

    def remapper(self, source: MergeSource) -> Remapper:
        """Created once per process."""
        return _remapper(self.pin, self.stores_addresses, self.address_map, source.coverage)


class Remapper:
    """Remaps the ids in one segment's files."""

    def __init__(self, pin: Pin, stores_addresses: bool, address_map: str | None, coverage: FrozenBitMap) -> None:
        snapshot = pin.open()
        self._locate = None if stores_addresses else snapshot.address_of_id.locate
        self._reuse = read_fragment_reuse(snapshot) if stores_addresses else None
        if address_map is not None:
            compaction = read_address_map(snapshot.store, address_map)
            self._reuse = compaction if self._reuse is None else self._reuse.followed_by(compaction)
        # By fragment id; the last entry is for all higher ids.
        self._covered = np.zeros(max(coverage, default=0) + 2, dtype=np.bool_)
        self._covered[list(coverage)] = True
        self._deleted = snapshot.deleted_addresses(BitMap(coverage) & snapshot.manifest.live)

    def remap(self, ids: Addresses) -> tuple[Addresses, Mask]:
        """The new id of each stored one, and a mask of the rows to keep."""
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
        """Whether all fragments between the lowest and the highest address are covered, as they usually are."""
        if not len(addresses):
            return True
        low, high = int(addresses.min()) >> 32, int(addresses.max()) >> 32
        return high < len(self._covered) and bool(self._covered[low : high + 1].all())


@lru_cache(maxsize=256)
def _remapper(pin: Pin, stores_addresses: bool, address_map: str | None, coverage: FrozenBitMap) -> Remapper:
    return Remapper(pin, stores_addresses, address_map, coverage)
