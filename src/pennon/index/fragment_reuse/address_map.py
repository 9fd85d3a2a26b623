"""Where rows went: a map from old to new addresses, kept as runs of neighboring rows that stayed neighbors.

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

from pennon.format.addresses import OFFSET_BITS, OFFSET_MASK, Addresses, fragment_of, sorted_unique

Mask = npt.NDArray[np.bool_]
Fragments = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.intp]

# Addresses looked up at once, few enough for temporaries to stay in the processor's caches.
CHUNK = 1 << 15

# Up to this many addresses, runs are searched for; among more, ascending ones are cut at the runs, if those are longer
# than PIECE_ROWS on average.
FEW_ADDRESSES = 1 << 10
PIECE_ROWS = 64

# Rows are looked up by words of 64; for a word within a single run, one distance is enough.
WORD_BITS = np.uint64(6)
SEVERAL = np.uint64(1 << 63)
# Limits of the lookup tables. With more words than MOST_WORDS + WORDS_PER_RUN per run, or a fragment id above
# MOST_FRAGMENTS, binary search is used instead; this also bounds the memory that a corrupt file can request.
MOST_WORDS = 1 << 25
WORDS_PER_RUN = 64
MOST_FRAGMENTS = 1 << 24
# Unused words per used one beyond which fragments differ too much in size for the table of words.
MOST_WASTE = 4

# Deleted rows of a fragment that are listed one by one; beyond, they are looked for block by block.
LISTED_ROWS = 1 << 22
BLOCK_ROWS = 1 << 16

# By number, a bit for each of the bits up to that number.
UP_TO = (np.uint64(2) << np.arange(64, dtype=np.uint64)) - np.uint64(1)


@dataclass(frozen=True, eq=False)
class AddressMap:
    """Rows of `fragments` are in a run and move with it, or they are gone. Rows of other fragments stay."""

    starts: Addresses  # ascending
    lengths: Addresses
    targets: Addresses  # of the first row of each run
    fragments: Fragments  # ascending

    @classmethod
    def none(cls) -> AddressMap:
        nothing = np.empty(0, dtype=np.uint64)
        return cls(nothing, nothing, nothing, np.empty(0, dtype=np.uint32))

    @classmethod
    def of_runs(cls, runs: Sequence[tuple[int, Addresses, Addresses]], new: Sequence[tuple[int, int]]) -> AddressMap:
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
    def joined(cls, parts: Sequence[AddressMap]) -> AddressMap:
        """Of fragments that differ."""
        parts = [part for part in parts if len(part.fragments)]
        if len(parts) == 1:
            return parts[0]
        starts, lengths, targets = (
            np.concatenate([np.empty(0, dtype=np.uint64), *arrays])
            for arrays in ([p.starts for p in parts], [p.lengths for p in parts], [p.targets for p in parts])
        )
        fragments = sorted_unique(np.concatenate([np.empty(0, dtype=np.uint32), *(p.fragments for p in parts)]))
        if (starts[1:] > starts[:-1]).all():  # later compactions move fragments of higher ids
            return cls(starts, lengths, targets, fragments)
        order = np.argsort(starts, kind="stable")  # the parts are in order: that is merging them
        return cls(starts[order], lengths[order], targets[order], fragments)

    def apply(self, addresses: Addresses) -> tuple[Addresses, Mask]:
        """The address of each row now, and whether it is still there."""
        if not len(self.fragments) or not len(addresses):
            return addresses, np.ones(len(addresses), dtype=np.bool_)
        if self._too_sparse:
            return self._apply_by_search(addresses)
        moved, alive = np.empty_like(addresses), np.empty(len(addresses), dtype=np.bool_)
        others = slice(None)
        if self._whole_words is not None:
            for start in range(0, len(addresses), CHUNK):
                some = slice(start, start + CHUNK)
                self._apply_by_words(*self._whole_words, addresses[some], moved[some], alive[some])
            others = np.flatnonzero(~alive)
        moved[others], alive[others] = self._apply_by_bits(addresses[others])
        return moved, alive

    def apply_ascending(self, addresses: Addresses) -> Addresses:
        """The addresses now of those rows that are still there, ascending. The given ones are ascending, each once; the
        array is used for the result."""
        if not len(self.fragments) or not len(addresses):
            return addresses
        if len(addresses) <= FEW_ADDRESSES:
            moved, alive = self._apply_by_search(addresses)
            return sorted_unique(moved[alive])
        lows, highs, distances = self._pieces(addresses)
        if len(addresses) < PIECE_ROWS * len(lows):
            moved, alive = self.apply(addresses)
            return sorted_unique(moved[alive])
        firsts, lasts = addresses[lows] + distances, addresses[highs - 1] + distances
        filled = 0
        for low, high, distance in zip(lows.tolist(), highs.tolist(), distances, strict=True):
            # Rows are moved to the front only, in place of those that are gone.
            np.add(addresses[low:high], distance, out=addresses[filled : filled + high - low])
            filled += high - low
        moved = addresses[:filled]
        return moved if (firsts[1:] > lasts[:-1]).all() else sorted_unique(moved)

    def _pieces(self, ascending: Addresses) -> tuple[Positions, Positions, Addresses]:
        """Where the rows of each run that has any, and of fragments that stay, begin and end among the addresses, and
        how far they move."""
        starts = self.fragments.astype(np.uint64) << OFFSET_BITS
        lows, highs = np.searchsorted(ascending, starts), np.searchsorted(ascending, starts | OFFSET_MASK, "right")
        present = (highs > lows)[np.searchsorted(self.fragments, fragment_of(self.starts))]
        begins, lengths, targets = self.starts[present], self.lengths[present], self.targets[present]
        edges = np.concatenate([[0], np.stack([lows, highs], axis=1).ravel(), [len(ascending)]]).reshape(-1, 2)
        found_lows = np.concatenate([edges[:, 0], np.searchsorted(ascending, begins)])
        found_highs = np.concatenate([edges[:, 1], np.searchsorted(ascending, begins + lengths)])
        distances = np.concatenate([np.zeros(len(edges), dtype=np.uint64), targets - begins])
        filled = np.flatnonzero(found_highs > found_lows)
        order = filled[np.argsort(found_lows[filled], kind="stable")]
        return found_lows[order], found_highs[order], distances[order]

    def apply_ranges(self, starts: Addresses, lengths: Addresses) -> tuple[Addresses, Addresses, npt.NDArray[np.intp]]:
        """Ranges of addresses, each within one fragment, as the ranges that their rows are in now; and of each of those
        which of the given ones it comes from. Rows that are gone leave gaps."""
        stops, ends = starts + lengths, self.starts + self.lengths
        moved = np.isin(fragment_of(starts), self.fragments)
        first, last = np.searchsorted(ends, starts, "right"), np.searchsorted(self.starts, stops, "left")
        counts = np.where(moved, np.maximum(last - first, 0), 0)
        source = np.repeat(np.arange(len(starts)), counts)
        run = np.arange(len(source)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        low, high = np.maximum(starts[source], self.starts[run]), np.minimum(stops[source], ends[run])
        stays = np.flatnonzero(~moved)
        return (
            np.concatenate([starts[stays], self.targets[run] + (low - self.starts[run])]),
            np.concatenate([lengths[stays], high - low]),
            np.concatenate([stays, source]),
        )

    @cached_property
    def _too_sparse(self) -> bool:
        ends = (self.starts & OFFSET_MASK) + self.lengths
        words = np.zeros(len(self.fragments), dtype=np.uint64)
        np.maximum.at(words, np.searchsorted(self.fragments, fragment_of(self.starts)), ends >> WORD_BITS)
        most = MOST_WORDS + WORDS_PER_RUN * len(self.starts)
        return int(self.fragments[-1]) > MOST_FRAGMENTS or int(words.sum()) > most

    def _apply_by_words(
        self,
        firsts: npt.NDArray[np.int64],
        last: np.uint64,
        distances: Addresses,
        addresses: Addresses,
        moved: Addresses,
        alive: Mask,
    ) -> None:
        """Rows in words of a single run. Other rows are not alive yet."""
        word = np.minimum((addresses & OFFSET_MASK) >> WORD_BITS, last).view(np.int64)
        word += firsts.take((addresses >> OFFSET_BITS).view(np.int64), mode="clip")
        distance = distances.take(word, mode="clip")
        np.add(addresses, distance, out=moved)
        np.not_equal(distance, SEVERAL, out=alive)

    @cached_property
    def _whole_words(self) -> tuple[npt.NDArray[np.int64], np.uint64, Addresses] | None:
        """By fragment id its first word, negative for fragments that stay; the number of the last word that each
        fragment has; and how far the rows of each word move, SEVERAL where they move differently or some are gone. The
        word before all others is for rows that stay."""
        offsets = self.starts & OFFSET_MASK
        # One word more than any fragment needs, for offsets beyond its rows.
        words = int((offsets + self.lengths).max(initial=np.uint64(0)) >> WORD_BITS) + 2
        used = int(self.lengths.sum() >> WORD_BITS) + 2 * len(self.fragments)
        if words * len(self.fragments) > MOST_WASTE * used:
            return None
        firsts = np.full(int(self.fragments[-1]) + 2, -1 << 40, dtype=np.int64)
        firsts[self.fragments] = np.arange(len(self.fragments)) * words + 1
        base = firsts[fragment_of(self.starts)]
        begin = base + ((offsets + np.uint64(63)) >> WORD_BITS).astype(np.int64)
        end = np.maximum(base + ((offsets + self.lengths) >> WORD_BITS).astype(np.int64), begin)
        # What stays, then in turns the words between runs and those of a run, then what is behind the last.
        borders = np.concatenate([[0, 1], np.stack([begin, end], axis=1).ravel(), [words * len(self.fragments) + 1]])
        between = np.full(len(begin), SEVERAL)
        inside = np.stack([between, self.targets - self.starts], axis=1).ravel()
        moving = np.concatenate([np.zeros(1, dtype=np.uint64), inside, [SEVERAL]])
        return firsts, np.uint64(words - 1), np.repeat(moving, np.diff(borders))

    def _apply_by_bits(self, addresses: Addresses) -> tuple[Addresses, Mask]:
        words, bits, before, runs = self._directory
        first, last = words.take((addresses >> OFFSET_BITS).astype(np.int64), axis=0, mode="clip").T
        offsets = addresses.astype(np.uint32)  # the lower half
        # No run of a fragment reaches beyond its last word, nor does any address, unless files are damaged.
        word = np.minimum(first + (offsets >> np.uint32(WORD_BITS)), last)
        seen = bits.take(word, mode="clip") & UP_TO.take(offsets & np.uint32(63))
        end, distance = runs.take(before.take(word, mode="clip") + np.bitwise_count(seen), axis=0).T
        stays = first < 0
        return np.where(stays, addresses, addresses + distance), stays | (addresses < end)

    def _apply_by_search(self, addresses: Addresses) -> tuple[Addresses, Mask]:
        """Without a directory, which takes longer to make than a few addresses to find."""
        if not len(self.fragments) or not len(addresses):
            return addresses, np.ones(len(addresses), dtype=np.bool_)
        fragments = fragment_of(addresses)
        at = np.minimum(np.searchsorted(self.fragments, fragments), len(self.fragments) - 1)
        stays = self.fragments[at] != fragments
        if not len(self.starts):
            return addresses, stays
        run = np.maximum(np.searchsorted(self.starts, addresses, "right") - 1, 0)
        along = addresses - self.starts[run]  # wraps around where no run is before it, to more than any length
        alive = stays | (along < self.lengths[run])
        return np.where(stays, addresses, along + self.targets[run]), alive

    @cached_property
    def _directory(self) -> tuple[npt.NDArray[np.int64], Addresses, npt.NDArray[np.int32], Addresses]:
        """Counting bits is many times faster than searching among many runs. By fragment id its first and last word,
        negative for fragments that stay; per word of 64 rows a bit for each run that starts there, and how many runs
        start before; and of each run where it ends and how far it moves, modulo 2**64, behind one that holds nothing.
        """
        place = np.searchsorted(self.fragments, fragment_of(self.starts))
        offsets = self.starts & OFFSET_MASK
        ends = np.zeros(len(self.fragments), dtype=np.uint64)
        np.maximum.at(ends, place, offsets + self.lengths)
        sizes = (ends >> np.uint64(6)).astype(np.int64) + 1
        firsts = np.cumsum(sizes) - sizes
        words = np.full((int(self.fragments[-1]) + 2, 2), -1 << 40, dtype=np.int64)
        words[self.fragments] = np.stack([firsts, firsts + sizes - 1], axis=1)
        bits = np.zeros(int(sizes.sum()), dtype=np.uint64)
        at = firsts[place] + (offsets >> np.uint64(6)).astype(np.int64)
        np.bitwise_or.at(bits, at, np.uint64(1) << (offsets & np.uint64(63)))
        held = np.bitwise_count(bits)
        runs = np.stack([self.starts + self.lengths, self.targets - self.starts], axis=1)
        before = np.cumsum(held, dtype=np.int32)
        before -= held
        return words, bits, before, np.concatenate([np.zeros((1, 2), dtype=np.uint64), runs])

    def then(self, later: AddressMap) -> AddressMap:
        """Both, one after the other."""
        if not len(later.fragments):
            return self
        pieces = self._cut(later._edges_within(self.targets, self.lengths))
        targets, alive = later._apply_by_search(pieces.targets)
        kept = AddressMap(pieces.starts[alive], pieces.lengths[alive], targets[alive], self.fragments)
        return AddressMap.joined([kept, later])

    def _edges_within(self, starts: Addresses, lengths: Addresses) -> Addresses:
        """Where runs begin and end, ascending, from the first row of some ranges to the last."""
        if not len(starts):
            return starts
        low, high = starts.min(), (starts + lengths).max()
        ends = self.starts + self.lengths
        first, last = np.searchsorted(ends, low), np.searchsorted(self.starts, high, "right")
        return sorted_unique(np.concatenate([self.starts[first:last], ends[first:last]]))

    def _cut(self, edges: Addresses) -> AddressMap:
        """The same map in shorter runs: none has one of these addresses inside of what it becomes."""
        ends = self.targets + self.lengths
        low, high = np.searchsorted(edges, self.targets, "right"), np.searchsorted(edges, ends, "left")
        cuts = np.maximum(high - low, 0)
        if not cuts.any():
            return self
        run = np.repeat(np.arange(len(cuts)), cuts + 1)
        first = np.cumsum(cuts + 1) - (cuts + 1)
        number = np.arange(len(run)) - first[run]  # of the piece in its run
        targets = self.targets[run]
        inner = number > 0
        targets[inner] = edges[low[run[inner]] + number[inner] - 1]
        starts = self.starts[run] + (targets - self.targets[run])
        stops = ends[run]
        stops[np.flatnonzero(inner) - 1] = targets[inner]
        return AddressMap(starts, stops - targets, targets, self.fragments)


def surviving_runs(survivors: BitMap64, fragment: int, physical_rows: int) -> tuple[int, Addresses, Addresses]:
    """The runs of a fragment's rows that are among the survivors, by the rows between them: as a rule those are few."""
    begin = fragment << 32
    if physical_rows - survivors.range_cardinality(begin, begin + physical_rows) > LISTED_ROWS:
        return fragment, *_runs_by_block(survivors, begin, begin + physical_rows)
    everything = BitMap64()
    everything.add_range(begin, begin + physical_rows)
    gone = np.frombuffer((everything - survivors).to_array(), dtype=np.uint64)
    starts = np.concatenate([np.array([begin], dtype=np.uint64), gone + np.uint64(1)])
    stops = np.concatenate([gone, np.array([begin + physical_rows], dtype=np.uint64)])
    filled = stops > starts
    return fragment, starts[filled], (stops - starts)[filled]


