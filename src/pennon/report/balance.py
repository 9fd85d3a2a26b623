"""How even the parts of a segment are: the pages and ranges of a B-tree, the partitions of a vector index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.index.btree.lookup import PageLookup
from pennon.index.vector.vectors import Positions

BINS = 24


@dataclass(frozen=True)
class PageBalance:
    """The pages of a B-tree. One that holds a single value is searched for nothing else, and runs of such pages mean
    that the value is frequent."""

    pages: int
    page_rows: int
    with_nulls: int
    of_one_value: int
    range_pages: tuple[int, ...]

    @classmethod
    def of(cls, lookup: PageLookup) -> PageBalance:
        low, high = lookup.mins, lookup.maxs
        if pa.types.is_float16(low.type):  # which Arrow does not compare
            low, high = low.cast(pa.float32()), high.cast(pa.float32())
        same = pc.sum(pc.equal(low, high)).as_py() or 0
        ranges = tuple(file.pages for file in lookup.files)
        return cls(lookup.pages, lookup.batch_size, int(np.count_nonzero(lookup.null_counts)), int(same), ranges)

    @property
    def skew(self) -> float:
        """The largest range in units of the mean one."""
        return max(self.range_pages) * len(self.range_pages) / self.pages if self.pages else 1.0


@dataclass(frozen=True)
class Bin:
    """`count` partitions have from `low` to `high` rows."""

    low: int
    high: int
    count: int


@dataclass(frozen=True)
class PartitionBalance:
    partitions: int
    rows: int
    empty: int
    median: int
    largest: int
    imbalance: float  # rows a probe reads, in units of what it would if all partitions were alike
    bins: tuple[Bin, ...]

    @classmethod
    def of(cls, lengths: Positions) -> PartitionBalance:
        rows, count = int(lengths.sum()), len(lengths)
        squares = float((lengths.astype(np.float64) ** 2).sum())
        return cls(
            partitions=count,
            rows=rows,
            empty=int(np.count_nonzero(lengths == 0)),
            median=int(np.median(lengths)) if count else 0,
            largest=int(lengths.max(initial=0)),
            imbalance=squares * count / rows**2 if rows else 1.0,
            bins=_bins(lengths),
        )

    @property
    def mean(self) -> float:
        return self.rows / self.partitions if self.partitions else 0.0

    @property
    def skew(self) -> float:
        """The largest partition in units of the mean one."""
        return self.largest / self.mean if self.rows else 1.0


def _bins(lengths: Positions) -> tuple[Bin, ...]:
    """Of whole numbers of rows, so that a bin can be named by the sizes in it."""
    if not len(lengths):
        return ()
    width = max(1, -(-(int(lengths.max()) + 1) // BINS))
    counts = np.bincount(lengths // width)
    return tuple(Bin(at * width, (at + 1) * width - 1, int(count)) for at, count in enumerate(counts.tolist()))
