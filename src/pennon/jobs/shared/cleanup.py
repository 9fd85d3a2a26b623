"""Delete the files of jobs that fail: directories below `_indices/` that no manifest names."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from uuid import uuid4

from pennon.errors import PennonError, StoreUnavailable
from pennon.format.index_metadata import INDICES, IndexSegment, segment_directory
from pennon.format.named_files import delete_unless_named, log_deletion
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store

# Digits of a uuid that the segments of one job share: 60 random bits.
PREFIX_LENGTH = len("xxxxxxxx-xxxx-4xxx-")


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
        written = list(segments)
        directories = {segment.directory for segment in written}
        names = {segment.name for segment in written}
        delete_unless_named(snapshot.store, directories, snapshot.version, names)
        raise


def delete_segment_files(store: Store, segment: IndexSegment) -> None:
    """Delete the files of a temporary segment of a job, which no version names."""
    _delete(store, segment.directory, "temporary", segment.name, level=logging.DEBUG)


def delete_abandoned_files(store: Store, segment: IndexSegment) -> None:
    """Delete files in the directory of a committed segment that do not belong to it: abandoned attempts of tasks may
    have left them."""
    removed = store.delete_directory(segment.directory, keep=segment.file_sizes)
    if removed:
        log_deletion(store, removed, "abandoned attempts of tasks", {segment.name}, level=logging.INFO)


def attempt_uuid(scratch: str) -> str:
    """A uuid for the segment that an attempt of a task writes. It begins like the scratch directory of its job, so that
    the job finds what its tasks have written even if their results are lost."""
    return f"{_attempt_prefix(scratch)}{str(uuid4())[PREFIX_LENGTH:]}"


@contextmanager
def delete_attempts_on_failure(store: Store, scratch: str) -> Generator[None]:
    """If the tasks within fail, or are interrupted, delete the segments that they have written under `attempt_uuid`."""
    try:
        yield
    except BaseException:
        _delete_attempts(store, scratch)
        raise


@contextmanager
def scratch_directory(store: Store) -> Generator[str]:
    """A directory for temporary files of a job. No manifest names it, so a crash leaves an orphan."""
    directory = segment_directory(str(uuid4()))
    try:
        yield directory
    finally:
        _delete(store, directory, "scratch", level=logging.DEBUG)


def _attempt_prefix(scratch: str) -> str:
    return scratch.rpartition("/")[2][:PREFIX_LENGTH]


def _delete_attempts(store: Store, scratch: str) -> None:
    try:
        found = [name for name in store.directories(INDICES) if name.startswith(_attempt_prefix(scratch))]
        for name in found:
            if segment_directory(name) != scratch:
                _delete(store, segment_directory(name), "its build failed")
    except (PennonError, OSError):
        return  # they are orphans, which `clean_orphans` deletes


def _delete(
    store: Store, directory: str, reason: str, index: str | None = None, *, level: int = logging.WARNING
) -> None:
    if store.delete_directory(directory):
        log_deletion(store, {directory}, reason, {index} if index else (), level=level)
