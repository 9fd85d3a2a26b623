"""Checks that the files of a segment exist with the sizes recorded in the manifest."""

from __future__ import annotations

from pennon.format.index_metadata import IndexSegment
from pennon.format.store import Store


def file_damage(store: Store, segment: IndexSegment) -> str | None:
    """A message about the first file that is missing or whose size differs from the record; None if there is none.
    Object stores report no sizes, so there a file of another size is found only when it is read."""
    present = {path.rpartition("/")[2] for path in store.list(segment.directory)}
    for file in segment.files:
        path = f"{segment.directory}/{file.path}"
        if file.path not in present:
            return f"{store.describe(path)} is missing"
        size = store.size(path)
        if size is not None and file.size_bytes and size != file.size_bytes:
            return f"{store.describe(path)} has {size:,} bytes, but its index recorded {file.size_bytes:,}"
    return None
