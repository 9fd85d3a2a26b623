"""Delete the files of jobs that fail: directories below `_indices/` that no manifest names."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from uuid import uuid4

from pennon.errors import PennonError, StoreUnavailable
from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.named_files import delete_unless_named
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

logger = logging.getLogger(__name__)


@contextmanager
def delete_on_failure(store: Store, uuid: str) -> Generator[None]:
    """Delete the files of a segment if writing them fails."""
    try:
        yield
    except BaseException:
        _delete(store, segment_directory(uuid), "its build failed")
        raise


@contextmanager
def delete_if_refused(snapshot: Snapshot, segments: Iterable[IndexSegment]) -> Generator[None]:
    """Delete the files of new segments if their commit is refused.

    Only then: an interruption, or an error of the store, may occur during the commit or after it, and the files of a
    committed version must stay. If it was not committed, they are orphans, which `clean_orphans` deletes.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except PennonError:
        directories = {segment.directory for segment in segments}
        fields = {"table": snapshot.uri, "directories": sorted(directories)}
        logger.warning("deleting files of segments whose commit was refused", extra=fields)
        delete_unless_named(snapshot.store, directories, snapshot.version)
        raise


def delete_segment_files(store: Store, segment: IndexSegment) -> None:
    """Delete the files of a temporary segment of a job, which no version names."""
    _delete(store, segment.directory, "temporary", segment.name, level=logging.DEBUG)


def delete_abandoned_files(store: Store, segment: IndexSegment) -> None:
    """Delete files in the directory of a committed segment that do not belong to it: abandoned attempts of tasks may
    have left them."""
    store.delete_directory(segment.directory, keep=segment.file_sizes)


@contextmanager
def scratch_directory(store: Store) -> Generator[str]:
    """A directory for temporary files of a job. No manifest names it, so a crash leaves an orphan."""
    directory = segment_directory(str(uuid4()))
    try:
        yield directory
    finally:
        _delete(store, directory, "scratch", level=logging.DEBUG)


def _delete(
    store: Store, directory: str, reason: str, index: str | None = None, *, level: int = logging.WARNING
) -> None:
    fields = {"table": store.location.shown, "directory": directory, "reason": reason, "index": index}
    logger.log(level, "deleting %s: %s", store.describe(directory), reason, extra=fields)
    store.delete_directory(directory)
