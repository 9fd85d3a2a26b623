"""Where rows went: a map of addresses, kept as runs of neighbouring rows that stayed neighbours.

Compaction moves whole fragments, so that a run is as long as there is no deleted row in between: the map of a billion
rows has thousands of runs. Maps of one compaction after another are joined to one, and an address is looked up once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pennon.format.addresses import OFFSET_BITS, Addresses, fragment_of

Mask = npt.NDArray[np.bool_]
Fragments = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Moves:
    """Rows of `fragments` are in a run and move with it, or they are gone. Rows of other fragments stay."""

    starts: Addresses  # ascending
    lengths: Addresses
    targets: Addresses  # of the first row of each run
    fragments: Fragments  # ascending

    @classmethod
    def none(cls) -> Moves:
        nothing = np.empty(0, dtype=np.uint64)
        return cls(nothing, nothing, nothing, np.empty(0, dtype=np.uint32))

    @classmethod
    def of_rows(cls, rows: Sequence[Addresses], old: Sequence[int], new: Sequence[tuple[int, int]]) -> Moves:
        """Of the surviving rows of each old fragment, which fill the new fragments (id, rows) one after another."""
        survivors = np.concatenate([np.empty(0, dtype=np.uint64), *rows])
        filled = np.cumsum([0, *(count for _, count in new)])
        breaks = np.ones(len(survivors), dtype=np.bool_)
        breaks[1:] = np.diff(survivors) != 1
        breaks[filled[filled < len(survivors)]] = True
        first = np.flatnonzero(breaks)
        into = np.searchsorted(filled, first, "right") - 1
        bases = np.array([fragment << 32 for fragment, _ in new], dtype=np.uint64)
        targets = bases[into] + (first - filled[into]).astype(np.uint64)
        lengths = np.diff(first, append=len(survivors)).astype(np.uint64)
        order = np.argsort(survivors[first])
        fragments = np.unique(np.array(old, dtype=np.uint32))
        return cls(survivors[first][order], lengths[order], targets[order], fragments)

    @classmethod
    def joined(cls, parts: Sequence[Moves]) -> Moves:
        """Of fragments that differ."""
        starts, lengths, targets = (
            np.concatenate([np.empty(0, dtype=np.uint64), *arrays])
            for arrays in ([p.starts for p in parts], [p.lengths for p in parts], [p.targets for p in parts])
        )
        order = np.argsort(starts)
        fragments = np.unique(np.concatenate([np.empty(0, dtype=np.uint32), *(p.fragments for p in parts)]))
        return cls(starts[order], lengths[order], targets[order], fragments)

    def apply(self, addresses: Addresses) -> tuple[Addresses, Mask]:
        """The address of each row now, and whether it is still there."""
        alive = np.ones(len(addresses), dtype=np.bool_)
        if not len(self.fragments) or not len(addresses):
            return addresses, alive
        held = fragment_of(addresses)
        at = np.minimum(np.searchsorted(self.fragments, held), len(self.fragments) - 1)
        hit = np.flatnonzero(self.fragments[at] == held)
        if not len(hit):
            return addresses, alive
        moved = addresses.copy()
        if not len(self.starts):
            alive[hit] = False
            return moved, alive
        old = addresses[hit]
        run = np.maximum(np.searchsorted(self.starts, old, "right") - 1, 0)
        along = old - self.starts[run]  # wraps around before the first run, to more than any length
        alive[hit] = along < self.lengths[run]
        moved[hit] = self.targets[run] + along
        return moved, alive

    def then(self, later: Moves) -> Moves:
        """Both, one after the other."""
        pieces = self._cut(np.unique(np.concatenate([later.starts, later.starts + later.lengths])))
        targets, alive = later.apply(pieces.targets)
        kept = Moves(pieces.starts[alive], pieces.lengths[alive], targets[alive], self.fragments)
        return Moves.joined([kept, later])

    def _cut(self, edges: Addresses) -> Moves:
        """The same moves in shorter runs: none has one of these addresses inside of what it becomes."""
        ends = self.targets + self.lengths
        low, high = np.searchsorted(edges, self.targets, "right"), np.searchsorted(edges, ends, "left")
        cuts = np.maximum(high - low, 0)
        run = np.repeat(np.arange(len(cuts)), cuts + 1)
        first = np.cumsum(cuts + 1) - (cuts + 1)
        number = np.arange(len(run)) - first[run]  # of the piece in its run
        targets = self.targets[run]
        inner = number > 0
        targets[inner] = edges[low[run[inner]] + number[inner] - 1]
        starts = self.starts[run] + (targets - self.targets[run])
        stops = ends[run]
        stops[np.flatnonzero(inner) - 1] = targets[inner]
        return Moves(starts, stops - targets, targets, self.fragments)


def rows_of(fragment: int, survivors: Addresses) -> Addresses:
    """Those of one fragment among ascending addresses."""
    low, high = np.searchsorted(survivors, np.array([fragment, fragment + 1], dtype=np.uint64) << OFFSET_BITS)
    return survivors[low:high]
