"""Commit changed rows on the newest version, as long as they are there as they were read.

Deletion vectors are written for the version that they are committed on: those of other writers are in them. If a row
that is to be deleted was deleted, updated or moved by another writer since it was read, the work is done again on the
newest version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import CommitConflict, PennonError, StoreUnavailable
from pennon.format.deletion_files import WrittenDeletion, discard_deletions, still_live, write_deletions
from pennon.format.row_changes import NewFragment, discard_fragments
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.shared.commit import log_commit
from pennon.jobs.shared.retry import ATTEMPTS, attempts

logger = logging.getLogger(__name__)
# Deletion vectors that this process writes; more are written by tasks, each some of them.
FEW_FILES = 128

T = TypeVar("T")
Commit = Callable[[Snapshot, Sequence[WrittenDeletion]], Snapshot]


class RowsChanged(CommitConflict):
    """Another writer changed the same rows since they were read."""


@dataclass(frozen=True)
class RowChange:
    """Rows of a version that go, and fragments with rows that come. `change` describes it in the log."""

    read: Snapshot
    deleted: Mapping[int, BitMap]
    fragments: tuple[NewFragment, ...]
    change: str
    counts: Mapping[str, int]

    def check(self, base: Snapshot) -> None:
        """Raises RowsChanged if a row that goes is not as it was read."""
        if base.version == self.read.version:
            return
        base.read_deletions(base.manifest.fragments.keys() & self.deleted.keys())
        for fragment, rows in self.deleted.items():
            if not still_live(base, self.read.manifest.fragments[fragment], rows):
                raise RowsChanged(
                    f"rows of fragment {fragment} of {base.uri} were changed by another writer in the meantime",
                    "Nothing was committed; run the job again",
                )
        if self.fragments and base.manifest.fields != self.read.manifest.fields:
            raise RowsChanged(
                f"the columns of {base.uri} were changed by another writer in the meantime",
                "Nothing was committed; run the job again",
            )


def commit_rows(
    engine: Engine,
    change: RowChange,
    commit: Commit,
    check: Callable[[Snapshot], None] | None = None,
    most: int = ATTEMPTS,
) -> Snapshot:
    """Commit a change on the newest version. `check` raises RowsChanged if the change is not valid there.

    Raises:
        RowsChanged: another writer changed the same rows; what was written is deleted.
        CommitConflict: other writers kept the commit from succeeding; what was written is deleted.
    """
    written: list[WrittenDeletion] = []
    try:
        for attempt in attempts(change.read, change.change, most=most):
            with attempt as base:
                change.check(base)
                if check is not None:
                    check(base)
                deletions = _write_deletions(engine, base, change.deleted, written)
                committed = commit(base, deletions)
                log_commit(committed, change.change, (), **change.counts)
                named = {deletion.fragment: deletion for deletion in deletions}
                discard_deletions(base.store, (each for each in written if named.get(each.fragment) is not each))
                return committed
    except StoreUnavailable:
        raise  # it is unknown whether a version names the files
    except PennonError:
        discard_deletions(change.read.store, written)
        discard_fragments(change.read.store, change.fragments, change.read.version)
        raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def repeated(snapshot: Snapshot, work: Callable[[Snapshot], T]) -> T:
    """The result of `work` on a version, or on a newer one if other writers changed the same rows in the meantime."""
    for number in range(1, ATTEMPTS + 1):
        try:
            return work(snapshot)
        except RowsChanged:
            if number == ATTEMPTS:
                raise
        snapshot = snapshot.latest()
    raise AssertionError("unreachable: the last attempt returns or raises")


def _write_deletions(
    engine: Engine, base: Snapshot, rows: Mapping[int, BitMap], written: list[WrittenDeletion]
) -> list[WrittenDeletion]:
    """A deletion vector for every fragment: a new one unless one was written for the same state of the fragment."""
    usable = {each.fragment: each for each in written if each.before == _current(base, each.fragment)}
    missing = sorted(rows.keys() - usable.keys())
    if len(missing) <= FEW_FILES:
        new = write_deletions(base, {fragment: rows[fragment] for fragment in missing})
    else:
        pieces = [missing[at : at + FEW_FILES] for at in range(0, len(missing), FEW_FILES)]
        tasks = [[(fragment, rows[fragment].serialize()) for fragment in piece] for piece in pieces]
        results = engine.map("mark deleted rows", partial(_write_some, base.pin()), tasks)
        new = [deletion for result in results for deletion in result]
    written += new
    usable |= {each.fragment: each for each in new}
    return [usable[fragment] for fragment in sorted(rows)]


def _write_some(pin: Pin, rows: list[tuple[int, bytes]]) -> list[WrittenDeletion]:
    """Task."""
    snapshot = pin.open()
    return write_deletions(snapshot, {fragment: BitMap.deserialize(content) for fragment, content in rows})


def _current(base: Snapshot, fragment: int) -> object:
    found = base.manifest.fragments.get(fragment)
    return None if found is None else found.deletion_file
