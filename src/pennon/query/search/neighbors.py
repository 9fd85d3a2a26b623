"""The nearest rows found so far, for a block of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.vector.vectors import Floats, Mask, Positions

# No row has this address.
NOWHERE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

# A partial sort first, if there are this many times more candidates than places.
CROWDED = 4


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Per query, a row of both arrays: ascending by distance, equal distances by address. Where there are fewer, the
    last distances are infinite and their addresses NOWHERE."""

    distances: Floats
    addresses: Addresses

    @classmethod
    def none(cls, queries: int) -> Neighbors:
        return cls(np.empty((queries, 0), dtype=np.float32), np.empty((queries, 0), dtype=np.uint64))

    @classmethod
    def nearest(cls, distances: Floats, addresses: Addresses, k: int) -> Neighbors:
        """The k nearest of candidates in any order; infinite distances are no candidates."""
        if distances.shape[1] > CROWDED * k:
            chosen = np.argpartition(distances, k - 1, axis=1)[:, :k]
            distances, addresses = _picked(chosen, distances, addresses)
        addresses = np.where(np.isinf(distances), NOWHERE, addresses)
        return cls(*_picked(np.lexsort((addresses, distances), axis=1)[:, :k], distances, addresses))

    @classmethod
    def merged(cls, parts: Sequence[Neighbors], k: int) -> Neighbors:
        """The k nearest of several findings for the same queries."""
        if len(parts) == 1:
            return cls(parts[0].distances[:, :k], parts[0].addresses[:, :k])
        distances = np.concatenate([part.distances for part in parts], axis=1)
        return cls.nearest(distances, np.concatenate([part.addresses for part in parts], axis=1), k)

    @classmethod
    def stacked(cls, blocks: Sequence[Neighbors]) -> Neighbors:
        """The findings of several blocks of queries, one below the other."""
        if len(blocks) == 1:
            return blocks[0]
        width = max(block.distances.shape[1] for block in blocks)
        padded = [block.padded(width) for block in blocks]
        return cls(np.concatenate([b.distances for b in padded]), np.concatenate([b.addresses for b in padded]))

    @property
    def found(self) -> Mask:
        return self.addresses != NOWHERE

    @property
    def counts(self) -> Positions:
        return self.found.sum(axis=1)

    def among(self, addresses: Addresses) -> Neighbors:
        """Only those at some (ascending) addresses."""
        return self.only(np.isin(self.addresses, addresses, assume_unique=False))

    def within(self, lower: float | None, upper: float | None) -> Neighbors:
        """Only those at a distance from `lower` on and below `upper`; None for no bound."""
        if lower is None and upper is None:
            return self
        kept = self.found
        if lower is not None:
            kept = kept & (self.distances >= np.float32(lower))
        if upper is not None:
            kept = kept & (self.distances < np.float32(upper))
        return self.only(kept)

    def only(self, kept: Mask) -> Neighbors:
        """Only some of them."""
        distances = np.where(kept, self.distances, np.float32(np.inf))
        return Neighbors.nearest(distances, self.addresses, distances.shape[1]) if kept.size else self

    def after(self, offset: int) -> Neighbors:
        """Without the first ones of each query."""
        return Neighbors(self.distances[:, offset:], self.addresses[:, offset:]) if offset else self

    def of(self, queries: Positions | slice) -> Neighbors:
        return Neighbors(self.distances[queries], self.addresses[queries])

    def replaced(self, queries: Positions, other: Neighbors) -> Neighbors:
        """With the findings of some queries exchanged."""
        width = max(self.distances.shape[1], other.distances.shape[1])
        result, other = self.padded(width), other.padded(width)
        distances, addresses = result.distances.copy(), result.addresses.copy()
        distances[queries], addresses[queries] = other.distances, other.addresses
        return Neighbors(distances, addresses)

    def padded(self, width: int) -> Neighbors:
        queries, own = self.distances.shape
        if own == width:
            return self
        shape = queries, width - own
        return Neighbors(
            np.concatenate([self.distances, np.full(shape, np.inf, dtype=np.float32)], axis=1),
            np.concatenate([self.addresses, np.full(shape, NOWHERE)], axis=1),
        )


def _picked(chosen: Positions, distances: Floats, addresses: Addresses) -> tuple[Floats, Addresses]:
    return np.take_along_axis(distances, chosen, axis=1), np.take_along_axis(addresses, chosen, axis=1)
