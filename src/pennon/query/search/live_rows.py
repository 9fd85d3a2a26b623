"""Which rows of a segment's partitions are in one version of the table, and the segment's to answer for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK, Addresses, contains
from pennon.format.row_set import RowSet, offsets_of
from pennon.format.snapshot import Snapshot
from pennon.index.vector.vectors import Mask, Positions

# The number of a row among all rows of the covered fragments, one fragment after another.
Places = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class PartitionRows:
    """The address of each row of a partition, and which rows may be answered; None: all of them. `places` are there if
    the rows are to be tested against selections."""

    addresses: Addresses
    allowed: Mask | None
    nbytes: int
    places: Places | None = None

    @property
    def mask(self) -> Mask:
        """The rows that may be answered."""
        return np.ones(len(self.addresses), dtype=np.bool_) if self.allowed is None else self.allowed

    def among(self, chosen: Addresses | None) -> Mask | None:
        """The rows that may be answered and are among the chosen (ascending) addresses."""
        if chosen is None:
            return self.allowed
        found = contains(chosen, self.addresses)
        return found if self.allowed is None else found & self.allowed

    def flagged(self, flags: Mask | None) -> Mask | None:
        """The rows that may be answered and whose places are flagged (`LiveRows.flags`)."""
        if flags is None:
            return self.allowed
        assert self.places is not None
        found = flags[self.places]
        return found if self.allowed is None else np.logical_and(found, self.allowed, out=found)


def flagged_of(parts: Sequence[PartitionRows], flags: Mask) -> tuple[Mask, Positions]:
    """As `PartitionRows.flagged` of several partitions, one after another, and how many rows of each are: in few calls,
    however many partitions there are."""
    places = [part.places for part in parts if part.places is not None]
    found = flags[np.concatenate(places)]
    if any(part.allowed is not None for part in parts):
        found &= np.concatenate([part.mask for part in parts])
    lengths = np.array([len(each) for each in places])
    sums = np.concatenate([[0], np.cumsum(found)])
    ends = np.cumsum(lengths)
    return found, sums[ends] - sums[ends - lengths]


class LiveRows:
    """`token` is a key for what is cached of these rows: no other object has it."""

    def __init__(self, snapshot: Snapshot, coverage: BitMap, stores_addresses: bool, *, placed: bool = False) -> None:
        """`placed`: rows have places as well, four bytes each."""
        self.token = object()
        fragments = snapshot.manifest.fragments
        self._covered = np.array(coverage, dtype=np.uint64)
        self._sizes = np.array([fragments[f].physical_rows for f in coverage], dtype=np.uint64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._placed = placed
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
            nowhere = np.zeros(len(addresses), dtype=np.bool_)
            places = np.zeros(len(addresses), dtype=np.uint32) if self._placed else None
            return PartitionRows(addresses, nowhere, addresses.nbytes, places)
        at = np.minimum(np.searchsorted(self._covered, fragments), len(self._covered) - 1)
        allowed = self._covered[at] == fragments
        if alive is not None:
            allowed &= alive
        if (addresses[allowed] & OFFSET_MASK >= self._sizes[at[allowed]]).any():
            raise DamagedFile("an index names rows beyond the end of their fragment", "Rebuild the index")
        if len(self._deleted):
            allowed &= ~contains(self._deleted, addresses)
        places = self._places(addresses, at, allowed) if self._placed else None
        own = (0 if self._locate is None else addresses.nbytes) + (0 if places is None else places.nbytes)
        if allowed.all():
            return PartitionRows(addresses, None, own + 128, places)
        return PartitionRows(addresses, allowed, own + allowed.nbytes + 128, places)

    @property
    def size(self) -> int:
        """The number of places."""
        return max(1, int(self._sizes.sum()))

    def flags(self, rows: RowSet) -> Mask:
        """Whether a row is in a set, by its place. A byte a row: less than the addresses of one row in eight."""
        flags = np.zeros(self.size, dtype=np.bool_)
        for fragment, start, size in zip(
            self._covered.tolist(), self._starts.tolist(), self._sizes.tolist(), strict=True
        ):
            if fragment not in rows.by_fragment:
                continue
            chosen, own = rows.by_fragment[fragment], flags[start : start + size]
            own[slice(None) if chosen is None else offsets_of(chosen)] = True
        return flags

    def _places(self, addresses: Addresses, at: npt.NDArray[np.intp], allowed: Mask) -> Places:
        """0 for rows that may not be answered: their own place may not exist."""
        places = self._starts[at] + (addresses & OFFSET_MASK)
        places[~allowed] = 0
        few = not len(self._sizes) or int(self._sizes.sum()) <= np.iinfo(np.uint32).max
        return places.astype(np.uint32) if few else places
