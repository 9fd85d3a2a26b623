"""Cutting a table into tasks of about equal work, and the memory a task may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pennon.errors import InvalidArgument
from pennon.format.manifest import Fragment
from pennon.format.snapshot import ScanSlice, Snapshot

DEFAULT_TASK_MEMORY = 1 << 30
ROWS_PER_TASK = 2_500_000


def task_memory(requested: int | None) -> int:
    """The memory budget of one task in bytes: as asked for, else from PENNON_TASK_MEMORY, else 1 GiB."""
    memory = requested
    if memory is None:
        told = os.environ.get("PENNON_TASK_MEMORY", str(DEFAULT_TASK_MEMORY))
        if not told.isdecimal():
            raise InvalidArgument(f"PENNON_TASK_MEMORY is {told!r}", "Set it to a number of bytes")
        memory = int(told)
    if memory < 64 << 20:
        raise InvalidArgument(f"a task memory of {memory} bytes is too little", "Give at least 64 MiB")
    return memory


def cut_slices(fragments: Iterable[Fragment], count: int) -> list[ScanSlice]:
    """About `count` slices of about equal rows: small fragments are joined, large ones split, neighbours together."""
    fragments = list(fragments)
    share = max(1.0, sum(fragment.live_rows for fragment in fragments) / count)
    slices: list[ScanSlice] = []
    group: list[int] = []
    position, number = 0, 0
    for fragment in fragments:
        rows = fragment.live_rows
        # A fragment belongs to the slice that its middle lies in.
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


def whole_waves(tasks: int, parallelism: int) -> int:
    """Rounded up so that no core idles while others do the last tasks."""
    return -(-tasks // parallelism) * parallelism


def chosen_fragments(snapshot: Snapshot, fragment_ids: Sequence[int] | None) -> list[Fragment]:
    live = snapshot.manifest.fragments
    if fragment_ids is None:
        return list(live.values())
    unknown = sorted(set(fragment_ids) - set(live))
    if unknown or not fragment_ids:
        raise InvalidArgument(
            f"{snapshot.uri} has no fragments {unknown}" if unknown else "fragment_ids is empty",
            f"Choose among {len(live)} fragments with ids {min(live, default=0)} to {max(live, default=0)}",
        )
    return [live[f] for f in sorted(set(fragment_ids))]


def check_at_least_one(**sizes: int | None) -> None:
    check_integers(**sizes)
    for label, value in sizes.items():
        if value is not None and value < 1:
            raise InvalidArgument(f"{label} must be at least 1, not {value}")


def check_integers(**values: object) -> None:
    for label, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InvalidArgument(f"{label} must be a whole number, not {value!r}")
