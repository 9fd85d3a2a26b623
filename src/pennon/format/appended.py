"""The rows that each version of a table added, in the order of versions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pennon.errors import CommitConflict, TableNotFound, UnsupportedTable
from pennon.format.manifest import Manifest, read_manifest
from pennon.format.store import Store
from pennon.format.transactions import MERGE, NAMES, OVERWRITE, RESTORE, UPDATE, Transaction, read_transaction

NEW_CHECKPOINT = "Start a new query, with a new checkpoint"


class Updates(StrEnum):
    """What a version gives that rewrites rows, and may insert others (`update`, `merge_insert`)."""

    FAIL = "fail"
    SKIP = "skip"
    ROWS = "rows"


@dataclass(frozen=True)
class Added:
    """The fragments that a version added, and the rows that they had in it."""

    version: int
    fragments: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.fragments)


def all_rows(store: Store, version: int) -> Added:
    """Everything that a version has."""
    return _of(_manifest(store, version), None)


def added_rows(store: Store, version: int, updates: Updates, *, first: bool = False) -> Added:
    """What a version added to the one before it: nothing, for compactions, indices, deletions and changes of columns or
    of configuration. The `first` version of a stream may be one that created the table.

    Raises:
        TableNotFound: the version was cleaned up.
        CommitConflict: the table was overwritten or restored, or rows were updated and `updates` is `fail`.
        UnsupportedTable: it is unknown what the version changed.
    """
    transaction = _transaction(store, version)
    where = f"version {version} of {store.location.shown}"
    if transaction.operation in (OVERWRITE, RESTORE) and not (first and transaction.operation == OVERWRITE):
        raise CommitConflict(
            f"{where} was made by {transaction.name}: the rows before it are no longer the table's", NEW_CHECKPOINT
        )
    if transaction.operation not in NAMES:
        raise UnsupportedTable(f"{where} was made by an {transaction.name}: the rows it added are unknown")
    if transaction.operation == MERGE:
        return _merged(store, version)
    if not transaction.added_files:
        return Added(version)
    if transaction.operation == UPDATE and updates is not Updates.ROWS:
        if updates is Updates.SKIP:
            return Added(version)
        raise CommitConflict(
            f"{where} updated rows, and may have inserted others",
            "Set the option on_update: to skip for none of them, to rows for all that were written",
        )
    return _of(_manifest(store, version), transaction)


def _of(manifest: Manifest, transaction: Transaction | None) -> Added:
    """The fragments of a version; with a transaction, those that have its files."""
    found = [
        (fragment.id, fragment.live_rows)
        for fragment in manifest.fragments.values()
        if transaction is None or transaction.added_files.intersection(fragment.field_files.values())
    ]
    return Added(manifest.version, tuple(sorted(pair for pair in found if pair[1])))


def _merged(store: Store, version: int) -> Added:
    """New columns of all fragments, as a rule; the operation may add fragments as well."""
    before, after = _manifest(store, version - 1), _manifest(store, version)
    new = [(f.id, f.live_rows) for f in after.fragments.values() if f.id > before.max_fragment_id]
    return Added(version, tuple(new))


def _transaction(store: Store, version: int) -> Transaction:
    try:
        return read_transaction(store, version)
    except TableNotFound as error:
        raise _gone(store, version) from error


def _manifest(store: Store, version: int) -> Manifest:
    try:
        return read_manifest(store, version)
    except TableNotFound as error:
        raise _gone(store, version) from error


def _gone(store: Store, version: int) -> TableNotFound:
    return TableNotFound(
        f"version {version} of {store.location.shown} was cleaned up before the stream read it",
        f"Keep old versions for longer than a stream may stop. {NEW_CHECKPOINT}",
    )
