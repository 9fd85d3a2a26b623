"""Boundaries that cut a column's order into ranges of about equal size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.addresses import Addresses
from pennon.index.arrays import UInt16s
from pennon.index.btree.pages import Run, sort_run, take
from pennon.index.sorting import kernels
from pennon.index.value_order import SortedValues, byte_layout
from pennon.index.word_keys import values_of, word_keys


@dataclass(frozen=True)
class Boundaries:
    """Cuts between ranges. A cut is a value and the share of the rows with exactly that value that go before it, so
    that one frequent value can spread over several ranges. The first `null_shares` cuts fall among the NULLs."""

    null_shares: tuple[float, ...]
    values: pa.Array
    shares: tuple[float, ...]

    @property
    def ranges(self) -> int:
        return len(self.null_shares) + len(self.shares) + 1

    def cut(self, run: Run) -> list[tuple[int, Run]]:
        """The non-empty pieces of a sorted run, by range number."""
        nulls = len(run.null_ids)
        cuts = [round(share * nulls) for share in self.null_shares]
        ordered = SortedValues(run.values)
        for i, share in enumerate(self.shares):
            left, right = ordered.position(self.values[i], "left"), ordered.position(self.values[i], "right")
            cuts.append(nulls + left + round(share * (right - left)))
        edges = [0, *cuts, run.rows]
        return [(r, run.slice(a, b)) for r, (a, b) in enumerate(pairwise(edges)) if b > a]

    def scatter(self, run: Run) -> list[tuple[int, Run]]:
        """The non-empty pieces of an unsorted run, by range number; each keeps the order it came in."""
        nulls = [round(share * len(run.null_ids)) for share in self.null_shares]
        pieces = [Run(run.null_ids[a:b], run.values[:0], run.ids[:0]) for a, b in pairwise([0, *nulls, None])]
        above, reached = self._cuts_before(run.values)
        for first in np.unique(above[above != reached]):
            # Rows with a value of a cut are distributed by the shares of the cuts.
            rows = np.flatnonzero((above == first) & (reached != first))
            shares = self.shares[first : reached[rows[0]]]
            above[rows] = first + np.searchsorted(shares, (np.arange(len(rows)) + 0.5) / len(rows), "right")
        edges = [0, *np.cumsum(np.bincount(above, minlength=len(self.shares) + 1)).tolist()]
        values, ids = _grouped(run, above, edges)
        found = [Run(run.null_ids[:0], values[a:b], ids[a:b]) for a, b in pairwise(edges)]
        # The last range of NULLs is also the first of values.
        joined = Run(pieces[-1].null_ids, found[0].values, found[0].ids)
        return [(r, piece) for r, piece in enumerate([*pieces[:-1], joined, *found[1:]]) if piece.rows]

    def _cuts_before(self, values: pa.Array) -> tuple[UInt16s, UInt16s]:
        """For each value the number of cuts at a smaller one, and at one not greater."""
        above, reached = (np.zeros(len(values), dtype=np.uint16) for _ in range(2))
        found, keys, cuts = kernels(len(values)), word_keys(values), word_keys(self.values)
        if keys is not None and cuts is not None:
            if found is None:
                left, right = cuts.searchsorted(keys, "left"), cuts.searchsorted(keys, "right")
                return left.astype(np.uint16), right.astype(np.uint16)
            found[0].find_ranges(keys, cuts, above, reached)
        elif found is not None:
            found[1].find_ranges(*byte_layout(values), *byte_layout(self.values), above, reached)
        else:
            for i in range(len(self.shares)):
                above += pc.greater(values, self.values[i]).to_numpy(zero_copy_only=False)
                reached += pc.greater_equal(values, self.values[i]).to_numpy(zero_copy_only=False)
        return above, reached


def _grouped(run: Run, numbers: UInt16s, edges: list[int]) -> tuple[pa.Array, Addresses]:
    """Rows by the number of their range, in the order they came in; `edges` are where ranges begin and end."""
    found, ends = kernels(len(numbers)), np.array(edges, dtype=np.int64)
    if found is None:
        order = np.argsort(numbers, kind="stable")  # a radix sort, for numbers this short
        return take(run.values, order), np.take(run.ids, order)
    keys = word_keys(run.values)
    if keys is not None:
        grouped_keys, ids = np.empty_like(keys), np.empty_like(run.ids)
        found[0].scatter(keys, run.ids, numbers, ends, grouped_keys, ids)
        return values_of(grouped_keys, run.values.type), ids
    order = np.empty(len(numbers), dtype=np.int64)
    found[0].order_of_numbers(numbers, ends, order)
    return take(run.values, order), np.take(run.ids, order)


def boundaries_from_sample(sample: pa.Array, ranges: int) -> Boundaries:
    """Quantiles of a sample, weighted by the bytes a row takes, so that ranges balance memory and not only rows."""
    run = sort_run([(sample, np.arange(len(sample), dtype=np.uint64))], sample.type)
    nulls, values = len(run.null_ids), run.values
    if ranges <= 1 or len(sample) == 0:
        return Boundaries((), values[:0], ())
    weights = np.concatenate([np.full(nulls, 9.0), _row_bytes(values)])
    reached = np.cumsum(weights)
    # Positions in the sorted sample, fractional, where each range ends.
    targets = reached[-1] * np.arange(1, ranges) / ranges
    at = np.searchsorted(reached, targets, "left")
    before = np.where(at > 0, reached[at - 1], 0.0)
    positions = at + (targets - before) / weights[at]
    null_shares = tuple(float(p / nulls) for p in positions if p < nulls)
    value_positions = [p - nulls for p in positions if p >= nulls]
    picks = np.minimum(np.array(value_positions, dtype=np.int64), max(len(values) - 1, 0))
    chosen = take(values, picks) if len(values) else values[:0]
    ordered = SortedValues(values)
    shares: list[float] = []
    for i, position in enumerate(value_positions[: len(chosen)]):
        left, right = ordered.position(chosen[i], "left"), ordered.position(chosen[i], "right")
        # A value seen once is not split; a frequent one is split where the quantile falls.
        shares.append(0.0 if right - left == 1 else min(1.0, max(0.0, (position - left) / (right - left))))
    return Boundaries(null_shares, chosen, tuple(shares))


def _row_bytes(values: pa.Array) -> np.ndarray:
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
        return np.diff(offsets) + 16.0
    return np.full(len(values), 16.0)
