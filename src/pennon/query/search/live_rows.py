"""Which rows of a segment's partitions are in one version of the table, and the segment's to answer for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK, Addresses, contains
from pennon.format.snapshot import Snapshot
from pennon.index.vector.vectors import Mask


@dataclass(frozen=True, eq=False)
class PartitionRows:
    """The address of each row of a partition, and which rows may be answered; None: all of them."""

    addresses: Addresses
    allowed: Mask | None
    nbytes: int

    def among(self, chosen: Addresses | None) -> Mask | None:
        """The rows that may be answered and are among the chosen (ascending) addresses."""
        if chosen is None:
            return self.allowed
        found = contains(chosen, self.addresses)
        return found if self.allowed is None else found & self.allowed


class LiveRows:
    """`token` is a key for what is cached of these rows: no other object has it."""

    def __init__(self, snapshot: Snapshot, coverage: BitMap, stores_addresses: bool) -> None:
        self.token = object()
        fragments = snapshot.manifest.fragments
        self._covered = np.array(coverage, dtype=np.uint64)
        self._sizes = np.array([fragments[f].physical_rows for f in coverage], dtype=np.uint64)
        self._locate = None if stores_addresses else snapshot.address_of_id.locate
        # A stable id whose row is deleted has no address at all.
        self._deleted = snapshot.deleted_addresses(coverage if stores_addresses else BitMap())

    def of(self, row_ids: Addresses, alive: Mask | None) -> PartitionRows:
        """By the row ids of a partition, and which of them are not dead; None: none is."""
        addresses = row_ids
        if self._locate is not None:
            addresses, alive = self._locate(row_ids)
        fragments = addresses >> OFFSET_BITS
        if not len(self._covered):
            return PartitionRows(addresses, np.zeros(len(addresses), dtype=np.bool_), addresses.nbytes)
        at = np.minimum(np.searchsorted(self._covered, fragments), len(self._covered) - 1)
        allowed = self._covered[at] == fragments
        if alive is not None:
            allowed &= alive
        if (addresses[allowed] & OFFSET_MASK >= self._sizes[at[allowed]]).any():
            raise DamagedFile("an index names rows beyond the end of their fragment", "Rebuild the index")
        if len(self._deleted):
            allowed &= ~contains(self._deleted, addresses)
        own = 0 if self._locate is None else addresses.nbytes
        if allowed.all():
            return PartitionRows(addresses, None, own + 128)
        return PartitionRows(addresses, allowed, own + allowed.nbytes + 128)
