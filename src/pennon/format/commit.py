"""One atomic change of a table's index segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import lance
from lance.commit import CommitConflictError
from lance.dataset import Index as LanceIndex
from lance.dataset import IndexFile as LanceIndexFile
from lance.dataset import Transaction as LanceTransaction

from pennon.errors import CommitConflict, InvalidArgument, PennonError, StoreUnavailable, UnsupportedTable
from pennon.format.failures import first_line, store_failure
from pennon.format.index_metadata import FRAGMENT_REUSE_NAME, IndexSegment
from pennon.format.manifest import FLAG_TAGGED_REUSE
from pennon.format.snapshot import Snapshot
from pennon.secrets import redact_exception


class RetryableConflict(CommitConflict):
    """Another writer committed in between; the same change may succeed on the newest version."""


def commit_segments(base: Snapshot, add: Sequence[IndexSegment], remove: Sequence[IndexSegment]) -> Snapshot:
    """Commit on top of `base`: delete the segments of `remove`, and add those of `add` or, with an existing uuid,
    replace the entry.

    pylance validates next to nothing of this; the caller must have validated it against `base`.
    """
    touches_reuse = any(s.name == FRAGMENT_REUSE_NAME for s in (*add, *remove))
    if touches_reuse and base.manifest.reader_flags & FLAG_TAGGED_REUSE:
        raise UnsupportedTable(
            f"the Fragment Reuse Index of {base.uri} has the newer tagged form, which Pennon reads but does not write",
            "Use the tool that wrote it",
        )
    return commit_operation(
        base, lance.LanceOperation.CreateIndex([_to_lance(s) for s in add], [_to_lance(s) for s in remove])
    )


def commit_operation(
    base: Snapshot, operation: lance.LanceOperation.BaseOperation, properties: Mapping[str, str] | None = None
) -> Snapshot:
    """One transaction on top of `base`, with `properties`. After a `StoreUnavailable` it is unknown whether it was
    committed."""
    try:
        committed = lance.LanceDataset.commit(
            base.location.uri,
            LanceTransaction(base.version, operation, transaction_properties=dict(properties or {})),
            storage_options=base.location.storage_options,
        )
    except PennonError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise_conflict(base, error)
    return Snapshot.of(base.location, committed)


def _to_lance(segment: IndexSegment) -> LanceIndex:
    return LanceIndex(
        uuid=segment.uuid,
        name=segment.name,
        fields=list(segment.fields),
        dataset_version=segment.dataset_version,
        fragment_ids=set(segment.fragments),  # pyright: ignore[reportArgumentType]
        index_version=segment.index_version,
        created_at=segment.created_at,
        base_id=segment.base_id,
        files=[LanceIndexFile(f.path, f.size_bytes) for f in segment.files] or None,
        index_details=(segment.type_url, segment.details),
        covering_fields=list(segment.covering_fields),
    )


def raise_conflict(base: Snapshot, error: Exception) -> NoReturn:
    """Translate pylance's error for a failed commit."""
    redact_exception(error)
    line = first_line(error)
    if "split of indexed and non-indexed" in line:
        raise InvalidArgument(
            f"a segment covers part of a compacted group of {base.uri}", "Drop its coverage first, then commit it again"
        ) from error
    if line.startswith(("Retryable", "Commit conflict")) or "would produce two fragments with id" in line:
        raise RetryableConflict(f"{base.uri} changed during the commit: {line}", "Try again") from error
    if isinstance(error, CommitConflictError) or line.startswith("Incompatible"):
        raise CommitConflict(
            f"{base.uri} was overwritten or restored during the commit: {line}", "Run the job again on the new table"
        ) from error
    failure = store_failure(error, f"a commit to {base.uri}")
    if failure is not None:
        unknown = f"{failure.problem}; it is unknown whether the commit succeeded"
        raise StoreUnavailable(
            unknown, "Check the newest version, then run the job again", failure.retryable
        ) from error
    raise error
