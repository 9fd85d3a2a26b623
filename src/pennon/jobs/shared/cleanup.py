"""Directories below `_indices/` that belong to a running job."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from uuid import uuid4

from pennon.errors import PennonError, StoreUnavailable
from pennon.format.index_metadata import IndexSegment
from pennon.format.manifest import manifest_paths, read_manifest
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store


@contextmanager
def discarding(store: Store, uuid: str) -> Generator[None]:
    """Leave no files behind when a build fails."""
    try:
        yield
    except BaseException:
        store.delete_directory(f"_indices/{uuid}")
        raise


@contextmanager
def committing(snapshot: Snapshot, segments: Iterable[IndexSegment]) -> Generator[None]:
    """Leave no files of new segments behind when their commit is refused.

    Only then: an interruption, or an error of the store, may come when the commit is under way or done, and what a
    version names must stay. It is an orphan otherwise, found later.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except PennonError:
        for segment in segments:
            if not _may_be_named(snapshot, segment.uuid):
                snapshot.store.delete_directory(segment.directory)
        raise


def _may_be_named(snapshot: Snapshot, uuid: str) -> bool:
    """Whether a version since the given one names the segment, or that cannot be told."""
    store = snapshot.store
    try:
        since = [version for version in manifest_paths(store) if version > snapshot.version]
        return any(segment.uuid == uuid for version in since for segment in read_manifest(store, version).segments)
    except (PennonError, OSError):
        return True


@contextmanager
def scratch_directory(store: Store) -> Generator[str]:
    """A directory for what only the job itself needs. Unnamed by any manifest, so a crash leaves an orphan at most."""
    directory = f"_indices/{uuid4()}"
    try:
        yield directory
    finally:
        store.delete_directory(directory)
