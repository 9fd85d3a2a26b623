"""Where rows went: a map of addresses, kept as runs of neighbouring rows that stayed neighbours.

Compaction moves whole fragments, so that a run is as long as there is no deleted row in between: the map of a billion
rows has thousands of runs. Maps of one compaction after another are joined to one, and an address is looked up once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK, Addresses, fragment_of

Mask = npt.NDArray[np.bool_]
Fragments = npt.NDArray[np.uint32]

# Addresses looked up at once, few enough for temporaries to stay in the processor's caches.
CHUNK = 1 << 15

# By number, a bit for each of the bits up to that number.
UP_TO = (np.uint64(2) << np.arange(64, dtype=np.uint64)) - np.uint64(1)


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
    def of_runs(cls, runs: Sequence[tuple[int, Addresses, Addresses]], new: Sequence[tuple[int, int]]) -> Moves:
        """Of old fragments with the starts and lengths of their runs of surviving rows, which fill the new fragments
        (id, rows) one after another."""
        nothing = np.empty(0, dtype=np.uint64)
        starts = np.concatenate([nothing, *(starts for _, starts, _ in runs)])
        lengths = np.concatenate([nothing, *(lengths for _, _, lengths in runs)])
        fragments = np.unique(np.array([fragment for fragment, _, _ in runs], dtype=np.uint32))
        filled = np.cumsum([0, *(count for _, count in new)]).astype(np.uint64)
        # First by the number of the row among all that survive, then by its address.
        pieces = cls(starts, lengths, np.cumsum(lengths) - lengths, fragments)._cut(np.unique(filled))
        into = np.searchsorted(filled, pieces.targets, "right") - 1
        bases = np.array([fragment << 32 for fragment, _ in new], dtype=np.uint64)
        targets = bases[into] + (pieces.targets - filled[into]) if len(into) else nothing
        order = np.argsort(pieces.starts)
        return cls(pieces.starts[order], pieces.lengths[order], targets[order], fragments)

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
        if not len(self.fragments) or not len(addresses):
            return addresses, np.ones(len(addresses), dtype=np.bool_)
        moved, alive = np.empty_like(addresses), np.empty(len(addresses), dtype=np.bool_)
        for start in range(0, len(addresses), CHUNK):
            some = slice(start, start + CHUNK)
            self._apply(addresses[some], moved[some], alive[some])
        return moved, alive

    def _apply(self, addresses: Addresses, moved: Addresses, alive: Mask) -> None:
        words, bits, before, runs = self._directory
        first = words.take((addresses >> OFFSET_BITS).astype(np.int64), mode="clip")
        offsets = addresses.astype(np.uint32)  # the lower half
        word = first + (offsets >> np.uint32(6))
        seen = bits.take(word, mode="clip") & UP_TO.take(offsets & np.uint32(63))
        start, length, target = runs.take(before.take(word, mode="clip") + np.bitwise_count(seen), axis=0).T
        along = addresses - start  # wraps around where no run is before it, to more than any length
        np.less(along, length, out=alive)
        np.add(along, target, out=moved)
        stays = first < 0
        if stays.any():
            alive[stays] = True
            moved[stays] = addresses[stays]

    @cached_property
    def _directory(self) -> tuple[npt.NDArray[np.int64], Addresses, npt.NDArray[np.int64], Addresses]:
        """Counting bits is many times faster than searching among many runs. By fragment id its first word, negative
        for fragments that stay; per word of 64 rows a bit for each run that starts there, and how many runs start
        before; and the runs as rows of start, length and target, behind one that holds nothing."""
        place = np.searchsorted(self.fragments, fragment_of(self.starts))
        offsets = self.starts & OFFSET_MASK
        ends = np.zeros(len(self.fragments), dtype=np.uint64)
        np.maximum.at(ends, place, offsets + self.lengths)
        sizes = (ends >> np.uint64(6)).astype(np.int64) + 1
        firsts = np.cumsum(sizes) - sizes
        words = np.full(int(self.fragments[-1]) + 2, -1 << 40, dtype=np.int64)
        words[self.fragments] = firsts
        bits = np.zeros(int(sizes.sum()), dtype=np.uint64)
        at = firsts[place] + (offsets >> np.uint64(6)).astype(np.int64)
        np.bitwise_or.at(bits, at, np.uint64(1) << (offsets & np.uint64(63)))
        held = np.bitwise_count(bits).astype(np.int64)
        runs = np.stack([self.starts, self.lengths, self.targets], axis=1)
        return words, bits, np.cumsum(held) - held, np.concatenate([np.zeros((1, 3), dtype=np.uint64), runs])

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


def surviving_runs(survivors: BitMap64, fragment: int, physical_rows: int) -> tuple[int, Addresses, Addresses]:
    """The runs of a fragment's rows that are among the survivors, by the rows between them: as a rule those are few."""
    begin = fragment << 32
    everything = BitMap64()
    everything.add_range(begin, begin + physical_rows)
    gone = np.frombuffer((everything - survivors).to_array(), dtype=np.uint64)
    starts = np.concatenate([np.array([begin], dtype=np.uint64), gone + np.uint64(1)])
    stops = np.concatenate([gone, np.array([begin + physical_rows], dtype=np.uint64)])
    filled = stops > starts
    return fragment, starts[filled], (stops - starts)[filled]
