"""The policy that chooses segments to merge: size tiers, as in a log-structured merge tree.

A new segment is merged with older ones while they are not much larger than the rows gathered so far. Sizes of segments
then grow by a factor from each to the next older one, so that both their number and the number of writes of a row grow
with the logarithm of the rows. Only neighbors are merged, newest first: coverage stays contiguous, and compaction,
which never joins fragments of different segments, is not blocked. A kind may limit the size of segments: those that
would be larger together stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# An older segment is merged unless it has more than this many times the rows gathered so far.
RATIO = 2


@dataclass(frozen=True)
class Tier:
    """A segment for the policy; one with a reason in `forced` must be rewritten regardless of its size."""

    rows: int
    forced: str | None = None
    nbytes: int = 0


@dataclass(frozen=True)
class Choice:
    """The newest `count` segments are merged with the rows that are new."""

    count: int
    reason: str


def choose_segments(tiers: Sequence[Tier], new_rows: int, limit: int | None = None) -> Choice:
    """Choose the segments to merge; they are given from the oldest to the newest. `limit` is in bytes."""
    forced = next((at for at, tier in enumerate(tiers) if tier.forced), None)
    rows, nbytes = sum(tier.rows for tier in tiers), sum(tier.nbytes for tier in tiers)
    gathered, taken, size = new_rows, 0, new_rows * nbytes / max(1, rows)
    for tier in reversed(tiers):
        # Without new rows, others are compared with the newest segment.
        if taken == 0 and new_rows == 0:
            gathered, taken, size = tier.rows, 1, tier.nbytes
            continue
        if tier.rows > RATIO * gathered or (limit is not None and size + tier.nbytes > limit):
            break
        gathered, taken, size = gathered + tier.rows, taken + 1, size + tier.nbytes
    if new_rows == 0 and taken == 1:
        gathered, taken = 0, 0
    if forced is not None and len(tiers) - forced > taken:
        return Choice(len(tiers) - forced, tiers[forced].forced or "")
    if taken == 0:
        older = f"; the newest segment has {tiers[-1].rows:,}" if tiers else ""
        return Choice(0, f"{new_rows:,} new rows become a segment{older}" if new_rows else "every row is covered")
    left = f"; the next older has {tiers[-taken - 1].rows:,}" if taken < len(tiers) else ""
    newest = "the newest segment" if taken == 1 else f"the {taken} newest segments"
    return Choice(taken, f"{newest} and {new_rows:,} new rows make {gathered:,} rows{left}")
