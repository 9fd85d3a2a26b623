"""Cut a table into tasks of about equal work."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from pennon.errors import InvalidArgument
from pennon.format.fragments import Fragment
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot

ROWS_PER_TASK = 2_500_000


def cut_slices(fragments: Iterable[Fragment], count: int) -> list[ScanSlice]:
    """About `count` slices of about equal rows: small fragments are joined, large ones split, neighbors together."""
    fragments = list(fragments)
    share = max(1.0, sum(fragment.live_rows for fragment in fragments) / count)
    slices: list[ScanSlice] = []
    group: list[int] = []
    position, number = 0, 0
    for fragment in fragments:
        rows = fragment.live_rows
        # A fragment belongs to the slice that contains its middle.
        middle = int((position + rows / 2) / share)
        split = rows > share * 1.5
        if group and (split or middle != number):
            slices.append(ScanSlice(tuple(group)))
            group = []
        if split:
            pieces = round(rows / share)
            edges = [rows * i // pieces for i in range(pieces + 1)]
            slices += [ScanSlice((fragment.id,), a, b - a) for a, b in pairwise(edges)]
        else:
            group.append(fragment.id)
        position, number = position + rows, middle
    if group:
        slices.append(ScanSlice(tuple(group)))
    return slices


def cut_neighbors(fragments: Sequence[Fragment], count: int) -> list[list[Fragment]]:
    """Exactly `count` groups of neighboring fragments with about equally many rows; `count` is at most the number of
    fragments."""
    reached = list(accumulate(fragment.live_rows for fragment in fragments))
    cuts = [0]
    for number in range(1, count):
        wanted = bisect_left(reached, reached[-1] * number / count) + 1
        cuts.append(max(cuts[-1] + 1, min(wanted, len(fragments) - (count - number))))
    return [list(fragments[start:stop]) for start, stop in pairwise([*cuts, len(fragments)])]


def whole_waves(tasks: int, parallelism: int) -> int:
    """The number of tasks, rounded up so that no core is idle while others run the last tasks."""
    return -(-tasks // parallelism) * parallelism


def chosen_fragments(snapshot: Snapshot, fragment_ids: Sequence[int] | None) -> list[Fragment]:
    """The live fragments with these ids (None: all), in order of id."""
    live = snapshot.manifest.fragments
    if fragment_ids is None:
        return list(live.values())
    unknown = sorted(set(fragment_ids) - set(live))
    if unknown or not fragment_ids:
        raise InvalidArgument(
            f"{snapshot.uri} has no fragment {', '.join(map(str, unknown))}" if unknown else "fragment_ids is empty",
            f"Choose among {len(live)} fragments with ids {min(live, default=0)} to {max(live, default=0)}",
        )
    return [live[f] for f in sorted(set(fragment_ids))]
