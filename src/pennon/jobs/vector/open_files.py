"""The files of existing segments, opened once per process."""

from __future__ import annotations

from functools import lru_cache

from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Pin
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import VectorFiles


def open_files(pin: Pin, segment: IndexSegment) -> VectorFiles:
    """Opened once per process: files never change."""
    return _open_files(pin.location, segment.directory, tuple(segment.file_sizes.items()))


@lru_cache(maxsize=128)
def _open_files(location: Location, directory: str, sizes: tuple[tuple[str, int], ...]) -> VectorFiles:
    return VectorFiles(open_store(location), directory, dict(sizes))
