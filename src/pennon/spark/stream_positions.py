"""Where a stream is: before a fragment of those that a version added.

`{"version": 7, "fragment": 2}` follows the first two fragments that version 7 added. `snapshot` is the version that is
read whole, before what later ones added. Where a stream starts is decided by its first batch, which Spark logs; so the
initial position is only a word (`{"start": "latest"}`), and means the same if the query fails before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pennon.format.appended import Added
from pennon.spark.options import LATEST, SNAPSHOT

Offset = dict[str, Any]


@dataclass(frozen=True)
class Position:
    """Before a fragment of those that a version added."""

    version: int
    fragment: int = 0
    snapshot: int | None = None

    @classmethod
    def of(cls, offset: Offset) -> Position | None:
        """From Spark's log; None for an initial position."""
        return None if "start" in offset else cls(offset["version"], offset["fragment"], offset.get("snapshot"))

    @classmethod
    def first(cls, start: int | str, newest: int) -> Position:
        """Where a stream starts now that the table has the version `newest`."""
        if start == LATEST:
            return cls(newest + 1)
        return cls(newest, 0, newest) if start == SNAPSHOT else cls(int(start))

    def to_offset(self) -> Offset:
        """For Spark's log."""
        found: Offset = {"version": self.version, "fragment": self.fragment}
        return found if self.snapshot is None else {**found, "snapshot": self.snapshot}


def between(start: Offset, end: Offset) -> tuple[Position, Position] | None:
    """The positions of a batch; None if it has no rows."""
    first, last = Position.of(start), Position.of(end)
    if last is None or start.get("start") == LATEST:
        return None
    if first is None:
        # The first batch again, after a restart: it reads the version that its end names.
        first = Position.first(start["start"], last.snapshot or last.version)
    return first, last


def limited(versions: Iterable[Added], start: Position, max_rows: int | None, max_versions: int | None) -> Position:
    """The end of a batch that starts at a position. Rows are counted by whole fragments, and a batch has at least one;
    versions that added nothing do not count."""
    at, rows, counted = start, 0, 0
    for added in versions:
        skipped = start.fragment if added.version == start.version else 0
        more = added.fragments[skipped:]
        if more and max_versions is not None and counted == max_versions:
            return at
        counted += bool(more)
        for place, (_, count) in enumerate(more, skipped):
            if max_rows is not None and rows and rows + count > max_rows:
                return Position(added.version, place, start.snapshot)
            rows += count
        at = Position(added.version + 1, 0, start.snapshot)
    return at
