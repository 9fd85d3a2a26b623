"""Appends that happen once: each is a batch of a stream, named by the stream and a number that grows.

The commit of a batch names both in its transaction, so that a batch that is repeated is recognised. Transactions are
deleted with old versions, so the table's configuration has an entry for each stream, too: before a batch is appended,
it records the number and the newest version. A batch with a higher number was never attempted. The same number was
appended if a version since then has it; where one of those versions was cleaned up, that is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import lance
from lance.fragment import FragmentMetadata

from pennon.errors import CommitConflict, DamagedTable
from pennon.format.append import Target
from pennon.format.commit import commit_operation
from pennon.format.snapshot import Snapshot
from pennon.format.transactions import APPEND, Transaction, lineage, read_transaction

# In the properties of a transaction, and the start of the keys in the table's configuration.
STREAM, BATCH = "pennon.stream", "pennon.batch"


class UnknownBatch(StrEnum):
    """What to do with a batch if it is unknown whether it was appended."""

    FAIL = "fail"
    SKIP = "skip"
    APPEND = "append"


@dataclass(frozen=True)
class Batch:
    """A batch of a stream. Numbers grow from batch to batch, and only the last one is ever repeated."""

    stream: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """What the transaction records."""
        return {STREAM: self.stream, BATCH: str(self.number)}

    @property
    def key(self) -> str:
        """The stream's entry in the table's configuration."""
        return f"{STREAM}.{self.stream}"

    def __str__(self) -> str:
        return f"batch {self.number} of stream {self.stream}"


@dataclass(frozen=True)
class Attempt:
    """The last batch that a stream began to append, and the newest version before that."""

    number: int
    after: int

    def to_json(self) -> str:
        return json.dumps({"batch": self.number, "after_version": self.after})

    @classmethod
    def of(cls, snapshot: Snapshot, key: str) -> Attempt | None:
        """Raises DamagedTable for an entry that is not one of Pennon's."""
        text = snapshot.dataset.config().get(key)
        if text is None:
            return None
        try:
            found = json.loads(text)
            return cls(int(found["batch"]), int(found["after_version"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedTable(
                f"the configuration of {snapshot.uri} has {key} = {text!r}, which is not the state of a stream",
                "Restore the entry, or start the stream with another checkpoint",
            ) from error


def commit_batch(target: Target, batch: Batch, fragments: Sequence[str], unknown: UnknownBatch) -> int | None:
    """Append the fragments of a batch, and return the new version; None if the batch was appended before.

    Raises:
        CommitConflict: a later batch was appended before, another run of the stream is at work, it is unknown whether
            this batch was appended, or the table changed so that its rows no longer fit.
    """
    base = Snapshot.open(target.location)
    last = Attempt.of(base, batch.key)
    if last is not None and last.number > batch.number:
        raise CommitConflict(
            f"{batch} was to be appended to {base.uri} after batch {last.number}",
            "The checkpoint is older than the table, or new and used with the txn_app_id of another: continue with the "
            "newest checkpoint, or take a new txn_app_id",
        )
    if last is not None and last.number == batch.number:
        if _was_appended(base, batch, last.after, unknown):
            return None
        attempt = last
    else:
        attempt = Attempt(batch.number, base.version)
        entry = lance.LanceOperation.UpdateMap({batch.key: attempt.to_json()})
        base = commit_operation(base, lance.LanceOperation.UpdateConfig(config_updates=entry))
    found = [FragmentMetadata.from_json(text) for text in fragments]
    written = base if target.version is None else Snapshot.open(target.location, target.version)
    committed = commit_operation(written, lance.LanceOperation.Append(found), batch.properties)
    _check_once(committed, batch, attempt.after)
    return committed.version


def _was_appended(base: Snapshot, batch: Batch, after: int, unknown: UnknownBatch) -> bool:
    gone = False
    for transaction in lineage(base.store, base.version, after):
        if transaction is None:
            gone = True
        elif _is_of(transaction, batch):
            return True
    if gone and unknown is UnknownBatch.FAIL:
        raise CommitConflict(
            f"it is unknown whether {batch} was appended to {base.uri}: versions after {after} were cleaned up",
            "Look for its rows in the table, then start the stream once with the option unknown_batch=skip if they are "
            "there, or unknown_batch=append if not",
        )
    return gone and unknown is UnknownBatch.SKIP


def _check_once(committed: Snapshot, batch: Batch, after: int) -> None:
    """Appends never conflict, so two runs of one stream may both append a batch. The later one takes it back."""
    others = lineage(committed.store, committed.version - 1, after)
    twin = next((found for found in others if found is not None and _is_of(found, batch)), None)
    if twin is None:
        return
    own = read_transaction(committed.store, committed.version).added_files
    added = [f.id for f in committed.manifest.fragments.values() if own.intersection(f.field_files.values())]
    commit_operation(committed, lance.LanceOperation.Delete([], added, f"{batch}, appended twice"))
    raise CommitConflict(
        f"another run of the stream appended {batch} to {committed.uri} at the same time, in version {twin.version}; "
        "these rows were removed again",
        "Stop one of the two runs",
    )


def _is_of(transaction: Transaction, batch: Batch) -> bool:
    return transaction.operation == APPEND and batch.properties.items() <= transaction.properties.items()
