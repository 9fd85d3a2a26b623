"""Finds partitions that are too large, and those too small to be worth a probe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pennon.index.vector.vectors import Positions

# In units of the target rows of a partition: larger ones are split, smaller ones joined to their neighbors.
SPLIT_ABOVE = 4
JOIN_BELOW = 1 / 16
# Smaller partitions are scanned so fast that splitting them gains nothing.
LEAST_SPLIT_ROWS = 512
# With a smaller share of tiny partitions, joining them is not worthwhile.
MANY_TINY = 0.25


@dataclass(frozen=True, eq=False)
class Imbalance:
    """Numbers of partitions, ascending; `children` are those that each outgrown one is split into."""

    outgrown: Positions
    children: Positions
    tiny: Positions

    @classmethod
    def of(cls, lengths: Positions, target: int) -> Imbalance:
        outgrown = np.flatnonzero(lengths > max(SPLIT_ABOVE * target, LEAST_SPLIT_ROWS))
        tiny = np.flatnonzero(lengths < JOIN_BELOW * target)
        if len(tiny) < MANY_TINY * len(lengths) or len(tiny) == len(lengths):
            tiny = tiny[:0]
        wanted = -(-lengths[outgrown] // max(target, LEAST_SPLIT_ROWS // SPLIT_ABOVE))
        return cls(outgrown, wanted, tiny)

    def __bool__(self) -> bool:
        return bool(len(self.outgrown) or len(self.tiny))

    def share(self, lengths: Positions) -> float:
        """The share of the rows that would be encoded again."""
        return float(lengths[self.outgrown].sum() / max(1, lengths.sum()))

    def kept(self, num_partitions: int) -> Positions:
        """Partitions that stay as they are."""
        return np.delete(np.arange(num_partitions), np.concatenate([self.outgrown, self.tiny]))

    def __str__(self) -> str:
        parts = []
        if len(self.outgrown):
            parts.append(f"{len(self.outgrown)} partitions are too large")
        if len(self.tiny):
            parts.append(f"{len(self.tiny)} are nearly empty")
        return ", ".join(parts)
