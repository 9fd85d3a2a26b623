"""Directories below `_indices/` that belong to a running job."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from uuid import uuid4

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
def scratch_directory(store: Store) -> Generator[str]:
    """A directory for what only the job itself needs. Unnamed by any manifest, so a crash leaves an orphan at most."""
    directory = f"_indices/{uuid4()}"
    try:
        yield directory
    finally:
        store.delete_directory(directory)