def _runs_by_block(survivors: BitMap64, begin: int, end: int) -> tuple[Addresses, Addresses]:
    """The same where more rows are gone than can be listed, which a few bytes can encode. Blocks that are whole or
    empty are not read."""
    edges: list[Addresses] = []
    for low in range(begin, end, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, end)
        count = survivors.range_cardinality(low, high)
        if count == high - low:
            edges.append(np.array([low, high], dtype=np.uint64))
        elif count:
            block = BitMap64()
            block.add_range(low, high)
            rows = np.frombuffer((block & survivors).to_array(), dtype=np.uint64)
            apart = np.flatnonzero(np.diff(rows) > 1)
            starts, stops = rows[np.append(0, apart + 1)], rows[np.append(apart, len(rows) - 1)] + np.uint64(1)
            edges.append(np.stack([starts, stops], axis=1).reshape(-1))
    joined = np.concatenate(edges) if edges else np.empty(0, dtype=np.uint64)
    # Where one ends at the beginning of the next, neither is an edge.
    inner = np.flatnonzero(joined[1:-1:2] == joined[2::2]) * 2 + 1
    joined = np.delete(joined, np.concatenate([inner, inner + 1])).reshape(-1, 2)
    return joined[:, 0].copy(), joined[:, 1] - joined[:, 0]
